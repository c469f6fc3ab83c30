"""What must last: on the disk, under its name, before anything leaves that rests on it.

A file that was flushed can still be lost in a power cut with its name: the name lies in the folder,
and a rename may reach the disk seconds later. So a file is written beside its place and flushed,
takes its place by a rename, and then the folder is flushed as well (Pillai et al., OSDI 2014).
What is counted and kept by it is `tacit.vault`'s. No other file of the house locks.
"""

import errno
import fcntl
import os
import secrets
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import BinaryIO, final

from tacit.errors import InputError

_LONGEST_NAME = 400
_NOT_OURS = (errno.EACCES, errno.EPERM, errno.ENOENT, errno.EROFS)


@final
class DurableFile:
    """A file that nobody else reads or writes as long as this object is held; see `durable`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, *, most: int = 1 << 30) -> bytes | None:
        """Return what is in the file, up to so many bytes; None if there is no such file yet.

        Raises:
            InputError: it cannot be read, or has another name, which would go on by itself.
        """
        try:
            with _opened(self.path) as (stream, found):
                if found.st_size > most:
                    raise OSError(errno.EFBIG, f"it has more than {most} bytes")
                content = stream.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InputError(f"cannot read {self.path}: {error.strerror}") from error
        if found.st_nlink > 1:
            raise InputError(
                f"{self.path} has {found.st_nlink} names (hard links), and what is written under "
                "one would be missing under the others; keep one of them"
            )
        return content

    def write(self, content: bytes) -> None:
        """Replace what is in the file, as `write_durable` does.

        Raises:
            InputError: it cannot be written; it is what it was.
        """
        for part in self.path.parent.glob(f".{escape(_short(self.path))}.*.part"):
            part.unlink(missing_ok=True)  # of a start that was killed: nobody else is here
        write_durable(self.path, content)


@contextmanager
def durable(path: Path) -> Iterator[DurableFile]:
    """Hold a file alone, to read it and to replace it: of two that count at once both count.

    A symbolic link leads to the one file behind it, whatever its names.

    Guarantee: of any number of threads and processes of one machine, one is in the block; what it
        has written is there after a power cut if the disk keeps what it was told to flush.
    Cost: one write of the whole file, two flushes.

    Raises:
        InputError: the lock beside the file cannot be made.
    """
    real = _real(path)
    lock = real.with_name(f".{real.name}.lock")
    try:
        held = _opened_lock(lock)
    except OSError as error:
        raise _unwritten(lock, error) from error
    try:
        fcntl.flock(held, fcntl.LOCK_EX)  # belongs to the opened file: threads wait as well
        yield DurableFile(real)
    finally:
        os.close(held)


@contextmanager
def sole(path: Path, what: str) -> Iterator[None]:
    """Do what only one process may do at a time; a second one is told who does it.

    The lock ends with the process, however that ends.

    Args:
        path: the file of the lock; it is there as long as the block lasts.
        what: what is done, for whoever comes second.

    Raises:
        InputError: another process, or another part of this one, does it.
    """
    made = [folder for folder in path.parents if not folder.exists()]
    make_durable(path.parent)
    try:
        held = _locked(path)
        if isinstance(held, str):
            raise InputError(
                f"{what} runs already, as {held or 'another process'}; wait for its end, or end it"
            )
        os.ftruncate(held, 0)
        os.pwrite(held, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
    except OSError as error:
        raise _unwritten(path, error) from error
    try:
        yield
    finally:
        path.unlink(missing_ok=True)  # while it is locked: see `_locked`
        os.close(held)
        for folder in made:
            with suppress(OSError):  # something is in it by now
                folder.rmdir()


def _locked(path: Path) -> int | str:
    """Lock a file, or say who has."""
    while True:
        held = _opened_lock(path)
        if not lock_open(held):
            who = os.pread(held, _LONGEST_NAME, 0).decode(errors="replace")
            os.close(held)
            return who
        # Whoever had it may have removed it since it was opened: then others have another.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(held), os.lstat(path)):
                return held
        os.close(held)


def lock_open(held: int, *, is_shared: bool = False) -> bool:
    """Lock a file that is open, until it is closed; return False if somebody else has locked it."""
    try:
        fcntl.flock(held, fcntl.LOCK_NB | (fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX))
    except BlockingIOError:
        return False
    return True


def _opened_lock(path: Path) -> int:
    """Open the file of a lock, or make it.

    A lock is no link and has no other name: it lies in a folder that somebody else may have made,
    and is written to and made where it is not there.
    """
    held = os.open(
        path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600
    )
    try:
        if _regular(held).st_nlink > 1:
            raise OSError(errno.EMLINK, os.strerror(errno.EMLINK))
    except OSError:
        os.close(held)
        raise
    return held


def read_regular(path: Path, *, most: int, at: int = 0) -> bytes:
    """Read up to so many bytes of a file; a pipe or a device, which need not end, is refused.

    Args:
        path: the file; a link counts as what it leads to.
        most: how many bytes; whoever wants the whole file asks for one more than it may have.
        at: from where on; below 0, so many bytes before the end.

    Raises:
        OSError: it cannot be read or is no regular file.
    """
    with _opened(path) as (stream, found):
        stream.seek(at if at >= 0 else max(found.st_size + at, 0))
        return stream.read(most)


@contextmanager
def _opened(path: Path) -> Iterator[tuple[BinaryIO, os.stat_result]]:
    # A pipe without a writer would block already when it is opened.
    held = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(held, "rb") as stream:
        yield stream, _regular(held)


def _regular(held: int) -> os.stat_result:
    """Return the facts of an open file; a pipe or a device, which need not end, is refused."""
    found = os.fstat(held)
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "not a regular file")
    return found


def write_durable(path: Path, content: bytes) -> None:
    """Write a file that its owner alone can read, whole or not at all, and wait for the disk.

    A link in its place is replaced, and what it leads to stays as it is.

    Raises:
        InputError: it cannot be written; what was there before stays.
    """
    try:
        _replace(path, content, mode=0o600)
    except OSError as error:
        raise _unwritten(path, error) from error


def write_whole(path: Path, text: str) -> None:
    """Write a text file as `write_durable` does, for whoever may read new files of this user.

    Raises:
        InputError: the folder is missing, full or not writable, or the path is not a plain file;
            nothing is left behind and an older file of that name stays as it was.
    """
    if path.exists() and not path.is_file():
        raise InputError(f"cannot write {path}: it exists and is not a plain file")
    try:
        _replace(path, text.encode("utf-8"), mode=0o666)
    except OSError as error:
        raise InputError(
            f"cannot write {path}: {error.strerror or error}; no partial file was left"
        ) from error


def _replace(path: Path, content: bytes, *, mode: int) -> None:
    # Same folder, so that the rename stays within one file system.
    part = path.with_name(f".{_short(path)}.{secrets.token_hex(6)}.part")
    try:
        number = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(number, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(part, path)
        flush_folder(path.parent)
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def make_durable(folder: Path) -> None:
    """Make a folder, and those above it, that its owner alone can read, and wait for the disk.

    Raises:
        InputError: it cannot be made.
    """
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    try:
        for one in reversed(missing):
            one.mkdir(mode=0o700, exist_ok=True)
            flush_folder(one.parent)
    except OSError as error:
        raise InputError(f"cannot make {folder}: {error.strerror}") from error
    if not folder.is_dir():
        raise InputError(f"cannot make {folder}: it is not a folder")


def is_mine_alone(folder: Path) -> bool:
    """Tell whether a folder is this user's, and nobody else can put anything into it."""
    found = folder.stat()
    return found.st_uid == os.getuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def flush_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    held = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(held)
    finally:
        os.close(held)


def _real(path: Path) -> Path:
    """Follow links: to replace the link itself would leave two files where there was one."""
    try:
        return path.resolve()
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
        raise InputError(f"cannot write {path}: its links lead nowhere") from error


def _short(path: Path) -> str:
    return path.name[:80]


def _unwritten(path: Path, error: OSError) -> InputError:
    hint = "; its folder must be there and writable" if error.errno in _NOT_OURS else ""
    if path.is_symlink():
        hint = "; it is a link, which nothing is written through: remove it"
    return InputError(f"cannot write {path}: {error.strerror}{hint}")
