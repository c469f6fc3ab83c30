"""Train a split model from Python: every party in this process, or in a process of its own."""

import copy
import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
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
from tacit.party.local import Program
from tacit.result import Reported, Result
from tacit.spec import check_record, worded
from tacit.split.codec import Compression, make_codec
from tacit.split.defend import Defence
from tacit.split.exchange import OnReturned
from tacit.split.local import cut_model, make_bottom, make_top
from tacit.split.models import CUT, Flat, NetworkSpec, cut_shape
from tacit.split.rows import Divided, divide_rows
from tacit.split.serve import train_features, train_labels
from tacit.split.spec import CutSpec, SplitData, SplitSpec, TrainingPace
from tacit.split.summary import Done, draw_epochs, summarise
from tacit.split.top import Epoch

_LOG = logging.getLogger(__name__)

Launch = Literal["threads", "processes"]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SplitModel(Reported):
    """A trained split model: every part, and what the run says about itself.

    Attributes:
        bottoms: the feature owners' parts; the label owner's own, if it has features.
        top: the label owner's part; takes their cut layers side by side.
        spec: what was trained.
        epochs: loss, accuracy and bytes so far of every pass.
        result: metrics, cost, ledger and claims of all parties.
    """

    bottoms: Mapping[str, nn.Module]
    top: nn.Module
    spec: SplitSpec
    epochs: tuple[Epoch, ...]
    result: Result

    def predict(self, features: Handed | Mapping[str, Handed]) -> Tensor:
        """Return the class of every row, here, where all parts are; nothing travels."""
        return self.logits(features).argmax(1)

    def logits(self, features: Handed | Mapping[str, Handed]) -> Tensor:
        """Return the logits of rows, through the compressor, as they would be served."""
        given = _by_owner(features, self.spec.feature_owners)
        cuts = []
        with torch.no_grad():
            for owner, bottom in self.bottoms.items():
                h: Tensor = bottom.eval()(_tensor(given[owner]))
                if owner != self.spec.label_owner:
                    codec = make_codec(self.spec.split.compress, h.shape[1])
                    h = codec.apply(h, is_training=False)
                cuts.append(h)
            found: Tensor = self.top.eval()(torch.cat(cuts, 1))
        return found

    def _shown(self) -> tuple[str, Lines]:
        sizes = {
            name: sum(one.numel() for one in part.parameters())
            for name, part in (*self.bottoms.items(), (f"{self.spec.label_owner} (top)", self.top))
        }
        return "Split model", [
            *((name, f"{size:,} parameters") for name, size in sizes.items()),
            *self.result.headline(),
        ]


def fit(
    model: nn.Module | NetworkSpec | Mapping[str, nn.Module],
    *,
    features: Handed | Mapping[str, Handed],
    labels: Handed,
    cut: str | None = None,
    top: nn.Module | None = None,
    classes: int | None = None,
    test_share: float = 0.2,
    split: CutSpec | None = None,
    compress: Compression | None = None,
    defend: Defence | None = None,
    train: TrainingPace | None = None,
    epochs: int | None = None,
    batch: int | None = None,
    rate: float | None = None,
    label_owner: str = "labels",
    launch: Launch = "threads",
    on_gradient: OnReturned | None = None,
    report: Listener | None = None,
) -> SplitModel:
    """Train a model whose features and labels belong to different parties.

    Either one model, cut at a layer: the layers up to it belong to the owner of the features, the
    others to the owner of the labels. Or a bottom for every owner by name, with a `top` that takes
    their outputs side by side. Or a network by its name, of which every owner gets the layers up to
    the cut. The owner of the labels may have features too: then it is one of the names, and what it
    computes from them never travels. Your modules are not changed.

    Guarantee: none beyond `claims` of what comes back. Without "label-dp" gradients tell labels,
    and cut layers tell inputs; `tacit.audit.split` measures how much. With `launch="threads"` this
    process holds everything; what each party sends and sees is what it would between hosts.

    Args:
        model: a torch module with a logit per class, a module by owner of features, or a network.
        features: rows, or rows by owner: the same rows in the same order. A torch data set, or one
            of Hugging Face's, gives its features.
        labels: a class for every row, whole numbers from 0; or a data set that has them.
        cut: the last layer of the bottom, as `named_modules` calls it; with one module.
        top: takes the bottoms' outputs; with several.
        classes: how many there are; as many as the labels show if not given.
        test_share: of the rows, that are kept to measure on.
        split: what travels of the cut layer, and what protects it.
        compress: in place of that of `split`.
        defend: likewise.
        train: epochs, batches, learning rates, class weights.
        epochs: in place of those of `train`.
        batch: likewise.
        rate: likewise.
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
    if isinstance(model, Mapping):
        owners = tuple(model)
    else:
        is_apart = isinstance(model, NetworkSpec) and isinstance(features, Mapping)
        owners = tuple(features) if is_apart else ("features",)
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
    known = int(y.max()) + 1 if classes is None else classes
    asked = SplitSpec(
        data=SplitData(features=owners, labels=label_owner, classes=known, test_share=test_share),
        model=model if isinstance(model, NetworkSpec) else NetworkSpec(cut=cut or CUT),
        split=worded(split or CutSpec(), compress=compress, defend=defend),
        train=worded(train or TrainingPace(), epochs=epochs, batch=batch, rate=rate),
    )
    spec = check_record(asked, source="split.fit")
    rows = {
        name: divide_rows(_tensor(given[name]), test_share=test_share, is_scaled=False)
        for name in spec.data.blocks
    }
    for name, divided in rows.items():
        if far := state_far(divided.train, ()):
            _LOG.warning("%s: %s", name, far)
    bottoms, head = _parts(model, top, cut, spec, rows)
    truth = divide_rows(y, test_share=test_share, is_scaled=False)
    watch = (on_gradient, report)
    return _run(spec, bottoms, head, rows, truth, launch=launch, watch=watch)


def _run(
    spec: SplitSpec,
    bottoms: Mapping[str, nn.Module],
    top: nn.Module,
    rows: Mapping[str, Divided],
    labels: Divided,
    *,
    launch: Launch,
    watch: tuple[OnReturned | None, Listener | None],
) -> SplitModel:
    """Start every party, and put together what they have in the end."""
    on_gradient, report = watch
    if launch not in ("threads", "processes"):
        raise ConfigError(f"launch: wanted 'threads' or 'processes', got {launch!r}")
    if launch == "processes" and (on_gradient is not None or report is not None):
        text = "on_gradient and report watch parties of this process; wanted launch='threads'"
        raise ConfigError(text)
    programs: dict[str, Program[_Ended]] = {
        name: partial(_own_features, spec=spec, bottom=bottoms[name], rows=rows[name])
        for name in spec.feature_owners
    }
    lab = spec.label_owner
    programs[lab] = partial(
        _own_labels,
        spec=spec,
        top=top,
        labels=labels,
        widths={
            name: cut_shape(bottoms[name], rows[name].train)[0] for name in spec.feature_owners
        },
        own=(bottoms[lab], rows[lab]) if lab in bottoms else None,
        on_gradient=on_gradient,
    )
    digest = hashlib.sha256(b"split" + spec.digest()).digest()
    meeting = Meeting(parties=tuple(programs), job_digest=digest)
    if launch == "threads":
        told = {} if report is None else {lab: Progress(report)}
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
        spec=spec,
        epochs=found[lab].epochs,
        result=replace(merged, launched=launch),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Ended:
    """What a party's program hands back, from whatever process it ran in."""

    result: Result
    parts: Mapping[str, Mapping[str, np.ndarray]]
    epochs: tuple[Epoch, ...] = ()


