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
class Study:
    """Everything that the lab found out about one subject."""

    subject: Subject
    settings: LabSettings
    correlations: tuple[Correlation, ...]
    queries: tuple[int, ...]
    input_bits: float
    recognitions: tuple[Recognition, ...] = ()
    retrievals: tuple[Retrieval, ...] = ()
    repeats: tuple[int, int] = (0, 0)
    smallest: int = 0


def study(subject: Subject, settings: LabSettings) -> Study:
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
    found = Study(
        subject=subject,
        settings=settings,
        correlations=tuple(correlations),
        queries=tuple(singles),
        input_bits=_input_bits(subject.rows),
    )
    if not subject.is_permuted:
        return found
    again = watch([planner.run([row], subject.points[last]) for row in singles], subject.roles)
    views = _first_views(seen)
    _check_width(subject, views)
    backwards = torch.arange(len(singles)).flip(0)
    right = int((match_repeats(views, _first_views(again)[backwards]) == backwards).sum())
    return replace(
        found,
        recognitions=tuple(_recognise(subject, planner, settings, order, generator)),
        retrievals=tuple(_retrieve(subject, singles, order, views)),
        repeats=(right, len(singles)),
        smallest=min(glimpse.values.numel() for one in seen for glimpse in one.glimpses),
    )


def _correlations(
    subject: Subject, step: int, weights: Weights, singles: Sequence[int], seen: Sequence[Seen]
) -> list[Correlation]:
    """Compare rows with what was seen of each: by the viewer, and by the computing parties."""
    x = _flat(subject.rows[torch.tensor(list(singles))])
    raw = first_arguments(subject.model, weights, subject.rows[torch.tensor(list(singles))])
    shown = {"hidden values in order (nobody sees them)": _flat(raw)}
    if subject.is_permuted:
        whole = _flat(
            torch.stack(
                [torch.cat([seen.values.reshape(-1) for seen in one.glimpses]) for one in seen]
            )
        )
        first = _first_views(seen)
        shown[f"all that {subject.viewer} sees"] = whole
        shown[f"first layer as {subject.viewer} sees it"] = _flat(first)
        shown[f"first layer as {subject.viewer} can sort it"] = _flat(first.sort(dim=1).values)
    for name in subject.roles.computing:
        shown[f"masked words that {name} receives"] = _flat(
            torch.stack([one.received[name] for one in seen])
        )
    values = {what: distance_correlation(x, y) for what, y in shown.items()}
    return [
        Correlation(step=step, what=what, value=value, p=independence_p(value, len(x)), rows=len(x))
        for what, value in values.items()
    ]


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
    # Flipped signs hide nothing of a size.
    shown = torch.abs if "flips" in subject.protocol else torch.positive
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
                    count_recognised(shown(first), shown(guess), pick.tolist())
                    for first, pick in zip(_first_views(seen), picks, strict=True)
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


def _flat(values: Tensor) -> Floats:
    found: Floats = values.reshape(len(values), -1).double().numpy()
    return found


def _input_bits(rows: Tensor) -> float:
    """Return how many bits name one of all rows that the values of every feature allow."""
    flat = rows.reshape(len(rows), -1).numpy()
    return float(sum(log2(len(np.unique(flat[:, at]))) for at in range(flat.shape[1])))


def correlation_curves(findings: Study) -> tuple[Curve, ...]:
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


def rank_candidates(seen: Tensor, guesses: Tensor) -> Tensor:
    """Order candidates by how well their values occur among those seen, best first.

    All that this attack holds are the values of one batch, in random order, and, for every
    candidate row, those that it would have caused, as far as the viewer can tell from the weights
    that it knows.

    The score of a candidate is how far its values are, on average, from the nearest one seen:
    zero up to rounding for a row of the batch, if the weights are the right ones. It needs no
    order, and the other rows of the batch only add values in between.
    """
    seen = seen.reshape(-1).sort().values
    guesses = guesses.reshape(len(guesses), -1).contiguous()
    after = torch.searchsorted(seen, guesses).clamp(max=len(seen) - 1)
    before = (after - 1).clamp(min=0)
    gaps = torch.minimum((seen[after] - guesses).abs(), (guesses - seen[before]).abs())
    return gaps.mean(dim=1).argsort()


def count_recognised(seen: Tensor, guesses: Tensor, batch: Sequence[int]) -> int:
    """Count the rows of a batch among as many best candidates: the score of the attack."""
    best = rank_candidates(seen, guesses)[: len(batch)].tolist()
    return len(set(best) & set(batch))


def match_repeats(first: Tensor, second: Tensor) -> Tensor:
    """Find for every run of one list the run of another that showed the most similar values.

    No weights are needed: under the same weights the same row shows the same values again.

    Args:
        first: values seen in each run, (runs, values).
        second: the same of later runs.
    """
    return torch.cdist(first.sort(dim=1).values, second.sort(dim=1).values, p=1).argmin(dim=1)


def nearest(queries: Tensor, candidates: Tensor, *, count: int) -> Tensor:
    """Find the candidates nearest to each query (section 5.5.4.2 of seed 000)."""
    distances = torch.cdist(queries.double(), candidates.double())
    return distances.topk(count, dim=1, largest=False).indices
