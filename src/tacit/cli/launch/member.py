"""``tacit party``: one party of a job, on its own host or as a child of ``tacit run``."""

import hashlib
import json
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from tacit import report
from tacit.cli.environment import data_folders
from tacit.cli.journal import record, record_party
from tacit.cli.launch.worker import hired, with_worker
from tacit.cli.screen import Board, board, say
from tacit.crypto import Identity, load_pinned
from tacit.data.source import NOTHING, Given
from tacit.disk import sole
from tacit.errors import ConfigError, PartyError
from tacit.jobs import folder
from tacit.jobs.config import (
    Job,
    PartyEntry,
    job_digest,
    measured_digest,
    parse_address,
    with_parties,
)
from tacit.jobs.kind import Part, Place
from tacit.jobs.kinds import check_fresh, kind_of, load_job
from tacit.party import (
    Enclave,
    Event,
    Meeting,
    Progress,
    Session,
    SimulatedEnclave,
    StatusPipe,
    Usage,
    attest_all,
    joined,
    watch_parent,
)
from tacit.result import Claim, Result
from tacit.spec import read_record, suggest
from tacit.transport import Meter, listen

_QUIET_S = 0.05
_AGAIN = "checkpoints are kept, so that all can start again and go on from the end."


@dataclass(frozen=True, kw_only=True, eq=False)
class Seat:
    """A party that is ready to take part: everything it needs, and nothing of the others'."""

    job: Job
    me: str
    identity: Identity
    listener: socket.socket | None
    launched: str
    search: tuple[Path, ...]
    is_fresh: bool = False


def run_alone(
    path: Path,
    me: str,
    *,
    keys: Path,
    out: Path | None,
    at: str | None,
    console: Console,
    is_fresh: bool = False,
) -> tuple[Result, Path]:
    """Take part in a job from this host, and write this party's own result.

    Args:
        path: the job file.
        me: which party we are.
        keys: the folder with our key and certificate.
        out: where the result goes; the job's folder with our name behind it if not given.
        at: the address to listen on, if it is not the one that the others dial.
        console: where progress is shown.
        is_fresh: whether what an earlier run has kept to go on from is discarded.
    """
    job, source = load_job(path), path.read_bytes()
    check_fresh(job, is_fresh)
    check_parties(job, me, path)
    target = out or job.out.with_name(f"{job.out.name}-{me}")
    folder.check_target(target)
    say_aside(target, console)
    find_part(job)
    kind_of(job).check_inputs(job, [me])
    with ExitStack() as stack:
        seat = stack.enter_context(own_seat(job, me, keys=keys, at=at, is_fresh=is_fresh))
        stack.enter_context(sole_start(job, [me]))
        shown = stack.enter_context(board(console, {me: job.role(me)}))
        roles = {me: job.role(me)}
        record("start", job=job.job.name, kind=job.job.kind, parties=roles, out=str(target))

        published: list[Path] = []

        def publish(part: Part) -> None:
            with folder.staged(target) as stage:
                write_files(part.files, stage)
                write_result(job, source, part.result, stage)
            published.append(target)

        reporter = Reporter(lambda **event: _show(shown, me, event), quiet_s=0.0)
        try:
            finished = take_seat(seat, reporter, publish)
        except PartyError:
            if published:
                say(
                    console, f"The result of {me!r} is in {target}. Another has none yet: " + _AGAIN
                )
            raise
        folder.discard(finished.checkpoints)
        shown.show(me, "done", 0, 0)
        record_party(me, {"event": "done"})
    return finished.result, target


def run_child(
    path: Path,
    me: str,
    *,
    keys: Path,
    stage: Path,
    entries: Path,
    listen_fd: int,
    pipe: StatusPipe,
    is_fresh: bool = False,
) -> None:
    """Take part in a job as a child process: report on the pipe, leave the rest to the parent.

    That is to publish the result of all, and then to discard their checkpoints.
    """
    watch_parent()
    job = load_job(path)
    _check_member(job, me, path)
    job = with_parties(job, read_entries(entries))
    with socket.socket(fileno=listen_fd) as listener:
        seat = Seat(
            job=job,
            me=me,
            identity=load_pinned(keys, me, job.parties[me].key),
            listener=listener,
            launched="processes",
            search=data_folders(),
            is_fresh=is_fresh,
        )
        finished = take_seat(seat, Reporter(pipe.send), lambda part: write_files(part.files, stage))
    kept = [str(path) for path in finished.checkpoints]
    pipe.send("done", result=report.to_json(finished.result), checkpoints=kept)


