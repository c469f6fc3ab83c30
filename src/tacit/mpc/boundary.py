"""Where secrets enter and leave: sharing an input, and the one call that reveals a value."""

from dataclasses import dataclass

import torch
from torch import Tensor

from tacit import ring
from tacit.errors import DataError, InputError, RangeError
from tacit.mpc.contract import Channel, Declaration, Roles
from tacit.mpc.material.randomness import Parts
from tacit.mpc.share import (
    AnyShare,
    AnySpec,
    BitShare,
    BitSpec,
    MaskedOpening,
    OpeningSpec,
    Share,
    Spec,
)
from tacit.party.cost import CostedMessage, Round
from tacit.result import Leak

WORD_BYTES = 8

DEFERRED = {"sigmoid": torch.sigmoid}
"""Strictly increasing functions that a receiver may apply after opening."""


@dataclass(frozen=True)
class Input:
    """Split an owner's tensor into two shares.

    The owner and a computing party draw one share from their common generator, so an input of
    P0 or P1 costs nothing to send; an outside owner sends the other share to P1.

    Guarantee: the share that a computing party gets is uniform and independent of the input.
    Cost: 0 rounds, 0 bytes for P0 and P1; 1 round, 8 bytes per element for anyone else.
    """

    owner: str
    name: str
    spec: Spec

    def declare(self, roles: Roles, *_: AnySpec) -> Declaration:
        """Say what is sent."""
        if self.owner in roles.computing:
            return Declaration(out=self.spec)
        message = CostedMessage(self.owner, roles.second, WORD_BYTES * self.spec.elements)
        return Declaration(out=self.spec, rounds=((message,),))

    def run(self, channel: Channel, clear: Tensor | None) -> Share:
        """Take my share as P0 or P1; ``clear`` is the encoded input if it is mine."""
        if clear is not None:
            words = clear - self._mask(channel, channel.other)
        elif self.owner in channel.roles.computing or channel.is_first:
            words = self._mask(channel, self.owner)
        else:
            words = channel.recv(self.owner, self.spec.shape)
        return Share(words, self.spec)

    def clear(self, channel: Channel, values: Tensor | None) -> Tensor | None:
        """Encode the input, if it is mine."""
        if self.owner != channel.me:
            return None
        return encode_input(self, values).to(channel.device)

    def attend(self, channel: Channel, values: Tensor | None) -> None:
        """Send the second share, as an owner who does not compute."""
        if self.owner == channel.me:
            mask = self._mask(channel, channel.roles.first)
            words = encode_input(self, values).to(channel.device) - mask
            channel.send(channel.roles.second, words)

    def _mask(self, channel: Channel, peer: str) -> Tensor:
        return channel.shared(peer).words(self.spec.shape).to(channel.device)


@dataclass(frozen=True)
class Resume:
    """Take up shares that both computing parties kept from an earlier run.

    Guarantee: nothing is sent.
    Cost: 0 rounds, 0 bytes.
    """

    name: str
    spec: Spec

    def declare(self, roles: Roles, *_: AnySpec) -> Declaration:
        """Say what comes in."""
        return Declaration(out=self.spec)

    def run(self, share: AnyShare | None) -> Share:
        """Return my share under the facts that the plan states.

        Raises:
            InputError: there is none, or it is another one than was announced.
        """
        if not isinstance(share, Share):
            raise InputError(f"no share of {self.name!r} was kept")
        known = share.spec
        if (known.shape, known.frac_bits) != (self.spec.shape, self.spec.frac_bits):
            raise InputError(
                f"{self.name!r} was announced as {self.spec.shape} with {self.spec.frac_bits} "
                f"fraction bits, got {known.shape} with {known.frac_bits}"
            )
        if known.largest > self.spec.largest:
            raise RangeError(
                f"{self.name!r} was announced as at most ±{self.spec.bound:g}, but what was kept "
                f"can be ±{known.bound:g}"
            )
        return Share(share.words, self.spec)


def encode_input(step: Input, values: Tensor | None) -> Tensor:
    """Encode my input, and check that it is what everyone was told it would be.

    What is compared with the bound are words, as the others may compare them: in its own type a
    number of float16 or float32 equals bounds that its word exceeds.
    """
    if values is None:
        raise DataError(f"{step.owner!r} owns the input {step.name!r} but has no values for it")
    if tuple(values.shape) != step.spec.shape:
        raise DataError(
            f"input {step.name!r} was announced as {step.spec.shape}, got {tuple(values.shape)}"
        )
    if not bool(torch.isfinite(values).all()):
        raise DataError(f"input {step.name!r} holds NaN or infinite values; clean the data first")
    try:
        words = ring.encode(values, frac_bits=step.spec.frac_bits)
    except RangeError as error:
        raise RangeError(f"input {step.name!r}: {error}") from error
    beyond = int((words.abs() > step.spec.largest).sum())
    if beyond:
        coarse = values.is_floating_point() and values.dtype != torch.float64
        raise RangeError(
            f"input {step.name!r}: {beyond} of {values.numel()} values exceed the bound "
            f"±{step.spec.bound:g} in the job; raise the bound or scale the data"
            + (f" ({values.dtype} may show such a number as the bound itself)" if coarse else "")
        )
    return words


