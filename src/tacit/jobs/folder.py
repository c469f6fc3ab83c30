"""Result folders: they appear whole, and what cannot be made again is never written over.

The newest result of a job lies where its job file says. An earlier one that holds more than a page
and predictions (ledgers, shares, weights, somebody's notes) stays beside it under a number.
"""

import itertools
import json
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tacit.disk import flush_folder, read_regular
from tacit.errors import InputError

RESULT = "result.json"
REPORT = "report.html"
PREDICTIONS = "predictions.csv"
JOB = "job.toml"
"""The job file of a result, as it was when the job ran."""
MODEL = "model.safetensors"
OLD_MODEL = "model.npz"
_REPLACED = frozenset({RESULT, REPORT, PREDICTIONS, JOB})
"""What the next run makes again. Everything else may be the only copy of something."""


def check_target(out: Path) -> None:
    """Refuse early what `staged` would have to refuse in the end.

    Raises:
        InputError: there is something else than a result of ours, or no right to write.
    """
    if out.exists() or out.is_symlink():
        _check_ours(out)
    above = next(folder for folder in out.absolute().parents if folder.exists())
    if not above.is_dir():
        raise InputError(f"cannot write results to {out}: {above} is not a folder")
    if not os.access(above, os.W_OK | os.X_OK):
        raise InputError(
            f"cannot write results to {out}: no permission to write in {above}; "
            "choose another folder with --out"
        )


def find_aside(out: Path) -> Path | None:
    """Tell where the result that is in ``out`` now will stay when a new one comes; None: replaced.

    Raises:
        InputError: ``out`` cannot be read.
    """
    if not out.is_dir():
        return None
    with _named(out):
        names = {entry.name for entry in out.iterdir()}
    if names <= _REPLACED:
        return None
    taken = (out.with_name(f"{out.name}.{number}") for number in itertools.count(1))
    return next(path for path in taken if not path.exists() and not path.is_symlink())


@contextmanager
def staged(out: Path) -> Iterator[Path]:
    """Give a hidden folder to write into; at a good end it becomes ``out``, else it is removed.

    When the block is over, all of it is on the disk: a power cut leaves the new result, or the old.
    The folder can be read by its owner alone: results may hold predictions about people. What a
    killed process left behind on the way to the same ``out`` is removed first.

    Raises:
        InputError: ``out`` holds something else than a result, or it cannot be written.
    """
    check_target(out)
    out = out.absolute()
    with _named(out):
        _sweep(out)
    stage = out.with_name(f".{out.name}.{os.getpid()}-{secrets.token_hex(6)}.part")
    made = [folder for folder in out.parents if not folder.exists()]
    is_done = False
    try:
        with _named(out):
            out.parent.mkdir(parents=True, exist_ok=True)
            stage.mkdir(mode=0o700)
        yield stage
        with _named(out):
            _publish(stage, out)
        is_done = True
    finally:
        if not is_done:
            shutil.rmtree(stage, ignore_errors=True)
            for folder in made:
                with suppress(OSError):  # not empty: somebody else uses it by now
                    folder.rmdir()


def state_of(out: Path, party: str) -> Path:
    """Return where a party of a job keeps what it could go on from: beside the job's result.

    Raises:
        InputError: it is a link: shares would lie wherever who handed on the job wants them.
    """
    out = out.absolute()
    found = out.with_name(f".{out.name}-{party}.state")
    if found.is_symlink():
        raise InputError(f"{found} is a link, which nothing is kept behind; remove it")
    return found


def discard(checkpoints: Iterable[Path]) -> None:
    """Remove what is not needed any more, now that the result stands."""
    for path in checkpoints:
        shutil.rmtree(path, ignore_errors=True)
        if path.parent.suffix == ".state":
            with suppress(OSError):  # there are others in it
                path.parent.rmdir()


def share_name(party: str) -> str:
    """Name the file with one party's share of a model."""
    return f"half-{party}.npz"


def find_model(out: Path) -> Path | None:
    """Return the model that a training has left in its folder, if it has."""
    return next((out / name for name in (MODEL, OLD_MODEL) if (out / name).is_file()), None)


def write_text(path: Path, text: str) -> None:
    """Write a text file that its owner alone can read.

    Raises:
        InputError: it cannot be written.
    """
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file that its owner alone can read, whatever the umask and whatever it was before.

    Raises:
        InputError: it cannot be written, or is somebody else's.
    """
    with _named(path), os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as stream:
        if stat.S_ISREG(os.fstat(stream.fileno()).st_mode):  # not a pipe or a terminal
            os.fchmod(stream.fileno(), 0o600)
            stream.truncate()
        stream.write(content)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from error


def _publish(stage: Path, out: Path) -> None:
    """Put the stage in place of the old result, which stays until the new one is there."""
    _flush(stage)
    old = aside = None
    if out.exists():
        _check_ours(out)
        aside = find_aside(out)
        old = aside or stage.with_suffix(".old")
        out.rename(old)
    try:
        stage.rename(out)
        flush_folder(out.parent)
    except OSError:
        if old is not None and not out.exists():
            old.rename(out)
        raise
    if old is not None and aside is None:
        shutil.rmtree(old, ignore_errors=True)


def _flush(stage: Path) -> None:
    """Wait until the disk has every file of a folder, and their names."""
    for above, _, names in os.walk(stage):
        for name in names:
            with (Path(above) / name).open("rb") as file:
                os.fsync(file.fileno())
        flush_folder(Path(above))


def _sweep(out: Path) -> None:
    """Remove the hidden folders of processes that are gone; they had no time to do it."""
    if not out.parent.is_dir():
        return
    ours = re.compile(re.escape(f".{out.name}.") + r"(\d+)-[0-9a-f]{12}\.(part|old)")
    for entry in sorted(out.parent.iterdir()):
        match = ours.fullmatch(entry.name)
        if match is None or _is_alive(int(match[1])):
            continue
        if match[2] == "old" and not out.exists():
            # Killed between the two renames: this is the last whole result.
            with suppress(OSError):  # another run was quicker
                entry.rename(out)
        else:
            shutil.rmtree(entry, ignore_errors=True)


def _is_alive(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass  # somebody else's, but alive
    return True


def _check_ours(out: Path) -> None:
    if out.is_symlink() or not out.is_dir():
        raise InputError(f"cannot write results to {out}: it exists and is not a folder")
    with _named(out):
        names = {entry.name for entry in out.iterdir()}
    if names and not _is_result(out / RESULT):
        raise InputError(
            f"{out} holds {min(names)!r} but no {RESULT} of tacit and is not replaced; "
            "move it away, or choose another folder with --out"
        )


def _is_result(path: Path) -> bool:
    try:
        content = json.loads(read_regular(path, most=1 << 26))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(content, dict) and {"schema", "version", "parties"} <= content.keys()
