"""``tacit hosts``: a folder for each party of a job, to play hosts of their own on one machine."""

import shlex
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import is_dataclass
from pathlib import Path

from tacit.cli.launch.member import find_part
from tacit.crypto import make_identity
from tacit.errors import InputError
from tacit.jobs.kinds import kind_of, load_job, read_job
from tacit.jobs.toml import read_toml, write_toml
from tacit.transport import listen

_HOST = "127.0.0.1"
_FILE = "job.toml"


def make_hosts(path: Path, to: Path | None = None) -> list[str]:
    """Make a folder for each party of a job, and for each client: its key, and the job.

    The job has the fingerprints of all keys and addresses on this machine, and finds the files
    that it named from where we are. The folders appear together or not at all.

    Args:
        path: the job file.
        to: the folder of the folders; ``hosts/NAME`` of the job if not given.

    Returns:
        What starts everyone, as lines of a shell that stands where we are.

    Raises:
        InputError: the job cannot be used, its parties are not started one by one, the folder
            exists, or it cannot be written.
    """
    job, raw = load_job(path), read_toml(path)
    if kind_of(job).run is not None:
        find_part(job)  # refuses
    target = to or Path("hosts") / job.job.name
    if target.exists() or target.is_symlink():
        raise InputError(f"{target} exists and is not written over; give another folder with --to")
    clients = list(getattr(job, "clients", {}))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        stage = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        try:
            tables = _pin(_found_from_anywhere(raw, job), list(job.parties), clients, stage)
            read_job(tables, source=str(target / _FILE))  # what we write can be read
            for name in (*job.parties, *clients):
                (stage / name / _FILE).write_text(write_toml(tables), encoding="utf-8")
            stage.rename(target)
        finally:
            shutil.rmtree(stage, ignore_errors=True)
    except OSError as error:
        raise InputError(f"cannot write {target}: {error.strerror or error}") from error
    start = "party" if kind_of(job).take_part is not None else "serve"
    lines = [
        f"({_enter(target, name)} && tacit {start} {_FILE} --as {name}) &" for name in job.parties
    ]
    asks = [
        f"({_enter(target, name)} && tacit ask {_FILE} ROWS.csv --as {name})" for name in clients
    ]
    return [*lines, *(asks or ["wait"])]


def _enter(target: Path, name: str) -> str:
    return f"cd {shlex.quote(str(target / name))}"


def _pin(
    raw: object, parties: Sequence[str], clients: Sequence[str], stage: Path
) -> dict[str, object]:
    """Make the keys, and put their fingerprints and addresses into the tables of the job."""
    with ExitStack() as stack:  # all ports are held until each has another

        def free() -> str:
            taken = stack.enter_context(listen(_HOST, 0))
            return f"{_HOST}:{taken.getsockname()[1]}"

        def entry(group: str, name: str) -> dict[str, object]:
            key = make_identity(name, stage / name / "keys").fingerprint
            return {**_table(raw, group, name), "key": key}

        pinned = _table(raw)
        pinned["job"] = {key: one for key, one in _table(raw, "job").items() if key != "out"}
        pinned["parties"] = {
            name: {**entry("parties", name), "address": free()} for name in parties
        }
        if clients:
            pinned["clients"] = {name: entry("clients", name) for name in clients}
            doors = {name: free() for name in _table(raw, "service", "doors")}
            pinned["service"] = {**_table(raw, "service"), "doors": doors}
    return pinned


def _table(raw: object, *keys: str) -> dict[str, object]:
    for key in keys:
        raw = raw.get(key) if isinstance(raw, Mapping) else None
    return dict(raw) if isinstance(raw, Mapping) else {}


def _found_from_anywhere(raw: object, read: object) -> object:
    """Write the paths in the tables of a job so that they hold in another folder, too.

    Args:
        raw: a value of the file.
        read: the same as the record of the job has it, which knows what is a path.
    """
    if isinstance(read, Path):
        return str(read.absolute())
    if isinstance(raw, Mapping):
        return {key: _found_from_anywhere(one, _inside(read, key)) for key, one in raw.items()}
    if isinstance(raw, list) and isinstance(read, Sequence) and len(read) == len(raw):
        return [_found_from_anywhere(*pair) for pair in zip(raw, read, strict=True)]
    return raw


def _inside(read: object, key: str) -> object:
    if is_dataclass(read):
        return getattr(read, key, None)
    return read.get(key) if isinstance(read, Mapping) else None