@dataclass(frozen=True)
class Open:
    """Reveal a value to the named parties, and write into the ledger that it was revealed.

    Guarantee: a receiver learns the value and nothing else. A computing party gets the value
    minus the share it has. Anyone else gets two shares under a fresh mask of P0 and P1: the
    dealer, who knows the triples, could read operands out of the shares of a product.
    Cost: 1 round, 8 bytes per element (or 1 bit, in whole words) from each computing party to
    each receiver but itself.
    """

    to: tuple[str, ...]
    what: str
    why: str

    def declare(self, roles: Roles, *operands: AnySpec) -> Declaration:
        """Say what is sent."""
        spec = openable(operands[0])
        size = WORD_BYTES * (spec.elements if isinstance(spec, Spec) else spec.words)
        messages: Round = tuple(
            CostedMessage(sender, receiver, size)
            for sender in roles.computing
            for receiver in self.to
            if receiver != sender
        )
        return Declaration(out=None, rounds=(messages,), leaks=self.leaks(spec))

    def run(self, channel: Channel, material: tuple[Parts, ...], share: AnyShare) -> Tensor | None:
        """Send my share to the receivers; give the value if I am one of them."""
        assert not isinstance(share, MaskedOpening)  # noqa: S101 - `declare` has refused it
        channel.session.ledger.record(*self.leaks(share.spec))
        theirs = self.exchange(channel, share)
        return None if theirs is None else reveal(openable(share.spec), share.words, theirs)

    def exchange(self, channel: Channel, share: Share | BitShare) -> Tensor | None:
        """Send my share to the receivers; take the other one if I am one of them."""
        words = share.words.contiguous()
        if channel.other in self.to:
            channel.send(channel.other, words)
        outside = [one for one in self.to if one not in channel.roles.computing]
        if outside:
            masked = _remasked(channel, share)
            for receiver in outside:
                channel.send(receiver, masked)
        if channel.me not in self.to:
            return None
        return channel.recv(channel.other, tuple(words.shape))

    def attend(self, channel: Channel, spec: AnySpec) -> Tensor | None:
        """Receive both shares, as a receiver who does not compute."""
        if channel.me not in self.to:
            return None
        spec = openable(spec)
        channel.session.ledger.record(*self.leaks(spec))
        shape = spec.shape if isinstance(spec, Spec) else (spec.words,)
        shares = [channel.recv(sender, shape) for sender in channel.roles.computing]
        return reveal(spec, *shares)

    def leaks(self, spec: AnySpec) -> tuple[Leak, ...]:
        """Say what is revealed to whom."""
        return tuple(
            Leak(to=to, what=self.what, why=self.why, kind="output", elements=spec.elements)
            for to in self.to
        )


def openable(spec: AnySpec) -> Spec | BitSpec:
    """Return what can be opened, and refuse what was opened under a mask."""
    if isinstance(spec, OpeningSpec):
        raise InputError("a value that was opened under a mask cannot be opened; open the value")
    return spec


def _remasked(channel: Channel, share: Share | BitShare) -> Tensor:
    """Add a mask that P0 and P1 have in common; it cancels when their shares are put together."""
    mask = channel.shared(channel.other).words(tuple(share.words.shape)).to(channel.device)
    if isinstance(share, BitShare):
        return share.words ^ mask
    return share.words + mask if channel.is_first else share.words - mask


def reveal(spec: Spec | BitSpec, mine: Tensor, theirs: Tensor) -> Tensor:
    """Put two shares together and decode."""
    if isinstance(spec, BitSpec):
        # Bit i of a little-endian word is bit i % 8 of its byte i // 8.
        bits = ring.unpack_bits((mine ^ theirs).view(torch.uint8), spec.elements)
        return bits.view(spec.shape).to("cpu", torch.float64)
    values = ring.decode(mine + theirs, frac_bits=spec.frac_bits)
    values = values.cpu()
    return DEFERRED[spec.deferred](values) if spec.deferred else values
