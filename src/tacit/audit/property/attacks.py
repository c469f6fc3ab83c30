"""Property inference: from updates, and from finished weights whatever the order of neurons."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

from tacit.audit.reconstruction import GRADIENT, Defence, Update, Work, do_work, see_update
from tacit.audit.views import started
from tacit.errors import ConfigError, DataError

Labelled = tuple[Tensor, Tensor]
"""Rows and their labels."""

Layers = tuple[tuple[Tensor, Tensor], ...]
"""The dense layers of a model from bottom to top: (out, in) weights and (out,) bias."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SeenUpdates:
    """A semi-honest server with rows of its own, some that have the property and some that do not.

    Attributes:
        model: as it was sent out.
        updates: one per client and round, after the defence.
        records: rows behind each update.
        with_property: the attacker's own rows that have it.
        without: the attacker's own rows that have it not.
        work: the terms of the round.
    """

    model: nn.Module
    updates: tuple[Update, ...]
    records: int
    with_property: Labelled
    without: Labelled
    work: Work = GRADIENT


@dataclass(frozen=True, kw_only=True, eq=False)
class SeenWeights:
    """Someone who holds finished models, and has trained others on data of known properties.

    Attributes:
        targets: the models in question.
        shadows: the attacker's own models, of the same architecture.
        has_property: one truth per shadow.
    """

    targets: tuple[Layers, ...]
    shadows: tuple[Layers, ...]
    has_property: Tensor


def see_updates(
    model: nn.Module,
    clients: Sequence[Labelled],
    *,
    with_property: Labelled,
    without: Labelled,
    classes: int,
    work: Work = GRADIENT,
    defence: Defence | None = None,
) -> SeenUpdates:
    """Let clients work, all with equally many rows, and show their updates.

    Raises:
        DataError: no clients, or clients with different numbers of rows.
    """
    sizes = {len(rows) for rows, _ in clients}
    if len(sizes) != 1:
        raise DataError(f"wanted clients of one size, got sizes {sorted(sizes)}")
    seen = [
        see_update(model, x, y, classes=classes, work=work, defence=defence).update
        for x, y in clients
    ]
    return SeenUpdates(
        model=model,
        updates=tuple(seen),
        records=sizes.pop(),
        with_property=with_property,
        without=without,
        work=work,
    )


def see_weights(
    targets: Sequence[nn.Module], *, shadows: Sequence[nn.Module], has_property: Sequence[bool]
) -> SeenWeights:
    """Show finished models of dense layers.

    Raises:
        DataError: not one truth per shadow, or shadows of one kind alone.
        ConfigError: a model has layers with weights that are not dense.
    """
    if len(shadows) != len(has_property) or not 0 < sum(has_property) < len(has_property):
        raise DataError(
            "wanted shadows of both kinds with a truth each, got "
            f"{len(shadows)} shadows and {sum(has_property)} of {len(has_property)} truths"
        )
    return SeenWeights(
        targets=tuple(dense_layers(model) for model in targets),
        shadows=tuple(dense_layers(model) for model in shadows),
        has_property=torch.tensor(list(has_property)),
    )


def dense_layers(model: nn.Module) -> Layers:
    """Return the weights and biases of a model of dense layers, bottom to top."""
    found = []
    for leaf in model.modules():
        if list(leaf.children()) or not list(leaf.parameters()):
            continue
        if not isinstance(leaf, nn.Linear) or leaf.bias is None:
            raise ConfigError(
                "the meta-classifier reads models of dense layers with a bias, got "
                f"{type(leaf).__name__}"
            )
        found.append((leaf.weight.detach(), leaf.bias.detach()))
    return tuple(found)


@dataclass(frozen=True, kw_only=True)
class ReadUpdates:
    """Tell updates of rows with a property from those without (Melis et al. 2019, passive).

    The attacker works on its own rows as a client would and learns to tell both kinds apart.

    Args:
        samples: updates that it makes of each kind.
        share: of the rows of an update with the property, how many have it.
    """

    samples: int = 100
    share: float = 1.0

    def __post_init__(self) -> None:
        if self.samples < 2 or not 0 < self.share <= 1:
            raise ConfigError(f"samples and share must make sense, got {self}")

    def __call__(self, seen: SeenUpdates, *, generator: torch.Generator) -> Tensor:
        """Return a score per update; the higher, the surer that the property is there."""
        features, truth = [], []
        marked = max(1, round(self.share * seen.records))
        for i in range(2 * self.samples):
            has = i % 2 == 0
            own = _draw(seen.with_property, marked, generator) if has else None
            rest = seen.records - marked if has else seen.records
            parts = [own] if own else []
            if rest:
                parts.append(_draw(seen.without, rest, generator))
            x, y = (torch.cat(both) for both in zip(*parts, strict=True))
            features.append(_flatten(do_work(seen.model, x, y, seen.work)))
            truth.append(has)
        targets = np.stack([_flatten(update) for update in seen.updates])
        return _tell_apart(np.stack(features), np.array(truth), targets)


def classify_sorted(seen: SeenWeights, *, generator: torch.Generator) -> Tensor:
    """Classify weights after sorting the neurons of every hidden layer by their norm.

    A network is the same whatever the order of its hidden neurons; sorted, it looks the same too
    (Ganju et al. 2018).
    """
    features = np.stack([_sorted(layers) for layers in seen.shadows])
    targets = np.stack([_sorted(layers) for layers in seen.targets])
    return _tell_apart(features, seen.has_property.numpy(), targets)


