"""Where secrets of a checked computation enter and leave.

An input of P0 or P1 enters by `OpenTagged`. Anyone else gets from the dealer a mask of which P0
and P1 have shares: an owner tells both its value less the mask, a receiver is told by both the
result plus the mask. As one of the two is honest, what both say alike is right.

An owner's promise of a bound can be checked on shares. A word beyond its bound is an input like any
other to tags; but products of it wrap around, and an output then tells other things than planned.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tacit import ring
from tacit.errors import CheatingError, InputError
from tacit.mpc.boundary import WORD_BYTES, Input, Open, encode_input, reveal
from tacit.mpc.contract import Channel, Declaration, Roles
from tacit.mpc.functions.curve import PiecewiseCurve
from tacit.mpc.material.randomness import OpeningMask, Parts
from tacit.mpc.protocol import Boundary
from tacit.mpc.protocols.checked import tags, wide
from tacit.mpc.protocols.checked.pending import TaggedOpening, TaggedShare, tagged
from tacit.mpc.protocols.checked.piecewise import PiecewiseTagged
from tacit.mpc.protocols.checked.product import Enter, OpenTagged, tagged_mask
from tacit.mpc.protocols.checked.proofs import MutualCheck, Proofs, proofs_of
from tacit.mpc.protocols.sealed.compare import Comparison
from tacit.mpc.share import WORD_BITS, AnyShare, AnySpec, Mask, OpeningSpec, Share, Spec
from tacit.party import Session
from tacit.party.cost import CostedMessage, Round, exchange
from tacit.party.session import CHEATED
from tacit.ring import Prg

_DIGEST_BYTES = 32


@dataclass(frozen=True)
class Authenticated(Boundary):
    """The boundary of parties of whom one may cheat: what enters gets tags, what leaves is checked.

    ``checks_bounds`` tells that inputs are compared with their bounds as they enter.
    """

    checks_bounds: bool = False

    @property
    def check(self) -> MutualCheck:
        """Return the step that proves all messages since the last one."""
        return MutualCheck()

    def begin(self, session: Session, roles: Roles) -> Proofs:
        """Keep my secret, and what is still to be checked."""
        is_first = session.me == roles.first
        return Proofs(tags.draw_keys(session.shared(roles.dealer), is_first=is_first))

    def input(self, ops: Any, step: Input) -> Any:
        """Bring in an input: of P0 or P1 it is opened under a mask where it is first used."""
        if step.owner in ops.roles.computing:
            value = ops.shared(step)
            ops.notes.put(value, "raw", True)
        else:
            opening = ops.hear(TellInput(step.owner, step.name, step.spec))
            value = _entered(ops, opening)
        if self.checks_bounds:
            with ops.aside():
                to = ops.roles.computing
                check_bound(ops, value, owner=step.owner, name=step.name, to=to)
        return value

    def entered(self, ops: Any, value: Any) -> Any:
        """Make a share with tags of an input of P0 or P1, once."""
        if not ops.notes.get(value, "raw"):
            return value
        return ops.once(value, "share", lambda: _entered(ops, ops.opening_of(value)))

    @property
    def opening(self) -> type[OpenTagged]:
        """Return that with tags."""
        return OpenTagged

    def open(self, ops: Any, step: Open, value: Any) -> Tensor | None:
        """Check what was sent, reveal, check that before anyone uses it, and tell others."""
        # The first check is for secrecy: a wrong word in a product makes the output another
        # function of the inputs, not to be shown. The second is for the words of the opening.
        ops.check()
        number, checked = ops.position, OpenChecked(step.to, step.what, step.why)
        found: Tensor | None = ops.act(checked, value)
        ops.check()
        if checked.outside(ops.roles):
            ops.act(Deliver(checked, number), value)
        return found

    def resumed(self, name: str, share: Share, kept: AnyShare | None) -> Share:
        """Take up the tags that were kept with a share."""
        if not isinstance(kept, TaggedShare):
            raise InputError(
                f"{name!r} was kept without the tags that 'checked' needs: what comes from a "
                "file, from a client or from another session has none; use protocol 'sealed'"
            )
        return TaggedShare(share.words, share.spec, kept.numbers)

    def refuse(self, what: str) -> None:
        """Refuse what has no tags."""
        raise InputError(f"'checked' has no {what}")


def _entered(ops: Any, opening: Any) -> Any:
    """Make a share with tags of what is open under a mask with tags."""
    share = ops.apply(Enter(), opening)
    ops.notes.put(share, "opening", opening)
    return share


@dataclass(frozen=True)
class TellInput(Input):
    """Bring in the tensor of an owner who does not compute.

    Guarantee: P0 and P1 see the input less a uniform mask; an owner that tells them different
    things is noticed at the next check.
    Cost: 1 round, 8 bytes per element to P0 and to P1; as many from the dealer, offline.
    """

    def declare(self, roles: Roles, *_: AnySpec) -> Declaration:
        """Say what is sent."""
        size = WORD_BYTES * self.spec.elements
        told = tuple(CostedMessage(self.owner, one, size) for one in roles.computing)
        return Declaration(
            out=self.spec,
            needs=(tagged_mask(0, self.spec.shape, None),),
            rounds=(told,),
            offline=_mask_rounds((self.owner,), roles, self.spec),
        )

    def tell(
        self, roles: Roles, streams: tuple[Prg, Prg], *_: AnySpec
    ) -> Iterator[tuple[str, Tensor]]:
        """Tell the owner the mask, as the dealer."""
        for one in _outside((self.owner,), roles):
            yield one, _whole_mask(streams, self.spec.shape)

    def opening(self, step: int, roles: Roles) -> OpeningSpec:
        """Describe the masked opening that this gives, if it is that step of a plan."""
        spec = self.spec
        mask = Mask(step=step, place=0, shape=spec.shape, holder=None)
        return OpeningSpec(
            shape=spec.shape, frac_bits=spec.frac_bits, largest=spec.largest, mask=mask
        )

    def run(  # type: ignore[override] # nobody who computes has the input
        self, channel: Channel, material: tuple[Parts, ...]
    ) -> TaggedOpening:
        """Hear the input less its mask, as P0 or P1."""
        need = tagged_mask(0, self.spec.shape, None)
        (own,), (mask_tags,) = need.read(material[0], is_first=channel.is_first)
        told = channel.recv(self.owner, self.spec.shape)
        proofs_of(channel).heard(told)
        spec = self.opening(channel.step, channel.roles)
        return TaggedOpening(told, own, None, spec, numbers=mask_tags.wide())

    def attend(self, channel: Channel, values: Tensor | None) -> None:
        """Tell P0 and P1 the input less its mask, as its owner."""
        if self.owner != channel.me:
            return
        words = encode_input(self, values).to(channel.device)
        told = words - told_mask(channel, self.spec.shape)
        for one in channel.roles.computing:
            channel.send(one, told)


@dataclass(frozen=True)
class OpenChecked(Open):
    """Reveal a value to the named parties, after one check and before another.

    Guarantee: a receiver learns the value and nothing else. P0 or P1 get the share they miss;
    what others will be told is opened between P0 and P1 under a mask.
    Cost: 1 round, 8 bytes per element to each receiver that computes, and 8 each way if there are
    others.
    """

    def declare(self, roles: Roles, *operands: AnySpec) -> Declaration:
        """Say what is sent."""
        spec = _number(operands[0])
        size = WORD_BYTES * spec.elements
        inside = tuple(
            CostedMessage(sender, receiver, size)
            for sender, receiver in (roles.computing, roles.computing[::-1])
            if receiver in self.to
        )
        outside = self.outside(roles)
        masked = exchange(*roles.computing, size) if outside else ()
        return Declaration(
            out=None,
            needs=(tagged_mask(0, spec.shape, None),) if outside else (),
            rounds=((*inside, *masked),),
            offline=_mask_rounds(self.to, roles, spec) if outside else (),
            leaks=self.leaks(spec),
        )

    def outside(self, roles: Roles) -> tuple[str, ...]:
        """Name the receivers who do not compute."""
        return tuple(one for one in self.to if one not in roles.computing)

    def tell(
        self, roles: Roles, streams: tuple[Prg, Prg], *operands: AnySpec
    ) -> Iterator[tuple[str, Tensor]]:
        """Tell the receivers who do not compute the mask, as the dealer."""
        for one in _outside(self.to, roles):
            yield one, _whole_mask(streams, _number(operands[0]).shape)

    def run(self, channel: Channel, material: tuple[Parts, ...], share: AnyShare) -> Tensor | None:
        """Exchange; give the value if I am a receiver, and keep what others are to be told.

        Neither may be used before it has been checked.
        """
        share = tagged(share)
        channel.session.ledger.record(*self.leaks(share.spec))
        proofs, other, words = proofs_of(channel), channel.other, share.words.contiguous()
        if other in self.to:
            channel.send(other, words)
            proofs.sent(share.numbers)
        masked = None
        if self.outside(channel.roles):
            need = tagged_mask(0, share.spec.shape, None)
            (own,), (mask_tags,) = need.read(material[0], is_first=channel.is_first)
            masked = words + own
            channel.send(other, masked)
        value = None
        if channel.me in self.to:
            theirs = channel.recv(other, tuple(words.shape))
            proofs.received(share.numbers, theirs)
            value = reveal(share.spec, words, theirs)
        if masked is not None:
            theirs = channel.recv(other, tuple(words.shape))
            proofs.exchanged(wide.carry(share.numbers + mask_tags.wide()), theirs)
            proofs.to_tell[channel.step] = masked + theirs
        return value

    def attend(self, channel: Channel, spec: AnySpec) -> Tensor | None:
        """Do nothing: what a receiver outside gets comes with `Deliver`."""
        return None


@dataclass(frozen=True)
class Deliver:
    """Tell receivers who do not compute what has been checked: a word of P0's, a hash of P1's.

    Guarantee: a receiver learns the value and nothing else, and that it is right, or stops.
    Cost: 1 round; 8 bytes per element from P0 and 32 bytes from P1, to each receiver.
    """

    opened: OpenChecked
    step: int

    def declare(self, roles: Roles, *operands: AnySpec) -> Declaration:
        """Say what is sent."""
        size = WORD_BYTES * _number(operands[0]).elements
        messages = [
            CostedMessage(sender, receiver, octets)
            for receiver in self.opened.outside(roles)
            for sender, octets in zip(roles.computing, (size, _DIGEST_BYTES), strict=True)
        ]
        # A receiver compares the two itself: no later check has to.
        return Declaration(out=None, rounds=(tuple(messages),), is_checked=True)

    def run(self, channel: Channel, material: tuple[Parts, ...], *_: AnyShare) -> None:
        """Tell them, as P0 or P1."""
        masked = proofs_of(channel).to_tell.pop(self.step)
        told = masked.contiguous() if channel.is_first else _digest(masked)
        for receiver in self.opened.outside(channel.roles):
            channel.send(receiver, told)

    def attend(self, channel: Channel, *operands: AnySpec) -> Tensor | None:
        """Hear both, compare, and take the mask away, as a receiver."""
        if channel.me not in self.opened.to:
            return None
        number = _number(operands[0])
        channel.session.ledger.record(*self.opened.leaks(number))
        mask = told_mask(channel.at(self.step), number.shape)
        first, second = channel.roles.computing
        told = channel.recv(first, number.shape)
        digest = channel.recv(second, (_DIGEST_BYTES,), dtype=torch.uint8)
        if not torch.equal(_digest(told), digest.cpu()):
            raise CheatingError(
                f"{first} or {second}",
                f"one of the two, {first!r} and {second!r}, told something else than the other; "
                "this party cannot know which, and got no result",
            )
        return reveal(number, told, -mask)


def told_mask(channel: Channel, shape: tuple[int, ...]) -> Tensor:
    """Return the whole mask of a step, as the dealer or as someone whom the dealer tells it."""
    roles, session = channel.roles, channel.session
    if channel.me != roles.dealer:
        return session.recv(roles.dealer, f"mask/{channel.name}", shape).to(channel.device)
    first, second = (session.shared(one).fork(f"deal {channel.name}") for one in roles.computing)
    return _whole_mask((first, second), shape).to(channel.device)


def _whole_mask(streams: tuple[Prg, Prg], shape: tuple[int, ...]) -> Tensor:
    """Add up both parties' parts of a mask, as the dealer."""
    need = OpeningMask(0, shape, None)
    first, second = streams
    return need.first(first)[0] + need.second(second)[0]


