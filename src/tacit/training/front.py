"""Train a torch module on rows of several owners, from Python: every party in this process."""

import copy
import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import exp
from pathlib import Path
from typing import final

import numpy as np
import torch
from torch import Tensor, nn

from tacit.data.memory import Handed, features_and_labels, names_of, numbers_of, to_array
from tacit.data.rows import Floats, Rows
from tacit.data.source import NOTHING, Given, OwnerTable
from tacit.errors import ConfigError, DataError
from tacit.exclusive import TORCH_LOCK
from tacit.matching import align_in_the_clear
from tacit.nn import as_input
from tacit.nn.code import check_network
from tacit.notebook import Lines
from tacit.party import Listener, Meeting, Progress, Session, Usage, merge_results, run_threads
from tacit.result import Claim, Reported, Result
from tacit.ring import FixedPoint
from tacit.spec import check_record, to_tables, worded
from tacit.training.checkpoint import StateFolder
from tacit.training.gradients import shorten_rows
from tacit.training.loop import Trained, book_of
from tacit.training.loop import train as take_part
from tacit.training.plan import TrainPlan, build, ids_of, whole_state
from tacit.training.privacy import Privacy
from tacit.training.rows import HOLDING, holding_of, load_rows, match_rows
from tacit.training.spec import TrainData, Training, TrainModel, TrainProtection, TrainSpec
from tacit.training.summary import summarise

