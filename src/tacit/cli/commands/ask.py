"""``tacit ask``: predictions from a service, for rows that only the client sees."""

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from tacit.audit import proportion
from tacit.cli.folder import write_text
from tacit.cli.jobs.serve import load_service
from tacit.cli.jobs.serve_job import ServeJob, own_identity
from tacit.errors import DataError
from tacit.learn import Dataset, load_file
from tacit.learn.service import connected
from tacit.result import Metric

_ANSWER_S = 300.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Reply:
    """What a client got: one line of numbers per row, and how good it is, if it can tell."""

    answers: Tensor
    accuracy: Metric | None

    def to_csv(self) -> str:
        """Write a table with a line per row, counted from 1."""
        if self.answers.ndim == 1:
            heads, lines = ["prediction"], [[str(int(one))] for one in self.answers.tolist()]
        else:
            heads = [f"score {place}" for place in range(self.answers.shape[1])]
            lines = [[f"{one:.6g}" for one in row] for row in self.answers.tolist()]
        rows = [",".join(["row", *heads])]
        rows += [",".join([str(at), *line]) for at, line in enumerate(lines, start=1)]
        return "\n".join(rows) + "\n"


def ask(path: Path, rows: Path, *, me: str, keys: Path, label: str | None) -> Reply:
    """Ask the service of a job about the rows of a file.

    Args:
        path: the job file.
        rows: a .csv, .npz or .parquet file.
        me: which client we are.
        keys: the folder with our key.
        label: the column with true classes, which stays here, to measure accuracy.
    """
    job = load_service(path).with_keys(keys, may_make=False)
    identity = own_identity(job, me, keys)
    dataset = load_file(rows, label=label)
    features = _shaped(job, dataset)
    # A service may be idle for long, an answer may not.
    patience = replace(job.network, stall_s=min(job.network.stall_s, _ANSWER_S))
    with connected(
        me, job.task(), servers=job.server_peers(), identity=identity, patience=patience
    ) as client:
        answers = client.ask(features)
    return Reply(answers=answers, accuracy=_accuracy(answers, dataset))


def write_reply(reply: Reply, out: Path) -> None:
    """Write the answers as CSV."""
    write_text(out, reply.to_csv())


def _shaped(job: ServeJob, dataset: Dataset) -> Tensor:
    inputs = job.model.inputs
    features = torch.from_numpy(dataset.features) / job.service.scale
    wanted = torch.Size(inputs).numel()
    if features[0].numel() != wanted:
        raise DataError(
            f"{dataset.name}: the service wants {wanted} features per row, got "
            f"{features[0].numel()}; name the column of true classes with --label"
        )
    return features.reshape(len(features), *inputs)


def _accuracy(answers: Tensor, dataset: Dataset) -> Metric | None:
    if not dataset.is_labelled:
        return None
    found = answers if answers.ndim == 1 else _best(answers)
    right = int((found.round().long() == torch.from_numpy(dataset.labels)).sum())
    return proportion("accuracy", right, len(found))


def _best(scores: Tensor) -> Tensor:
    return scores.argmax(-1) if scores.shape[1] > 1 else (scores[:, 0] >= 0).long()
