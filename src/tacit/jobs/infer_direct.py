"""Jobs of kind "infer" between the two owners alone: on ciphertexts, or in an enclave."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tacit.data.source import Given
from tacit.errors import ConfigError, DisagreementError, InputError
from tacit.inference import Forest, PrivateAnswer, agree_on_forest, secure
from tacit.inference.predict import MODEL
from tacit.inference.secured import Direct
from tacit.jobs.infer_data import load_forest, load_linear, load_owned
from tacit.jobs.infer_job import InferJob
from tacit.jobs.kind import Place
from tacit.nn import logistic_class, logistic_score
from tacit.nn.models import linear
from tacit.party import Session


def ask_direct(session: Session, job: InferJob, x: Tensor | None, place: Place) -> PrivateAnswer:
    """Do one party's part."""
    is_owner = session.me == job.model.owner
    if job.is_linear:
        return _ask_linear(session, job, x, place.search, place.given)
    if job.model.is_forest:
        mine = load_forest(job) if is_owner else None
        return make_direct(job, agree_on_forest(session, job.crew.server, mine)).join(session, x)
    module = job.model.module()
    with session.progress.stage("load"):
        if is_owner:
            load_owned(module, job, place.given, place.inside)
    return make_direct(job, module).join(session, x)


def _ask_linear(
    session: Session, job: InferJob, x: Tensor | None, search: Sequence[Path], given: Given
) -> PrivateAnswer:
    """Ask a model of one linear layer, whose width its owner tells."""
    if session.me == job.model.owner:
        weights = load_linear(job, search, given)
        session.publish(MODEL, (len(weights["weight"]),))
    else:
        (wide,) = session.learn(job.crew.server, MODEL)
        if x is not None and wide != x.shape[1]:
            raise DisagreementError(
                job.crew.server, f"its model wants {wide} features, the rows have {x.shape[1]}"
            )
        weights = _empty(wide)
    answer = make_direct(job, weights).join(session, x)
    return replace(answer, values=_read(job, answer.values))


def _read(job: InferJob, values: Tensor | None) -> Tensor | None:
    """Give a number for every row; under he its receiver makes a probability of the score."""
    if values is None:
        return None
    return torch.sigmoid(values[:, 0]) if job.protocol.kind == "he" else values[:, 0]


def make_direct(job: InferJob, model: nn.Module | Forest | Mapping[str, Tensor]) -> Direct:
    """Make a model private as the job says; weights alone are those of one linear layer."""
    weights: Mapping[str, Tensor] | None = None
    held: Any = model.double() if isinstance(model, nn.Module) else model
    reveal = job.protocol.reveal
    if isinstance(model, Mapping):
        inside = logistic_class if reveal == "class" else logistic_score
        weights, held, reveal = model, linear if job.protocol.kind == "he" else inside, "output"
    made = secure(
        held,
        protocol=job.protocol.kind,
        weights=weights,
        crew=job.crew,
        reveal="class" if reveal == "class" else "output",
        frac_bits=job.ring.frac_bits,
        input_bound=None if isinstance(model, Forest) else job.data.bound,
    )
    if not isinstance(made, Direct):
        raise ConfigError(f"{job.protocol.kind} is not between two owners alone")
    return made


def find_direct(
    job: InferJob, shape: tuple[int, ...], search: Sequence[Path]
) -> tuple[Direct, tuple[str, ...]]:
    """Return the private model for a forecast, with the owner's weights if they are here."""
    if job.model.is_forest:
        return make_direct(job, load_forest(job)), ()
    note = ("The owner's weights are not here; parameters are chosen for fresh ones.",)
    if job.is_linear:
        try:
            return make_direct(job, load_linear(job, search)), ()
        except InputError:
            return make_direct(job, _empty(shape[1])), note
    module = job.model.module()
    try:
        load_owned(module, job)
    except InputError:
        return make_direct(job, module), note
    return make_direct(job, module), ()


def _empty(wide: int) -> dict[str, Tensor]:
    """Return a linear model that says nothing."""
    return {
        "weight": torch.ones((wide, 1), dtype=torch.float64),
        "bias": torch.zeros(1, dtype=torch.float64),
    }
