"""The leakage lab: watch real runs, attack what was seen, and say plainly what came out."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import log2

import numpy as np
import torch
from torch import Tensor

from tacit.audit.estimators import proportion
from tacit.audit.permutation.distance import (
    Floats,
    distance_correlation,
    draw_order,
    independence_p,
)
from tacit.audit.permutation.matching import PermutedView, count_recognised, match_repeats, nearest
from tacit.audit.permutation.recording import Seen, watch
from tacit.audit.permutation.subject import Planner, Subject, Weights, first_arguments
from tacit.errors import ConfigError
from tacit.result import Curve, Metric

_NEAREST = 5


@dataclass(frozen=True, kw_only=True)
class LabSettings:
    """How much is looked at.

    Attributes:
        runs: single rows that are watched at every point of a training.
        candidates: how many rows a viewer may know, those of the batch among them.
        batches: sizes of batches to attack.
        attacked: batches of each size.
        seed: of all choices; nothing here is secret.
    """

    runs: int = 80
    candidates: int = 200
    batches: tuple[int, ...] = (1, 8, 64)
    attacked: int = 12
    seed: int = 0

    def __post_init__(self) -> None:
        if self.runs < 8 or self.candidates < 2 or self.attacked < 1:
            raise ConfigError("a lab wants at least 8 runs, 2 candidates and 1 attacked batch")


@dataclass(frozen=True, kw_only=True)
class Correlation:
    """How much something has to do with the rows, by distance correlation."""

    step: int
    what: str
    value: float
    p: float
    rows: int


@dataclass(frozen=True, kw_only=True)
class Recognition:
    """How many rows of attacked batches a viewer found among its candidates."""

    step: int
    batch: int
    knows: str
    hits: int
    trials: int
    chance: float

    def metric(self) -> Metric:
        """Return the share with its interval."""
        name = f"rows recognised, batch of {self.batch}, knowing {self.knows}"
        note = f"after {self.step} steps; reference: chance"
        found = proportion(name, self.hits, self.trials, note=note)
        return replace(found, reference=self.chance)


@dataclass(frozen=True, kw_only=True)
class Retrieval:
    """How many of the nearest candidates have the class of the row that was looked for."""

    what: str
    hits: int
    trials: int
    found: tuple[tuple[int, ...], ...] = field(repr=False, default=())


@dataclass(frozen=True, kw_only=True, eq=False)
class Findings:
    """Everything that the lab found out about one subject."""

    subject: Subject
    settings: LabSettings
    viewer: str
    correlations: tuple[Correlation, ...]
    recognitions: tuple[Recognition, ...]
    retrievals: tuple[Retrieval, ...]
    repeats: tuple[int, int]
    queries: tuple[int, ...]
    smallest: int
    input_bits: float


def study(subject: Subject, settings: LabSettings) -> Findings:
    """Watch the subject's runs under its protocol, and attack what was seen."""
    generator = torch.Generator().manual_seed(settings.seed)
    planner, last = Planner(subject), max(subject.points)
    order = draw_order(len(subject.rows), generator)
    singles = order[: min(settings.runs, len(order))].tolist()
    correlations: list[Correlation] = []
    seen: list[Seen] = []
    for step, weights in subject.points.items():
        seen = watch([planner.run([row], weights) for row in singles], subject.roles)
        correlations += _correlations(subject, step, weights, singles, seen)
    if not subject.is_permuted:
        return _findings(subject, settings, correlations, singles)
    again = watch([planner.run([row], subject.points[last]) for row in singles], subject.roles)
    views = _first_views(seen)
    _check_width(subject, views)
    found = match_repeats(views, _first_views(again)[torch.arange(len(singles)).flip(0)])
    right = int((found == torch.arange(len(singles)).flip(0)).sum())
    return _findings(
        subject,
        settings,
        correlations,
        singles,
        recognitions=_recognise(subject, planner, settings, order, generator),
        retrievals=_retrieve(subject, singles, order, views),
        repeats=(right, len(singles)),
        smallest=min(glimpse.values.numel() for one in seen for glimpse in one.glimpses),
    )


def _findings(
    subject: Subject,
    settings: LabSettings,
    correlations: Sequence[Correlation],
    singles: Sequence[int],
    *,
    recognitions: Sequence[Recognition] = (),
    retrievals: Sequence[Retrieval] = (),
    repeats: tuple[int, int] = (0, 0),
    smallest: int = 0,
) -> Findings:
    return Findings(
        subject=subject,
        settings=settings,
        viewer=subject.viewer,
        correlations=tuple(correlations),
        recognitions=tuple(recognitions),
        retrievals=tuple(retrievals),
        repeats=repeats,
        queries=tuple(singles),
        smallest=smallest,
        input_bits=_input_bits(subject.rows),
    )


def _correlations(
    subject: Subject, step: int, weights: Weights, singles: Sequence[int], seen: Sequence[Seen]
) -> list[Correlation]:
    """Compare rows with what was seen of each: by the viewer, and by the computing parties."""
    x = _flat(subject.rows[torch.tensor(list(singles))])
    raw = first_arguments(subject.model, weights, subject.rows[torch.tensor(list(singles))])
    shown = {"hidden values in order (nobody sees them)": _flat(raw)}
    if subject.is_permuted:
        whole = _flat(torch.stack([_all_values(one) for one in seen]))
        first = _first_views(seen)
        shown[f"all that {subject.viewer} sees"] = whole
        shown[f"first layer as {subject.viewer} sees it"] = _flat(first)
        shown[f"first layer as {subject.viewer} can sort it"] = _flat(first.sort(dim=1).values)
    for name in subject.roles.computing:
        shown[f"masked words that {name} receives"] = _flat(
            torch.stack([one.received[name] for one in seen])
        )
    return [_correlation(step, what, x, y) for what, y in shown.items()]


