"""Functions computed by the second party on permuted values; the dealer is offline.

The first party (the owner of the model) alone knows the order. The dealer, who draws the order
with it, makes randomness by which the second party's share gets into that order without the second
party learning it (the correlation of Mohassel, Rindal and Rosulek 2020 for a permutation held by
one party; seed 000, algorithms 6.3 and 6.4). The second party adds up, applies the function to
clear numbers and sends the result back under a mask.
"""

from dataclasses import dataclass, replace

from torch import Tensor

from tacit.mpc import narrow
from tacit.mpc.arithmetic.local import numeric_share
from tacit.mpc.contract import Channel, Declaration, Roles
from tacit.mpc.material.randomness import Parts
from tacit.mpc.permuted.hiding import FlipsAndDummies, PermutedInstance, extend, flip, unflip
from tacit.mpc.permuted.protocol import SeenKernel, permuted_protocol
from tacit.mpc.permuted.view import PermutedView, take
from tacit.mpc.protocol import TWO_SERVERS
from tacit.mpc.share import AnyShare, AnySpec, Share
from tacit.party.cost import CostedMessage
from tacit.result import Claim
from tacit.ring import Prg


@dataclass(frozen=True)
class OrderMask:
    """An order π, flips and dummies that P0 knows, and masks that follow them there and back.

    P0 has π, δ, γ, signs σ and dummies; P1 has r, q, s = π[σr] - δ (-δ in the places of dummies)
    and t = σπ⁻¹[q] - γ. P1's four are uniform and say nothing about π and σ. Where a result needs
    x itself to undo a sign, t holds P1's part of that too.
    """

    instance: PermutedInstance

    def first(self, prg: Prg) -> Parts:
        """Draw π, its inverse, δ, γ, the signs and the dummies."""
        order, back = self.instance.draw_order(prg)
        delta = prg.words((self.instance.layout.elements,))
        gamma = prg.words((self.instance.out.elements,))
        return order, back, delta, gamma, *self.instance.draw_flips_and_dummies(prg)

    def second(self, prg: Prg) -> Parts:
        """Draw r and q."""
        return prg.words((self.instance.x.elements,)), prg.words((self.instance.answered,))

    def correction(self, first: Parts, second: Parts) -> Parts:
        """Compute s and t."""
        order, back, delta, gamma, signs, dummies = first
        r, q = second
        symmetry = self.instance.symmetry
        flipped = r if symmetry is None else flip(r, signs)
        s = take(extend(flipped, dummies, is_first=False), order).sub_(delta)
        t = take(q, back)
        if symmetry is not None:
            t = unflip(t, r, signs, symmetry=symmetry, one=0)
        return s, t.sub_(gamma)

    def correction_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return the shapes of s and t."""
        return (self.instance.layout.elements,), (self.instance.out.elements,)


@dataclass(frozen=True)
class SeenBySecond(SeenKernel):
    """Apply a function through P1.

    Guarantee: P0 and the dealer see nothing. P1 sees every input of this call in the clear, in an
    order that is uniformly random and unknown to it: **the multiset of values leaks to P1** (of a
    function of rows: the multiset of the multisets that make up the rows), apart from what the
    flips and dummies hide.
    Cost: 3 messages, of which the first rides along with whatever P1 sent last, so that functions
    that follow each other take one round trip each; as many bytes per element as its bound needs
    (4 to 8) from P1 to P0 and from P0 to P1, and 8 bytes per element of the result from P1 to P0.
    Of an input of P0 the first message is sent when the input is shared and counts as offline:
    P1's share of it is drawn, and waits for no query. Offline 8 bytes per element and per element
    of the result. Exact up to rounding.
    """

    view: PermutedView
    hiding: FlipsAndDummies
    is_handed: bool = False
    seat = "second"
    why = "permuted2: the second party computes the function on permuted values"

    def declare(self, roles: Roles, *operands: AnySpec) -> Declaration:
        """Say what comes out, what is needed and what is sent."""
        instance = self.instance(operands[0])
        handed = CostedMessage(
            roles.second, roles.first, _handed_size(instance) * instance.x.elements
        )
        shown = instance.size * instance.layout.elements
        return Declaration(
            out=instance.out,
            needs=(OrderMask(instance),),
            offline=((handed,),) if self.is_handed else (),
            rounds=(
                *(() if self.is_handed else ((handed,),)),
                (CostedMessage(roles.first, roles.second, shown),),
                (CostedMessage(roles.second, roles.first, narrow.WORD_BYTES * instance.answered),),
            ),
            leaks=(self.leak(instance, roles),),
        )

    def handed(self) -> "SeenBySecond":
        """Let P1's share be handed over when the operand is shared."""
        return replace(self, is_handed=True)

    def hand(self, channel: Channel, drawn: tuple[Parts, ...], operand: AnyShare) -> Parts:
        """Hand P1's share over under a mask: P0 then knows x - r."""
        instance, size = self.instance(operand.spec), _handed_size(self.instance(operand.spec))
        mine = instance.view.spread(numeric_share(operand).words)
        if channel.is_first:
            shape, dtype = narrow.wire(len(mine), size)
            recv = channel.recv_early if self.is_handed else channel.recv
            return (narrow.uncut(recv(channel.other, shape, dtype=dtype), size).add_(mine),)
        send = channel.send_early if self.is_handed else channel.send
        send(channel.other, narrow.cut(mine - drawn[0][0], size))
        return ()

    def run(self, channel: Channel, material: tuple[Parts, ...], *operands: AnyShare) -> AnyShare:
        """Do P0's part, who orders, or P1's, who sees."""
        instance = self.instance(operands[0].spec)
        parts, *handed = (
            material if self.is_handed else (*material, self.hand(channel, material, operands[0]))
        )
        channel.session.ledger.record(self.leak(instance, channel.roles))
        if channel.is_first:
            answer = _order(channel, instance, parts, handed[0][0])
        else:
            answer = _see(channel, instance, parts)
        return Share(instance.view.gather(answer, instance.x), instance.out)


