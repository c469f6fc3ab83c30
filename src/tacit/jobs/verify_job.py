"""The job file of kind "verify": a model, rows, a radius, and what is claimed about them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from annotated_types import Ge, Le

from tacit.errors import ConfigError, DataError
from tacit.jobs.config import Job, PartyEntry
from tacit.jobs.kind import Part, Screen
from tacit.jobs.verify import Question, answer, check_claim
from tacit.jobs.verify_report import make_result
from tacit.spec import LOCAL, Count, Positive, refuse


@dataclass(frozen=True, kw_only=True)
class VerifyModel:
    """[model]: the tree ensemble.

    Attributes:
        file: XGBoost's .json or .ubj, LightGBM's text, or what `tacit.verify` saved.
        beside: files of models of other sizes to put beside it.
    """

    file: Path = field(metadata=LOCAL)
    beside: tuple[Path, ...] = field(default=(), metadata=LOCAL)


@dataclass(frozen=True, kw_only=True)
class VerifyData:
    """[data]: the rows.

    Attributes:
        file: a CSV, Parquet or NumPy file.
        label: the column with the true classes.
        rows: only the first so many.
        shape: HEIGHTxWIDTH, if the features are the pixels of an image.
    """

    file: Path = field(metadata=LOCAL)
    label: str | None = None
    rows: Count | None = None
    shape: str | None = None


@dataclass(frozen=True, kw_only=True)
class VerifyTable:
    """[verify]: what is asked about every row.

    Attributes:
        eps: how far every feature may move.
        rho: for a regression, how far the output may move.
        claim: the verified robust accuracy that is claimed; less ends the job with exit code 3.
        seconds: budget per row.
        importance: rows to find robust feature sets for.
        workers: rows verified at once.
        ray: the address of a Ray cluster that does the work.
    """

    eps: float
    rho: float | None = None
    claim: Annotated[float, Ge(0), Le(1)] | None = None
    seconds: Positive = 60.0
    importance: Annotated[int, Ge(0)] = 0
    workers: Count = field(default=1, metadata=LOCAL)
    ray: str | None = field(default=None, metadata=LOCAL)


@dataclass(frozen=True, kw_only=True)
class VerifyJob(Job):
    """A job of kind "verify"."""

    model: VerifyModel
    data: VerifyData
    verify: VerifyTable
    parties: Mapping[str, PartyEntry] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.parties:
            refuse("parties", "a verification has no parties: it runs here, alone")
        try:
            self.question()
        except ConfigError as error:
            refuse("verify", str(error))

    def role(self, party: str) -> str:
        """Say what a party does."""
        return "verifies"

    def question(self) -> Question:
        """Return what is asked, as the command ``tacit verify`` would ask it."""
        table, data = self.verify, self.data
        return Question(
            model=self.model.file,
            data=data.file,
            eps=table.eps,
            rho=table.rho,
            label=data.label,
            rows=data.rows,
            seconds=table.seconds,
            shape=data.shape,
            importance=table.importance,
            beside=self.model.beside,
            workers=table.workers,
            ray=table.ray,
        )


def check_inputs(job: VerifyJob, parties: Sequence[str]) -> None:
    """Make sure that the files of the job are there."""
    for path in (job.model.file, *job.model.beside, job.data.file):
        if not path.is_file():
            raise DataError(f"no such file: {path} (from {Path.cwd()})")


def run(job: VerifyJob, screen: Screen, search: Sequence[Path]) -> Part:
    """Verify every row; ClaimError if less is verified than the job claims."""
    question = job.question()
    answers = answer(question, screen)
    if job.verify.claim is not None:
        check_claim(answers.findings, job.verify.claim)
    return Part(result=make_result(question, answers, screen))
