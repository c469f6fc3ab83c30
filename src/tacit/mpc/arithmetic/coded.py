"""An owner's matrix of zeros and ones, known by a code per entry: multiplied by counting.

The owner has M, (rows, columns · width), as one small code per row and column and a table of what
each code stands for. It opens M - A under a mask that it shares with the dealer, once. For a secret
R = d + b, with d public and b in shares, MᵀR = Mᵀ(d + b_own) + (M - A)ᵀ b_other + Aᵀ b_other: the
owner adds rows up by code, which takes rows · columns steps and not rows · columns · width; the
other party multiplies what was opened by its own random words, and the dealer shares the last term.
Both wait for nothing that is computed. The same holds for M·R, where the owner looks rows of R up.
"""

import tempfile
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from tacit import ring
from tacit.errors import DataError, InputError
from tacit.mpc.contract import Channel, Declaration, Roles
from tacit.mpc.material.randomness import OpeningMask, OpeningTriple, Parts
from tacit.mpc.narrow import WORD_BYTES
from tacit.mpc.products import MatMul, Product, TransposedMatMul
from tacit.mpc.share import AnyShare, AnySpec, Mask, MaskedOpening, OpeningSpec, Party, Share, Spec
from tacit.party.cost import CostedMessage

SPILLED_BYTES = 64 << 20
"""An opening that is larger is kept in a file that has no name, which the system may page out."""
_ROWS = 1 << 13


@dataclass(frozen=True, eq=False)
class Codes:
    """An owner's matrix: entry (i, j) stands for the row ``table[j, codes[i, j]]`` of bits.

    Attributes:
        codes: (rows, columns), of uint8.
        table: (columns, values, width) of zeros and ones.
    """

    codes: Tensor
    table: Tensor

    @property
    def shape(self) -> tuple[int, int]:
        """Return rows, and columns times width."""
        return self.codes.shape[0], self.table.shape[0] * self.table.shape[2]

    def matrix(self, start: int, stop: int) -> Tensor:
        """Write some rows of the matrix out."""
        parts = [
            bits[self.codes[start:stop, at].long()] for at, bits in enumerate(self.table.unbind())
        ]
        return torch.cat(parts, 1)

    def summed(self, rows: Tensor) -> Tensor:
        """Multiply the transposed matrix with (rows, w), by counting."""
        columns, values, width = self.table.shape
        counts = rows.new_zeros((columns, values, rows.shape[1]))
        for at in range(columns):
            counts[at].index_add_(0, self.codes[:, at].long(), rows)
        parts = [ring.matmul(bits.t(), one) for bits, one in zip(self.table, counts, strict=True)]
        return torch.stack(parts).view(columns * width, rows.shape[1])

    def looked_up(self, matrix: Tensor) -> Tensor:
        """Multiply the matrix with (columns · width, w), by looking up."""
        columns, _, width = self.table.shape
        parts = matrix.view(columns, width, -1)
        found = matrix.new_zeros((self.codes.shape[0], matrix.shape[1]))
        for at in range(columns):
            found += ring.matmul(self.table[at], parts[at])[self.codes[:, at].long()]
        return found

    def masked(self, mask: Tensor) -> Tensor:
        """Subtract a mask, which is spent, from the matrix."""
        for start in range(0, len(mask), _ROWS):
            part = mask[start : start + _ROWS]
            part.neg_().add_(self.matrix(start, start + len(part)))
        return mask


@dataclass(frozen=True, eq=False, repr=False)
class CodedOpening(MaskedOpening):
    """A matrix that its owner has as codes, and the other party as what was opened."""

    codes: Codes | None = None