def _mask_rounds(to: tuple[str, ...], roles: Roles, spec: Spec) -> tuple[Round, ...]:
    """Declare that the dealer tells a mask to those who have to know it."""
    size = WORD_BYTES * spec.elements
    told = tuple(CostedMessage(roles.dealer, one, size) for one in _outside(to, roles))
    return (told,) if told else ()


def _outside(names: tuple[str, ...], roles: Roles) -> tuple[str, ...]:
    """Name those who neither compute nor deal: whom the dealer has to tell a mask."""
    return tuple(one for one in names if one not in (*roles.computing, roles.dealer))


def _number(spec: AnySpec | None) -> Spec:
    assert isinstance(spec, Spec)  # noqa: S101 - there are no secret bits under this protocol
    return spec


def _digest(words: Tensor) -> Tensor:
    digest = hashlib.sha256(ring.to_bytes(words.contiguous().cpu())).digest()
    return torch.frombuffer(bytearray(digest), dtype=torch.uint8)


_MOST = 1 << 15
"""So many elements are compared at once: their material fits a message."""


@dataclass(frozen=True)
class Beyond(PiecewiseTagged):
    """Give 0 where an element is within two numbers, and 1 or 2 where it is not.

    Guarantee: that of `PiecewiseTagged`; for every word, as all of its bits are compared. With
    [x >= -n] and [x >= n + 1] as b and c it is 1 - b + c; a difference that wraps around changes b
    to 0, or c to 1, for words beyond alone.
    Cost: that of two comparisons of 64 bits.
    """

    def _comparison(self, x: Spec) -> Comparison:
        return Comparison(x.elements, WORD_BITS, 2)


def beyond(largest: int) -> Beyond:
    """Make the kernel for words of at most that size."""
    pieces = ((1,), (0,), (1,))
    return Beyond(
        "bound", (PiecewiseCurve((-largest, largest + 1), pieces, frac_bits=0, bound=2.0),)
    )


def check_bound(ops: Any, value: Any, *, owner: str, name: str, to: tuple[str, ...]) -> None:
    """Compare an input with its bound on shares; both computing parties learn how many are beyond.

    Raises:
        CheatingError: one is, and its owner has broken its promise.
    """
    spec = ops.number(value, "comparing with a bound")
    flat = ops.reshape(value, (spec.elements,))
    for at in range(0, spec.elements, _MOST):
        part = ops.take(flat, range(at, min(at + _MOST, spec.elements)), dim=0)
        count = ops.sum(ops.apply(beyond(spec.largest), part), dim=0)
        found = ops.open(
            count, to=to, what=f"how many elements of {name!r} are beyond its bound", why="none is"
        )
        if found is not None and bool(found.any()):
            raise CheatingError(
                owner,
                f"{CHEATED}its input {name!r} is beyond the bound of ±{spec.bound:g} that it "
                "promised; nothing else was revealed",
            )
