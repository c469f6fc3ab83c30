"""The compressors by name, and one as it runs: what travels, and the gradient's way back."""

from dataclasses import dataclass, fields
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from tacit.errors import ConfigError, DataError
from tacit.split.packing import (
    Exact,
    Unbiased,
    Uniform,
    ValueCode,
    bits_below,
    pack_numbers,
    pack_subsets,
    packed_bytes,
    subset_bits,
    unpack_numbers,
    unpack_subsets,
)
from tacit.split.selection import (
    Above,
    Draws,
    Everything,
    First,
    RandomisedTopK,
    Sparsifier,
    Support,
    TopK,
    as_mask,
)


@dataclass(frozen=True, kw_only=True)
class Codec:
    """Turns activations into bytes and gradients into bytes, and back.

    The feature owner calls `pack` and, with the gradient, `unpack_gradient`; the label owner
    calls `unpack` and `pack_gradient`. The gradient travels for the kept values alone: the others
    did not enter the top model, so theirs is zero. `apply` does the same within one process.

    Guarantee: none. What is not sent is not seen, but what is sent is sent in the clear.
    Cost: `forward_bytes` and `backward_bytes`, as metered on a link.
    """

    width: int
    training: Sparsifier
    serving: Sparsifier
    forward: ValueCode
    backward: ValueCode
    ranks_subsets: bool = False
    l1_weight: float = 0.0

    def draw(
        self, rows: int, generator: torch.Generator | None, device: torch.device
    ) -> Draws | None:
        """Draw for a batch of training what does not depend on its values, while there is time."""
        if not isinstance(self.training, RandomisedTopK):
            return None
        return self.training.draw(torch.Size((rows, self.width)), generator, device)

    def pack(
        self,
        h: Tensor,
        *,
        is_training: bool,
        generator: torch.Generator | None = None,
        draws: Draws | None = None,
    ) -> tuple[Tensor, Support]:
        """Return the bytes of one batch (rows, width), and what of it they carry.

        Args:
            h: the batch.
            is_training: whether the choice of values is that of training.
            generator: draws what is random, on the device of `h`.
            draws: what `draw` drew from it for this batch, if it was called.

        Raises:
            DataError: an empty batch, another width, or values that are not finite.
        """
        h = h.detach()
        if h.dim() != 2 or h.shape[0] < 1 or h.shape[1] != self.width:
            wanted = f"at least one row of {self.width} values"
            raise DataError(f"wanted a batch of {wanted}, got {h.shape}")
        if not is_finite(h):
            raise _not_finite(h)
        choose = self._choose(is_training)
        kept = choose.keep(h, generator, draws)
        written = self.forward.write(_take(h, kept), generator)
        positions = self._pack_positions(kept, choose)
        return torch.cat([*positions, written]) if positions else written, kept

    def unpack(self, data: Tensor, rows: int, *, is_training: bool) -> tuple[Tensor, Support]:
        """Return the batch that the bytes stand for, zero where nothing was sent.

        Raises:
            DataError: the bytes are too few, too many, or impossible.
        """
        choose = self._choose(is_training)
        kept, used = self._unpack_positions(data, rows, choose)
        count = _count(kept, rows * self.width)
        wanted = used + self.forward.bytes_of(count)
        if data.numel() != wanted:
            raise DataError(f"wanted {wanted} bytes for {rows} rows, got {data.numel()}")
        values = self.forward.read(data[used:] if used else data, count)
        h = _put(values, kept, rows, self.width)
        if not is_finite(values):
            raise _not_finite(h)
        return h, kept

    def pack_gradient(
        self, gradient: Tensor, kept: Support, *, generator: torch.Generator | None = None
    ) -> Tensor:
        """Return the bytes of the gradient at the kept values."""
        return self.backward.write(_take(gradient, kept), generator)

    def unpack_gradient(self, data: Tensor, kept: Support, rows: int) -> Tensor:
        """Return the gradient (rows, width), zero where nothing was kept.

        Raises:
            DataError: the bytes are too few or too many, or a value is not finite.
        """
        count = _count(kept, rows * self.width)
        if data.numel() != self.backward.bytes_of(count):
            wanted = self.backward.bytes_of(count)
            raise DataError(f"wanted {wanted} bytes of gradient, got {data.numel()}")
        values = self.backward.read(data, count)
        if not is_finite(values):
            raise DataError("a gradient holds values that are not finite")
        return _put(values, kept, rows, self.width)

    def only(self, gradient: Tensor, kept: Support) -> Tensor:
        """Return a gradient with zeros where nothing was kept."""
        return gradient if kept is None else gradient * as_mask(kept, self.width)

    def apply(
        self, h: Tensor, *, is_training: bool, generator: torch.Generator | None = None
    ) -> Tensor:
        """Return what the other side would see, and let the gradient back as it would travel.

        Args:
            h: one message (rows, width), or several (messages, rows, width).
            is_training: whether the choice of values is that of training.
            generator: draws what is random, on the device of `h`.
        """
        kept = self._choose(is_training).keep(h.flatten(0, -2), generator)
        kept = None if kept is None else as_mask(kept, self.width).reshape(h.shape)
        return _AsSent.apply(h, kept, self, generator)  # type: ignore[no-any-return,no-untyped-call]

    def penalty(self, h: Tensor) -> Tensor:
        """Return the L1 loss that the feature owner adds by itself, averaged over rows."""
        return self.l1_weight * h.abs().sum(1).mean()

    def forward_bytes(self, rows: int, *, is_training: bool = True) -> int | None:
        """Return the size of a batch's message, or None where it depends on the values."""
        choose = self._choose(is_training)
        if choose.count is None:
            return None
        return self._position_bytes(rows, choose) + self.forward.bytes_of(rows * choose.count)

    def backward_bytes(self, rows: int) -> int:
        """Return the size of the gradient's message."""
        return self.backward.bytes_of(rows * (self.training.count or self.width))

    @property
    def draws_forward(self) -> bool:
        """Tell whether packing a batch takes random choices."""
        return isinstance(self.training, RandomisedTopK) or isinstance(self.forward, Unbiased)

    @property
    def draws_backward(self) -> bool:
        """Tell whether packing a gradient takes random choices."""
        return isinstance(self.backward, Unbiased)

    def _choose(self, is_training: bool) -> Sparsifier:
        return self.training if is_training else self.serving

    def _position_bytes(self, rows: int, choose: Sparsifier) -> int:
        if isinstance(choose, Everything | First) or choose.count is None:
            return 0
        if self.ranks_subsets:
            return packed_bytes(rows, subset_bits(self.width, choose.count))
        return packed_bytes(rows * choose.count, bits_below(self.width))

    def _pack_positions(self, kept: Support, choose: Sparsifier) -> list[Tensor]:
        if kept is None or isinstance(choose, First):
            return []
        if choose.count is None:
            counts = pack_numbers(kept.sum(1), bits_below(self.width + 1))
            return [counts, pack_numbers(kept.nonzero()[:, 1], bits_below(self.width))]
        if self.ranks_subsets:
            return [pack_subsets(kept, self.width)]
        return [pack_numbers(kept, bits_below(self.width))]

    def _unpack_positions(self, data: Tensor, rows: int, choose: Sparsifier) -> tuple[Support, int]:
        """Return what a message says that it carries, and how many bytes of it that took."""
        if rows < 1:
            raise DataError(f"a batch has at least one row, got {rows}")
        if isinstance(choose, Everything):
            return None, 0
        if isinstance(choose, First):
            return choose.columns(rows, data.device), 0
        if choose.count is None:
            return self._unpack_uneven(data, rows)
        used = self._position_bytes(rows, choose)
        if self.ranks_subsets:
            columns = unpack_subsets(data[:used], rows, self.width, choose.count)
        else:
            bits = bits_below(self.width)
            columns = unpack_numbers(data[:used], rows * choose.count, bits).view(rows, -1)
        # A power of two leaves no room for larger numbers in as many bits as are needed.
        some, is_power = columns.numpy(), self.width & (self.width - 1) == 0
        is_below = is_power or some[:, -1].max() < self.width
        if not ((some[:, 1:] > some[:, :-1]).all() and is_below):
            raise DataError(f"columns must ascend and lie below {self.width}")
        return columns, used

    def _unpack_uneven(self, data: Tensor, rows: int) -> tuple[Tensor, int]:
        head = packed_bytes(rows, bits_below(self.width + 1))
        counts = unpack_numbers(data[:head], rows, bits_below(self.width + 1))
        if int(counts.max()) > self.width:
            raise DataError(f"a row of {self.width} values cannot keep {int(counts.max())}")
        total = int(counts.sum())
        used = head + packed_bytes(total, bits_below(self.width))
        columns = unpack_numbers(data[head:used], total, bits_below(self.width))
        if total and int(columns.max()) >= self.width:
            raise DataError(f"a column is beyond the width {self.width}")
        mask = torch.zeros((rows, self.width), dtype=torch.bool)
        mask[torch.repeat_interleave(torch.arange(rows), counts), columns] = True
        if int(mask.sum()) != total:
            raise DataError("a row names the same column twice")
        return mask, used


