"""Jobs of kind "predict": where the inputs come from, one party's part, and the comparison."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.cli import folder
from tacit.cli.jobs.code import OwnModel
from tacit.cli.jobs.config import Source
from tacit.cli.jobs.given import NOTHING, Given, load_source
from tacit.cli.jobs.kind import Part, Place
from tacit.cli.jobs.predict_job import PredictJob
from tacit.errors import ConfigError, DataError
from tacit.learn import Dataset, split_dataset
from tacit.learn.metrics import measure_classes, measure_odds, put_beside
from tacit.learn.private import (
    load_logistic,
    logistic_of,
    predict,
    predict_plain,
    scaled_features,
    summarise,
    train_logistic,
)
from tacit.party import Progress, Session
from tacit.result import Metric, Result

SPLIT_SEED = 0
"""Fixed, so that the owner of the data and that of the model divide a public set alike."""

Labels = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Inputs:
    """What one party brings: rows, a model, or nothing."""

    features: Tensor | None = None
    labels: Labels | None = None
    weights: dict[str, Tensor] | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Answers:
    """What the receiver gets: one value per row, beside the true classes if it knows them."""

    values: Tensor
    labels: Labels | None

    def to_csv(self, *, reveal: str) -> str:
        """Write a table with a line per row of the data, counted from 1."""
        heads = ["row", "prediction", *(["label"] if self.labels is not None else [])]
        numbers = self.values.tolist()
        shown = [str(int(x)) if reveal == "class" else repr(x) for x in numbers]
        columns = [[str(row) for row in range(1, len(shown) + 1)], shown]
        if self.labels is not None:
            columns.append([str(label) for label in self.labels.tolist()])
        return "\n".join([",".join(heads), *map(",".join, zip(*columns, strict=True))]) + "\n"


def read_answers(path: Path) -> Tensor:
    """Read the predictions back from a file that `Answers.to_csv` made."""
    lines = path.read_text(encoding="utf-8").splitlines()[1:]
    return torch.tensor([float(line.split(",")[1]) for line in lines], dtype=torch.float64)


def check_inputs(job: PredictJob, parties: Sequence[str]) -> None:
    """Make sure that the owners among these parties say where their input is, and that it is.

    Cheap, so that a typing error shows before anyone is connected.

    Raises:
        ConfigError: an owner names no input.
        DataError: a file is not there.
    """
    if job.data.owner in parties:
        _check_source(job.data.source, "data")
    if job.model.owner in parties:
        if job.model.train is not None:
            _check_source(job.model.train, "model.train")
        elif job.model.code is not None:
            OwnModel.read(job.model.code)
        elif job.model.file is None:
            raise ConfigError(
                f"{job.model.owner!r} owns the model, but the job names none; "
                "wanted model.train, model.file or model.code"
            )
        else:
            _check_file(job.model.file, "model.file")


def load_inputs(
    job: PredictJob,
    party: str,
    search: Sequence[Path],
    progress: Progress,
    given: Given = NOTHING,
) -> Inputs:
    """Load what a party brings into the job."""
    given.check(party, rows=party == job.data.owner, model=party == job.model.owner)
    if party == job.data.owner:
        with progress.stage("load"):
            dataset = load_data(job, search, given)
            return Inputs(features=scaled_features(dataset), labels=_labels(dataset))
    if party == job.model.owner:
        with progress.stage("load"):
            return Inputs(weights=load_weights(job, search, given))
    return Inputs()


def load_data(job: PredictJob, search: Sequence[Path], given: Given = NOTHING) -> Dataset:
    """Load the rows to predict for."""
    return _load(job, job.data.source, "data", search, given)


def load_weights(
    job: PredictJob, search: Sequence[Path], given: Given = NOTHING
) -> dict[str, Tensor]:
    """Load or train the model."""
    if given.weights is not None:
        return logistic_of(given.weights, source="the model given")
    if job.model.file is not None:
        return load_logistic(job.model.file)
    if job.model.code is not None:
        state = OwnModel.read(job.model.code)().state_dict()
        return logistic_of(state, source=f"model.code: {job.model.code}")
    if job.model.train is None:
        raise ConfigError("the job names no model; wanted model.train, model.file or model.code")
    return train_logistic(_load(job, job.model.train, "model.train", search))


def take_part(session: Session, job: PredictJob, place: Place) -> Part:
    """Do one party's part."""
    inputs = load_inputs(job, session.me, place.search, session.progress, place.given)
    prediction = predict(session, job.task(), features=inputs.features, weights=inputs.weights)
    answers = None
    if prediction.values is not None:
        answers = Answers(values=prediction.values, labels=inputs.labels)
    # Before the end: if this fails here, the others still hear of it and write no result.
    files = {folder.PREDICTIONS: answers.to_csv(reveal=job.protocol.reveal)} if answers else {}
    result = summarise(
        session,
        job.task(),
        prediction,
        name=job.job.name,
        launched=place.launched,
        report=place.report(),
        utility=measure(job, answers),
    )
    return Part(result=result, files=files, values=prediction.values)


