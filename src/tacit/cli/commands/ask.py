"""``tacit ask``: predictions from a service, for rows that only the client sees."""

from pathlib import Path
from typing import Literal

from tacit.cli.launch.connect import as_client
from tacit.data import load_file
from tacit.inference.answers import AnsweredRows
from tacit.inference.service.client import Tell
from tacit.jobs.bundle import find_client
from tacit.jobs.serve import load_service


def ask(
    path: Path,
    rows: Path,
    *,
    me: str | None,
    keys: Path,
    label: str | None,
    tell: Tell = lambda done, total: None,
) -> AnsweredRows:
    """Ask the service of a job about the rows of a file.

    Args:
        path: the job file, or what a client was handed.
        rows: a .csv, .npz or .parquet file.
        me: which client we are, if the job names several.
        keys: the folder with our key.
        label: the column with true classes, which stays here, to measure answers against.
        tell: hears after every block of rows how many are answered.
    """
    job = load_service(path)
    me = me or find_client(job, None)
    lax = job.model.is_forest or bool(job.service.prepare)  # what is missing may be imputed
    questions = load_file(rows, label=label, allows_missing=lax)
    with as_client(job, me, keys, tell) as client:
        answers = client.run(questions).values
    assert answers is not None  # noqa: S101 - a client of a service always gets answers
    reveal: Literal["class", "score", "output"] = job.service.reveal
    if answers.ndim > 1:  # of a network, whose scores are no probabilities
        reveal = "output"
    return AnsweredRows(values=answers, reveal=reveal, labels=questions.labels)