class _AsSent(torch.autograd.Function):
    """Round and mask forward, mask and round backward."""

    @staticmethod
    def forward(
        ctx: Any, h: Tensor, kept: Support, codec: Codec, generator: torch.Generator | None
    ) -> Tensor:  # torch gives the context no type
        ctx.kept, ctx.codec, ctx.generator = kept, codec, generator
        if kept is None:
            return codec.forward.rounded(h, generator).clone()
        return torch.where(kept, codec.forward.rounded(_fill(h, kept), generator), 0.0)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        (gradient,) = gradients
        kept, backward = ctx.kept, ctx.codec.backward
        if kept is None:
            return backward.rounded(gradient, ctx.generator), None, None, None
        sent = backward.rounded(_fill(gradient, kept), ctx.generator)
        return torch.where(kept, sent, 0.0), None, None, None


def _fill(values: Tensor, kept: Tensor) -> Tensor:
    """Put a kept value where nothing is kept, so that the range is that of the kept ones."""
    some = values.masked_fill(~kept, torch.inf).amin((-2, -1), keepdim=True)
    return torch.where(kept, values, some)


def _count(kept: Support, everything: int) -> int:
    if kept is None:
        return everything
    return int(kept.sum()) if kept.dtype == torch.bool else kept.numel()


def _take(values: Tensor, kept: Support) -> Tensor:
    """Return the kept ones of values (rows, width), row by row."""
    if kept is None:
        return values.reshape(-1)
    return values[kept] if kept.dtype == torch.bool else values.gather(1, kept).view(-1)