def complete(job: PredictJob, result: Result, stage: Path, search: Sequence[Path]) -> Result:
    """Put the plaintext answers beside the private ones, if the job wants it."""
    answers = stage / folder.PREDICTIONS
    if job.report.compare == "plain" and answers.exists():
        return compare_plain(job, result, read_answers(answers), search)
    return result


def measure(job: PredictJob, answers: Answers | None) -> tuple[Metric, ...]:
    """Say how good the answers are, as far as the receiver can tell."""
    if answers is None or answers.labels is None:
        return ()
    return _metrics(answers.values, answers.labels, job.protocol.reveal)


def _metrics(values: Tensor, labels: Labels, reveal: str) -> tuple[Metric, ...]:
    found = values.numpy()
    return measure_odds(found, labels) if reveal == "score" else measure_classes(found, labels)


def compare_plain(
    job: PredictJob, result: Result, answers: Tensor, search: Sequence[Path]
) -> Result:
    """Put the answers of a plain computation beside the private ones.

    Only for someone who holds both sides' inputs, as when all parties run on one machine.
    """
    dataset, reveal = load_data(job, search), job.protocol.reveal
    plain = predict_plain(scaled_features(dataset), load_weights(job, search), reveal=reveal)
    labels = _labels(dataset)
    clear = () if labels is None else _metrics(plain, labels, reveal)
    utility = put_beside(result.utility, clear)
    return replace(result, utility=(*utility, _agreement(answers, plain, reveal)))


def _labels(dataset: Dataset) -> Labels | None:
    """Return the true classes, or None where nobody knows them."""
    return dataset.labels if dataset.is_labelled else None


def _agreement(answers: Tensor, plain: Tensor, reveal: str) -> Metric:
    rows = len(plain)
    if reveal == "class":
        equal = int((answers == plain).sum()) / rows
        name, value, unit, ideal = "answers equal to plaintext", equal, "share", 1.0
    else:
        largest = float((answers - plain).abs().max())
        name, value, unit, ideal = "largest difference to plaintext", largest, "", 0.0
    return Metric(name=name, value=value, unit=unit, samples=rows, reference=ideal)


def _load(
    job: PredictJob, source: Source, key: str, search: Sequence[Path], given: Given = NOTHING
) -> Dataset:
    dataset = load_source(source, key, search, given)
    if source.set is None:
        dataset = _rescale(dataset, job.data.scale)
    return split_dataset(dataset, part=source.part, test_share=source.test_share, seed=SPLIT_SEED)


def _rescale(dataset: Dataset, scale: tuple[float, ...] | None) -> Dataset:
    if scale is None:
        return dataset
    if dataset.features.shape[1:] != (len(scale),):
        raise DataError(
            f"{dataset.name}: data.scale has {len(scale)} divisors, "
            f"the rows are of shape {dataset.features.shape[1:]}"
        )
    return replace(dataset, scale=np.array(scale))


def _check_source(source: Source, key: str) -> None:
    if source.set is None and source.file is None:
        raise ConfigError(f"{key}: wanted 'set' or 'file', got neither")
    if source.file is not None:
        _check_file(source.file, f"{key}.file")


def _check_file(path: Path, key: str) -> None:
    if not path.is_file():
        raise DataError(f"{key}: no such file: {path} (looked for from {Path.cwd()})")
