"""What follows from what a user of a training says, and from how much data every owner has.

Among it the network: built, cut to what learns, and put together again in the end.
"""

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from math import cos, pi, prod
from typing import Literal, TypeVar

import numpy as np
from torch import Tensor, nn

from tacit.data.memory import check_names
from tacit.data.rows import Holding
from tacit.errors import ConfigError
from tacit.nn import (
    Model,
    add_adapters,
    make_any_model,
    make_model,
    make_token_model,
    merge_adapters,
)
from tacit.nn.code import build_network
from tacit.nn.running import with_room
from tacit.nn.weights import load_weights
from tacit.training.noise import room_for
from tacit.training.ops import StepOps
from tacit.training.spec import TrainModel, TrainSpec

P = TypeVar("P")
V = TypeVar("V")
CAP = "cap= of make_model and TrainModel (model.cap in a job file)"
BATCH = 128
"""Rows of a step, where nobody says."""
STAGES = 10
"""A linear schedule has so many rates: each is a plan of its own, which takes a second to make."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainPlan:
    """A training that every party sees alike: what is asked for, and what follows from sizes.

    Attributes:
        spec: what its user says.
        holdings: who brings which part of the data.
        model: what is trained; its buffers, and parameters that need no gradient, stay as they are
            and are public (`Model.frozen`).
        head: a public matrix (classes, width) behind the model, whose outputs are then hidden
            states: who holds the labels of rows sees the last hidden states of these rows in every
            step, computes the loss and its gradient, and shares that; labels are never shared.
        bound: the largest size of a feature.
        cap: where gradients of hidden values saturate; None for nowhere.
    """

    spec: TrainSpec
    holdings: tuple[Holding, ...]
    model: Model
    bound: float
    head: Tensor | None = None
    cap: float | None = None

    @classmethod
    def of(
        cls, spec: TrainSpec, holdings: tuple[Holding, ...], module: nn.Module | None = None
    ) -> "TrainPlan":
        """Plan a training once everyone has said how much data there is.

        Args:
            spec: what its user says.
            holdings: of all owners, in their order.
            module: the network itself, where a program gives it.
        """
        widths = [holding.features for holding in holdings]
        inputs = widths[0]
        if spec.data.split == "columns":
            inputs = (sum(width[0] for width in widths),)
        ends = trainable(spec.model, inputs, module)
        make = make_token_model if spec.reads_text else make_model
        model = (make_any_model if module is not None else make)(
            ends.module, inputs, cap=spec.model.cap
        )
        bound = spec.data.bound
        if spec.reads_text:
            vocabulary = model.outputs if ends.head is None else len(ends.head)
            bound = float(vocabulary if ends.table is None else ends.table.abs().max())
        elif module is not None and (limit := ids_of(ends.module)) is not None:
            bound = float(limit)
        return cls(
            spec=spec,
            holdings=holdings,
            model=model,
            bound=bound,
            head=ends.head,
            cap=spec.model.cap,
        )

    def __post_init__(self) -> None:
        training, privacy = self.spec.training, self.spec.privacy
        object.__setattr__(self, "model", self.model.frozen())
        if not self.model.initial:
            raise ConfigError("no parameter of the model needs a gradient: nothing can be trained")
        _check_owners(self)
        fewest = 1 if privacy is None or privacy.looks != "none" else 0
        if not fewest <= self.test_rows < self.rows:
            raise ConfigError(
                f"wanted {fewest} to {self.rows - 1} of {self.rows} rows for measuring, got "
                f"{self.test_rows}"
            )
        if not 1 <= self.batch <= self.train_rows:
            raise ConfigError(f"wanted a batch of 1 to {self.train_rows} rows, got {self.batch}")
        if privacy is not None and (self.batch != self.train_rows) != self.spec.is_sampled:
            raise ConfigError(
                f"with privacy every step uses all {self.train_rows} rows to train on, or fewer "
                f"that are drawn with sampling='hidden'; got a batch of {self.batch} and sampling "
                f"{privacy.sampling!r}"
            )
        if not 0 < training.rate < 1e3:
            raise ConfigError(f"wanted a rate above 0 and below 1000, got {training.rate}")
        if training.accumulate > self.batch:
            raise ConfigError(
                f"wanted 1 to {self.batch} parts of a step, got {training.accumulate}"
            )
        _check_head(self)
        if self.loss == "logistic" and self.model.outputs != 1:
            raise ConfigError(
                f"a logistic loss wants a model with one output, got {self.model.outputs}"
            )
        if self.loss == "logistic" and self.model.tokens:
            raise ConfigError("a model of tokens wants loss='softmax', got 'logistic'")
        weights = training.class_weights
        if weights is not None and len(weights) != self.classes:
            raise ConfigError(f"wanted {self.classes} class weights, got {len(weights)}")

    def planned(self, plan: Callable[["TrainPlan"], P]) -> P:
        """Plan all of this, with a cap on hidden values and gradients if they do not fit without.

        Args:
            plan: raises RangeError where numbers do not fit.
        """
        chosen = self.cap if self.model.imported.cap is None else self.model.imported.cap

        def attempt(cap: float | None) -> P:
            # A cap that was chosen for one of the two is left as it is.
            return plan(self if cap == chosen else self.capped(cap))

        return with_room(attempt, cap=chosen, keyword=CAP)

    def capped(self, cap: float | None) -> "TrainPlan":
        """Return this with hidden values and gradients that saturate elsewhere."""
        return replace(self, cap=cap, model=self.model.capped(cap))

    def with_batch(self, batch: int) -> "TrainPlan":
        """Return this with so many rows in a step."""
        training = replace(self.spec.training, batch=batch)
        return replace(self, spec=replace(self.spec, training=training))

    @property
    def loss(self) -> Literal["softmax", "logistic"]:
        """Return what is computed of scores and labels."""
        return self.spec.loss

    @property
    def frac_bits(self) -> int:
        """Return the precision of numbers."""
        return self.spec.ring.frac_bits

    @property
    def test_rows(self) -> int:
        """Return how many rows are kept for measuring; none where nobody may look."""
        if self.spec.privacy is not None and self.spec.privacy.looks == "none":
            return 0
        return max(1, round(self.rows * self.spec.data.test_share))

    @property
    def batch(self) -> int:
        """Return the rows of a step; on average, where they are sampled."""
        if self.spec.training.batch is not None:
            return self.spec.training.batch
        if self.spec.privacy is None:
            return min(BATCH, self.train_rows)
        # With all rows in every step there would be nothing to draw.
        return min(BATCH, self.train_rows - 1) if self.spec.is_sampled else self.train_rows

    @property
    def steps(self) -> int:
        """Return the number of steps in all."""
        return self.spec.training.epochs * self.steps_per_epoch

    @property
    def parties(self) -> tuple[str, ...]:
        """Return everyone who takes part: owners, and who computes and deals."""
        owners = [holding.owner for holding in self.holdings]
        return tuple(dict.fromkeys((*owners, *self.spec.roles.computing, self.spec.roles.dealer)))

    @property
    def looks(self) -> int:
        """Return how often the rows kept for measuring are looked at."""
        if self.spec.privacy is not None and self.spec.privacy.looks == "none":
            return 0
        return -(-self.steps // self.spec.training.look_every)

    @property
    def rows(self) -> int:
        """Return the number of rows in all."""
        counts = [holding.rows for holding in self.holdings]
        return sum(counts) if self.spec.data.split == "rows" else counts[0]

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
    def step_rows(self) -> int:
        """Return how many rows a step has room for."""
        if self.head is not None:
            return sum(self.portions)
        return room_for(self.batch, self.train_rows) if self.spec.is_sampled else self.batch

    def counts(self, rows: np.ndarray) -> tuple[int, ...]:
        """Return how many of these rows every owner has."""
        return tuple(len(own) for own in self._by_owner(rows))

    def rows_of(self, owner: str) -> range:
        """Return which rows an owner has: all of them, where it has columns."""
        if self.spec.data.split == "columns":
            return range(self.rows)
        first = 0
        for holding in self.holdings:
            if holding.owner == owner:
                return range(first, first + holding.rows)
            first += holding.rows
        return range(0)

    def rate_at(self, step: int) -> float:
        """Return the learning rate of a step; steps count from 1."""
        warmup = self.spec.training.warmup
        if step <= warmup:
            return self._scheduled(step) * -(-STAGES * step // warmup) / STAGES
        return self._scheduled(step)

    def _scheduled(self, step: int) -> float:
        how = self.spec.training
        if how.schedule == "linear":
            stage = STAGES * (step - 1) // self.steps
            return how.rate * (STAGES - min(stage, STAGES - 1)) / STAGES
        epoch = (step - 1) // self.steps_per_epoch
        if how.schedule == "cosine":
            return how.rate * 0.5 * (1 + cos(pi * epoch / how.epochs))
        return how.rate * 0.5**epoch if how.schedule == "halving" else how.rate

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
        return self.spec.training.step(
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
        if self.spec.is_sampled:  # the order that all know is that of all rows
            yield from (self.train_indices() for _ in range(self.steps_per_epoch))
            return
        coins = np.random.default_rng((self.spec.training.seed, epoch))
        order = coins.permutation(self.train_indices())
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
        order = np.random.default_rng((self.spec.training.seed, 1 << 20)).permutation(self.rows)
        return np.sort(order[: self.test_rows])


def _check_head(task: TrainPlan) -> None:
    if task.head is None:
        return
    if task.head.dim() != 2 or task.head.shape[1] != task.model.outputs:
        raise ConfigError(
            f"wanted a head of (classes, {task.model.outputs}), as wide as what the model gives, "
            f"got {tuple(task.head.shape)}"
        )
    if task.spec.privacy is not None or task.spec.data.split != "rows" or task.loss != "softmax":
        raise ConfigError("a loss at the owners of rows has no privacy, and wants softmax and rows")
    training = task.spec.training
    if (
        training.accumulate != 1
        or training.class_weights is not None
        or task.spec.protocol.score_to
    ):
        raise ConfigError("with a head, leave accumulate, class_weights and score_to out")


def _check_owners(task: TrainPlan) -> None:
    owners = [holding.owner for holding in task.holdings]
    if not owners or len(set(owners)) != len(owners):
        raise ConfigError(f"wanted different owners of data, got {', '.join(owners) or 'none'}")
    if task.spec.data.split == "columns":
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


def _check_columns(task: TrainPlan) -> None:
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


def build(model: TrainModel, inputs: tuple[int, ...], module: nn.Module | None = None) -> nn.Module:
    """Build the torch module for rows of a shape, with weights to start from.

    Args:
        model: what its user says of it.
        inputs: the shape of a row; of a network whose table is public, with or without the
            width of what its owner looked up: the whole network reads ids.
        module: the network itself, where a program gives it; it is not changed.
    """
    read = inputs if model.table is None else inputs[:1]
    if module is None:
        module = build_network(model.layers, model.code, read, seed=model.seed)
    elif model.file is not None:
        module = deepcopy(module)
    if model.file is not None:
        load_weights(module, model.file)
    return module


def trainable(
    model: TrainModel, inputs: tuple[int, ...], module: nn.Module | None = None
) -> "Ends":
    """Build the module that is trained: without its ends, and with adapters."""
    ends = cut_ends(build(model, inputs, module), table=model.table, head=model.head)
    if model.adapters is None:
        return ends
    adapted = add_adapters(
        ends.module,
        rank=model.adapters,
        seed=model.seed,
        only=model.adapt,
        keep_training=model.train,
    )
    return replace(ends, module=adapted)


def whole_state(
    model: TrainModel,
    inputs: tuple[int, ...],
    found: Mapping[str, Tensor],
    module: nn.Module | None = None,
) -> dict[str, Tensor]:
    """Return a trained state as `load_state_dict` of the whole network takes it.

    That is with its ends, and with what its layers and adapters became.
    """
    if model.adapters is not None:
        adapted = trainable(model, inputs, module).module.double()
        adapted.load_state_dict(found, strict=False)
        found = dict(merge_adapters(adapted).state_dict())
    if model.table is not None or model.head is not None:
        found = {**build(model, inputs, module).state_dict(), **found}
    return dict(found)


def ids_of(module: nn.Module) -> int | None:
    """Return how many ids a network reads; None of one that reads numbers."""
    tables = [layer for layer in module.modules() if isinstance(layer, nn.Embedding)]
    return tables[0].num_embeddings if tables else None


@dataclass(frozen=True, eq=False)
class Ends:
    """A module without its ends, and what they were: (vocabulary, width) each, or None."""

    module: nn.Module
    table: Tensor | None
    head: Tensor | None


def cut_ends(module: nn.Module, *, table: str | None = None, head: str | None = None) -> Ends:
    """Return a copy of a module without the named ends.

    Args:
        module: what is trained.
        table: the name of its `nn.Embedding`, which is to be the first thing that ids meet.
        head: the name of its last layer, an `nn.Linear` without bias.

    Raises:
        ConfigError: there is no such layer, or it is of another kind.
    """
    cut = deepcopy(module)
    embedding = _taken(cut, table, nn.Embedding, "an nn.Embedding")
    last = _taken(cut, head, nn.Linear, "an nn.Linear")
    if isinstance(last, nn.Linear) and last.bias is not None:
        raise ConfigError(f"model.head: {head!r} has a bias; wanted an nn.Linear without one")
    ends = [None if one is None else one.weight for one in (embedding, last)]
    for name, weight in cut.named_parameters():
        if weight.requires_grad and any(weight is one for one in ends):
            raise ConfigError(f"{name!r} is also an end of the model, which does not learn")
    found = [None if one is None else one.detach().cpu().double() for one in ends]
    return Ends(cut, found[0], found[1])


def _taken(
    module: nn.Module, name: str | None, kind: type[nn.Module], wanted: str
) -> nn.Embedding | nn.Linear | None:
    """Put nothing into the place of a layer, and return the layer."""
    if name is None:
        return None
    try:
        layer = module.get_submodule(name)
    except AttributeError:
        layer = None
    if not name or not isinstance(layer, kind):
        known = ", ".join(at for at, one in module.named_modules() if isinstance(one, kind))
        raise ConfigError(f"no layer {name!r} that is {wanted}; there are {known or 'none'}")
    module.set_submodule(name, nn.Identity())
    return layer  # type: ignore[return-value]  # of the kind that was asked for