def _put(values: Tensor, kept: Support, rows: int, width: int) -> Tensor:
    """Undo `_take`, with zeros elsewhere."""
    if kept is None:
        return values.view(rows, width)
    zeros, values = torch.zeros(rows, width, device=kept.device), values.to(kept.device)
    if kept.dtype == torch.bool:
        return zeros.masked_scatter_(kept, values)
    return zeros.scatter_(1, kept, values.view(kept.shape))


def is_finite(values: Tensor) -> bool:
    """Tell whether all values are finite; a finite sum says so in a third of the time."""
    return isfinite(values.sum().item()) or bool(torch.isfinite(values).all())


def _not_finite(h: Tensor) -> DataError:
    bad = int((~torch.isfinite(h)).any(1).sum())
    return DataError(
        f"the cut layer holds values that are not finite, in {bad} of {len(h)} rows; "
        "lower the learning rate or look at the inputs"
    )


MAX_WIDTH = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Compression:
    """What is asked of a compressor; a setting that its kind does not have is refused.

    Attributes:
        kind: none, shrink, quantise, topk, randtopk, randtopk-coded or l1.
        k: how many values of a row are kept.
        alpha: how often a kept value is drawn from outside the top k while training.
        bits: bits of a value on the way forward.
        gradient_bits: bits of a value on the way back.
        weight: of the L1 loss.
        threshold: magnitudes up to this are not sent once an L1 model serves.
        feedback: whether the feature owner adds what it could not send of a row to that row's
            values the next time.
    """

    kind: str = "none"
    k: int | None = None
    alpha: float | None = None
    bits: int | None = None
    gradient_bits: int | None = None
    weight: float | None = None
    threshold: float | None = None
    feedback: bool = False

    def __post_init__(self) -> None:
        if self.kind not in COMPRESSORS:
            known = ", ".join(sorted(COMPRESSORS))
            raise ConfigError(f"compress.kind: wanted one of {known}, got {self.kind!r}")
        needs, takes = COMPRESSORS[self.kind]
        asked = {
            field.name: getattr(self, field.name) for field in fields(self) if field.name != "kind"
        }
        given = {name for name, value in asked.items() if value is not None and value is not False}
        missing, strange = needs - given, given - needs - takes
        if missing:
            raise ConfigError(f"compress: kind {self.kind!r} needs {', '.join(sorted(missing))}")
        if strange:
            known = ", ".join(sorted(needs | takes)) or "no settings"
            raise ConfigError(
                f"compress: kind {self.kind!r} has no {', '.join(sorted(strange))}; "
                f"it takes {known}"
            )
        if self.k is not None and self.k < 1:
            raise ConfigError(f"compress.k: wanted at least 1, got {self.k}")
        if self.alpha is not None and not 0 <= self.alpha <= 1:
            raise ConfigError(f"compress.alpha: wanted a number from 0 to 1, got {self.alpha}")
        for name in ("bits", "gradient_bits"):
            bits = getattr(self, name)
            if bits is not None and not 1 <= bits <= 16:
                raise ConfigError(f"compress.{name}: wanted 1 to 16, got {bits}")
        for name in ("weight", "threshold"):
            number = getattr(self, name)
            if number is not None and not 0 <= number < float("inf"):
                raise ConfigError(f"compress.{name}: wanted a number of at least 0, got {number}")