def _correlation(step: int, what: str, x: Floats, y: Floats) -> Correlation:
    value = distance_correlation(x, y)
    return Correlation(
        step=step, what=what, value=value, p=independence_p(value, len(x)), rows=len(x)
    )


def _recognise(
    subject: Subject,
    planner: Planner,
    settings: LabSettings,
    order: np.ndarray,
    generator: torch.Generator,
) -> list[Recognition]:
    """Let a viewer who knows candidates look for the rows of batches."""
    found = []
    pool = order[: settings.candidates]
    known = subject.rows[torch.from_numpy(pool)]
    for step in sorted({min(subject.points), max(subject.points)}):
        weights = subject.points[step]
        guesses = {
            name: first_arguments(subject.model, guess, known)
            for name, guess in _knowledge(subject, step, generator).items()
        }
        for batch in settings.batches:
            if 2 * batch > len(pool):
                continue
            picks = [draw_order(len(pool), generator)[:batch] for _ in range(settings.attacked)]
            runs = [planner.run(pool[pick].tolist(), weights) for pick in picks]
            seen = watch(runs, subject.roles)
            for name, guess in guesses.items():
                hits = sum(
                    count_recognised(_permuted_view(subject, one, guess), pick.tolist())
                    for one, pick in zip(seen, picks, strict=True)
                )
                found.append(
                    Recognition(
                        step=step,
                        batch=batch,
                        knows=name,
                        hits=hits,
                        trials=batch * settings.attacked,
                        chance=batch / len(pool),
                    )
                )
    return found


def _knowledge(subject: Subject, step: int, generator: torch.Generator) -> dict[str, Weights]:
    """Return what a viewer may know of the weights."""
    true = subject.points[step]
    other = {name: _shuffled(value, generator) for name, value in true.items()}
    known: dict[str, Weights] = {"the weights": true, "nothing of the weights": other}
    if subject.is_start_public and step:
        known["the public start of the training"] = subject.points[min(subject.points)]
    return known


def _shuffled(value: Tensor, generator: torch.Generator) -> Tensor:
    places = torch.from_numpy(draw_order(value.numel(), generator))
    return value.reshape(-1)[places].reshape(value.shape)


def _permuted_view(subject: Subject, seen: Seen, guesses: Tensor) -> PermutedView:
    values = seen.glimpses[0].values.reshape(-1)
    if "flips" in subject.protocol:
        return PermutedView(values.abs(), guesses.abs())
    return PermutedView(values, guesses)


def _retrieve(
    subject: Subject, singles: Sequence[int], order: np.ndarray, views: Tensor
) -> list[Retrieval]:
    """Look for similar rows by hidden values: in order, as seen, and sorted."""
    weights = subject.points[max(subject.points)]
    others = torch.from_numpy(order[len(singles) :].copy())
    if len(others) < 2 * _NEAREST:
        return []
    raw = first_arguments(subject.model, weights, subject.rows[torch.tensor(list(singles))])
    known = first_arguments(subject.model, weights, subject.rows[others])
    pairs = {
        "hidden values in order": (raw, known),
        "permuted values, compared as they are": (views[:, : known.shape[1]], known),
        "permuted values, sorted first": (
            views[:, : known.shape[1]].sort(dim=1).values,
            known.sort(dim=1).values,
        ),
    }
    classes = subject.classes[torch.tensor(list(singles))]
    found = []
    for what, (queries, candidates) in pairs.items():
        near = nearest(queries, candidates, count=_NEAREST)
        same = subject.classes[others[near]] == classes[:, None]
        places = tuple(tuple(row) for row in others[near].tolist())
        found.append(Retrieval(what=what, hits=int(same.sum()), trials=same.numel(), found=places))
    expected = sum(float((subject.classes[others] == one).double().mean()) for one in classes)
    trials = len(singles) * _NEAREST
    found.append(Retrieval(what="chance", hits=round(expected * _NEAREST), trials=trials))
    return found


def _check_width(subject: Subject, views: Tensor) -> None:
    weights = subject.points[max(subject.points)]
    width = first_arguments(subject.model, weights, subject.rows[:2]).shape[1]
    if views.shape[1] < width:
        raise ConfigError(
            f"the first function of the model is seen to work on {views.shape[1]} values per row, "
            f"not {width}; the lab knows models whose first function is an activation"
        )


def _first_views(seen: Sequence[Seen]) -> Tensor:
    return torch.stack([one.glimpses[0].values.reshape(-1) for one in seen])


def _all_values(seen: Seen) -> Tensor:
    return torch.cat([glimpse.values.reshape(-1) for glimpse in seen.glimpses])


def _flat(values: Tensor) -> Floats:
    found: Floats = values.reshape(len(values), -1).double().numpy()
    return found


def _input_bits(rows: Tensor) -> float:
    """Return how many bits name one of all rows that the values of every feature allow."""
    flat = rows.reshape(len(rows), -1).numpy()
    return float(sum(log2(len(np.unique(flat[:, at]))) for at in range(flat.shape[1])))


def correlation_curves(findings: Findings) -> tuple[Curve, ...]:
    """Return figure 5.4c of seed 000 for this training: correlation against steps."""
    names = dict.fromkeys(one.what for one in findings.correlations)
    return tuple(
        Curve(
            title="Distance correlation with the rows, while training (figure 5.4c of seed 000)",
            x_label="step",
            y_label="distance correlation",
            name=name,
            points=tuple(
                (float(one.step), one.value) for one in findings.correlations if one.what == name
            ),
        )
        for name in names
    )