def _order(channel: Channel, instance: PermutedInstance, material: Parts, known: Tensor) -> Tensor:
    """Put x - r into my order, show it under a mask, and undo both on the answer."""
    order, back, delta, gamma, signs, dummies = material
    shown = known if instance.symmetry is None else flip(known, signs)
    shown = take(extend(shown, dummies, is_first=True), order).add_(delta)
    channel.send(channel.other, narrow.cut(shown, instance.size))
    answer = take(channel.recv(channel.other, (instance.answered,)), back)
    if instance.symmetry is not None:
        one = 1 << instance.out.frac_bits
        answer = unflip(answer, known, signs, symmetry=instance.symmetry, one=one)
    return answer.add_(gamma)


def _see(channel: Channel, instance: PermutedInstance, material: Parts) -> Tensor:
    """Compute on what comes back in another order."""
    _, q, s, t = material
    shape, dtype = narrow.wire(instance.layout.elements, instance.size)
    low = narrow.low(s, instance.size)
    seen = narrow.sign_extended_sum(
        channel.recv(channel.other, shape, dtype=dtype), low, instance.size
    )
    channel.send(channel.other, instance.view.evaluate(seen, instance.x).sub_(q))
    return t


def _handed_size(instance: PermutedInstance) -> int:
    """Return how many bytes of its share P1 hands over: all, if x itself has to be added again."""
    symmetry = instance.symmetry
    return narrow.WORD_BYTES if symmetry is not None and symmetry.slope else instance.size


def _claims(hiding: FlipsAndDummies) -> tuple[Claim, ...]:
    return (
        Claim(
            subject="inputs and intermediate values, towards P0 (the first computing party)",
            guarantee="it sees only uniformly random words and the declared outputs",
            assumptions=TWO_SERVERS,
        ),
        Claim(
            subject="the inputs of non-linear functions, towards P1 (the second computing party)",
            guarantee="no guarantee",
            assumptions=(
                "P1 sees these values in random order, fresh in every call; a value that "
                "comes again is recognised; what it can infer depends on how many there are "
                "and on what it knows already: let the owner of the data be P1, so that what "
                "is at risk is the model",
                "the dealer knows the orders; it does not tell P1",
                "P1 follows the protocol: a malicious one undoes the orders by tagging what it "
                "hands over, sees every value in its place, and is not noticed",
                *hiding.assumptions(),
            ),
        ),
    )


PROTOCOL = permuted_protocol("permuted2", SeenBySecond, _claims)
