"""The job file of kind "fit": what `tacit.learners` is told, and the frame of a job."""

from dataclasses import dataclass

from tacit.jobs.config import Job
from tacit.learners.spec import FitSpec
from tacit.spec import refuse_together


@dataclass(frozen=True, kw_only=True)
class FitJob(FitSpec, Job):
    """A whole job file of kind "fit"."""

    def __post_init__(self) -> None:
        refuse_together(super().__post_init__, self.check_parties)