DEALER, NAME = "dealer", "training"


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
        plan: what was trained.
        result: metrics, cost, ledger and claims of all parties.
        saturated: at the last look, how many of how many hidden values and gradients of held-out
            rows were cut off at the cap; None where nothing could be, or where it is not shown.
    """

    model: nn.Module | None
    shares: Mapping[str, Mapping[str, Tensor]]
    history: tuple[tuple[int, float, float], ...]
    plan: TrainPlan
    result: Result
    saturated: tuple[int, int] | None = None

    @property
    def claim(self) -> Claim | None:
        """Return what a private training promises about one record; None of any other."""
        return None if self.plan.spec.privacy is None else next(c for c in self.claims if c.delta)

    @property
    def perplexity(self) -> float | None:
        """Return the exponential of the last loss that was shown; None where none was."""
        return exp(self.history[-1][1]) if self.history else None

    def logits(self, features: Handed) -> Tensor:
        """Return scores of rows, here, as they were trained: of norm 1 at most with privacy."""
        if self.model is None:
            raise ConfigError("the weights stayed shared; name who gets them in protocol.give_to")
        rows = torch.from_numpy(numbers_of(features))
        if self.plan.spec.privacy is not None:
            rows = shorten_rows(rows, frac_bits=self.plan.frac_bits)
        kind = next(self.model.parameters()).dtype
        with torch.no_grad():
            found: Tensor = self.model(as_input(self.model, rows.to(kind)))
        return found

    def predict(self, features: Handed) -> Tensor:
        """Return the class of every row, or of every token."""
        scores = self.logits(features)
        return (scores[..., 0] >= 0).long() if self.plan.loss == "logistic" else scores.argmax(-1)

    def _shown(self) -> tuple[str, Lines]:
        return "Trained on shares", self.result.headline()


def train(
    module: nn.Module | None,
    owners: Mapping[str, Handed | OwnerTable],
    *,
    data: TrainData | None = None,
    model: TrainModel | None = None,
    training: Training | None = None,
    privacy: Privacy | None = None,
    protocol: TrainProtection | str = "sealed",
    ring: FixedPoint | None = None,
    out: Path | None = None,
    search: Sequence[Path] = (),
    report: Listener | None = None,
    epochs: int | None = None,
    batch: int | None = None,
    rate: float | None = None,
    loss: str | None = None,
    look_every: int | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    cap: float | None = None,
) -> TrainedModel:
    """Train a torch module on rows that their owners do not show each other.

    The first two owners compute on shares, a dealer supplies randomness; all are threads of this
    process here. Between hosts the same training is a job of kind "train", whose tables are the
    records here. Your module is not changed: its weights are where training starts, and public, as
    are those that need no gradient.

    Guarantee: that of the protocol; with ``epsilon``, under "sealed", (ε, δ)-DP for adding or
    removing the contribution of one record, towards every single party and whoever gets the
    weights, if all follow the protocol. Without it a model that is given out remembers its rows.

    Args:
        module: made of layers that `tacit.secure` takes: a row of scores per input, or per token.
            None for one in words: ``model=TrainModel(layers=…)``.
        owners: by name, rows and labels: whole numbers from 0, one per row or one per token. Rows
            of ids for a module with an `nn.Embedding`, else numbers within ``data.bound``. A
            pair, or a torch `Dataset` or one of Hugging Face's; or an `OwnerTable` that names a
            file or a known set. Owners of columns bring rows alone, but for one who has labels.
        data: how owners divide the data, and what everyone may assume about it.
        model: how large weights may get, where hidden values saturate, which layers learn.
        training: how weights are changed.
        privacy: what the training may tell about one record; without ``epsilon`` and this there is
            no promise. Then rows are shortened to norm 1, and every step uses all of them.
        protocol: "sealed", "permuted3", "permuted2" or a mixture, by which the first owner is
            shown loss and accuracy on the way and all owners get the weights; or the whole record.
        ring: the precision of numbers.
        out: a folder; then a training that was stopped goes on from what parties kept there.
        search: folders that may hold known sets.
        report: told what the first owner does, steps done and steps in all.
        epochs: passes over the data; this and the next four are fields of ``training``.
        batch: rows of a step.
        rate: the learning rate.
        loss: "softmax", "logistic", or "next-token" for rows of ids without labels.
        look_every: steps between two looks.
        epsilon: of ``privacy``: what the whole training may tell about one record.
        delta: the δ of that promise; 1/(10·rows) if not given.
        cap: of ``model``: where hidden values saturate; found if it must be and is not given.

    Returns:
        The model with its claims, ledger, metrics and cost. `print` it, or `predict`.

    Raises:
        ConfigError: what is asked for cannot be promised or does not fit.
        DataError: rows and labels do not fit, hold NaN, or are longer than the model takes.
        InputError: the model holds something that cannot be trained on shares, named by its place.
    """
    model = worded(model or TrainModel(), cap=cap)
    _check_module(module, model)
    names = tuple(owners)
    whole = protocol
    if isinstance(whole, str):
        whole = TrainProtection(kind=whole, dealer=DEALER, show_to=names[:1], give_to=names)
    _check_owners(owners, whole)
    tables = {name: one for name, one in owners.items() if isinstance(one, OwnerTable)}
    data = data or TrainData()
    known = {**data.owners, **tables}
    spec = _checked(
        TrainSpec(
            data=replace(data, owners={one: known.get(one, OwnerTable()) for one in owners}),
            model=model,
            training=worded(
                training or Training(),
                epochs=epochs,
                batch=batch,
                rate=rate,
                loss=loss,
                look_every=look_every,
            ),
            protocol=whole,
            ring=ring or FixedPoint(),
        )
    )
    raw, rows = _read(spec, owners, known.keys(), search, module)
    promise = _promise(privacy, epsilon, delta, sum(map(len, rows.values())))
    if promise is not None:
        if isinstance(protocol, str) and promise.looks == "none":
            whole = replace(whole, show_to=())
        spec = _checked(replace(spec, privacy=promise, protocol=whole))
    joined = align_in_the_clear(rows) if spec.data.split == "columns" else rows
    holdings = tuple(
        replace(holding, labels="classes") if holding.owner in raw else holding
        for holding in (
            holding_of(name, one, split=spec.data.split) for name, one in joined.items()
        )
    )
    plan = TrainPlan.of(spec, holdings, module)
    for name, labels in raw.items():
        rows[name] = replace(rows[name], labels=_labels(name, labels, len(rows[name]), plan))
    return _run_here(plan, rows, module, out, report)


_checked = partial(check_record, source="tacit.train")


def _check_module(module: nn.Module | None, model: TrainModel) -> None:
    named = model.layers or model.code is not None
    if module is not None and named:
        raise ConfigError("wanted either a module or model.layers or model.code, got both")
    if module is None and (wrong := check_network(model.layers, model.code)) is not None:
        raise ConfigError(f"model.layers: {wrong}")


def _check_owners(owners: Mapping[str, object], protocol: TrainProtection) -> None:
    if (len(owners) < 2 and protocol.compute is None) or protocol.dealer in owners:
        raise ConfigError(
            f"wanted two owners of rows at least, none of them called {protocol.dealer!r}, got "
            f"{', '.join(owners) or 'none'}"
        )


def _promise(
    privacy: Privacy | None, epsilon: float | None, delta: float | None, rows: int
) -> Privacy | None:
    """Return the privacy that is asked for by record, by name, or both."""
    if privacy is not None:
        return worded(privacy, epsilon=epsilon, delta=delta)
    if epsilon is not None:
        return Privacy(epsilon=epsilon, delta=0.1 / rows if delta is None else delta)
    if delta is not None:
        raise ConfigError("delta belongs to epsilon: it was not given")
    return None


def _read(
    spec: TrainSpec,
    owners: Mapping[str, Handed | OwnerTable],
    described: Collection[str],
    search: Sequence[Path],
    module: nn.Module | None,
) -> tuple[dict[str, Handed], dict[str, Rows]]:
    """Return the rows of all owners; also labels that are read once the model is known.

    Rows in memory that nothing is said of are taken as they are, labels of tokens among them; all
    others are read as those of a job.
    """
    data, raw, rows = spec.data, dict[str, Handed](), dict[str, Rows]()
    is_plain = not (
        data.shape or data.features or data.prepare or spec.reads_text or data.split == "columns"
    )
    for name, one in owners.items():
        if is_plain and name not in described:
            x, raw[name] = features_and_labels(one)
            rows[name] = _plain(name, x, names_of(one), None if module is None else ids_of(module))
            continue
        given = NOTHING
        if not isinstance(one, OwnerTable):
            is_pair = isinstance(one, tuple) and len(one) == 2
            given = Given(x=one[0], y=one[1]) if is_pair else Given(x=one)
        rows[name] = load_rows(spec, name, search, given, module)
    return raw, rows


def _plain(name: str, given: Handed, columns: tuple[str, ...], ids: int | None) -> Rows:
    rows = numbers_of(given, whose=f"rows of {name!r}")
    if rows.ndim < 2 or not rows.size:
        raise DataError(f"{name!r}: wanted rows of numbers, got the shape {rows.shape}")
    if not np.isfinite(rows).all():
        raise DataError(f"the rows of {name!r} hold NaN or infinite values; clean them first")
    if ids is not None and not ((rows >= 0) & (rows < ids) & (rows == rows.round())).all():
        raise DataError(f"{name!r}: wanted ids, whole numbers from 0 to {ids - 1}")
    return Rows(features=rows, columns=columns)


def _labels(name: str, given: Handed, rows: int, plan: TrainPlan) -> Floats:
    """Give labels one-hot, or as a column of zeros and ones."""
    if given is None:
        raise DataError(f"{name!r}: wanted rows and labels, got rows alone")
    labels = torch.as_tensor(to_array(given))
    wanted = (rows, *plan.model.tokens)
    if tuple(labels.shape) != wanted or labels.is_floating_point():
        raise DataError(
            f"{name!r}: wanted labels of whole numbers in the shape {wanted}, got "
            f"{tuple(labels.shape)}"
        )
    if not bool(((labels >= 0) & (labels < plan.classes)).all()):
        raise DataError(f"labels of {name!r} are not all from 0 to {plan.classes - 1}")
    if plan.loss == "logistic":
        found: Floats = labels.double().reshape(-1, 1).numpy()
        return found
    hot: Floats = nn.functional.one_hot(labels.long(), plan.classes).double().numpy()
    return hot


def _run_here(
    plan: TrainPlan,
    rows: Mapping[str, Rows],
    module: nn.Module | None,
    out: Path | None,
    report: Listener | None,
) -> TrainedModel:
    """Let every party be a thread, and put together what they have in the end."""
    spec, parties = plan.spec, plan.parties
    digest = hashlib.sha256(repr((NAME, parties, spec.protocol.spelled)).encode()).digest()
    meeting = Meeting(parties=parties, job_digest=digest)
    folders: dict[str, StateFolder] = {}
    if out is not None and spec.training.keep:
        folders = {name: _folder(out, plan, name, rows.get(name)) for name in parties}

    def party(session: Session) -> tuple[Trained, Result]:
        return _take_part(session, plan, rows.get(session.me), folders.get(session.me))

    first = next(iter((*spec.protocol.show_to, *parties)))
    told = {} if report is None else {parties[0]: Progress(report)}
    ended = run_threads(dict.fromkeys(parties, party), meeting, progress=told)
    for folder in folders.values():
        folder.remove()
    trained = {name: one[0] for name, one in ended.items()}
    result = merge_results(tuple(one[1] for one in ended.values()))
    seen = trained[first]
    return TrainedModel(
        model=_load(plan, trained, module),
        shares={name: one.shares for name, one in trained.items() if one.shares},
        history=seen.shown,
        plan=plan,
        result=replace(result, launched="threads"),
        saturated=None if seen.saturated is None else seen.saturated[1:],
    )


def _take_part(
    session: Session, plan: TrainPlan, mine: Rows | None, folder: StateFolder | None
) -> tuple[Trained, Result]:
    """Do one party's part, and say what it sees of the result."""
    usage, spec = Usage(), plan.spec
    mine, counts = match_rows(session, spec, mine)
    # Between hosts owners tell it; here the plan does.
    session.ledger.record(*HOLDING.leaks_of_all(spec.data.owners, session.parties))
    labels = None if mine is None or mine.labels is None else torch.from_numpy(mine.labels)
    trained = take_part(
        session,
        plan,
        rows=None if mine is None else torch.from_numpy(mine.features),
        labels=labels,
        folder=folder,
        book=book_of(spec, session.me),
    )
    role = "owner" if session.me in spec.data.owners else spec.role(session.me)
    report = usage.report(name=session.me, role=role, progress=session.progress)
    view = summarise(session, plan, trained, name=NAME, report=report, counts=counts, labels=labels)
    return trained, view


def _load(
    plan: TrainPlan, trained: Mapping[str, Trained], module: nn.Module | None
) -> nn.Module | None:
    """Put the weights, where somebody got them, into a copy of the network."""
    weights = next((one.weights for one in trained.values() if one.weights), None)
    if weights is None:
        return None
    model, inputs = plan.spec.model, plan.model.inputs
    with TORCH_LOCK:
        loaded = copy.deepcopy(build(model, inputs, module)).eval()
    found = whole_state(model, inputs, plan.model.state(weights), module)
    loaded.load_state_dict(found, strict=False)
    return loaded


def _folder(out: Path, plan: TrainPlan, me: str, mine: Rows | None) -> StateFolder:
    """Return where a party's checkpoints are; the bound of weights may be raised on the way."""
    steady = to_tables(plan.spec.with_bound(1.0), is_shared=True)
    binding = hashlib.sha256(json.dumps(steady, sort_keys=True).encode() + me.encode())
    for name, start in sorted(plan.model.initial.items()):  # a module is no part of the record
        binding.update(f"{name} {tuple(start.shape)}".encode() + start.double().numpy().tobytes())
    if mine is not None:
        binding.update(mine.digest())
    return StateFolder(out / me, binding.hexdigest())