def _own_features(session: Session, *, spec: SplitSpec, bottom: nn.Module, rows: Divided) -> _Ended:
    """Do a feature owner's part: train, and ask about the rows kept to test on."""
    usage = Usage()
    trainer, _ = train_features(session, spec, bottom, rows)
    result = _summary(session, spec, usage, trainer.widths, rows)
    return _Ended(result=result, parts={"bottom": _state(bottom)})


def _own_labels(
    session: Session,
    *,
    spec: SplitSpec,
    top: nn.Module,
    labels: Divided,
    widths: Mapping[str, int],
    own: tuple[nn.Module, Divided] | None,
    on_gradient: OnReturned | None,
) -> _Ended:
    """Do the label owner's part: train, answer about the rows kept to test on, and measure."""
    usage = Usage()
    trainer, answered = train_labels(
        session, spec, top, labels.train, widths=widths, own=own, on_gradient=on_gradient
    )
    odds = answered.logits.softmax(1).numpy()
    result = replace(
        _summary(session, spec, usage, trainer.widths, labels),
        utility=tuple(measure_odds(odds, labels.test.numpy())),
        curves=draw_epochs(trainer.epochs),
    )
    parts = {"top": _state(top)}
    if own is not None:
        parts["bottom"] = _state(own[0])
    return _Ended(result=result, parts=parts, epochs=tuple(trainer.epochs))


def _summary(
    session: Session, spec: SplitSpec, usage: Usage, widths: Mapping[str, int], rows: Divided
) -> Result:
    role = "label owner" if session.me == spec.label_owner else "feature owner"
    report = usage.report(name=session.me, role=role, progress=session.progress)
    done = Done(widths=widths, trained=len(rows.train), asked=len(rows.test))
    return summarise(session, spec, done, name="split model", launched="session", report=report)


def _state(module: nn.Module) -> dict[str, np.ndarray]:
    return {name: value.detach().cpu().numpy() for name, value in module.state_dict().items()}


def _parts(
    model: nn.Module | NetworkSpec | Mapping[str, nn.Module],
    top: nn.Module | None,
    cut: str | None,
    spec: SplitSpec,
    rows: Mapping[str, Divided],
) -> tuple[dict[str, nn.Module], nn.Module]:
    """Return copies of every part, flat at the cut."""
    if isinstance(model, NetworkSpec):
        if cut is not None or top is not None:
            raise ConfigError("a network says itself where it is cut; wanted no cut= and no top=")
        shapes = {name: one.train.shape[1:] for name, one in rows.items()}
        bottoms = {name: make_bottom(spec, shape) for name, shape in shapes.items()}
        return bottoms, make_top(spec, next(iter(shapes.values())))[0]
    if isinstance(model, nn.Module):
        if cut is None or top is not None:
            raise ConfigError("wanted cut=, the layer to cut at, and no top= beside one model")
        (name,) = spec.feature_owners
        halves = cut_model(copy.deepcopy(model), spec, rows[name].train[:2])
        return {name: halves.bottom}, halves.top
    if top is None or cut is not None:
        raise ConfigError("wanted top=, what takes all cut layers, and no cut= beside bottoms")
    parts = {name: copy.deepcopy(model[name]) for name in rows}
    bottoms = {name: Flat(one, is_normalised=spec.is_normalised) for name, one in parts.items()}
    return bottoms, copy.deepcopy(top)


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
