"""The parties of a split job in threads, as the command runs them in processes."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import torch

from split_parties import fixed_keys
from tacit.jobs import split
from tacit.jobs.kind import Place
from tacit.party import Meeting, Usage, run_threads
from tacit.party.progress import Progress
from tacit.transport import Patience

PATIENCE = Patience(connect_s=60, silence_s=60, heartbeat_s=1, stall_s=200)


@contextmanager
def fixed_weights() -> Iterator[None]:
    """Let models start alike in every run: parties in threads share torch's generator."""
    lock = threading.Lock()

    def alike(make):
        def build(*arguments):
            with lock:
                torch.manual_seed(0)
                return make(*arguments)

        return build

    with (
        mock.patch.object(torch, "seed", return_value=0),
        mock.patch.object(split, "make_bottom", alike(split.make_bottom)),
        mock.patch.object(split, "top_of", alike(split.top_of)),
    ):
        yield


def run(job):
    """Let every party take its part, from the same start in every run; return what each has."""

    def party(session):
        usage, progress = Usage(), Progress()
        place = Place(
            search=(),
            launched="threads",
            report=lambda: usage.report(
                name=session.me, role=job.role(session.me), progress=progress
            ),
            out=job.out,
        )
        return split.take_part(session, job, place)

    meeting = Meeting(parties=tuple(job.parties), job_digest=b"j" * 32, patience=PATIENCE)
    with fixed_keys(), fixed_weights():
        return run_threads(dict.fromkeys(job.parties, party), meeting)
