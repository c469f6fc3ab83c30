"""``tacit serve``: the servers and the dealer of a prediction service, up until stopped."""

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from tacit.cli.jobs.config import parse_address
from tacit.cli.jobs.digest import job_digest
from tacit.cli.jobs.serve_job import ServeJob, own_identity
from tacit.cli.screen import STAGES
from tacit.cli.toml import read_record, read_toml
from tacit.crypto import Identity
from tacit.errors import ConfigError
from tacit.learn.private import merge_results
from tacit.learn.service import (
    Acceptor,
    PredictionServer,
    ServiceTask,
    Tally,
    deal_predictions,
    load_share,
)
from tacit.learn.training import sum_forecasts
from tacit.mpc import find_protocol
from tacit.party import Meeting, Progress, Session, Usage, joined, run_threads
from tacit.result import Claim, Leak, Metric, Result
from tacit.transport import Credentials, Limits, Peer, listen

_MIB = 1 << 20
Note = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, eq=False)
class Post:
    """One party of a service on this host."""

    job: ServeJob
    task: ServiceTask
    me: str
    identity: Identity
    launched: str
    stop: threading.Event
    note: Note


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
    _check_shares(job, job.protocol.compute)
    meeting = Meeting(parties=tuple(job.parties), job_digest=job_digest(job), patience=job.patience)
    task = job.task()  # once: torch traces a module in one thread at a time
    posts = {
        name: Post(
            job=job,
            task=task,
            me=name,
            identity=own_identity(job, name, keys),
            launched="threads",
            stop=stop,
            note=note,
        )
        for name in job.parties
    }
    results = run_threads(
        {name: lambda session: attend(session, posts[session.me]) for name in posts}, meeting
    )
    return merge_results(tuple(results.values()))


def serve_as(
    path: Path, me: str, *, keys: Path, at: str | None, note: Note, stop: threading.Event
) -> Result:
    """Be one party of a service from this host; the first server ends it when told to stop."""
    job = load_service(path).with_keys(keys, may_make=False)
    if me not in job.parties:
        raise ConfigError(f"{path} has no party {me!r}; wanted one of {', '.join(job.parties)}")
    if me in job.protocol.compute:
        _check_shares(job, (me,))
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
                peers=_peers(job, me),
                identity=identity,
                listener=listener,
                progress=Progress(lambda stage, *_: note(f"{me}: {STAGES.get(stage, stage)}")),
            )
        )
        result = attend(
            session,
            Post(
                job=job,
                task=job.task(),
                me=me,
                identity=identity,
                launched="remote",
                stop=stop,
                note=note,
            ),
        )
        session.finish()
        return result


def attend(session: Session, post: Post) -> Result:
    """Do one party's part, and say in the end what was done."""
    usage, task = Usage(), post.task
    if session.me == task.roles.dealer:
        post.note(f"{post.me}: ready")
        tally = deal_predictions(session, task)
    else:
        tally = _serve(session, post)
    parties = (usage.report(name=post.me, role=post.job.role(post.me), progress=session.progress),)
    return Result(
        kind="serve",
        name=post.job.job.name,
        protocol=task.protocol,
        launched=post.launched,
        parties=parties,
        forecast=sum_forecasts((*tally.guards.values(), *tally.runs.values())),
        metered=session.cost(),
        leakage=(*_answered(post, tally), *tally.leaks),
        claims=(*find_protocol(task.protocol).claims, *_claims(task)),
        utility=_metrics(post, tally),
    )


def _serve(session: Session, post: Post) -> Tally:
    job, task, me = post.job, post.task, post.me
    share = load_share(job.model.halves[me], frac_bits=task.frac_bits, bound=task.weight_bound)
    server = PredictionServer(session, task, share)
    files = Credentials(post.identity.certificate_file, post.identity.key_file)
    with listen(*job.address(me)) as listener:
        acceptor = Acceptor(
            me,
            job.client_peers(),
            credentials=files,
            listener=listener,
            patience=job.patience,
            limits=_client_limits(task),
        )
        acceptor.open(server.queue.admit)
        host, port = job.address(me)
        post.note(f"{me}: open for {', '.join(task.clients)} at {host}:{port}")
        try:
            return server.run(post.stop)
        finally:
            acceptor.close()


def _client_limits(task: ServiceTask) -> Limits:
    """Let a client make us keep no more than a few of its questions."""
    cells = 1
    for size in task.model.inputs:
        cells *= size
    frame = max(_MIB, 8 * task.most_rows * max(cells, task.width))
    return Limits(
        max_frame_bytes=frame, queue_bytes=frame, prefetch_bytes=frame, stash_bytes=2 * frame
    )


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


def _check_shares(job: ServeJob, servers: Sequence[str]) -> None:
    for name in servers:
        path = job.model.halves.get(name)
        if path is None:
            raise ConfigError(f"model.halves.{name}: missing; wanted the file with its share")
        load_share(path, frac_bits=job.ring.frac_bits, bound=job.model.bound)


def _peers(job: ServeJob, me: str) -> dict[str, Peer]:
    return {
        name: Peer(parse_address(entry.address) if entry.address else None, entry.key or "")
        for name, entry in job.parties.items()
        if name != me
    }


def _answered(post: Post, tally: Tally) -> tuple[Leak, ...]:
    """Write down, once, what clients were told."""
    if post.me != post.job.roles.first or not tally.rows:
        return ()
    what = "the class of every row" if post.job.service.reveal == "class" else "scores of every row"
    return (
        Leak(
            to="clients",
            what=f"{what} that they asked about",
            why="declared in the job",
            kind="output",
            elements=tally.rows * post.task.width,
        ),
    )


def _metrics(post: Post, tally: Tally) -> tuple[Metric, ...]:
    if post.me != post.job.roles.first:
        return ()
    runs = sum(times for size, (_, times) in tally.runs.items() if size)
    return (
        Metric(name="questions answered", value=float(tally.questions), unit=""),
        Metric(name="rows answered", value=float(tally.rows), unit=""),
        Metric(name="batches", value=float(runs), unit=""),
    )


def _claims(task: ServiceTask) -> tuple[Claim, ...]:
    return (
        Claim(
            subject="the model, towards clients who ask much",
            guarantee="no guarantee",
            assumptions=(
                "who sees enough answers can train a model of its own on them; the service does "
                "not limit how much a client asks",
            ),
        ),
    )
