"""``tacit ask``: predictions from a service, for rows that only the client sees."""

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from tacit.cli.launch.connect import as_client
from tacit.data import Rows, load_file
from tacit.inference.answers import AnsweredRows
from tacit.jobs.folder import write_text
from tacit.jobs.serve import load_service
from tacit.result import Metric


@dataclass(frozen=True, kw_only=True, eq=False)
class Reply:
    """What a client got: one line of numbers per row, and how good it is, if it can tell."""

    answers: Tensor
    quality: tuple[Metric, ...] = ()

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
        label: the column with true classes, which stays here, to measure answers against.
    """
    questions = load_file(rows, label=label)
    with as_client(load_service(path), me, keys) as client:
        answers = client.run(questions.features).values
    assert answers is not None  # noqa: S101 - a client of a service always gets answers
    return Reply(answers=answers, quality=_quality(answers, questions))


def write_reply(reply: Reply, out: Path) -> None:
    """Write the answers as CSV."""
    write_text(out, reply.to_csv())


def _quality(answers: Tensor, rows: Rows) -> tuple[Metric, ...]:
    if answers.ndim == 1:
        return AnsweredRows(values=answers.round(), reveal="class", labels=rows.labels).measure()
    return AnsweredRows(values=answers, reveal="output", labels=rows.labels).measure()
