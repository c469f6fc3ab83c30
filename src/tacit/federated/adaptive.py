"""Adaptive local noise: less of it where the model has been seen to learn.

The scale of every parameter follows from the global model, which everyone has and which is the
outcome of private rounds: looking at it costs no ε. An update is divided by the scale before it is
clipped and put under noise, and the mean is multiplied by it afterwards. In the space of the scaled
updates the mechanism is that of uniform noise, so the events are the same.

For a matrix of weights the scale goes by column, that is by attribute: the contribution of an
attribute is how much its weights have grown beyond those of attributes that carry nothing. With
magnitudes m the best scale is in proportion to √m; while nothing stands out of the noise, the scale
is the same for all.

Contributions can also be traced back through the network by layer-wise relevance, the ε-rule of
Bach et al. (2015): a layer hands the relevance of its outputs back to its inputs in proportion to
a_i·w_ij. Biases take no part, so what goes in comes out: relevance is conserved up to the
stabiliser. Off public inputs that costs nothing; asked of clients it costs ε_c, once.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from tacit.data.partition import data_generator
from tacit.dp import (
    REPLACE_CLIENT,
    DiscreteLaplace,
    Event,
    Relation,
    SparseVector,
    add_laplace,
    laplace_event,
    select_above,
)
from tacit.errors import ConfigError, DataError
from tacit.federated.contract import Floats
from tacit.federated.spec import AdaptiveNoise
from tacit.federated.training import Learner
from tacit.ring import Prg

_BASE = 0.1  # the quantile of attributes that stands for those that carry nothing
_MOST = 3.0  # the largest scale, relative to the smallest
_TINY = 1e-3
_PUBLIC_ROWS = 64
_MOST_ROWS = 256  # of a client that are looked at
_LEAST_SHARE = 1e-3
_TWO_SHARES = 2 * (1 + 1e-9)  # the L1 distance of two vectors of shares, and their rounding
_STABILISER = 1e-6
_PASSES = (nn.ReLU, nn.Dropout, nn.Identity, nn.Tanh, nn.Sigmoid, nn.GELU, nn.LeakyReLU)
_SPREADS = (nn.Linear, nn.Conv2d, nn.MaxPool2d, nn.AvgPool2d)

Shares = Mapping[str, float] | NDArray[np.float64]
"""Contributions that add up to one: of layers by name, or of the attributes of a row."""


def attribute_scale(weights: Floats, shapes: Sequence[Sequence[int]]) -> NDArray[np.float64]:
    """Compute the scale of every parameter from the model's weights.

    Args:
        weights: of the global model, flat.
        shapes: of its parameters in order.

    Guarantee: none needed: it depends on the global model alone.
    Cost: 0 rounds, 0 bits.
    """
    scales, at = [], 0
    for shape in shapes:
        size = math.prod(shape)
        scales.append(_scale_one(weights[at : at + size], shape))
        at += size
    scale: NDArray[np.float64] = np.concatenate(scales)
    return scale / math.sqrt(float(np.mean(scale**2)))


def share_scale(
    shares: NDArray[np.float64], shapes: Sequence[Sequence[int]]
) -> NDArray[np.float64]:
    """Compute the scale of every parameter from the contributions of a row's attributes.

    The first layer's columns get √share, within the same limits as `attribute_scale`; all other
    parameters the average.
    """
    rising = np.sqrt(shares / max(float(shares.mean()), 1e-300))
    rising = np.clip(rising, 1 / math.sqrt(_MOST), math.sqrt(_MOST))
    scales, is_first = [], True
    for shape in shapes:
        size = math.prod(shape)
        if is_first and len(shape) == 2 and shape[1] == shares.size:
            scales.append(np.broadcast_to(rising, tuple(shape)).reshape(-1))
            is_first = False
        else:
            scales.append(np.ones(size))
    scale: NDArray[np.float64] = np.concatenate(scales)
    return scale / math.sqrt(float(np.mean(scale**2)))


def layer_scale(
    names: Sequence[str],
    shapes: Sequence[Sequence[int]],
    contributions: Mapping[str, float],
    *,
    clip: float,
) -> tuple[NDArray[np.float64], tuple[tuple[int, float], ...]]:
    """Split clip and budget over the layers: each layer's own L2 bound, and its scale.

    A layer is bounded by its part of the clip, by size. Divided by C/(clip·√share) the layers
    together have a norm of at most the clip, whatever the shares, so that they cost what one vector
    of this clip costs.

    Returns the scale of every parameter, and where each layer ends with its bound.
    """
    sizes: dict[str, int] = {}
    for name, shape in zip(names, shapes, strict=True):
        layer = name.rpartition(".")[0]
        sizes[layer] = sizes.get(layer, 0) + math.prod(shape)
    total = sum(sizes.values())
    bounds = {layer: clip * math.sqrt(size / total) for layer, size in sizes.items()}
    weights = {layer: max(contributions.get(layer, 0.0), 0.0) for layer in sizes}
    shares = layer_shares(weights, sizes, bounds)
    scale = np.concatenate(
        [np.full(n, bounds[layer] / math.sqrt(shares[layer]) / clip) for layer, n in sizes.items()]
    )
    ends = np.cumsum(list(sizes.values())).tolist()
    return scale, tuple(zip(ends, bounds.values(), strict=True))


def _scale_one(weights: Floats, shape: Sequence[int]) -> NDArray[np.float64]:
    if len(shape) < 2:
        return np.ones(weights.size)
    matrix = weights.reshape(shape[0], -1)
    energy = np.mean(matrix.astype(np.float64) ** 2, axis=0)
    # What attributes that carry nothing show is noise and first weights; stay two deviations clear.
    floor = max(float(np.quantile(energy, _BASE)), _TINY * float(energy.mean()))
    if floor == 0.0:
        return np.ones(weights.size)
    clear = floor * (1 + 2 * math.sqrt(2 / len(matrix)))
    column = np.minimum((1 + np.maximum(energy - clear, 0.0) / floor) ** 0.25, _MOST)
    return np.broadcast_to(column, matrix.shape).reshape(-1)


def find_shares(
    learner: Learner, weights: Tensor, adaptive: AdaptiveNoise | None, known: Shares | None
) -> Shares | None:
    """Find the contributions of this round; None where the global model alone decides.

    Guarantee: off public inputs, none needed; of clients, each one's mean contribution is put under
    Laplace noise by itself, once, as `contribution_event` says.
    Cost: in this process nothing is sent; of a real client, 4 bytes per layer or attribute, once.
    """
    if adaptive is None or (adaptive.by == "attributes" and adaptive.relevance == "model"):
        return None
    if adaptive.relevance == "clients" and known is not None:
        return known
    model = learner.model_at(weights)
    if not isinstance(model, nn.Sequential):
        raise ConfigError("relevance is traced through a torch.nn.Sequential, got another module")
    if adaptive.relevance_epsilon is None:
        rows = torch.from_numpy(data_generator(0).random((_PUBLIC_ROWS, *learner.row_shape)))
        names, found = _trace(model, rows.to(weights), adaptive.by)
        return _named(names, found)
    total, names = None, list[str]()
    for client in range(learner.clients):
        rows = learner.rows_of(client)[:_MOST_ROWS]
        names, mean = _trace(model, rows, adaptive.by)
        noisy, _ = show_contributions(mean, epsilon=adaptive.relevance_epsilon, prg=Prg.from_os())
        total = noisy if total is None else total + noisy
    if total is None:
        raise ConfigError("nobody to ask for contributions")
    return _named(names, total)


def _trace(model: nn.Sequential, rows: Tensor, by: str) -> tuple[list[str], Tensor]:
    """Average the rows' shares: of layers by name, or of attributes without names."""
    inputs, layers = relevance(model, rows)
    if by == "attributes":
        return [], contributions(inputs).mean(dim=0).cpu()
    stacked = torch.stack(list(layers.values()), dim=1)
    return list(layers), contributions(stacked).mean(dim=0).cpu()


