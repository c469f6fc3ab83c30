"""``tacit ask``: predictions from a service, for rows that only the client sees."""

from pathlib import Path
from typing import Literal

from torch import Tensor

from tacit.cli.launch.connect import as_client
from tacit.data import load_file
from tacit.inference.answers import AnsweredRows
from tacit.jobs.serve import load_service


def ask(path: Path, rows: Path, *, me: str, keys: Path, label: str | None) -> AnsweredRows:
    """Ask the service of a job about the rows of a file.

    Args:
        path: the job file.
        rows: a .csv, .npz or .parquet file.
        me: which client we are.
        keys: the folder with our key.
        label: the column with true classes, which stays here, to measure answers against.
    """
    questions = load_file(rows, label=label)
    with as_client(load_service(path), me, keys) as client:
        answers = client.run(questions.features).values
    assert answers is not None  # noqa: S101 - a client of a service always gets answers
    reveal: Literal["class", "output"] = "class" if answers.ndim == 1 else "output"
    return AnsweredRows(values=answers, reveal=reveal, labels=questions.labels)


def to_csv(answers: Tensor) -> str:
    """Write a line of numbers per row, counted from 1."""
    if answers.ndim == 1:
        heads, lines = ["prediction"], [[str(int(one))] for one in answers.tolist()]
    else:
        heads = [f"score {place}" for place in range(answers.shape[1])]
        lines = [[f"{one:.6g}" for one in row] for row in answers.tolist()]
    rows = [",".join(["row", *heads])]
    rows += [",".join([str(at), *line]) for at, line in enumerate(lines, start=1)]
    return "\n".join(rows) + "\n"
