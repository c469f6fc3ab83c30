"""Per-record gradients that are never formed: their norms, and their weighted sum.

A layer's gradient for record i is a sum of outer products of what went in and what came back,
Σ_t g_t ⊗ a_t. Its norm follows from two small Gram matrices (Goodfellow 2015, "ghost" norms, Li et
al. 2022), and the sum over records, each with a factor of its own, is one product of matrices
(book-keeping, Bu et al. 2022).
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_MARGIN = 2.0**-16
"""Added to squared norms, in units of (Σ_t |a_t||g_t|)²: what float32 loses in two sums."""
_BLOCK = 128
"""Numbers that a norm adds up in float32: each may lose 2^-24 of the sum, as beside 1 those do."""
_LONG_BLOCK = 512
"""The same for sums of gradients, whose products are larger; the margin of `least_factor`."""
_LOST = 1e-9
"""Added to norms: more than what is lost where squares of what comes back are 0 in float32."""
_LEAST, _MOST = 2.0**-32, 2.0**16
"""Sizes of what goes in for which that holds; others are brought to 1 first."""
_LEAST_FACTOR = 2.0**-100
_AT_ONCE = 1 << 24  # numbers that a step of a norm may hold


class GradientTerm(Protocol):
    """What one use of a parameter adds to its gradient, for every record of a batch."""

    def norms(self) -> Tensor:
        """Return an upper bound of every record's norm in float64; tight up to rounding."""
        ...

    def total(self, factors: Tensor) -> Tensor:
        """Return the sum of the records' gradients, each times its factor."""
        ...