def make_codec(compression: Compression, width: int) -> Codec:
    """Make the compressor for a cut layer of `width` values.

    Raises:
        ConfigError: more values are to be kept than there are.
    """
    if not 1 <= width <= MAX_WIDTH:
        raise ConfigError(f"a cut layer has between 1 and {MAX_WIDTH} values, got {width}")
    if compression.k is not None and compression.k > width:
        raise ConfigError(
            f"compress.k: cannot keep {compression.k} of the {width} values of the cut layer; "
            f"wanted at most {width}"
        )
    c, k, exact = compression, compression.k or width, Exact()
    everything = Everything(width)
    training: Sparsifier = everything
    serving: Sparsifier = everything
    forward: ValueCode = exact
    backward: ValueCode = exact
    l1_weight = 0.0
    match c.kind:
        case "shrink":
            training = serving = First(k)
        case "quantise":
            forward = Uniform(c.bits or 8)
        case "topk":
            training = serving = TopK(k)
        case "randtopk" | "randtopk-coded":
            training, serving = RandomisedTopK(k, 0.1 if c.alpha is None else c.alpha), TopK(k)
        case "l1":
            serving = Above(0.01 if c.threshold is None else c.threshold)
            l1_weight = 0.001 if c.weight is None else c.weight
    if c.kind == "randtopk-coded":
        forward, backward = Uniform(c.bits or 8), Unbiased(c.gradient_bits or 8)
    return Codec(
        width=width,
        training=training,
        serving=serving,
        forward=forward,
        backward=backward,
        ranks_subsets=c.kind == "randtopk-coded",
        l1_weight=l1_weight,
    )


COMPRESSORS: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    "none": (frozenset(), frozenset()),
    "shrink": (frozenset({"k"}), frozenset()),
    "quantise": (frozenset({"bits"}), frozenset({"feedback"})),
    "topk": (frozenset({"k"}), frozenset({"feedback"})),
    "randtopk": (frozenset({"k"}), frozenset({"alpha", "feedback"})),
    "randtopk-coded": (
        frozenset({"k"}),
        frozenset({"alpha", "bits", "gradient_bits", "feedback"}),
    ),
    "l1": (frozenset(), frozenset({"weight", "threshold"})),
}
"""Every compressor there is, with the settings that it needs and those that it may have.

One that is not here does not exist; one that is here is tested."""
