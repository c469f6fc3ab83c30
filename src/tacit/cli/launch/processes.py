"""``tacit run``: every party of a job as a process on this machine."""

import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from tacit import report
from tacit.cli.environment import data_folders
from tacit.cli.failure import End, find_cause
from tacit.cli.journal import overheard, record, record_party
from tacit.cli.launch.member import (
    say_aside,
    sole_start,
    write_entries,
    write_files,
    write_result,
)
from tacit.cli.screen import Board, OnConsole, board, teller, working
from tacit.crypto import Identity, load_pinned, make_identity
from tacit.errors import PartyError
from tacit.jobs import folder
from tacit.jobs.config import Job, PartyEntry
from tacit.jobs.kind import Part, Screen
from tacit.jobs.kinds import check_fresh, kind_of, load_job
from tacit.party import Child, Event, Progress, merge_results, python_command, supervise
from tacit.result import Result
from tacit.transport import listen

GRACE_S = 3.0
"""How long the others may take to notice a failure by themselves."""
_HOST = "127.0.0.1"


def run_job(
    path: Path, *, keys: Path, out: Path | None, console: Console, is_fresh: bool = False
) -> tuple[Result, Path]:
    """Run a whole job here and write its result, whole or not at all.

    Addresses in the job do not matter: the parties meet on free ports of this machine. Parties
    without a key in the job get one that is thrown away afterwards. With ``is_fresh`` they discard
    what an earlier run has kept to go on from.
    """
    with working(console, "reading the job"):
        job, source = load_job(path), path.read_bytes()
        check_fresh(job, is_fresh)
        target = out or job.out
        folder.check_target(target)
        say_aside(target, console)
        kind = kind_of(job)
        kind.check_inputs(job, list(job.parties))
        roles = {name: job.role(name) for name in job.parties}
        record("start", job=job.job.name, kind=job.job.kind, parties=roles, out=str(target))
    if kind.run is not None:
        return _run_engine(kind.run, job, source, target, console), target
    with sole_start(job, list(job.parties)):
        with (
            folder.staged(target) as stage,
            tempfile.TemporaryDirectory(prefix="tacit-") as private,
        ):
            with board(console, roles) as shown:
                extra = ["--fresh"] if is_fresh else []
                outcomes = _run_children(path, job, keys, stage, Path(private), shown, extra)
            with working(console, "putting the result together"):
                result = _join(job, outcomes, stage, console)
                write_result(job, source, result, stage)
        for outcome in outcomes:
            folder.discard(map(Path, outcome.final.get("checkpoints", ())))
    return result, target


def _run_engine(
    run: Callable[[Job, Screen, Sequence[Path]], Part],
    job: Job,
    source: bytes,
    target: Path,
    console: Console,
) -> Result:
    """Run a job whose kind has an engine of its own."""
    with (
        folder.staged(target) as stage,
        working(console, "reading its input"),
        overheard(console),
    ):
        part = run(job, OnConsole(console), data_folders())
        write_files(part.files, stage)
        write_result(job, source, part.result, stage)
    return part.result


def _run_children(
    path: Path,
    job: Job,
    keys: Path,
    stage: Path,
    private: Path,
    shown: Board,
    extra: Sequence[str],
) -> tuple[End, ...]:
    identities = {name: _identify(job, name, keys, private) for name in job.parties}
    with ExitStack() as stack:
        listeners = {name: stack.enter_context(listen(_HOST, 0)) for name in job.parties}
        entries = {
            name: PartyEntry(
                address=f"{_HOST}:{listeners[name].getsockname()[1]}", key=identity.fingerprint
            )
            for name, identity in identities.items()
        }
        write_entries(private / "peers.json", entries)
        commands = {
            name: [*_command(path, name, identities[name], private / "peers.json", stage), *extra]
            for name in job.parties
        }
        children = [Child(name, commands[name], listeners[name]) for name in job.parties]
        return supervise(
            children,
            on_event=_show_on(shown),
            on_stop=lambda: shown.note("stopping…"),
            grace_s=GRACE_S,
        )


def _identify(job: Job, name: str, keys: Path, private: Path) -> Identity:
    wanted = job.parties[name].key
    if wanted is None:
        return make_identity(name, private)
    return load_pinned(keys, name, wanted)


def _command(path: Path, name: str, identity: Identity, entries: Path, stage: Path) -> list[str]:
    return python_command(
        *("party", str(path), "--as", name),
        *("--keys", str(identity.key_file.parent)),
        *("--peers-file", str(entries), "--out", str(stage)),
    )


def _show_on(shown: Board) -> Callable[[str, Event], None]:
    """Pass what a child reports on to the screen."""

    def on_event(party: str, event: Event) -> None:
        record_party(party, event)
        if event["event"] == "stage":
            shown.show(party, event["stage"], event["done"], event["total"])
        else:
            shown.show(party, event["event"], 0, 0)

    return on_event


def _join(job: Job, outcomes: Sequence[End], stage: Path, console: Console) -> Result:
    """Make one result of what the parties said, or raise the first cause of a failure."""
    cause = find_cause(outcomes)
    if cause is not None:
        raise cause
    result = merge_results(tuple(_result(outcome) for outcome in outcomes))
    kind = kind_of(job)
    if kind.complete is not None:
        result = kind.complete(job, result, stage, data_folders())
    if kind.attack is not None:
        result = kind.attack(job, result, data_folders(), Progress(teller(console)))
    return result


def _result(outcome: End) -> Result:
    if not outcome.final:
        raise PartyError(outcome.party, "ended well but without a result")
    return report.from_json(outcome.final["result"], source=f"party {outcome.party!r}")
