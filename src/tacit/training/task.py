"""What is trained, by whom, and what may be shown; how much data every owner has."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import cos, pi, prod
from typing import Literal, TypeVar

import numpy as np
from torch import Tensor

from tacit.data.memory import check_names, mark_of
from tacit.data.rows import Rows
from tacit.errors import ConfigError, DataError, check_word
from tacit.mpc import Roles, find_protocol
from tacit.nn import Model
from tacit.nn.capping import with_room
from tacit.party import Fact, Session
from tacit.training.noise import room_for
from tacit.training.ops import StepOps
from tacit.training.optimise import Optimiser
from tacit.training.privacy import Privacy

P = TypeVar("P")
V = TypeVar("V")
Split = Literal["rows", "columns"]
Loss = Literal["softmax", "logistic"]
Schedule = Literal["constant", "cosine", "halving", "linear"]
CAP = "cap= of make_model and TrainTask (model.cap in a job file)"
STAGES = 10
"""A linear schedule has so many rates: each is a plan of its own, which takes a second to make."""
_MOST_DIMENSIONS = 4
"""Of the shape of an owner's rows, which is told in a message of one size: pictures have these."""
HOLDING = Fact(
    tag="data",
    count=_MOST_DIMENSIONS + 2,
    what="how many rows {owner} has, their shape, a hash of its columns' names where rows are "
    "divided, and whether it has labels",
)


