"""An owner's weights: opened under a mask once, in panels, and kept in as few bytes as hold them.

What is opened is used for the whole session, so nobody keeps it twice: the owner has the words
themselves, narrow; the other party what was opened; and the mask is drawn where it is needed. On
the way a panel at a time is masked and sent, so that memory holds little more than what is kept.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tacit import ring
from tacit.errors import DataError, InputError, RangeError
from tacit.mpc import outsource
from tacit.mpc.boundary import Input, encode_input
from tacit.mpc.contract import Channel, Declaration, Roles
from tacit.mpc.material.randomness import OpeningMask
from tacit.mpc.narrow import WORD_BYTES
from tacit.mpc.share import AnySpec, Mask, MaskedOpening, OpeningSpec, Party, Spec
from tacit.party.cost import CostedMessage
from tacit.ring import Prg

MESSAGE_BYTES = 32 << 20
"""Of a weight, in one message."""


@dataclass(frozen=True, eq=False)
class EncodedInput:
    """An input that its owner has encoded before, whole multiples of 2^-frac_bits.

    The tensor may be of int8, int16, int32 or int64: see `tacit.ring.narrowed`.
    """

    words: Tensor = field(repr=False)
    frac_bits: int


@dataclass(frozen=True)
class OpenWeight:
    """Open a computing party's input under a mask, for the right side of products only.

    Guarantee: that of `OpenMasked`: the other party sees x - a for a uniform a that masks nothing
    else, and nothing else.
    Cost: 1 round offline, 8 bytes per element from the owner to the other party, once per session;
    in messages of `MESSAGE_BYTES`, or of one row if that is more.
    """

    owner: str
    name: str
    spec: Spec

    def declare(self, roles: Roles, *_: AnySpec) -> Declaration:
        """Say what is sent. The owner draws the mask itself, so that no material is handed out."""
        other = roles.second if self._holder(roles) == "first" else roles.first
        row = WORD_BYTES * (self.spec.elements // max(1, self.spec.shape[0]))
        messages = tuple(CostedMessage(self.owner, other, row * rows) for rows in self._parts())
        return Declaration(out=None, offline=(messages,))

    def opening(self, step: int, roles: Roles) -> OpeningSpec:
        """Describe the result, if this is that step of a plan."""
        spec = self.spec
        holder = self._holder(roles)
        mask = Mask(step=step, place=0, shape=spec.shape, holder=holder, is_weight=True)
        return OpeningSpec(
            shape=spec.shape, frac_bits=spec.frac_bits, largest=spec.largest, mask=mask
        )

    def run(
        self, channel: Channel, prg: Prg, given: Tensor | EncodedInput | None, *, on: torch.device
    ) -> MaskedOpening:
        """Send the masked words, as their owner, or keep them.

        Args:
            channel: where to send.
            prg: of this step and party.
            given: the input, if it is mine.
            on: where it is multiplied.
        """
        spec = self.opening(channel.step, channel.roles)
        on = on if is_prepared(spec.shape, on) else channel.device
        if channel.me != self.owner:
            return _kept(self._received(channel, on), None, spec)
        words = self._words(given)
        for part in self._masked(words, prg):
            channel.send(channel.other, part, phase="offline")
        kept = words.to(on)
        # In the place of what was opened stands what it was made of: its owner needs no more.
        return _kept(kept, kept, spec)

    def _masked(self, words: Tensor, prg: Prg) -> Iterator[Tensor]:
        masks = OpeningMask(0, self.spec.shape, None).panels(prg, MESSAGE_BYTES)
        at = 0
        for mask in masks:
            yield mask.neg_().add_(words[at : at + len(mask)])
            at += len(mask)

    def _received(self, channel: Channel, on: torch.device) -> Tensor:
        parts, rest = self._parts(), self.spec.shape[1:]
        shape = self.spec.shape
        if len(shape) == 2:  # as `in_columns` lays it out
            opened = torch.empty(shape[::-1], dtype=torch.int64, device=on).t()
        else:
            opened = torch.empty(shape, dtype=torch.int64, device=on)
        at = 0
        for rows in parts:
            opened[at : at + rows] = channel.recv(self.owner, (rows, *rest))
            at += rows
        return opened

    def _words(self, given: Tensor | EncodedInput | None) -> Tensor:
        """Return my words, after checking that they are what everyone was told they would be."""
        if not isinstance(given, EncodedInput):
            step = Input(self.owner, self.name, self.spec)
            return ring.narrowed(encode_input(step, given))
        facts = tuple(given.words.shape), given.frac_bits
        if facts != (self.spec.shape, self.spec.frac_bits):
            raise DataError(
                f"input {self.name!r} was announced as {self.spec.shape} with "
                f"{self.spec.frac_bits} fraction bits, got {facts[0]} with {facts[1]}"
            )
        largest = max((abs(int(one)) for one in torch.aminmax(given.words)), default=0)
        if largest > self.spec.largest:
            raise RangeError(
                f"input {self.name!r} exceeds the bound ±{self.spec.bound:g} that was announced; "
                "raise the bound or scale the data"
            )
        return given.words

    def _parts(self) -> list[int]:
        return ring.panel_rows(self.spec.shape, MESSAGE_BYTES)

    def _holder(self, roles: Roles) -> Party:
        if self.owner not in roles.computing:
            raise InputError(f"{self.owner!r} does not compute, so that it cannot multiply")
        return "first" if self.owner == roles.first else "second"


def _kept(words: Tensor, clear: Tensor | None, spec: OpeningSpec) -> MaskedOpening:
    if not is_prepared(spec.shape, words.device):
        return MaskedOpening(words, None, clear, spec)
    return MaskedOpening(words.new_empty(0), None, None, spec, factor=ring.prepare(words))


def in_columns(words: Tensor) -> Tensor:
    """Lay a matrix out so that columns lie in one piece: a row meets them three times as fast."""
    return words.t().contiguous().t() if words.dim() == 2 else words


def is_prepared(shape: tuple[int, ...], device: torch.device) -> bool:
    """Tell whether a weight is kept as digits for an accelerator; a worker multiplies words."""
    return device.type == "cuda" and len(shape) == 2 and outsource.current() is None