@dataclass(frozen=True, eq=False)
class Outer:
    """Σ_t g_t ⊗ a_t of dense layers and convolutions, in groups."""

    a: Tensor  # (records, groups, positions, inputs)
    g: Tensor  # (records, groups, positions, outputs)
    shape: torch.Size

    def norms(self) -> Tensor:
        """Take the cheaper of two Gram matrices and the gradient itself, some records at once."""
        _, groups, positions, inputs = self.a.shape
        outputs = self.g.shape[-1]
        is_gram = 2 * positions**2 <= inputs * outputs
        size = groups * (positions * positions if is_gram else inputs * outputs)
        squares = []
        for a, g in _some(self.a, self.g, max(1, _AT_ONCE // max(size, 1))):
            most = (_lengths(a) * _lengths(g)).sum((1, 2)).square()
            if groups == positions == 1:
                found = most
            elif is_gram:
                found = (_product(a, a.mT) * _product(g, g.mT)).sum((1, 2, 3))
            else:
                found = _product(g.mT, a).square().sum((1, 2, 3))
            squares.append(found.clamp_min(0) + _MARGIN * most)
        return torch.cat(squares).sqrt() + _LOST

    def total(self, factors: Tensor) -> Tensor:
        """Multiply once, with the factors in."""
        g = (self.g * factors[:, None, None, None]).transpose(0, 1).flatten(1, 2)
        a = self.a.transpose(0, 1).flatten(1, 2)
        return _product(g.mT, a, size=_LONG_BLOCK).to(g.dtype).reshape(self.shape)


@dataclass(frozen=True, eq=False)
class TableRows:
    """Σ_t of g_t in row id_t: the gradient of a table that is looked up."""

    ids: Tensor  # (records, positions)
    g: Tensor  # (records, positions, width)
    shape: torch.Size

    def norms(self) -> Tensor:
        """Add up what each record sends to each row, then take norms."""
        keys, sums = self._sums()
        squares = sums.new_zeros(len(self.ids))
        squares.index_add_(0, keys // self.shape[0], sums.square().sum(1))
        most = _lengths(self.g).sum(1)
        bound: Tensor = (squares + _MARGIN * most.square()).sqrt()
        return bound

    def total(self, factors: Tensor) -> Tensor:
        """Add the rows up."""
        keys, sums = self._sums()
        each = sums * factors[keys // self.shape[0], None]
        table = self.g.new_zeros(self.shape)
        return table.index_add_(0, keys % self.shape[0], each.to(self.g.dtype))

    def _sums(self) -> tuple[Tensor, Tensor]:
        """Return every record and row that meet, as one number, and what goes there."""
        records = torch.arange(len(self.ids), device=self.ids.device)[:, None]
        keys, place = torch.unique(records * self.shape[0] + self.ids, return_inverse=True)
        sums = self.g.new_zeros(len(keys), self.shape[1], dtype=torch.float64)
        return keys, sums.index_add_(0, place.view(-1), self.g.flatten(0, 1).double())


@dataclass(frozen=True, eq=False)
class Whole:
    """A gradient that is small enough to have for every record: biases and norms' scales."""

    each: Tensor  # (records, *shape)

    def norms(self) -> Tensor:
        """Take norms."""
        return _lengths(self.each.flatten(1)) * (1 + _MARGIN)

    def total(self, factors: Tensor) -> Tensor:
        """Mix the records; one that has a factor of 0 may be infinite."""
        each = self.each.flatten(1)
        each = torch.where(factors[:, None] > 0, each, torch.zeros_like(each))
        mixed: Tensor = factors @ each
        return mixed.view(self.each.shape[1:])


# A rule takes the layers that the table below gives it, hence Any.
Rule = Callable[[Any, Tensor, Tensor], dict[str, GradientTerm]]


def _linear(layer: Any, x: Tensor, g: Tensor) -> dict[str, GradientTerm]:
    a = x.reshape(len(x), 1, -1, x.shape[-1])
    g = g.reshape(len(g), 1, -1, g.shape[-1])
    found: dict[str, GradientTerm] = {"weight": _outer(a, g, layer.weight.shape)}
    if layer.bias is not None:
        found["bias"] = Whole(g.sum((1, 2)))
    return found


def _convolution(layer: Any, x: Tensor, g: Tensor) -> dict[str, GradientTerm]:
    # What the layer pads by itself comes first; `unfold` then cuts windows as the layer does.
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    x = F.pad(x, tuple(layer._reversed_padding_repeated_twice), mode=mode)
    kernel, stride, dilation = layer.kernel_size, layer.stride, layer.dilation
    if isinstance(layer, nn.Conv1d):
        x, g = x[:, :, None], g[:, :, None]
        kernel, stride, dilation = (1, *kernel), (1, *stride), (1, *dilation)
    windows = F.unfold(x, kernel, dilation=dilation, stride=stride)  # (records, inputs, positions)
    g = g.flatten(2)
    a = torch.unflatten(windows, 1, (layer.groups, -1)).mT
    back = torch.unflatten(g, 1, (layer.groups, -1)).mT
    return {"weight": _outer(a, back, layer.weight.shape), "bias": Whole(g.sum(2))}


def _outer(a: Tensor, g: Tensor, shape: torch.Size) -> Outer:
    """Make a term; what goes in may be tiny where what comes back is huge, and the other way."""
    size: Tensor = torch.linalg.vector_norm(a, math.inf, dim=-1, keepdim=True)
    if bool(((size > _MOST) | (size < _LEAST) & (size > 0)).any()):
        size = size.clamp_min(torch.finfo(a.dtype).tiny)
        a, g = a / size, (g * size).nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    return Outer(a, g, shape)


def _embedding(layer: Any, ids: Tensor, g: Tensor) -> dict[str, GradientTerm]:
    ids, g = ids.reshape(len(ids), -1), g.reshape(len(g), -1, g.shape[-1])
    if layer.padding_idx is not None:
        g = g * (ids != layer.padding_idx)[..., None]
    return {"weight": TableRows(ids, g, layer.weight.shape)}


def _channel_norm(layer: Any, x: Tensor, g: Tensor) -> dict[str, GradientTerm]:
    scaled = g * F.group_norm(x, layer.num_groups, eps=layer.eps)
    return {"weight": Whole(scaled.flatten(2).sum(2)), "bias": Whole(g.flatten(2).sum(2))}


def _last_norm(layer: Any, x: Tensor, g: Tensor) -> dict[str, GradientTerm]:
    shape = list(layer.normalized_shape)
    if isinstance(layer, nn.LayerNorm):
        normal = F.layer_norm(x, shape, eps=layer.eps)
    else:
        normal = F.rms_norm(x, shape, eps=layer.eps)
    middle = tuple(range(1, x.ndim - len(shape)))
    return {"weight": Whole(_sum(g * normal, middle)), "bias": Whole(_sum(g, middle))}


def _sum(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    return x.sum(dims) if dims else x  # an empty tuple would mean all of them


RULES: Mapping[type[nn.Module], Rule] = {
    nn.Linear: _linear,
    nn.Conv1d: _convolution,
    nn.Conv2d: _convolution,
    nn.Embedding: _embedding,
    nn.GroupNorm: _channel_norm,
    nn.LayerNorm: _last_norm,
    nn.RMSNorm: _last_norm,
}
"""Layers whose per-record gradients are known; a subclass may do anything, and is not."""


def find_terms(
    layer: nn.Module, x: Tensor, g: Tensor, *, dtype: torch.dtype
) -> dict[str, GradientTerm]:
    """Return the terms of one use of a layer, by the name of its parameter, in one precision."""
    values = x.detach().to(dtype) if x.is_floating_point() else x
    return RULES[type(layer)](layer, values, g.to(dtype))


def join_terms(terms: list[GradientTerm]) -> list[GradientTerm]:
    """Join the uses of one layer's parameter into one term, whose norm is then exact."""
    if len(terms) == 1:
        return terms  # joining would copy it
    outer = [term for term in terms if isinstance(term, Outer)]
    whole = [term for term in terms if isinstance(term, Whole)]
    joined: list[GradientTerm] = [term for term in terms if isinstance(term, TableRows)]
    if outer:
        a, g = (torch.cat([getattr(term, side) for term in outer], dim=2) for side in ("a", "g"))
        joined.append(Outer(a, g, outer[0].shape))
    if whole:
        joined.append(Whole(torch.stack([term.each for term in whole]).sum(0)))
    return joined


def bound_norms(uses: Mapping[str, list[GradientTerm]]) -> Tensor:
    """Bound every record's norm over all parameters.

    A parameter with several uses, a table that also makes the scores, say, has at most the sum of
    their norms.
    """
    squares = [sum(term.norms() for term in terms).square() for terms in uses.values()]  # type: ignore[union-attr]
    return torch.stack(squares).sum(0).sqrt()


def _lengths(x: Tensor) -> Tensor:
    found: Tensor = torch.linalg.vector_norm(x, dim=-1, dtype=torch.float64)
    return found


def _product(left: Tensor, right: Tensor, *, size: int = _BLOCK) -> Tensor:
    """Multiply, with short sums in the precision of both and sums of those in float64."""
    parts = zip(torch.split(left, size, -1), torch.split(right, size, -2), strict=True)
    total: Tensor
    total, *rest = ((one @ other).double() for one, other in parts)
    for part in rest:
        total += part
    return total


def _some(a: Tensor, g: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    return zip(torch.split(a, size), torch.split(g, size), strict=True)


def least_factor(norms: Tensor, clip: float) -> Tensor:
    """Return the factors that bring every norm to at most `clip`.

    0 for what is not finite, and where float32 would round the factor itself to few digits.
    """
    factors = (clip * (1 - _LONG_BLOCK * 2.0**-24) / norms.clamp_min(1e-300)).clamp_max(1.0)
    is_kept = torch.isfinite(norms) & (factors > _LEAST_FACTOR)
    return torch.where(is_kept, factors, torch.zeros_like(factors))