@dataclass(frozen=True)
class HeldData:
    """What one owner brings: how many rows, how many features, and whether it has the labels.

    ``names`` stands for the names of its columns, where owners have rows; 0 for none.
    """

    owner: str
    rows: int
    features: tuple[int, ...]
    has_labels: bool
    names: int = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainTask:
    """A training that every party sees alike.

    Attributes:
        name: of the job.
        roles: who computes, and who deals or helps.
        protocol: of the table of protocols.
        model: what is trained; its buffers, and parameters that need no gradient, stay as they are
            and are public (`Model.frozen`).
        holdings: who brings which part of the data.
        split: whether owners hold different rows or different columns of the same rows.
        test_rows: the last so many rows are kept for measuring.
        loss: "softmax" for several classes, "logistic" for one score of two classes.
        class_weights: how much an error on each class counts; None for alike.
        optimiser: how gradients change weights.
        rate: the learning rate at the start.
        schedule: how the rate goes on: from epoch to epoch, or "linear" from tenth to tenth of
            the training, down to a tenth of the rate.
        warmup: over so many steps, in tenths, the rate grows to what it is.
        epochs: passes over the data.
        batch: rows per step; on average, where they are sampled.
        accumulate: in so many parts a step goes through its rows, one after the other.
        seed: of the order of rows, which is public.
        frac_bits: the precision of numbers.
        feature_bound: the largest size of a feature.
        weight_bound: the largest size that a weight may ever have; watched while training.
        cap: where gradients of hidden values saturate; None for nowhere.
        watch_every: steps between two looks at the loss, at how large weights are, and at
            whether the work so far should be kept.
        show_to: who learns loss and accuracy on the way.
        give_to: who gets the weights in the end; empty to leave them shared.
        score_to: who learns the scores of the rows kept for measuring, in the end.
        head: a public matrix (classes, width) behind the model, whose outputs are then hidden
            states: who holds the labels of rows sees the last hidden states of these rows in every
            step, computes the loss and its gradient, and shares that; labels are never shared.
        privacy: what the training may tell about one record; None for no promise. Then every step
            uses all rows to train on, or some that only the computing parties know.
    """

    name: str
    roles: Roles
    protocol: str
    model: Model
    holdings: tuple[HeldData, ...]
    split: Split
    test_rows: int
    loss: Loss = "softmax"
    class_weights: tuple[float, ...] | None = None
    optimiser: Optimiser = field(default_factory=Optimiser)
    rate: float = 0.1
    schedule: Schedule = "constant"
    warmup: int = 0
    epochs: int = 1
    batch: int = 128
    accumulate: int = 1
    seed: int = 0
    frac_bits: int = 16
    feature_bound: float = 1.0
    weight_bound: float = 4.0
    cap: float | None = None
    watch_every: int = 50
    show_to: tuple[str, ...] = ()
    give_to: tuple[str, ...] = ()
    score_to: tuple[str, ...] = ()
    head: Tensor | None = None
    privacy: Privacy | None = None

    def __post_init__(self) -> None:
        if find_protocol(self.protocol).is_checked:
            raise ConfigError(
                "a training keeps weights from step to step, also in files, and 'checked' has no "
                "tags for them; use protocol 'sealed', which assumes that all parties follow it"
            )
        check_word("loss", self.loss, Loss)
        check_word("schedule", self.schedule, Schedule)
        object.__setattr__(self, "model", self.model.frozen())
        if not self.model.initial:
            raise ConfigError("no parameter of the model needs a gradient: nothing can be trained")
        _check_owners(self)
        _check_privacy(self)
        fewest = 1 if self.privacy is None or self.privacy.looks != "none" else 0
        if not fewest <= self.test_rows < self.rows:
            raise ConfigError(
                f"wanted {fewest} to {self.rows - 1} of {self.rows} rows for measuring, got "
                f"{self.test_rows}"
            )
        if self.batch < 1 or self.batch > self.train_rows:
            raise ConfigError(f"wanted a batch of 1 to {self.train_rows} rows, got {self.batch}")
        if self.epochs < 1 or self.watch_every < 1 or not 0 < self.rate < 1e3:
            raise ConfigError("epochs and watch_every are at least 1, the rate is above 0")
        if self.warmup < 0 or not 1 <= self.accumulate <= self.batch:
            raise ConfigError(
                f"wanted a warm-up of 0 steps or more and 1 to {self.batch} parts of a step, got "
                f"{self.warmup} and {self.accumulate}"
            )
        _check_head(self)
        if self.loss == "logistic" and self.model.outputs != 1:
            raise ConfigError(
                f"a logistic loss wants a model with one output, got {self.model.outputs}"
            )
        if self.loss == "logistic" and self.model.tokens:
            raise ConfigError("a model of tokens wants loss='softmax', got 'logistic'")
        if self.class_weights is not None and len(self.class_weights) != self.classes:
            raise ConfigError(f"wanted {self.classes} class weights, got {len(self.class_weights)}")

    def planned(self, plan: Callable[["TrainTask"], P]) -> P:
        """Plan this task, with a cap on hidden values and gradients if they do not fit without.

        Args:
            plan: raises RangeError where numbers do not fit.
        """
        chosen = self.cap if self.model.imported.cap is None else self.model.imported.cap

        def attempt(cap: float | None) -> P:
            # A cap that was chosen for one of the two is left as it is.
            return plan(self if cap == chosen else self.capped(cap))

        return with_room(attempt, cap=chosen, keyword=CAP)

    def capped(self, cap: float | None) -> "TrainTask":
        """Return the task with hidden values and gradients that saturate elsewhere."""
        return replace(self, cap=cap, model=self.model.capped(cap))

    @property
    def parties(self) -> tuple[str, ...]:
        """Return everyone who takes part: owners, and who computes and deals."""
        owners = [holding.owner for holding in self.holdings]
        return tuple(dict.fromkeys((*owners, *self.roles.computing, self.roles.dealer)))

    @property
    def looks(self) -> int:
        """Return how often the rows kept for measuring are looked at."""
        if self.privacy is not None and self.privacy.looks == "none":
            return 0
        return -(-self.epochs * self.steps_per_epoch // self.watch_every)

    @property
    def rows(self) -> int:
        """Return the number of rows in all."""
        counts = [holding.rows for holding in self.holdings]
        return sum(counts) if self.split == "rows" else counts[0]

    @property
    def train_rows(self) -> int:
        """Return the number of rows to train on."""
        return self.rows - self.test_rows

    @property
    def classes(self) -> int:
        """Return the number of classes."""
        return 2 if self.loss == "logistic" else self.label_width

    @property
    def label_shape(self) -> tuple[int, ...]:
        """Return the shape of the label of a row: a number or a one-hot row, for every token."""
        return (*self.model.tokens, self.label_width)

    @property
    def answers(self) -> int:
        """Return how many answers the rows kept for measuring have: one each, or one per token."""
        return self.test_rows * prod(self.model.tokens)

    @property
    def label_width(self) -> int:
        """Return how many numbers make up a label."""
        if self.head is not None:
            return int(self.head.shape[0])
        return 1 if self.loss == "logistic" else self.model.outputs

    @property
    def steps_per_epoch(self) -> int:
        """Return the number of steps in an epoch; rows that fill no batch wait for the next."""
        if self.head is None:
            return self.train_rows // self.batch
        own = self.counts(self.train_indices())
        return min(have // each for have, each in zip(own, self.portions, strict=True) if each)

    @property
    def portions(self) -> tuple[int, ...]:
        """Return how many rows of every owner are in a step, where owners compute the loss."""
        own = self.counts(self.train_indices())
        return tuple(max(1, self.batch * one // sum(own)) if one else 0 for one in own)

    @property
    def is_sampled(self) -> bool:
        """Tell whether the two computing parties draw the rows of every step."""
        return self.privacy is not None and self.privacy.sampling == "hidden"

    @property
    def step_rows(self) -> int:
        """Return how many rows a step has room for."""
        if self.head is not None:
            return sum(self.portions)
        return room_for(self.batch, self.train_rows) if self.is_sampled else self.batch

    def counts(self, rows: np.ndarray) -> tuple[int, ...]:
        """Return how many of these rows every owner has."""
        return tuple(len(own) for own in self._by_owner(rows))

    def rows_of(self, owner: str) -> range:
        """Return which rows an owner has: all of them, where it has columns."""
        if self.split == "columns":
            return range(self.rows)
        first = 0
        for holding in self.holdings:
            if holding.owner == owner:
                return range(first, first + holding.rows)
            first += holding.rows
        return range(0)

    def rate_at(self, step: int) -> float:
        """Return the learning rate of a step; steps count from 1."""
        if step <= self.warmup:
            return self._scheduled(step) * -(-STAGES * step // self.warmup) / STAGES
        return self._scheduled(step)

    def _scheduled(self, step: int) -> float:
        if self.schedule == "linear":
            stage = STAGES * (step - 1) // (self.epochs * self.steps_per_epoch)
            return self.rate * (STAGES - min(stage, STAGES - 1)) / STAGES
        epoch = (step - 1) // self.steps_per_epoch
        if self.schedule == "cosine":
            return self.rate * 0.5 * (1 + cos(pi * epoch / self.epochs))
        if self.schedule == "halving":
            return self.rate * 0.5**epoch
        return self.rate

    def descend(
        self,
        ops: StepOps[V],
        weights: Mapping[str, V],
        gradients: Mapping[str, V],
        state: Mapping[str, V],
        *,
        rate: float,
        rows: int,
        lead: float = 1.0,
    ) -> tuple[dict[str, V], dict[str, V]]:
        """Let the optimiser take a step by gradients that were summed over so many rows."""
        return self.optimiser.step(
            ops,
            weights,
            gradients,
            state,
            rate=rate,
            batch=rows * prod(self.model.tokens),
            lead=lead,
            scales=self.model.scales(),
        )

    def batches(self, epoch: int) -> Iterator[np.ndarray]:
        """Yield the rows of every batch of an epoch, in an order that follows from the seed."""
        if self.is_sampled:  # the order that all know is that of all rows
            yield from (self.train_indices() for _ in range(self.steps_per_epoch))
            return
        order = np.random.default_rng((self.seed, epoch)).permutation(self.train_indices())
        # Whoever computes a loss takes as many rows in every step: owner by owner, in their shares.
        is_whole = self.head is None
        parts = [order] if is_whole else self._by_owner(order)
        counts = (self.batch,) if is_whole else self.portions
        for step in range(self.steps_per_epoch):
            taken = zip(parts, counts, strict=True)
            yield np.concatenate([one[step * each : (step + 1) * each] for one, each in taken])

    def _by_owner(self, rows: np.ndarray) -> list[np.ndarray]:
        own = (self.rows_of(holding.owner) for holding in self.holdings)
        return [rows[(rows >= one.start) & (rows < one.stop)] for one in own]

    def train_indices(self) -> np.ndarray:
        """Return the rows to train on."""
        return np.setdiff1d(np.arange(self.rows), self.test_indices())

    def test_indices(self) -> np.ndarray:
        """Return the rows that are kept for measuring, drawn from all owners alike."""
        order = np.random.default_rng((self.seed, 1 << 20)).permutation(self.rows)
        return np.sort(order[: self.test_rows])


def exchange_holdings(
    session: Session, owners: Sequence[str], mine: Rows | None, *, split: str
) -> tuple[HeldData, ...]:
    """Tell everyone how much data I have, and hear it from the others.

    Args:
        session: with the others.
        owners: who has data.
        mine: my own, if I have some.
        split: owners of rows say what their columns are called, by a hash.

    Raises:
        DataError: an owner announces an impossible shape.
    """
    if mine is not None:
        own = tuple(mine.features.shape)
        padded = (*own, *(0,) * (_MOST_DIMENSIONS - len(own)))
        known = holding_of(session.me, mine, split=split)
        session.publish(HOLDING, (*padded, int(known.has_labels), known.names))
    holdings = []
    for owner in owners:
        if owner == session.me and mine is not None:
            holdings.append(known)
            continue
        rows, *shape, has_labels, names = session.learn(owner, HOLDING)
        # An owner of labels may have no columns.
        sizes = tuple(size for size in shape if size) or (0,)
        if rows < 1 or any(size < 0 for size in sizes):
            raise DataError(f"{owner!r} says its data has the shape {(rows, *shape)}")
        holdings.append(HeldData(owner, rows, sizes, bool(has_labels), names))
    return tuple(holdings)


def holding_of(owner: str, rows: Rows, *, split: str) -> HeldData:
    """Say how much data an owner has."""
    shape = tuple(rows.features.shape)
    names = mark_of(rows.columns) if split == "rows" else 0
    return HeldData(owner, shape[0], shape[1:], rows.labels is not None, names)


def _check_head(task: TrainTask) -> None:
    if task.head is None:
        return
    if task.head.dim() != 2 or task.head.shape[1] != task.model.outputs:
        raise ConfigError(
            f"wanted a head of (classes, {task.model.outputs}), as wide as what the model gives, "
            f"got {tuple(task.head.shape)}"
        )
    if task.privacy is not None or task.split != "rows" or task.loss != "softmax":
        raise ConfigError("a loss at the owners of rows has no privacy, and wants softmax and rows")
    if task.accumulate != 1 or task.class_weights is not None or task.score_to:
        raise ConfigError("with a head, leave accumulate, class_weights and score_to out")


def _check_privacy(task: TrainTask) -> None:
    if task.privacy is None:
        return
    wrong = task.privacy.against(
        split=task.split,
        accumulate=task.accumulate,
        frac_bits=task.frac_bits,
        show_to=task.show_to,
        score_to=task.score_to,
    )
    if wrong:
        raise ConfigError("; ".join(wrong.values()))
    if (task.batch != task.train_rows) != task.is_sampled:
        raise ConfigError(
            f"with privacy every step uses all {task.train_rows} rows to train on, or fewer that "
            f"are drawn with sampling='hidden'; got a batch of {task.batch} and sampling "
            f"{task.privacy.sampling!r}"
        )


def _check_owners(task: TrainTask) -> None:
    owners = [holding.owner for holding in task.holdings]
    if not owners or len(set(owners)) != len(owners):
        raise ConfigError(f"wanted different owners of data, got {', '.join(owners) or 'none'}")
    if task.roles.dealer in owners:
        raise ConfigError(f"the dealer {task.roles.dealer!r} must not own data: it knows the masks")
    if task.split == "columns":
        _check_columns(task)
        return
    check_names({holding.owner: holding.names for holding in task.holdings})
    for holding in task.holdings:
        if not holding.has_labels:
            raise ConfigError(f"{holding.owner!r} has rows without labels")
        if holding.features != task.model.inputs:
            raise ConfigError(
                f"the model wants rows of shape {task.model.inputs}, {holding.owner!r} has "
                f"{holding.features}"
            )


def _check_columns(task: TrainTask) -> None:
    counts = {holding.rows for holding in task.holdings}
    if len(counts) != 1:
        raise ConfigError(
            f"owners of columns must have the same rows, got {sorted(counts)} rows; "
            "match their ids first"
        )
    if sum(holding.has_labels for holding in task.holdings) != 1:
        raise ConfigError("wanted exactly one owner of the labels among the owners of columns")
    for holding in task.holdings:
        if not holding.features[0] and not holding.has_labels:
            raise ConfigError(f"{holding.owner!r} has neither columns nor labels")
    width = sum(holding.features[0] for holding in task.holdings)
    if any(len(holding.features) != 1 for holding in task.holdings):
        raise ConfigError("columns can be split between owners only if rows are flat")
    if task.model.inputs != (width,):
        raise ConfigError(f"the model wants rows of shape {task.model.inputs}, got ({width},)")
