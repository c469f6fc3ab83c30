"""Where secrets of a checked computation enter and leave.

An input of P0 or P1 enters by `OpenTagged`. Anyone else gets from the dealer a mask of which P0
and P1 have shares: an owner tells both its value less the mask, a receiver is told by both the
result plus the mask. As one of the two is honest, what both say alike is right.
"""

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit import ring
from tacit.errors import CheatingError
from tacit.mpc.boundary import WORD_BYTES, Input, Open, encode_input, reveal
from tacit.mpc.contract import Channel, Declaration, Roles
from tacit.mpc.material.randomness import OpeningMask, Parts
from tacit.mpc.protocols.checked import wide
from tacit.mpc.protocols.checked.product import tagged_mask
from tacit.mpc.protocols.checked.shares import TaggedOpening, TaggedShare
from tacit.mpc.share import AnySpec, Mask, OpeningSpec, Spec
from tacit.party.cost import Message, exchange

_DIGEST_BYTES = 32


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
        told = tuple(Message(self.owner, one, size) for one in roles.computing)
        return Declaration(
            out=self.spec,
            needs=(tagged_mask(0, self.spec.shape, None),),
            rounds=(told,),
            offline=mask_rounds(self, roles),
        )

    def knowers(self) -> tuple[str, ...]:
        """Name who is told the mask."""
        return (self.owner,)

    def opening(self, step: int) -> OpeningSpec:
        """Describe the masked opening that this gives, if it is that step of a plan."""
        spec = self.spec
        mask = Mask(step=step, place=0, shape=spec.shape, holder=None)
        return OpeningSpec(
            shape=spec.shape, frac_bits=spec.frac_bits, largest=spec.largest, mask=mask
        )

    def take(self, channel: Channel, material: tuple[Parts, ...]) -> TaggedOpening:
        """Hear the input less its mask, as P0 or P1."""
        need = tagged_mask(0, self.spec.shape, None)
        (own,), (tags,) = need.read(material[0], is_first=channel.is_first)
        told = channel.recv(self.owner, self.spec.shape)
        channel.proofs.heard(told)
        return TaggedOpening(told, own, None, self.opening(channel.step), numbers=tags.wide())

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
            Message(sender, receiver, size)
            for sender, receiver in (roles.computing, roles.computing[::-1])
            if receiver in self.to
        )
        outside = self.outside(roles)
        masked = exchange(*roles.computing, size) if outside else ()
        return Declaration(
            out=None,
            needs=(tagged_mask(0, spec.shape, None),) if outside else (),
            rounds=((*inside, *masked),),
            offline=mask_rounds(self, roles, spec) if outside else (),
            leaks=self.leaks(spec),
        )

    def outside(self, roles: Roles) -> tuple[str, ...]:
        """Name the receivers who do not compute."""
        return tuple(one for one in self.to if one not in roles.computing)

    def knowers(self) -> tuple[str, ...]:
        """Name who is told the mask, if it is not the dealer or a computing party."""
        return self.to

    def reveal(
        self, channel: Channel, material: tuple[Parts, ...], share: TaggedShare
    ) -> tuple[Tensor | None, Tensor | None]:
        """Exchange; give the value if I am a receiver, and what others are to be told.

        Neither may be used before it has been checked.
        """
        channel.session.ledger.record(*self.leaks(share.spec))
        proofs, other, words = channel.proofs, channel.other, share.words.contiguous()
        if other in self.to:
            channel.send(other, words)
            proofs.sent(share.numbers)
        masked = None
        if self.outside(channel.roles):
            need = tagged_mask(0, share.spec.shape, None)
            (own,), (tags,) = need.read(material[0], is_first=channel.is_first)
            masked = words + own
            channel.send(other, masked)
        value = None
        if channel.me in self.to:
            theirs = channel.recv(other, tuple(words.shape))
            proofs.received(share.numbers, theirs)
            value = reveal(share.spec, words, theirs)
        if masked is None:
            return value, None
        theirs = channel.recv(other, tuple(words.shape))
        proofs.exchanged(wide.carry(share.numbers + tags.wide()), theirs)
        return value, masked + theirs

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
            Message(sender, receiver, octets)
            for receiver in self.opened.outside(roles)
            for sender, octets in zip(roles.computing, (size, _DIGEST_BYTES), strict=True)
        ]
        return Declaration(out=None, rounds=(tuple(messages),))

    def run(self, channel: Channel, masked: Tensor) -> None:
        """Tell them, as P0 or P1."""
        told = masked.contiguous() if channel.is_first else _digest(masked)
        for receiver in self.opened.outside(channel.roles):
            channel.send(receiver, told)

    def attend(self, channel: Channel, mask_channel: Channel, spec: AnySpec) -> Tensor | None:
        """Hear both, compare, and take the mask away, as a receiver."""
        if channel.me not in self.opened.to:
            return None
        number = _number(spec)
        channel.session.ledger.record(*self.opened.leaks(number))
        mask = told_mask(mask_channel, number.shape)
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
    return whole_mask(
        tuple(session.shared(one).fork(f"deal {channel.name}") for one in roles.computing), shape
    ).to(channel.device)


def whole_mask(streams: tuple[ring.Prg, ...], shape: tuple[int, ...]) -> Tensor:
    """Add up both parties' parts of a mask, as the dealer."""
    need = OpeningMask(0, shape, None)
    first, second = streams
    return need.first(first)[0] + need.second(second)[0]


def mask_rounds(
    step: TellInput | OpenChecked, roles: Roles, spec: Spec | None = None
) -> tuple[tuple[Message, ...], ...]:
    """Declare that the dealer tells a mask to those who have to know it."""
    size = WORD_BYTES * (step.spec if isinstance(step, TellInput) else _number(spec)).elements
    told = tuple(Message(roles.dealer, one, size) for one in told_to(step, roles))
    return (told,) if told else ()


def told_to(step: TellInput | OpenChecked, roles: Roles) -> tuple[str, ...]:
    """Name everyone whom the dealer tells the mask of a step."""
    known = (*roles.computing, roles.dealer)
    return tuple(one for one in step.knowers() if one not in known)


def _number(spec: AnySpec | None) -> Spec:
    assert isinstance(spec, Spec)  # noqa: S101 - there are no secret bits under this protocol
    return spec


def _digest(words: Tensor) -> Tensor:
    digest = hashlib.sha256(ring.to_bytes(words.contiguous().cpu())).digest()
    return torch.frombuffer(bytearray(digest), dtype=torch.uint8)
