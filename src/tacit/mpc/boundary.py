"""Where secrets enter and leave: sharing an input, and the one call that reveals a value."""

from dataclasses import dataclass

import torch
from torch import Tensor

from tacit import ring
from tacit.errors import DataError, RangeError
from tacit.mpc.contract import Channel, Declaration, Roles
from tacit.mpc.cost import Message, Round
from tacit.mpc.share import AnyShare, AnySpec, BitSpec, Share, Spec
from tacit.result import Leak

WORD_BYTES = 8

FINISHES = {"sigmoid": torch.sigmoid}
"""Strictly increasing functions that a receiver may apply after opening."""


@dataclass(frozen=True)
class Input:
    """Split an owner's tensor into two halves.

    The owner and a computing party draw one half from the generator they share, so an input of
    P0 or P1 costs nothing to send; an outside owner sends the other half to P1.

    Guarantee: the half that a computing party gets is uniform and independent of the input.
    Cost: 0 rounds, 0 bytes for P0 and P1; 1 round, 8 bytes per element for anyone else.
    """

    owner: str
    name: str
    spec: Spec

    def declare(self, roles: Roles, *_: AnySpec) -> Declaration:
        """Say what is sent."""
        if self.owner in roles.computing:
            return Declaration(out=self.spec)
        message = Message(self.owner, roles.second, WORD_BYTES * self.spec.elements)
        return Declaration(out=self.spec, rounds=((message,),))

    def run(self, channel: Channel, values: Tensor | None) -> Share:
        """Take my half as P0 or P1; ``values`` is the input if it is mine."""
        if self.owner == channel.me:
            words = encode_input(self, values) - self._mask(channel, channel.other)
        elif self.owner in channel.roles.computing or channel.is_first:
            words = self._mask(channel, self.owner)
        else:
            words = channel.recv(self.owner, self.spec.shape)
        return Share(words, self.spec)

    def attend(self, channel: Channel, values: Tensor | None) -> None:
        """Send the second half, as an owner who does not compute."""
        if self.owner == channel.me:
            words = encode_input(self, values) - self._mask(channel, channel.roles.first)
            channel.send(channel.roles.second, words)

    def _mask(self, channel: Channel, peer: str) -> Tensor:
        return channel.shared(peer).words(self.spec.shape)


def encode_input(step: Input, values: Tensor | None) -> Tensor:
    """Encode my input, after checking that it is what everyone was told it would be."""
    if values is None:
        raise DataError(f"{step.owner!r} owns the input {step.name!r} but has no values for it")
    if tuple(values.shape) != step.spec.shape:
        raise DataError(
            f"input {step.name!r} was announced as {step.spec.shape}, got {tuple(values.shape)}"
        )
    if not bool(torch.isfinite(values).all()):
        raise DataError(f"input {step.name!r} holds NaN or infinite values; clean the data first")
    beyond = int((values.abs() > step.spec.bound).sum())
    if beyond:
        raise RangeError(
            f"input {step.name!r}: {beyond} of {values.numel()} values exceed the bound "
            f"±{step.spec.bound:g} in the job; raise the bound or scale the data"
        )
    return ring.encode(values, frac_bits=step.spec.frac_bits)


@dataclass(frozen=True)
class Open:
    """Reveal a value to the named parties, and write into the ledger that it was revealed.

    Guarantee: a receiver learns the value and nothing else, because the half it gets is the
    value minus the half it has. Cost: 1 round, 8 bytes per element (or 1 bit, in whole words)
    from each computing party to each receiver but itself.
    """

    to: tuple[str, ...]
    what: str
    why: str

    def declare(self, roles: Roles, *operands: AnySpec) -> Declaration:
        """Say what is sent."""
        (spec,) = operands
        size = WORD_BYTES * _words(spec)
        messages: Round = tuple(
            Message(sender, receiver, size)
            for sender in roles.computing
            for receiver in self.to
            if receiver != sender
        )
        return Declaration(out=None, rounds=(messages,), leaks=self._leaks(spec))

    def run(self, channel: Channel, half: AnyShare) -> Tensor | None:
        """Send my half to the receivers; give the value if I am one of them."""
        channel.session.ledger.record(*self._leaks(half.spec))
        words = half.words.contiguous()
        for receiver in self.to:
            if receiver != channel.me:
                channel.send(receiver, words)
        if channel.me not in self.to:
            return None
        theirs = channel.recv(channel.other, tuple(words.shape))
        return _reveal(half.spec, words, theirs)

    def attend(self, channel: Channel, spec: AnySpec) -> Tensor | None:
        """Receive both halves, as a receiver who does not compute."""
        if channel.me not in self.to:
            return None
        channel.session.ledger.record(*self._leaks(spec))
        shape = spec.shape if isinstance(spec, Spec) else (spec.words,)
        halves = [channel.recv(sender, shape) for sender in channel.roles.computing]
        return _reveal(spec, *halves)

    def _leaks(self, spec: AnySpec) -> tuple[Leak, ...]:
        return tuple(
            Leak(to=to, what=self.what, why=self.why, kind="output", elements=spec.elements)
            for to in self.to
        )


def _words(spec: AnySpec) -> int:
    return spec.elements if isinstance(spec, Spec) else spec.words


def _reveal(spec: AnySpec, mine: Tensor, theirs: Tensor) -> Tensor:
    """Put two halves together and decode."""
    if isinstance(spec, BitSpec):
        # Bit i of a little-endian word is bit i % 8 of its byte i // 8.
        bits = ring.unpack_bits((mine ^ theirs).view(torch.uint8), spec.elements)
        return bits.view(spec.shape).to(torch.float64)
    values = ring.decode(mine + theirs, frac_bits=spec.frac_bits)
    return FINISHES[spec.finish](values) if spec.finish else values
