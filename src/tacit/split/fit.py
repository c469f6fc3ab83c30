"""Train a split model from Python: every party in this process, or in a process of its own."""

import copy
import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from tacit.data.memory import Handed, features_and_labels, features_of, numbers_of
from tacit.data.metrics import measure_odds
from tacit.data.rows import state_far
from tacit.errors import ConfigError, DataError
from tacit.notebook import Lines
from tacit.party import (
    Listener,
    Meeting,
    Progress,
    Session,
    Usage,
    merge_results,
    run_processes,
    run_threads,
)
from tacit.party.threads import Program
from tacit.result import PartyReport, Reported, Result
from tacit.split.compress import Compression, make_codec
from tacit.split.cut import Flat, cut_shape
from tacit.split.defend import Defence
from tacit.split.exchange import OnReturned
from tacit.split.local import cut_model
from tacit.split.part import train_features, train_labels
from tacit.split.rows import Divided, divide_rows
from tacit.split.summary import Done, draw_epochs, summarise
from tacit.split.task import SplitTask, TrainingPace
from tacit.split.top import Epoch

_LOG = logging.getLogger(__name__)

Launch = Literal["threads", "processes"]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SplitModel(Reported):
    """A trained split model: every part, and what the run says about itself.

    Attributes:
        bottoms: the feature owners' parts; the label owner's own, if it has features.
        top: the label owner's part; takes their cut layers side by side.
        task: what was trained.
        epochs: loss, accuracy and bytes so far of every pass.
        result: metrics, cost, ledger and claims of all parties.
    """

    bottoms: Mapping[str, nn.Module]
    top: nn.Module
    task: SplitTask
    epochs: tuple[Epoch, ...]
    result: Result

    def predict(self, features: Handed | Mapping[str, Handed]) -> Tensor:
        """Return the class of every row, here, where all parts are; nothing travels."""
        return self.logits(features).argmax(1)

    def logits(self, features: Handed | Mapping[str, Handed]) -> Tensor:
        """Return the logits of rows, through the compressor, as they would be served."""
        given = _by_owner(features, self.task.feature_owners)
        cuts = []
        with torch.no_grad():
            for owner, bottom in self.bottoms.items():
                h: Tensor = bottom.eval()(_tensor(given[owner]))
                if owner != self.task.label_owner:
                    codec = make_codec(self.task.compression, h.shape[1])
                    h = codec.apply(h, is_training=False)
                cuts.append(h)
            found: Tensor = self.top.eval()(torch.cat(cuts, 1))
        return found

    def _shown(self) -> tuple[str, Lines]:
        sizes = {
            name: sum(one.numel() for one in part.parameters())
            for name, part in (*self.bottoms.items(), (f"{self.task.label_owner} (top)", self.top))
        }
        return "Split model", [
            *((name, f"{size:,} parameters") for name, size in sizes.items()),
            *self.result.headline(),
        ]


