"""Functions computed by a helper on permuted values (seed 000, algorithm 5.2).

P0 and P1 permute their shares with a permutation that only they know; the helper puts the shares
together, applies the function to clear numbers and shares the result again. One repair: the
helper here is also the dealer, who knows the triples behind the shares, so two raw shares of a
product would give it two equations in the masked operands. P0 and P1 therefore add and subtract
a fresh common mask before they send; the helper sees the sum and nothing else.
"""

from dataclasses import dataclass

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


@dataclass(frozen=True)
class SeenByHelper(SeenKernel):
    """Apply a function through the helper.

    Guarantee: P0 and P1 see nothing. The helper sees every input of this call in the clear, in
    an order that is uniformly random and unknown to it: **the multiset of values leaks** (of a
    function of rows: the multiset of the multisets that make up the rows), apart from what the
    flips and dummies hide.
    Cost: 2 rounds; as many bytes per element as its bound needs (4 to 8) from P0 and from P1 to
    the helper, and 8 bytes per element of the result from it to P1. Exact up to rounding.
    """

    view: PermutedView
    hiding: FlipsAndDummies
    seat = "dealer"
    why = "permuted3: the helper computes the function on permuted values"

    def declare(self, roles: Roles, *operands: AnySpec) -> Declaration:
        """Say what comes out and what is sent."""
        instance = self.instance(operands[0])
        shown = instance.size * instance.layout.elements
        answer = narrow.WORD_BYTES * instance.answered
        return Declaration(
            out=instance.out,
            rounds=(
                tuple(CostedMessage(sender, roles.dealer, shown) for sender in roles.computing),
                (CostedMessage(roles.dealer, roles.second, answer),),
            ),
            leaks=(self.leak(instance, roles),),
        )

    def prepare(self, channel: Channel, *operands: AnySpec) -> Parts:
        """Draw everything that depends on no input: orders, masks, signs, dummies."""
        instance = self.instance(operands[0])
        common = channel.shared(channel.other)
        order, back = instance.draw_order(common)
        mask = common.words((instance.layout.elements,))
        signs, dummies = instance.draw_flips_and_dummies(common)
        blind = _blind(channel, channel.roles.dealer, instance) if channel.is_first else mask[:0]
        return order, back, mask, signs, dummies, blind

    def run(self, channel: Channel, material: tuple[Parts, ...], *operands: AnyShare) -> AnyShare:
        """Send my permuted, re-masked share; take my share of the answer back into order."""
        instance, words = self.instance(operands[0].spec), numeric_share(operands[0]).words
        ((order, back, mask, signs, dummies, blind),) = material
        words = instance.view.spread(words)
        shown = words if instance.symmetry is None else flip(words, signs)
        shown = take(extend(shown, dummies, is_first=channel.is_first), order)
        shown = shown.add_(mask) if channel.is_first else shown.sub_(mask)
        channel.send(channel.roles.dealer, narrow.cut(shown, instance.size))
        channel.session.ledger.record(self.leak(instance, channel.roles))
        if not channel.is_first:
            blind = channel.recv(channel.roles.dealer, (instance.answered,))
        answer, out = take(blind, back), instance.out
        if instance.symmetry is not None:
            one = 1 << out.frac_bits if channel.is_first else 0
            answer = unflip(answer, words, signs, symmetry=instance.symmetry, one=one)
        return Share(instance.view.gather(answer, instance.x), out)

    def attend(self, channel: Channel, *operands: AnySpec) -> None:
        """Compute the function on permuted values, as the helper."""
        roles, instance = channel.roles, self.instance(operands[0])
        channel.session.ledger.record(self.leak(instance, roles))
        if channel.me != roles.dealer:
            return
        size = instance.size
        shape, dtype = narrow.wire(instance.layout.elements, size)
        blind = _blind(channel, roles.first, instance)
        left, right = (channel.recv(sender, shape, dtype=dtype) for sender in roles.computing)
        seen = narrow.sign_extend(narrow.uncut(left, size) + narrow.uncut(right, size), size)
        channel.send(roles.second, instance.view.evaluate(seen, instance.x).sub_(blind))


def _blind(channel: Channel, peer: str, instance: PermutedInstance) -> Tensor:
    """Draw P0's share of the answer, which hides it from P1; P0 and the helper both do."""
    return channel.shared(peer).words((instance.answered,)).to(channel.device)


def _claims(hiding: FlipsAndDummies) -> tuple[Claim, ...]:
    return (
        Claim(
            subject="inputs and intermediate values, towards the two computing parties",
            guarantee="each sees only uniformly random words and the declared outputs",
            assumptions=TWO_SERVERS,
        ),
        Claim(
            subject="the inputs of non-linear functions, towards the helper",
            guarantee="no guarantee",
            assumptions=(
                "the helper sees these values in random order, fresh in every call; a value "
                "that comes again is recognised; what it can infer depends on how many there "
                "are and on what it knows already",
                *hiding.assumptions(),
            ),
        ),
    )


PROTOCOL = permuted_protocol("permuted3", SeenByHelper, _claims)