def _named(names: list[str], found: Tensor) -> Shares:
    shares = floored(found)
    if not names:
        return np.asarray(shares.numpy(), np.float64)
    return dict(zip(names, shares.tolist(), strict=True))


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


def relevance(
    model: nn.Sequential, x: Tensor, labels: Tensor | None = None
) -> tuple[Tensor, dict[str, Tensor]]:
    """Trace the score of each row's class back to the inputs.

    Returns the relevance of every input, of the shape of the batch; and for each layer with
    weights, by its name in the network, what reached its inputs, in absolute value, one sum a row.

    Args:
        model: linear and convolutional layers, pooling, element-wise activations, reshaping.
        x: a batch.
        labels: the classes to explain; by default those that the model prefers.

    Raises:
        ConfigError: a layer is of a kind that relevance cannot pass.
    """
    activations = _forward(model, x)
    scores = activations[-1]
    if scores.dim() != 2:
        raise DataError(f"the model must end in one score per class, got {tuple(scores.shape)}")
    chosen = scores.argmax(dim=1) if labels is None else labels
    flowing = torch.zeros_like(scores).scatter_(1, chosen.view(-1, 1), 1.0) * scores
    layers: dict[str, Tensor] = {}
    named = list(model.named_children())
    for (name, layer), given in zip(reversed(named), reversed(activations[:-1]), strict=True):
        flowing = _back(layer, given, flowing)
        if isinstance(layer, nn.Linear | nn.Conv2d):
            layers[name] = flowing.abs().flatten(1).sum(dim=1)
    return flowing.view_as(x), dict(reversed(layers.items()))