def fit(
    model: nn.Module | Mapping[str, nn.Module],
    *,
    features: Handed | Mapping[str, Handed],
    labels: Handed,
    cut: str | None = None,
    top: nn.Module | None = None,
    classes: int | None = None,
    compress: Compression | None = None,
    defences: tuple[Defence, ...] = (),
    pace: TrainingPace | None = None,
    test_share: float = 0.2,
    label_owner: str = "labels",
    launch: Launch = "threads",
    on_gradient: OnReturned | None = None,
    report: Listener | None = None,
) -> SplitModel:
    """Train a model whose features and labels belong to different parties.

    Either one model, cut at a layer: the layers up to it belong to the owner of the features, the
    others to the owner of the labels. Or a bottom for every owner by name, with a `top` that takes
    their outputs side by side. The owner of the labels may have features too: then it is one of
    the names, and what it computes from them never travels. Your modules are not changed.

    Guarantee: none beyond `claims` of what comes back. Without "label-dp" gradients tell labels,
    and cut layers tell inputs; `tacit.audit.split` measures how much. With `launch="threads"` this
    process holds everything; what each party sends and sees is what it would between hosts.

    Args:
        model: a torch module with a logit per class, or a module by owner of features.
        features: rows, or rows by owner: the same rows in the same order. A torch data set, or one
            of Hugging Face's, gives its features.
        labels: a class for every row, whole numbers from 0; or a data set that has them.
        cut: the last layer of the bottom, as `named_modules` calls it; with one model.
        top: takes the bottoms' outputs; with several.
        classes: how many there are; as many as the labels show if not given.
        compress: what travels of the cut layer; all of it if not given.
        defences: of labels and inputs.
        pace: epochs, batches, learning rates, class weights.
        test_share: of the rows, that are kept to measure on.
        label_owner: its name.
        launch: "threads" of this process, or "processes" of this machine that meet over TLS;
            then modules are of classes that a module of yours defines, and a script has its
            `if __name__ == "__main__":`.
        on_gradient: is shown every gradient that goes back, for an audit; with "threads".
        report: told what the label owner does, steps done and steps in all; with "threads".

    Returns:
        The trained parts, with metrics, ledger, cost and claims. `print` it, or `predict`.

    Raises:
        ConfigError: the model cannot be cut there, or parts and owners do not fit.
        DataError: rows and labels do not fit.
    """
    owners = ("features",) if isinstance(model, nn.Module) else tuple(model)
    given = _by_owner(features, owners)
    held = None if isinstance(labels, Tensor) else features_and_labels(labels)[1]
    y = _tensor(labels if held is None else held).long()
    if set(given) != set(owners) or not set(owners) - {label_owner}:
        raise ConfigError(
            "wanted features and a module of the same owners, at least one beside "
            f"{label_owner!r}, got {sorted(given)} and {sorted(owners)}"
        )
    counts = {name: len(rows) for name, rows in given.items()}
    if y.dim() != 1 or set(counts.values()) != {len(y)}:
        raise DataError(f"wanted a label per row, got labels {tuple(y.shape)} and rows {counts}")
    task = SplitTask(
        feature_owners=tuple(name for name in owners if name != label_owner),
        label_owner=label_owner,
        classes=int(y.max()) + 1 if classes is None else classes,
        cut=cut or "cut",
        compression=compress or Compression(),
        defences=defences,
        pace=pace or TrainingPace(),
        label_owner_has_features=label_owner in owners,
    )
    # The label owner's own cut layer is the last that the top takes.
    names = (*task.feature_owners, *((label_owner,) if task.label_owner_has_features else ()))
    rows = {
        name: divide_rows(_tensor(given[name]), test_share=test_share, is_scaled=False)
        for name in names
    }
    for name, divided in rows.items():
        if far := state_far(divided.train, ()):
            _LOG.warning("%s: %s", name, far)
    bottoms, head = _parts(model, top, cut, task, rows)
    truth = divide_rows(y, test_share=test_share, is_scaled=False)
    watch = _Watch(on_gradient, report)
    return _run(task, bottoms, head, rows, truth, launch=launch, watch=watch)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Ended:
    """What a party's program hands back, from whatever process it ran in."""

    result: Result
    parts: Mapping[str, Mapping[str, np.ndarray]]
    epochs: tuple[Epoch, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class _FeatureOwner:
    """A feature owner's program, with what it brings."""

    task: SplitTask
    bottom: nn.Module
    rows: Divided

    def __call__(self, session: Session) -> _Ended:
        """Train, and ask about the rows kept to test on."""
        usage = Usage()
        done = train_features(session, self.task, self.bottom, self.rows)
        report = usage.report(name=session.me, role="feature owner", progress=session.progress)
        result = _summary(session, self.task, done.widths, self.rows, report)
        return _Ended(result=result, parts={"bottom": _state(self.bottom)})


@dataclass(frozen=True, kw_only=True, eq=False)
class _LabelOwner:
    """The label owner's program, with what it brings."""

    task: SplitTask
    top: nn.Module
    labels: Divided
    widths: Mapping[str, int]
    own: tuple[nn.Module, Divided] | None
    on_gradient: OnReturned | None

    def __call__(self, session: Session) -> _Ended:
        """Train, answer about the rows kept to test on, and measure."""
        usage = Usage()
        done = train_labels(
            session,
            self.task,
            self.top,
            self.labels.train,
            widths=self.widths,
            own=self.own,
            on_gradient=self.on_gradient,
        )
        odds = done.answered.logits.softmax(1).numpy()
        report = usage.report(name=session.me, role="label owner", progress=session.progress)
        result = replace(
            _summary(session, self.task, done.widths, self.labels, report),
            utility=tuple(measure_odds(odds, self.labels.test.numpy())),
            curves=draw_epochs(done.epochs),
        )
        parts = {"top": _state(self.top)}
        if self.own is not None:
            parts["bottom"] = _state(self.own[0])
        return _Ended(result=result, parts=parts, epochs=done.epochs)


@dataclass(frozen=True)
class _Watch:
    """Who looks on while parties of this process train."""

    on_gradient: OnReturned | None = None
    report: Listener | None = None


def _run(
    task: SplitTask,
    bottoms: Mapping[str, nn.Module],
    top: nn.Module,
    rows: Mapping[str, Divided],
    labels: Divided,
    *,
    launch: Launch,
    watch: "_Watch",
) -> SplitModel:
    """Start every party, and put together what they have in the end."""
    if launch not in ("threads", "processes"):
        raise ConfigError(f"launch: wanted 'threads' or 'processes', got {launch!r}")
    if launch == "processes" and watch != _Watch():
        text = "on_gradient and report watch parties of this process; wanted launch='threads'"
        raise ConfigError(text)
    lab, owners = task.label_owner, task.feature_owners
    programs: dict[str, Program[_Ended]] = {
        name: _FeatureOwner(task=task, bottom=bottoms[name], rows=rows[name]) for name in owners
    }
    programs[lab] = _LabelOwner(
        task=task,
        top=top,
        labels=labels,
        widths={name: cut_shape(bottoms[name], rows[name].train)[0] for name in owners},
        own=(bottoms[lab], rows[lab]) if lab in bottoms else None,
        on_gradient=watch.on_gradient,
    )
    digest = hashlib.sha256(b"split" + task.digest()).digest()
    meeting = Meeting(parties=(*owners, lab), job_digest=digest)
    if launch == "threads":
        told = {} if watch.report is None else {lab: Progress(watch.report)}
        found = run_threads(programs, meeting, progress=told)
    else:
        found = run_processes(programs, meeting)
    # Weights come from the process that trained them; in threads they are here already.
    for name, ended in found.items():
        for part, state in ended.parts.items():
            module = top if part == "top" else bottoms[name]
            module.load_state_dict({key: torch.from_numpy(np.array(v)) for key, v in state.items()})
    merged = merge_results(tuple(ended.result for ended in found.values()))
    return SplitModel(
        bottoms=bottoms,
        top=top,
        task=task,
        epochs=found[lab].epochs,
        result=replace(merged, launched=launch),
    )


def _summary(
    session: Session,
    task: SplitTask,
    widths: Mapping[str, int],
    rows: Divided,
    report: PartyReport,
) -> Result:
    done = Done(widths=widths, trained=len(rows.train), asked=len(rows.test))
    return summarise(session, task, done, name="split model", launched="session", report=report)


def _state(module: nn.Module) -> dict[str, np.ndarray]:
    return {name: value.detach().cpu().numpy() for name, value in module.state_dict().items()}


def _parts(
    model: nn.Module | Mapping[str, nn.Module],
    top: nn.Module | None,
    cut: str | None,
    task: SplitTask,
    rows: Mapping[str, Divided],
) -> tuple[dict[str, nn.Module], nn.Module]:
    """Return copies of every part, flat at the cut."""
    if isinstance(model, nn.Module):
        if cut is None or top is not None:
            raise ConfigError("wanted cut=, the layer to cut at, and no top= beside one model")
        (name,) = task.feature_owners
        halves = cut_model(copy.deepcopy(model), task, rows[name].train[:2])
        return {name: halves.bottom}, halves.top
    if top is None or cut is not None:
        raise ConfigError("wanted top=, what takes all cut layers, and no cut= beside bottoms")
    bottoms = {
        name: Flat(copy.deepcopy(model[name]), is_normalised=task.is_normalised) for name in rows
    }
    return dict(bottoms), copy.deepcopy(top)


def _by_owner(
    features: Handed | Mapping[str, Handed], owners: tuple[str, ...]
) -> Mapping[str, Handed]:
    if isinstance(features, Mapping):
        return features
    if len(owners) != 1:
        raise ConfigError(f"wanted features by owner, for {', '.join(owners)}")
    return {owners[0]: features}


def _tensor(rows: Handed) -> Tensor:
    if isinstance(rows, Tensor):
        found = rows.detach()
    else:
        given = features_of(rows)
        is_whole = given.dtype.kind in "biu"  # names of entries stay whole numbers
        found = torch.from_numpy(given.astype(np.int64) if is_whole else numbers_of(given))
    if not bool(torch.isfinite(found).all()):
        raise DataError("rows or labels hold NaN or infinite values; clean them first")
    return found.float() if found.is_floating_point() else found