@dataclass(frozen=True)
class OpenCoded:
    """Open a computing party's matrix of zeros and ones under a mask, for products only.

    Guarantee: that of `OpenMasked`: the other party sees uniform words.
    Cost: 1 round offline, 8 bytes per entry from the owner to the other party, once per session.
    """

    owner: str
    name: str
    shape: tuple[int, int]

    def declare(self, roles: Roles, *_: AnySpec) -> Declaration:
        """Say what is sent."""
        holder = self._holder(roles)
        other = roles.second if holder == "first" else roles.first
        message = CostedMessage(self.owner, other, WORD_BYTES * self.shape[0] * self.shape[1])
        need = OpeningMask(0, self.shape, holder)
        return Declaration(out=None, needs=(need,), offline=((message,),))

    def opening(self, step: int, roles: Roles) -> OpeningSpec:
        """Describe the result, if this is that step of a plan."""
        mask = Mask(step=step, place=0, shape=self.shape, holder=self._holder(roles))
        return OpeningSpec(shape=self.shape, frac_bits=0, largest=1, mask=mask)

    def run(self, channel: Channel, material: tuple[Parts, ...], codes: object) -> CodedOpening:
        """Send the masked matrix, as its owner, or keep it."""
        spec = self.opening(channel.step, channel.roles)
        nothing = torch.empty(0, dtype=torch.int64)
        if channel.me != self.owner:
            opened = _spilled(channel.recv(self.owner, self.shape))
            return CodedOpening(opened, None, None, spec)
        if not isinstance(codes, Codes) or codes.shape != self.shape:
            raise DataError(f"input {self.name!r} was announced as codes of {self.shape}")
        channel.send(channel.other, codes.masked(material[0][0]), phase="offline")
        return CodedOpening(nothing, None, None, spec, codes=codes)

    def _holder(self, roles: Roles) -> Party:
        if self.owner not in roles.computing:
            raise InputError(f"{self.owner!r} does not compute, so that it cannot count")
        return "first" if self.owner == roles.first else "second"


@dataclass(frozen=True)
class MultiplyCoded:
    """Multiply an owner's coded matrix, or its transpose, with a secret opened under a mask.

    Guarantee: nothing is sent. Cost: 0 rounds, 0 bytes.
    """

    way: Literal["sum", "look up"]

    @property
    def product(self) -> Product:
        """Return what the other party and the dealer compute."""
        return TransposedMatMul() if self.way == "sum" else MatMul()

    def declare(self, roles: Roles, *operands: AnySpec) -> Declaration:
        """Say what comes out and what is needed."""
        x, y = operands
        if not isinstance(x, OpeningSpec) or not isinstance(y, OpeningSpec):
            raise InputError("codes are multiplied with masked openings")
        if x.mask.holder is None or y.mask.holder is not None or y.rescaled is not None:
            raise InputError("codes of an owner are multiplied with what nobody knows")
        out = self._out(x, y)
        return Declaration(out=out, needs=(OpeningTriple(self.product, x.mask, y.mask, out.shape),))

    def _out(self, x: OpeningSpec, y: OpeningSpec) -> Spec:
        return Spec(
            shape=self.product.shape(x.shape, y.shape),
            frac_bits=y.frac_bits,
            largest=self.product.terms(x.shape, y.shape) * y.largest,
            ring_bits=y.ring_bits,
        )

    def run(self, channel: Channel, material: tuple[Parts, ...], *operands: AnyShare) -> AnyShare:
        """Count, as the owner, or multiply what was opened with my part of the other mask."""
        x, y = operands
        assert isinstance(x, CodedOpening) and isinstance(y, MaskedOpening)  # noqa: S101, PT018
        assert y.mask_share is not None  # noqa: S101 - `declare` has refused everything else
        ((c,),) = material
        if x.codes is None:
            found = self.product.multiply(x.opened, y.mask_share)
        elif self.way == "sum":
            found = x.codes.summed(y.opened + y.mask_share)
        else:
            found = x.codes.looked_up(y.opened + y.mask_share)
        return Share(found.add_(c), self._out(x.spec, y.spec))


def _spilled(words: Tensor) -> Tensor:
    """Move many words into a file without a name: memory then need not hold them all."""
    if words.nbytes <= SPILLED_BYTES:
        return words
    with tempfile.NamedTemporaryFile(prefix="tacit-") as file:
        kept = torch.from_file(file.name, shared=True, size=words.numel(), dtype=torch.int64)
        return kept.copy_(words.reshape(-1)).view(words.shape)