def contributions(found: Tensor) -> Tensor:
    """Turn relevances of rows into shares that add up to one, in absolute value, row by row."""
    flat = found.detach().abs().flatten(1).to(torch.float64)
    if not bool(torch.isfinite(flat).all()):
        raise DataError("relevance is NaN or infinite; the model has diverged")
    total = flat.sum(dim=1, keepdim=True)
    even = torch.full_like(flat, 1 / flat.shape[1])
    return torch.where(total > 0, flat / total.clamp_min(1e-300), even)


def _forward(model: nn.Sequential, x: Tensor) -> list[Tensor]:
    """Return the input of every layer, and the output of the last."""
    model.eval()
    activations = [x]
    with torch.no_grad():
        for layer in model:
            activations.append(layer(activations[-1]))
    return activations


def _back(layer: nn.Module, given: Tensor, flowing: Tensor) -> Tensor:
    """Hand relevance from a layer's outputs to its inputs."""
    if isinstance(layer, _PASSES):
        return flowing
    if isinstance(layer, _SPREADS):
        return _spread(_without_bias(layer), given, flowing)
    if not list(layer.parameters()) and flowing.numel() == given.numel():
        return flowing.reshape(given.shape)  # a change of shape
    raise ConfigError(f"relevance cannot pass a layer of the kind {type(layer).__name__}")


def _spread(apply: Callable[[Tensor], Tensor], given: Tensor, flowing: Tensor) -> Tensor:
    """Compute a · ∂z/∂a of the relevance per output z, which is Σ_j a_i w_ij R_j / z_j."""
    with torch.enable_grad():
        a = given.detach().clone().requires_grad_()
        z = apply(a)
        safe = z + torch.where(z >= 0, _STABILISER, -_STABILISER)
        (share,) = torch.autograd.grad(z, a, flowing / safe.detach())
    return (a * share).detach()


def _without_bias(layer: nn.Module) -> Callable[[Tensor], Tensor]:
    if isinstance(layer, nn.Linear):
        return lambda a: F.linear(a, layer.weight)
    if isinstance(layer, nn.Conv2d):
        padding = cast("tuple[int, ...]", layer.padding)  # a string only for "same" and "valid"
        return lambda a: F.conv2d(
            a, layer.weight, None, layer.stride, padding, layer.dilation, layer.groups
        )
    return layer


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
