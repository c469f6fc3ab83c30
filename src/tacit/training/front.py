"""Train a torch module on rows of several owners, from Python: every party in this process."""

import copy
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import exp
from typing import TypedDict, Unpack, final

import torch
from torch import Tensor, nn

from tacit.data.memory import Handed, features_and_labels, mark_of, names_of, numbers_of, to_array
from tacit.errors import ConfigError, DataError
from tacit.mpc import Roles
from tacit.nn import as_input, make_any_model
from tacit.nn.tracing import TRACING
from tacit.notebook import Lines
from tacit.party import Listener, Meeting, Progress, Session, Usage, merge_results, run_threads
from tacit.result import Claim, Reported, Result
from tacit.training.clipping import shorten_rows
from tacit.training.loop import Trained
from tacit.training.loop import train as take_part
from tacit.training.optimise import Optimiser
from tacit.training.privacy import Looks, Noise, Privacy, Sampling
from tacit.training.summary import summarise
from tacit.training.task import HOLDING, HeldData, Loss, Schedule, TrainTask

DEALER = "dealer"
BOUND, PRIVATE_BOUND = 4.0, 64.0
"""The largest weights, without privacy and with it: noise makes them larger, and they saturate."""


class TrainSettings(TypedDict, total=False):
    """How weights are changed; what is not given is as in `TrainTask`."""

    epochs: int
    batch: int
    rate: float
    schedule: Schedule
    warmup: int
    accumulate: int
    optimiser: Optimiser
    loss: Loss
    class_weights: tuple[float, ...]
    seed: int
    frac_bits: int
    feature_bound: float
    weight_bound: float
    watch_every: int


@final
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TrainedModel(Reported):
    """A model that was trained on shares, and what its training was worth, cost and promised.

    Attributes:
        model: the torch module with its weights, in the state for answering; None where they stay
            shared.
        shares: each computing party's share of every weight.
        history: step, mean loss and share of right answers at every look; the loss is NaN where
            only right answers are shown, with noise.
        task: what was trained.
        result: metrics, cost, ledger and claims of all parties.
        saturated: at the last look, how many of how many hidden values and gradients of held-out
            rows were cut off at the cap; None where nothing could be, or where it is not shown.
    """

    model: nn.Module | None
    shares: Mapping[str, Mapping[str, Tensor]]
    history: tuple[tuple[int, float, float], ...]
    task: TrainTask
    result: Result
    saturated: tuple[int, int] | None = None

    @property
    def claim(self) -> Claim | None:
        """Return what a private training promises about one record; None of any other."""
        return None if self.task.privacy is None else next(c for c in self.claims if c.delta)

    @property
    def perplexity(self) -> float | None:
        """Return the exponential of the last loss that was shown; None where none was."""
        return exp(self.history[-1][1]) if self.history else None

    def logits(self, features: Handed) -> Tensor:
        """Return scores of rows, here, as they were trained: of norm 1 at most with privacy."""
        if self.model is None:
            raise ConfigError("the weights stayed shared; train with give=True to have them")
        rows = torch.from_numpy(numbers_of(features))
        if self.task.privacy is not None:
            rows = shorten_rows(rows, frac_bits=self.task.frac_bits)
        kind = next(self.model.parameters()).dtype
        with torch.no_grad():
            found: Tensor = self.model(as_input(self.model, rows.to(kind)))
        return found if self.task.head is None else found @ self.task.head.T.to(kind)

    def predict(self, features: Handed) -> Tensor:
        """Return the class of every row, or of every token."""
        scores = self.logits(features)
        return (scores[..., 0] >= 0).long() if self.task.loss == "logistic" else scores.argmax(-1)

    def _shown(self) -> tuple[str, Lines]:
        return "Trained on shares", self.result.headline()