@contextmanager
def own_seat(
    job: Job, me: str, *, keys: Path, at: str | None, is_fresh: bool = False
) -> Iterator[Seat]:
    """Make ready to take part from this host: our key, and where the others dial us.

    Raises:
        ConfigError: our key is not the one that the job names.
    """
    identity = load_pinned(keys, me, job.parties[me].key)
    address = _listening_address(job, me, at)
    with nullcontext() if address is None else listen(*address) as listener:
        yield Seat(
            job=job,
            me=me,
            identity=identity,
            listener=listener,
            launched="remote",
            search=data_folders(),
            is_fresh=is_fresh,
        )


@contextmanager
def sole_start(job: Job, parties: Sequence[str]) -> Iterator[None]:
    """Keep another start of the same parties away from the checkpoints of this one.

    Raises:
        InputError: there is one; it says which process.
    """
    keeps = kind_of(job).keeps
    with ExitStack() as stack:
        for name in parties if keeps is not None and keeps(job) else ():
            state = folder.state_of(job.out, name)
            what = f"party {name!r} of job {job.job.name!r} with the result folder {job.out}"
            stack.enter_context(sole(state.with_name(f"{state.name}.lock"), what))
        yield


def take_seat(seat: Seat, reporter: "Reporter", publish: Callable[[Part], None]) -> Part:
    """Connect, do this party's part, and see everyone come to the end."""
    usage, progress = Usage(), Progress(reporter)
    with met(seat, progress) as session:
        reporter.meter = session.meter
        return do_part(session, seat, usage, publish)


def met(seat: Seat, progress: Progress) -> AbstractContextManager[Session]:
    """Connect to the others, who must have the same job."""
    job, me = seat.job, seat.me
    return joined(
        me,
        Meeting(parties=tuple(job.parties), job_digest=job_digest(job), patience=job.network),
        peers=job.peers(me),
        identity=seat.identity,
        listener=seat.listener,
        progress=progress,
    )


def do_part(
    session: Session,
    seat: Seat,
    usage: Usage,
    publish: Callable[[Part], None],
    given: Given = NOTHING,
) -> Part:
    """Do this party's part over a session, publish it, and see everyone come to the end.

    Where parties keep checkpoints nobody goes on to discard them before everybody has published:
    who has not, because its disk is full, could not go on alone.
    """
    job, progress = seat.job, session.progress
    place = Place(
        search=seat.search,
        launched=seat.launched,
        report=lambda: usage.report(name=seat.me, role=job.role(seat.me), progress=progress),
        out=job.out,
        is_fresh=seat.is_fresh,
        given=given,
        inside=_enclave_of(seat),
    )
    # Inputs are read after connecting: a party that cannot read its own tells the others so.
    table, take_part = job.parties[seat.me].worker, find_part(job)
    proved = _attest(session, seat, place.inside)
    if table is None:
        part = take_part(session, job, place)
    else:
        with hired(table, me=seat.me, identity=seat.identity, patience=job.network) as outsourcing:
            part = take_part(session, job, place)
        part = replace(part, result=with_worker(part.result, seat.me, outsourcing))
    with progress.stage("finish"):
        session.finish()
    # The end itself took time and messages, too.
    claims = (*part.result.claims, *proved)
    result = replace(part.result, parties=(place.report(),), metered=session.cost(), claims=claims)
    part = replace(part, result=result)
    publish(part)
    if kind_of(job).keeps is not None:
        session.agree("published", hashlib.sha256(b"published").digest())
    return part


def _enclave_of(seat: Seat) -> SimulatedEnclave | None:
    if seat.job.parties[seat.me].enclave is None:
        return None
    return SimulatedEnclave(seat.identity, measured_digest(seat.job))


