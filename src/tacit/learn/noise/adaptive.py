"""Adaptive noise: the budget split by contribution, over attributes or over layers.

Seed of the scheme: relevance gives each attribute a share of the budget, so that what matters gets
less noise. Repaired here: finding the contributions costs ε_c unless they come from public data;
leaving an attribute as it is, even with a small probability, has no finite ε and is reported so.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.dp import (
    GAUSSIANS,
    REPLACE_CLIENT,
    Bounded,
    DiscreteGaussian,
    DiscreteLaplace,
    Event,
    Gaussian,
    GaussianKind,
    Relation,
    SparseVector,
    Unaccountable,
    add_laplace,
    clip,
    laplace_event,
    select_above,
)
from tacit.errors import ConfigError, DataError
from tacit.ring import Prg

_LEAST_SHARE = 1e-3
_TWO_SHARES = 2 * (1 + 1e-9)  # the L1 distance of two vectors of shares, and their rounding


def private_shares(
    rows: Tensor, *, epsilon: float, relation: Relation, prg: Prg
) -> tuple[Tensor, DiscreteLaplace]:
    """Average the rows' contributions with Laplace noise, into shares that add up to one.

    Args:
        rows: one row per record, shares of at least 0 that add up to 1, as `contributions` makes.
        epsilon: ε_c, the price.
        relation: record-level; a replaced row moves the sum by 2, an added one by 1.
        prg: the source of the noise.

    Guarantee: pure privacy as the event says.
    """
    if rows.dim() != 2 or not bool((rows >= 0).all()) or float(rows.sum(1).max()) > 1 + 1e-9:
        raise DataError("contributions are rows of shares that add up to at most one each")
    moved = 1.0 if relation.neighbours == "add-remove" else 2.0
    noisy, event = add_laplace(
        rows.sum(dim=0),
        scale=moved / _budget(epsilon),
        l1_sensitivity=moved * (1 + 1e-9),
        relation=relation,
        prg=prg,
    )
    return floored(noisy), event


def contribution_event(dimension: int, *, epsilon: float) -> DiscreteLaplace:
    """Say what it does to a client to show its mean contributions once, as `show_contributions`."""
    return laplace_event(
        dimension,
        scale=2.0 / _budget(epsilon),
        l1_sensitivity=_TWO_SHARES,
        relation=REPLACE_CLIENT,
    )


def show_contributions(mean: Tensor, *, epsilon: float, prg: Prg) -> tuple[Tensor, DiscreteLaplace]:
    """Put one client's mean contributions, shares that add up to one, under Laplace noise.

    Guarantee: pure privacy for replacing all rows of the client, as the event says.
    Cost: 0 rounds, 0 bits.
    """
    return add_laplace(
        mean,
        scale=2.0 / _budget(epsilon),
        l1_sensitivity=_TWO_SHARES,
        relation=REPLACE_CLIENT,
        prg=prg,
    )


def floored(contribution: Tensor) -> Tensor:
    """Make positive shares that add up to one; none falls below a thousandth of the average."""
    least = _LEAST_SHARE / contribution.numel()
    positive = contribution.to(torch.float64).clamp_min(0)
    total = float(positive.sum())
    shares = positive / total if total > 0 else torch.full_like(positive, 1 / positive.numel())
    shares = shares.clamp_min(least)
    return shares / shares.sum()


@dataclass(frozen=True, kw_only=True)
class AttributeNoise:
    """How attributes are perturbed.

    Args:
        epsilon: ε_l of one row, over all its attributes.
        threshold: f: attributes with a smaller share are perturbed only with probability `p`.
        p: 1 perturbs all; below 1 there is no guarantee.
        low: the least value of an attribute; what lies outside [low, low + width] is clipped.
        width: how far two values of an attribute can lie apart.
    """

    epsilon: float
    threshold: float = 0.0
    p: float = 1.0
    low: float = 0.0
    width: float = 1.0

    def __post_init__(self) -> None:
        _budget(self.epsilon)
        if not 0 <= self.p <= 1:
            raise ConfigError(f"p must lie between 0 and 1, got {self.p}")
        if not self.width > 0 or not math.isfinite(self.width):
            raise ConfigError(f"width must be positive and finite, got {self.width}")
        if not math.isfinite(self.low):
            raise ConfigError(f"low must be finite, got {self.low}")


def perturb_attributes(
    row: Tensor, shares: Tensor, settings: AttributeNoise, *, relation: Relation, prg: Prg
) -> tuple[Tensor, Event]:
    """Clip each attribute of one row and add Laplace noise of scale width / (share · ε).

    Guarantee: ε for replacing the row, if p = 1 or no share is below the threshold; otherwise the
    event is `Unaccountable`: with probability 1 − p a raw value is shown.
    """
    if row.shape != shares.shape or row.dim() != 1:
        raise DataError(f"one share per attribute is needed, got {row.shape} and {shares.shape}")
    row = row.to(torch.float64).clamp(settings.low, settings.low + settings.width)
    scales = settings.width / (shares * settings.epsilon)
    unit, event = add_laplace(
        row / scales,
        scale=1.0,
        l1_sensitivity=float((settings.width / scales).sum()) * (1 + 1e-9),
        relation=relation,
        prg=prg,
    )
    noisy = unit * scales
    is_low = shares < settings.threshold
    if settings.p == 1 or not bool(is_low.any()):
        return noisy, event
    coins = prg.below(2**53, tuple(row.shape)) < round(settings.p * 2**53)
    kept = is_low & ~coins
    reason = (
        f"attributes of low contribution are left as they are with probability {1 - settings.p:g}"
    )
    return torch.where(kept, row, noisy), Unaccountable(reason=reason, relation=relation)


def layer_shares(
    weights: Mapping[str, float], sizes: Mapping[str, int], l2_bounds: Mapping[str, float]
) -> dict[str, float]:
    """Split the budget over layers so that the weighted noise is least.

    Minimises Σ w·d·C²·z² under Σ 1/z² = const, where z is a layer's noise per clipping bound C and
    d its size: 1/z² in proportion to C·√(w·d).
    """
    if not set(weights) == set(sizes) == set(l2_bounds) or not weights:
        raise ConfigError("weights, sizes and bounds must name the same layers, at least one")
    names = sorted(weights)
    raw = torch.tensor([l2_bounds[n] * math.sqrt(max(weights[n], 0) * sizes[n]) for n in names])
    return dict(zip(names, floored(raw).tolist(), strict=True))


def layer_factors(l2_bounds: Mapping[str, float], shares: Mapping[str, float]) -> dict[str, float]:
    """Return C / √share by layer: what `whiten` divides by and `unwhiten` multiplies with."""
    return {name: bound / math.sqrt(shares[name]) for name, bound in l2_bounds.items()}


def whiten(layers: Mapping[str, Bounded], shares: Mapping[str, float]) -> Bounded:
    """Scale clipped layers by √share / C and join them into one vector of norm at most 1.

    Equal noise on this vector, whatever the mechanism, is adaptive noise on the layers: after
    `unwhiten` a layer has z·C/√share, and all layers together cost what the one vector cost.
    """
    _check_shares(layers, shares)
    factors = layer_factors({name: layer.l2_bound for name, layer in layers.items()}, shares)
    parts = [layers[name].value.reshape(-1) / factors[name] for name in layers]
    return clip(torch.cat(parts), l2_bound=1.0)


def unwhiten(
    vector: Tensor, shapes: Mapping[str, torch.Size], factors: Mapping[str, float]
) -> dict[str, Tensor]:
    """Cut a vector back into layers and undo the scaling; `factors` are C / √share by layer."""
    pieces = torch.split(vector, [shape.numel() for shape in shapes.values()])
    return {
        name: (piece * factors[name]).view(shapes[name])
        for name, piece in zip(shapes, pieces, strict=True)
    }


def perturb_layers(
    layers: Mapping[str, Bounded],
    shares: Mapping[str, float],
    *,
    multiplier: float,
    relation: Relation,
    prg: Prg,
    noise: GaussianKind = "continuous",
) -> tuple[dict[str, Tensor], Gaussian | DiscreteGaussian]:
    """Add Gaussian noise to clipped layers, less where the share is larger.

    Layer l gets σ_l = multiplier · Δ_l / √share_l, so that all of them together are one Gaussian
    mechanism with `multiplier`. Δ is the bound for add-remove neighbours, twice that otherwise.

    Guarantee: as the event says; of "continuous" noise with the caveat of `add_gaussian`.
    """
    moved = 1.0 if relation.neighbours == "add-remove" else 2.0
    noisy, event = GAUSSIANS[noise](
        whiten(layers, shares).value,
        sigma=multiplier * moved,
        l2_sensitivity=moved,
        relation=relation,
        prg=prg,
    )
    factors = layer_factors({name: layer.l2_bound for name, layer in layers.items()}, shares)
    shapes = {name: layer.value.shape for name, layer in layers.items()}
    return unwhiten(noisy, shapes, factors), event


def _check_shares(layers: Mapping[str, Bounded], shares: Mapping[str, float]) -> None:
    if set(layers) != set(shares) or abs(math.fsum(shares.values()) - 1) > 1e-6:
        raise ConfigError("shares must name the layers and add up to one")
    if min(shares.values()) <= 0:
        raise ConfigError(f"every layer needs a share above 0, got {dict(shares)}")


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Which entries of an update are worth sending, and for how much.

    Args:
        bound: entries are clipped to [−bound, bound].
        threshold: entries above it in absolute value are wanted.
        answers: c, at most so many.
        choice_epsilon: for saying which.
        value_epsilon: for their values.
    """

    bound: float
    threshold: float
    answers: int
    choice_epsilon: float
    value_epsilon: float

    def epsilon(self, relation: Relation) -> float:
        """Return the ε of `upload_selected`: of saying which, and of the values as they are."""
        price = laplace_event(
            self.answers,
            scale=self.value_scale,
            l1_sensitivity=self.distance,
            relation=relation,
        )
        return self.technique(relation).epsilon + price.epsilon

    @property
    def distance(self) -> float:
        """The L1 distance of the chosen values of two updates."""
        return 2 * self.bound * self.answers

    @property
    def value_scale(self) -> float:
        """The scale of the noise on the chosen values."""
        return self.distance / _budget(self.value_epsilon)

    def technique(self, relation: Relation) -> SparseVector:
        """Return the settings by which entries are chosen."""
        return SparseVector(
            epsilon=self.choice_epsilon,
            answers=self.answers,
            sensitivity=self.bound,  # absolute values lie in [0, bound]
            relation=relation,
        )


def upload_selected(
    update: Tensor, selection: Selection, *, relation: Relation, prg: Prg
) -> tuple[Tensor, Tensor, tuple[Event, ...]]:
    """Choose entries by the sparse vector technique and release their values with Laplace noise.

    Returns the indices, their noisy values and both events; fewer than c may be found, and the
    price is the same.

    Guarantee: the sum of both ε for replacing the whole update.
    """
    clipped = update.detach().to(torch.float64).clamp(-selection.bound, selection.bound)
    indices, choice = select_above(
        clipped.abs(),
        threshold=selection.threshold,
        settings=selection.technique(relation),
        prg=prg,
    )
    padded = torch.zeros(selection.answers, dtype=torch.float64)
    padded[: indices.numel()] = clipped[indices]
    values, price = add_laplace(
        padded,
        scale=selection.value_scale,
        l1_sensitivity=selection.distance,
        relation=relation,
        prg=prg,
    )
    return indices, values[: indices.numel()], (choice, price)


def _budget(epsilon: float) -> float:
    if not 0 < epsilon <= 200:
        raise ConfigError(f"epsilon must be above 0 and at most 200, got {epsilon}")
    return epsilon