def train(
    model: nn.Module,
    owners: Mapping[str, Handed],
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    clip: float = 1.0,
    looks: Looks | None = None,
    noise: Noise | None = None,
    sampling: Sampling | None = None,
    protocol: str = "sealed",
    test_share: float = 0.1,
    give: bool = True,
    cap: float | None = None,
    head: Tensor | None = None,
    report: Listener | None = None,
    **settings: Unpack[TrainSettings],
) -> TrainedModel:
    """Train a torch module on rows that their owners do not show each other.

    The first two owners compute on shares, a dealer supplies randomness; all are threads of this
    process here. Between hosts the same training is a job of kind "train". Your module is not
    changed: its weights are where training starts, and public, as are those that need no gradient.

    Guarantee: that of the protocol; with ``epsilon``, under "sealed", (ε, δ)-DP for adding or
    removing the contribution of one record, towards every single party and whoever gets the
    weights, if all follow the protocol. Without it a model that is given out remembers its rows.

    Args:
        model: made of layers that `tacit.secure` takes: a row of scores per input, or per token.
        owners: by name, rows and labels: whole numbers from 0, one per row or one per token. Rows
            of ids for a module with an `nn.Embedding`, else numbers within ``feature_bound``. A
            pair, or a torch `Dataset` or one of Hugging Face's.
        epsilon: what the whole training may tell about one record; None for no promise. Then rows
            are shortened to norm 1, and every step uses all of them.
        delta: the δ of that promise; 1/(10·rows) if not given.
        clip: how long the gradient of a record may be, with ``epsilon``.
        looks: what is shown on the way of rows kept for measuring, to the first owner: "none",
            "noisy" or "public"; see `Privacy`. Without ``epsilon`` loss and accuracy are.
        noise: "parts" that every party draws, or "joint" for noise that is sampled on shares.
        sampling: "hidden" for steps on a ``batch`` of rows that the two computing owners draw, and
            a claim of its own towards these two; "none" for all rows in every step.
        protocol: "sealed", "permuted3", "permuted2" or a mixture.
        test_share: of all rows, kept for measuring.
        give: whether the owners get the weights; else they stay shared.
        cap: where hidden values and gradients saturate; found if it must be and is not given.
        head: a public matrix (classes, width) behind the model, which then gives hidden states:
            each owner sees the last hidden states of its own rows, computes loss and gradient with
            its labels, which are never shared, and shares the gradient. Cheap where classes are
            many; the ledger names what owners see.
        report: told what the first owner does, steps done and steps in all.
        settings: see `TrainSettings`.

    Returns:
        The model with its claims, ledger, metrics and cost. `print` it, or `predict`.

    Raises:
        ConfigError: what is asked for cannot be promised or does not fit.
        DataError: rows and labels do not fit, hold NaN, or are longer than the model takes.
        InputError: the model holds something that cannot be trained on shares, named by its place.
    """
    if epsilon is None and any(one is not None for one in (delta, looks, noise, sampling)):
        raise ConfigError("delta, looks, noise, sampling belong to epsilon: it was not given")
    if len(owners) < 2 or DEALER in owners:
        raise ConfigError(
            f"wanted two owners of rows at least, none of them called {DEALER!r}, got "
            f"{', '.join(owners) or 'none'}"
        )
    given = {name: features_and_labels(one) for name, one in owners.items()}
    rows = {name: _rows(name, one[0]) for name, one in given.items()}
    total = sum(map(len, rows.values()))
    privacy = None
    if epsilon is not None:
        privacy = Privacy(
            epsilon=epsilon,
            delta=0.1 / total if delta is None else delta,
            clip=clip,
            looks=looks or "none",
            noise=noise or "parts",
            sampling=sampling or "none",
        )
    made = make_any_model(model, tuple(next(iter(rows.values())).shape[1:]), cap=cap)
    tables = [layer for layer in model.modules() if isinstance(layer, nn.Embedding)]
    if tables:  # it reads ids
        limit = tables[0].num_embeddings
        settings["feature_bound"] = float(limit)
        for name, one in rows.items():
            if not bool(((one >= 0) & (one < limit) & (one == one.round())).all()):
                raise DataError(f"{name!r}: wanted ids, whole numbers from 0 to {limit - 1}")
    shows = privacy is None or privacy.looks != "none"
    test_rows = max(1, round(total * test_share)) if shows else 0
    names = tuple(owners)
    task = TrainTask(
        name="training",
        roles=Roles(names[0], names[1], DEALER),
        protocol=protocol,
        model=made,
        holdings=tuple(
            HeldData(name, len(one), tuple(one.shape[1:]), True, mark_of(names_of(owners[name])))
            for name, one in rows.items()
        ),
        split="rows",
        test_rows=test_rows,
        cap=cap,
        show_to=names[:1] if shows else (),
        give_to=names if give else (),
        head=None if head is None else head.detach().cpu().double(),
        privacy=privacy,
        **_with_defaults(settings, privacy, total - test_rows),
    )
    pairs = {
        name: (rows[name], _labels(name, one[1], len(rows[name]), task))
        for name, one in given.items()
    }
    return _run_here(model, task, pairs, report)