def _attest(session: Session, seat: Seat, mine: Enclave | None) -> tuple[Claim, ...]:
    """Let parties with an enclave prove what they run, if the job has any."""
    entries = seat.job.parties
    keys = {name: one.key or "" for name, one in entries.items() if one.enclave is not None}
    if not keys:
        return ()
    with session.progress.stage("attest"):
        return attest_all(session, keys, mine, job_digest=measured_digest(seat.job))


def write_files(files: Mapping[str, str | bytes], stage: Path) -> None:
    """Write what a party has for the result folder."""
    for name, content in files.items():
        if isinstance(content, str):
            folder.write_text(stage / name, content)
        else:
            folder.write_bytes(stage / name, content)


def write_result(job: Job, source: bytes, result: Result, stage: Path) -> None:
    """Write the result, the job file that it is of and, if the job wants it, the page."""
    report.save(result, stage / folder.RESULT)
    folder.write_bytes(stage / folder.JOB, source)
    if job.report.html:
        report.write(result, stage / folder.REPORT)


def say_aside(target: Path, console: Console) -> None:
    """Say where an earlier result stays that a new one must not write over."""
    aside = folder.find_aside(target)
    if aside is not None:
        say(console, f"The result that is in {target} now will stay, as {aside}.", "dim")


def read_entries(path: Path) -> dict[str, PartyEntry]:
    """Read the addresses and keys that the parent has chosen."""
    raw = json.loads(path.read_text(encoding="utf-8"))
    return {name: read_record(raw[name], PartyEntry, source=str(path)) for name in raw}


def write_entries(path: Path, entries: Mapping[str, PartyEntry]) -> None:
    """Write what `read_entries` reads."""
    plain = {name: {"address": one.address, "key": one.key} for name, one in entries.items()}
    folder.write_text(path, json.dumps(plain))


class Reporter:
    """Reports stages at once and steps now and then, with what was sent: there may be very many."""

    def __init__(self, send: Callable[..., None], quiet_s: float = _QUIET_S) -> None:
        self.meter: Meter | None = None
        self._send, self._quiet_s = send, quiet_s
        self._stage, self._next_s = "", 0.0

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Take note of where this party stands."""
        now = time.monotonic()
        if stage == self._stage and done != total and now < self._next_s:
            return
        self._stage, self._next_s = stage, now + self._quiet_s
        self._send(event="stage", stage=stage, done=done, total=total, **self._traffic())

    def _traffic(self) -> dict[str, object]:
        if self.meter is None:
            return {}
        sent: dict[str, int] = {}
        for one in self.meter.traffic():
            sent[one.receiver] = sent.get(one.receiver, 0) + one.payload_bytes
        return {"sent": sent, "rounds": self.meter.rounds("online")}


def _show(shown: Board, me: str, event: Event) -> None:
    record_party(me, event)
    shown.show(me, event["stage"], event["done"], event["total"])


def _listening_address(job: Job, me: str, at: str | None) -> tuple[str, int] | None:
    if at is None:
        address = job.parties[me].address
        return None if address is None else parse_address(address)
    try:
        return parse_address(at)
    except ConfigError as error:
        raise ConfigError(f"--listen: {error}") from error


def _check_member(job: Job, me: str, path: Path) -> None:
    if me not in job.parties:
        raise ConfigError(
            f"{path} has no party {me!r}; wanted one of {', '.join(job.parties)}"
            + suggest(me, job.parties)
        )


def find_part(job: Job) -> Callable[[Session, Job, Place], Part]:
    """Return what does a party's part in a job.

    Raises:
        ConfigError: the parties of such a job are not started one by one.
    """
    take_part = kind_of(job).take_part
    if take_part is None:
        raise ConfigError(
            f"the parties of {job.job.name!r}, a job of kind {job.job.kind!r}, are not started one "
            "by one; use `tacit run`"
        )
    return take_part


def check_parties(job: Job, me: str, path: Path) -> None:
    """Make sure that a job knows us, and everyone by a key.

    Raises:
        ConfigError: it does not.
    """
    _check_member(job, me, path)
    missing = [name for name, entry in job.parties.items() if entry.key is None]
    if missing:
        raise ConfigError(
            f"{path}: parties.{missing[0]}.key: missing; a party on another host is known by its "
            f"key alone: run `tacit keys {missing[0]}` there and paste the line it prints"
            + (f" (missing too: {', '.join(missing[1:])})" if missing[1:] else "")
        )
