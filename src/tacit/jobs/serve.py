"""``tacit serve``: the servers and the dealer of a prediction service, up until stopped."""

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType

from tacit.errors import ConfigError
from tacit.inference.service import load_share
from tacit.inference.service.attend import Note, Post, attend
from tacit.jobs.config import job_digest, parse_address
from tacit.jobs.serve_job import ServeJob, own_identity
from tacit.jobs.toml import read_toml
from tacit.party import Meeting, Progress, Session, joined, merge_results, run_threads
from tacit.report.words import STAGES
from tacit.result import Result
from tacit.spec import read_record
from tacit.transport import listen


def load_service(path: Path) -> ServeJob:
    """Read and check a job file of kind "serve"."""
    raw = read_toml(path)
    head = raw.get("job")
    kind = head.get("kind") if isinstance(head, dict) else None
    if kind not in ("serve", None):
        raise ConfigError(f"{path}: job.kind: wanted 'serve', got {kind!r}; use `tacit run` for it")
    return read_record(raw, ServeJob, source=str(path))


def check_inputs(job: ServeJob, parties: Sequence[str]) -> None:
    """Point whoever starts a service like any other job to its own command.

    Raises:
        ConfigError: always.
    """
    raise ConfigError(
        f"{job.job.name!r} is a service: start it with `tacit serve`, and ask it with `tacit ask`"
    )


def serve_here(path: Path, *, keys: Path, note: Note, stop: threading.Event) -> Result:
    """Run the whole service in this process, to try it; only clients come over the network."""
    job = load_service(path).with_keys(keys, may_make=True)
    posts = _posts(job, job.protocol.compute, keys, stop)
    meeting = Meeting(parties=tuple(job.parties), job_digest=job_digest(job), patience=job.patience)
    task = job.task()  # once: torch traces a module in one thread at a time

    def part(session: Session) -> Result:
        me = session.me
        return attend(session, task, posts.get(me), role=job.role(me), note=note)

    results = run_threads(dict.fromkeys(job.parties, part), meeting)
    return replace(merge_results(tuple(results.values())), launched="threads")


def serve_as(
    path: Path, me: str, *, keys: Path, at: str | None, note: Note, stop: threading.Event
) -> Result:
    """Be one party of a service from this host; the first server ends it when told to stop."""
    job = load_service(path).with_keys(keys, may_make=False)
    if me not in job.parties:
        raise ConfigError(f"{path} has no party {me!r}; wanted one of {', '.join(job.parties)}")
    servers = [name for name in job.protocol.compute if name == me]
    post = _posts(job, servers, keys, stop).get(me)
    identity = own_identity(job, me, keys)
    address = at or job.parties[me].address
    meeting = Meeting(parties=tuple(job.parties), job_digest=job_digest(job), patience=job.patience)
    with ExitStack() as stack:
        listener = None
        if address is not None:
            listener = stack.enter_context(listen(*parse_address(address)))
        session = stack.enter_context(
            joined(
                me,
                meeting,
                peers=job.peers(me),
                identity=identity,
                listener=listener,
                progress=Progress(lambda stage, *_: note(f"{me}: {STAGES.get(stage, stage)}")),
            )
        )
        result = attend(session, job.task(), post, role=job.role(me), note=note)
        session.finish()
        return replace(result, launched="remote")


@contextmanager
def stopping() -> Iterator[threading.Event]:
    """Give an event that Ctrl-C and a request to terminate set, instead of ending us midway."""
    stop = threading.Event()

    def set_it(number: int, frame: FrameType | None) -> None:
        stop.set()

    numbers = (signal.SIGINT, signal.SIGTERM)
    is_main = threading.current_thread() is threading.main_thread()
    before = [signal.signal(number, set_it) for number in numbers] if is_main else []
    try:
        yield stop
    finally:
        for number, handler in zip(numbers, before, strict=False):
            signal.signal(number, handler)


def _posts(
    job: ServeJob, servers: Sequence[str], keys: Path, stop: threading.Event
) -> dict[str, Post]:
    """Make servers ready: their shares and keys, and who may ask them."""
    posts = {}
    for name in servers:
        path = job.model.shares.get(name)
        if path is None:
            raise ConfigError(f"model.shares.{name}: missing; wanted the file with its share")
        posts[name] = Post(
            share=load_share(path, frac_bits=job.ring.frac_bits, bound=job.model.bound),
            identity=own_identity(job, name, keys),
            address=job.address(name),
            clients=job.client_peers(),
            patience=job.patience,
            stop=stop,
        )
    return posts