def _with_defaults(settings: TrainSettings, privacy: Privacy | None, rows: int) -> TrainSettings:
    """Choose a batch of the rows to train on, and a bound of weights, where none is given."""
    if privacy is None:
        return {"weight_bound": BOUND, "batch": min(128, rows), **settings}
    if privacy.sampling == "hidden":
        # One row less at least: with all of them in every step there is nothing to draw.
        return {"weight_bound": PRIVATE_BOUND, "batch": min(128, rows - 1), **settings}
    if "batch" in settings:
        text = "with epsilon every step uses all rows to train on: leave batch out, or draw "
        raise ConfigError(text + "rows with sampling='hidden'")
    return {"weight_bound": PRIVATE_BOUND, "batch": rows, **settings}


def _run_here(
    model: nn.Module,
    task: TrainTask,
    pairs: Mapping[str, tuple[Tensor, Tensor]],
    report: Listener | None,
) -> TrainedModel:
    """Let every party be a thread, and put together what they have in the end."""
    digest = hashlib.sha256(repr((task.name, task.parties, task.protocol)).encode()).digest()
    meeting = Meeting(parties=task.parties, job_digest=digest)
    programs = {name: _Party(task, pairs.get(name, (None, None))) for name in task.parties}
    told = {} if report is None else {task.parties[0]: Progress(report)}
    ended = run_threads(programs, meeting, progress=told)
    trained = {name: one[0] for name, one in ended.items()}
    result = merge_results(tuple(one[1] for one in ended.values()))
    first, loaded = trained[task.parties[0]], None
    if task.give_to:
        with TRACING:
            loaded = copy.deepcopy(model).eval()
        loaded.load_state_dict(task.model.state(first.weights), strict=False)
    return TrainedModel(
        model=loaded,
        shares={name: one.shares for name, one in trained.items() if one.shares},
        history=first.shown,
        task=task,
        result=replace(result, launched="threads"),
        saturated=None if first.saturated is None else first.saturated[1:],
    )


@dataclass(frozen=True, eq=False)
class _Party:
    """A party's program, with what it brings."""

    task: TrainTask
    mine: tuple[Tensor | None, Tensor | None]

    def __call__(self, session: Session) -> tuple[Trained, Result]:
        """Do this party's part."""
        usage = Usage()
        rows, labels = self.mine
        # Between hosts owners tell it; here the task does.
        owners = [one.owner for one in self.task.holdings]
        session.ledger.record(*HOLDING.leaks_of_all(owners, session.parties))
        trained = take_part(session, self.task, rows=rows, labels=labels)
        role = "owner" if session.me != self.task.roles.dealer else "dealer"
        report = usage.report(name=session.me, role=role, progress=session.progress)
        return trained, summarise(
            session, self.task, trained, report=report, counts={}, labels=labels
        )


def _rows(name: str, given: Handed) -> Tensor:
    rows = torch.from_numpy(numbers_of(given, whose=f"rows of {name!r}"))
    if rows.dim() < 2 or not rows.numel():
        raise DataError(f"{name!r}: wanted rows of numbers, got the shape {tuple(rows.shape)}")
    if not bool(torch.isfinite(rows).all()):
        raise DataError(f"the rows of {name!r} hold NaN or infinite values; clean them first")
    return rows


def _labels(name: str, given: Handed, rows: int, task: TrainTask) -> Tensor:
    """Give labels one-hot, or as a column of zeros and ones."""
    if given is None:
        raise DataError(f"{name!r}: wanted rows and labels, got rows alone")
    labels = torch.as_tensor(to_array(given))
    wanted = (rows, *task.model.tokens)
    if tuple(labels.shape) != wanted or labels.is_floating_point():
        raise DataError(
            f"{name!r}: wanted labels of whole numbers in the shape {wanted}, got "
            f"{tuple(labels.shape)}"
        )
    if not bool(((labels >= 0) & (labels < task.classes)).all()):
        raise DataError(f"labels of {name!r} are not all from 0 to {task.classes - 1}")
    if task.loss == "logistic":
        return labels.double().reshape(-1, 1)
    return nn.functional.one_hot(labels.long(), task.classes).double()
