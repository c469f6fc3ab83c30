"""Model inversion from confidences: climb to a class, decode answers, guess a hidden column."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tacit.audit.split import SeenCut, reconstruct
from tacit.errors import ConfigError, DataError

Ask = Callable[[Tensor], Tensor]
"""Given rows, return (rows, classes) probabilities; all that is seen of the model."""

Defence = Callable[[Tensor], Tensor]
"""What the owner does to probabilities before it shows them."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SeenConfidences:
    """Someone who may ask: the shape and the bounds of a row, and an answer to any row.

    Attributes:
        ask: gives the confidences.
        shape: of one row.
        classes: how many.
        bounds: the smallest and the largest value of a row.
    """

    ask: Ask
    shape: tuple[int, ...]
    classes: int
    bounds: tuple[float, float] = (0.0, 1.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class SeenAnswers:
    """Someone who overhears answers: confidences of unknown rows, and rows of its own to ask about.

    Attributes:
        ask: gives the confidences.
        own: rows of the attacker, of the same kind.
        answers: (rows, classes) confidences of the rows to rebuild.
    """

    ask: Ask
    own: Tensor
    answers: Tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class SeenRecords:
    """Someone who knows people but for one column: their other columns and their labels.

    Attributes:
        ask: gives the confidences.
        rows: (rows, columns), the hidden column filled with zeros.
        labels: what the model was taught about each row.
        column: which one is hidden.
        values: those that it can take.
        shares: how common each value is.
    """

    ask: Ask
    rows: Tensor
    labels: Tensor
    column: int
    values: tuple[float, ...]
    shares: tuple[float, ...]


def ask_of(model: nn.Module, *, defence: Defence | None = None) -> Ask:
    """Let a torch classifier be asked, through a defence of its confidences."""

    def ask(rows: Tensor) -> Tensor:
        was_training = model.training
        model.eval()
        with torch.no_grad():
            found = [model(block).softmax(1) for block in torch.split(rows, 1024)]
        model.train(was_training)
        shown = torch.cat(found)
        return defence(shown) if defence else shown

    return ask


def round_to(digits: int) -> Defence:
    """Show confidences with so many digits after the point only."""

    def defend(confidences: Tensor) -> Tensor:
        return torch.round(confidences, decimals=digits)

    return defend


def see_answers(ask: Ask, *, own: Tensor, targets: Tensor) -> SeenAnswers:
    """Show the answers to rows, not the rows."""
    return SeenAnswers(ask=ask, own=own, answers=ask(targets))


def see_records(ask: Ask, rows: Tensor, labels: Tensor, *, column: int) -> SeenRecords:
    """Hide a column of records, and tell which values it has how often.

    Raises:
        DataError: the column takes one value only, or too many to try.
    """
    values, counts = torch.unique(rows[:, column], return_counts=True)
    if not 2 <= len(values) <= 64:
        raise DataError(f"wanted a column of 2 to 64 different values, got {len(values)}")
    blank = rows.clone()
    blank[:, column] = 0
    return SeenRecords(
        ask=ask,
        rows=blank,
        labels=labels,
        column=column,
        values=tuple(values.tolist()),
        shares=tuple((counts / len(rows)).tolist()),
    )


_FLOOR = 1e-6


@dataclass(frozen=True, kw_only=True)
class Climb:
    """Find, for every class, a row of which the model is sure (Fredrikson et al. 2015).

    Only answers are used: the slope is estimated from pairs of opposite small steps.

    Args:
        steps: of the climb.
        pairs: answers, in pairs, per step and class.
        reach: length of the small steps, as a share of the width of the bounds.
        step_size: of the climb, as a share of the width.
    """

    steps: int = 100
    pairs: int = 32
    reach: float = 0.1
    step_size: float = 0.05

    def __post_init__(self) -> None:
        if min(self.steps, self.pairs) < 1 or not (self.reach > 0 and self.step_size > 0):
            raise ConfigError(f"steps, pairs, reach and step_size must be positive, got {self}")

    def __call__(self, seen: SeenConfidences, *, generator: torch.Generator) -> Tensor:
        """Return (classes, *shape): one row per class."""
        low, high = seen.bounds
        width = high - low
        rows = torch.full((seen.classes, *seen.shape), (low + high) / 2)
        velocity = torch.zeros_like(rows)
        for _ in range(self.steps):
            velocity = 0.9 * velocity + self._slope(seen, rows, generator)
            size = velocity.flatten(1).abs().amax(1).clamp_min(1e-12)
            size = size.view(-1, *[1] * len(seen.shape))
            rows = (rows + self.step_size * width * velocity / size).clamp(low, high)
        return rows

    def _slope(self, seen: SeenConfidences, rows: Tensor, generator: torch.Generator) -> Tensor:
        shape = (len(rows), self.pairs, *seen.shape)
        steps = torch.empty(shape).normal_(generator=generator)
        reach = self.reach * (seen.bounds[1] - seen.bounds[0])
        ahead, behind = (
            self._sureness(seen, (rows.unsqueeze(1) + sign * reach * steps).flatten(0, 1))
            for sign in (1, -1)
        )
        weight = (ahead - behind).view(len(rows), self.pairs, *[1] * len(seen.shape))
        return (weight * steps).mean(1)

    def _sureness(self, seen: SeenConfidences, rows: Tensor) -> Tensor:
        answers = seen.ask(rows.clamp(*seen.bounds)).clamp_min(_FLOOR).log()
        wanted = torch.arange(seen.classes).repeat_interleave(self.pairs)
        return answers[torch.arange(len(rows)), wanted].float()


climb = Climb()


def decode_answers(seen: SeenAnswers, *, generator: torch.Generator) -> Tensor:
    """Rebuild rows with a network that is trained on the attacker's own rows and their answers.

    Yang et al. 2019; the answers are read on a logarithmic scale, where small ones differ too.
    """
    return reconstruct(
        SeenCut(
            leaked=_logs(seen.ask(seen.own)), leaked_inputs=seen.own, targets=_logs(seen.answers)
        ),
        generator=generator,
    )


def guess_column(seen: SeenRecords, *, generator: torch.Generator) -> Tensor:
    """Guess the hidden column: the value that makes the label likely, weighed by its share.

    Fredrikson et al. 2014.
    """
    scores = []
    for value, share in zip(seen.values, seen.shares, strict=True):
        filled = seen.rows.clone()
        filled[:, seen.column] = value
        told = seen.ask(filled)[torch.arange(len(filled)), seen.labels]
        scores.append(share * told)
    best = torch.stack(scores, 1).argmax(1)
    return torch.tensor(seen.values)[best.cpu()]


def _logs(confidences: Tensor) -> Tensor:
    return confidences.clamp_min(_FLOOR).log()
