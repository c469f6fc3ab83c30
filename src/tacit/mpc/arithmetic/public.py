"""Operations of a secret with a public tensor: nothing is sent, nothing can leak."""

import hashlib
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor

from tacit import ring
from tacit.errors import InputError
from tacit.mpc import outsource, shapes, tables
from tacit.mpc.arithmetic.local import LocalKernel
from tacit.mpc.contract import Channel
from tacit.mpc.share import Share, Spec


@dataclass(frozen=True)
class Public:
    """Words that everyone knows, as part of a plan: compared by content, printed by hash."""

    shape: tuple[int, ...]
    frac_bits: int
    largest: int
    octets: bytes

    def __repr__(self) -> str:
        """Name the words by their hash, which plans are compared by; no run needs it."""
        sha256 = hashlib.sha256(self.octets).hexdigest()
        sizes = f"shape={self.shape}, frac_bits={self.frac_bits}, largest={self.largest}"
        return f"Public({sizes}, sha256={sha256!r})"

    @classmethod
    def of(cls, values: Tensor, *, frac_bits: int) -> "Public":
        """Encode a public tensor; whole numbers take no fraction bits."""
        values = values.detach().to("cpu", torch.float64)
        # NaN and infinity come through to the ends; every step of a training comes by here.
        if values.numel() and not bool(torch.stack(values.aminmax()).isfinite().all()):
            raise InputError("a public tensor holds NaN or infinite values")
        bits = 0 if bool((values == values.round()).all()) else frac_bits
        words = ring.encode(values, frac_bits=bits).contiguous()
        largest = max(abs(int(end)) for end in words.aminmax()) if words.numel() else 0
        return cls(tuple(values.shape), bits, largest, words.numpy().tobytes())

    def words(self) -> Tensor:
        """Return the words again."""
        return torch.frombuffer(bytearray(self.octets), dtype=torch.int64).view(self.shape)

    def at(self, channel: Channel) -> Tensor:
        """Return the words where a party computes."""
        return self.on(channel.device)

    def on(self, device: torch.device) -> Tensor:
        """Return the words on a device; an accelerator gets them once."""
        if device.type == "cpu":
            return self.words()
        (words,) = tables.kept(_laid_out(self, device))
        return words


@lru_cache(maxsize=64)
def _laid_out(public: Public, device: torch.device) -> Tensor:
    return tables.laid_out(public.words(), device)


@dataclass(frozen=True)
class PublicInput:
    """Words that everyone knows when a run begins, and no part of the plan but by name and size.

    One plan then serves all runs that differ in them alone. ``largest`` bounds their size.
    """

    name: str
    shape: tuple[int, ...]
    frac_bits: int
    largest: int

    def at(self, channel: Channel) -> Tensor:
        """Return the words of this run.

        Raises:
            InputError: they were not told, or have another shape.
        """
        words = channel.told.get(self.name)
        if words is None or tuple(words.shape) != self.shape:
            came = "nothing" if words is None else f"shape {tuple(words.shape)}"
            raise InputError(f"wanted {self.name!r} of shape {self.shape} for this run, got {came}")
        return words.to(channel.device)


@dataclass(frozen=True)
class Weigh(LocalKernel):
    """Multiply a secret by a public tensor, broadcasting.

    Guarantee: nothing is sent. Cost: 0 rounds, 0 bytes. Error: that of rounding the factors.
    """

    factors: Public | PublicInput
    operation = "weighing"

    def out(self, x: Spec) -> Spec:
        """Describe the product."""
        return Spec(
            shape=shapes.broadcast(x.shape, self.factors.shape),
            frac_bits=x.frac_bits + self.factors.frac_bits,
            largest=x.largest * self.factors.largest,
        )

    def compute(self, channel: Channel, out: Spec, x: Share) -> Tensor:
        """Multiply my share."""
        return x.words * self.factors.at(channel)


@dataclass(frozen=True)
class Project(LocalKernel):
    """Multiply (…, inputs) by a public matrix (inputs, outputs).

    Guarantee: nothing is sent. Cost: 0 rounds, 0 bytes. Error: that of rounding the matrix.
    """

    matrix: Public
    operation = "projecting"

    def out(self, x: Spec) -> Spec:
        """Describe the product."""
        if len(self.matrix.shape) != 2 or len(x.shape) < 2:
            raise InputError(
                f"wanted (…, rows, inputs) and a public matrix, got shapes {x.shape} and "
                f"{self.matrix.shape}"
            )
        reach = self.matrix.largest * self.matrix.shape[0]
        if reach < 1 << 63:  # the sums of columns fit, and they are less than that
            reach = int(self.matrix.words().abs().sum(dim=0).max())
        return Spec(
            shape=shapes.matmul(x.shape, self.matrix.shape),
            frac_bits=x.frac_bits + self.matrix.frac_bits,
            largest=x.largest * reach,
        )

    def compute(self, channel: Channel, out: Spec, x: Share) -> Tensor:
        """Multiply my share."""
        return outsource.matmul(x.words, self.matrix.on(x.words.device))


@dataclass(frozen=True)
class Offset(LocalKernel):
    """Add a public tensor, broadcasting. Guarantee: nothing is sent. Cost: 0 rounds, 0 bytes."""

    amounts: Public
    operation = "offsetting"

    def out(self, x: Spec) -> Spec:
        """Describe the sum."""
        frac_bits = max(x.frac_bits, self.amounts.frac_bits)
        largest = x.largest << (frac_bits - x.frac_bits)
        largest += self.amounts.largest << (frac_bits - self.amounts.frac_bits)
        shape = shapes.broadcast(x.shape, self.amounts.shape)
        return Spec(shape=shape, frac_bits=frac_bits, largest=largest)

    def compute(self, channel: Channel, out: Spec, x: Share) -> Tensor:
        """Add the amounts to P0's share."""
        words = (x.words << (out.frac_bits - x.spec.frac_bits)).expand(out.shape)
        if not channel.is_first:
            return words
        amounts = self.amounts.on(words.device)
        return words + (amounts << (out.frac_bits - self.amounts.frac_bits))


@dataclass(frozen=True)
class Fill(LocalKernel):
    """Replace a secret by one public number where a public mask is 0.

    Guarantee: nothing is sent. Cost: 0 rounds, 0 bytes.
    """

    kept: Public
    value: float
    operation = "masking"

    def out(self, x: Spec) -> Spec:
        """Describe the result."""
        shape = shapes.broadcast(x.shape, self.kept.shape)
        return replace(x, shape=shape, largest=max(x.largest, abs(self._word(x))))

    def _word(self, x: Spec) -> int:
        return round(self.value * 2.0**x.frac_bits)

    def compute(self, channel: Channel, out: Spec, x: Share) -> Tensor:
        """Mask my share; P0 puts the number in."""
        kept = self.kept.on(x.words.device)
        words = x.words * kept
        return words + (1 - kept) * self._word(x.spec) if channel.is_first else words