@dataclass(frozen=True, kw_only=True)
class ClassifySets:
    """Classify weights with a network that reads every layer as a set of neurons (DeepSets).

    Args:
        width: numbers by which a neuron is described.
        steps: of training on the shadows.
    """

    width: int = 12
    steps: int = 150

    def __post_init__(self) -> None:
        if self.width < 1 or self.steps < 1:
            raise ConfigError(f"width and steps must be positive, got {self}")

    def __call__(self, seen: SeenWeights, *, generator: torch.Generator) -> Tensor:
        """Return a score per target; the higher, the surer that the property is there."""
        shadows, targets = _stack(seen.shadows), _stack(seen.targets)
        # Alike for all neurons of a layer, so that their order still does not matter.
        scales = [(w.std().clamp_min(1e-6), b.std().clamp_min(1e-6)) for w, b in shadows]
        shadows, targets = _scaled(shadows, scales), _scaled(targets, scales)
        judge = started(lambda: _SetJudge([w.shape[1:] for w, _ in shadows], self.width), generator)
        wanted = seen.has_property.float()
        optimiser = torch.optim.AdamW(judge.parameters(), lr=5e-3, weight_decay=1e-2)
        for _ in range(self.steps):
            optimiser.zero_grad(set_to_none=True)
            loss = nn.functional.binary_cross_entropy_with_logits(judge(shadows), wanted)
            torch.autograd.backward(loss)
            optimiser.step()
        with torch.no_grad():
            scores: Tensor = judge(targets)
        return scores.double()


def guess_blindly(seen: SeenUpdates | SeenWeights, *, generator: torch.Generator) -> Tensor:
    """Return random scores: what an attack is worth must be more than this."""
    count = len(seen.updates if isinstance(seen, SeenUpdates) else seen.targets)
    return torch.empty(count, dtype=torch.float64).uniform_(generator=generator)


class _SetJudge(nn.Module):
    """Sums over the neurons of every layer, each described with those below it in view."""

    def __init__(self, shapes: Sequence[torch.Size], width: int) -> None:
        super().__init__()
        incoming = [shapes[0][1]] + [width] * (len(shapes) - 1)
        self.describe = nn.ModuleList(
            [
                nn.Sequential(nn.Linear(n + 1, width), nn.ReLU(), nn.Linear(width, width))
                for n in incoming
            ]
        )
        self.decide = nn.Sequential(
            nn.Linear(width * len(shapes), width), nn.ReLU(), nn.Linear(width, 1)
        )

    def forward(self, layers: list[tuple[Tensor, Tensor]]) -> Tensor:
        """Return a score per model from its layers, (models, out, in) and (models, out)."""
        below: Tensor | None = None
        sums = []
        for (weight, bias), describe in zip(layers, self.describe, strict=True):
            seen = weight if below is None else weight @ below / weight.shape[2] ** 0.5
            below = describe(torch.cat([seen, bias.unsqueeze(2)], 2))  # (models, out, width)
            sums.append(below.mean(1))
        scores: Tensor = self.decide(torch.cat(sums, 1))
        return scores[:, 0]


def _draw(rows: Labelled, count: int, generator: torch.Generator) -> Labelled:
    picks = (torch.empty(count).uniform_(generator=generator) * len(rows[0])).long()
    picks = picks.clamp_max(len(rows[0]) - 1).to(rows[0].device)
    return rows[0][picks], rows[1][picks]


def _flatten(update: Sequence[Tensor]) -> NDArray[np.float64]:
    flat = torch.cat([part.detach().flatten() for part in update]).double().cpu()
    found: NDArray[np.float64] = flat.numpy()
    return found


def _sorted(layers: Layers) -> NDArray[np.float64]:
    parts, order = [], None
    for at, (weight, bias) in enumerate(layers):
        w = weight if order is None else weight[:, order]
        order = None
        if at + 1 < len(layers):
            order = torch.cat([weight, bias.unsqueeze(1)], 1).norm(dim=1).argsort()
            w, bias = w[order], bias[order]
        parts += [w, bias]
    return _flatten(parts)


def _tell_apart(
    features: NDArray[np.float64], truth: NDArray[np.bool_], targets: NDArray[np.float64]
) -> Tensor:
    wide = min(32, len(features) - 1, features.shape[1])
    model = make_pipeline(
        StandardScaler(), PCA(wide, random_state=0), LogisticRegression(C=0.1, max_iter=300)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a rough boundary is good enough
        model.fit(features, truth)
    return torch.from_numpy(model.decision_function(targets))


def _stack(models: Sequence[Layers]) -> list[tuple[Tensor, Tensor]]:
    return [
        (torch.stack([w for w, _ in same]).float(), torch.stack([b for _, b in same]).float())
        for same in zip(*models, strict=True)
    ]


def _scaled(
    layers: list[tuple[Tensor, Tensor]], scales: list[tuple[Tensor, Tensor]]
) -> list[tuple[Tensor, Tensor]]:
    return [(w / sw, b / sb) for (w, b), (sw, sb) in zip(layers, scales, strict=True)]
