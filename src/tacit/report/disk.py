"""Files that are written whole or not at all, and files of others read within bounds."""

import errno
import os
import secrets
import stat
from pathlib import Path

from tacit.errors import InputError


def read_regular(path: Path, *, most: int, at: int = 0) -> bytes:
    """Read up to so many bytes of a file; a pipe or a device, which need not end, is refused.

    Args:
        path: the file; a link counts as what it leads to.
        most: how many bytes; whoever wants the whole file asks for one more than it may have.
        at: from where on; below 0, so many bytes before the end.

    Raises:
        OSError: it cannot be read or is no regular file.
    """
    # A pipe without a writer would block already when it is opened.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        file.seek(at if at >= 0 else max(found.st_size + at, 0))
        return file.read(most)


def write_whole(path: Path, text: str) -> None:
    """Write a text file through a temporary neighbour and a rename.

    Raises:
        InputError: the folder is missing, full or not writable, or the path is not a plain file;
            nothing is left behind and an older file of that name stays as it was.
    """
    if path.exists() and not path.is_file():
        raise InputError(f"cannot write {path}: it exists and is not a plain file")
    # Same folder, so that the rename stays within one file system.
    neighbour = path.with_name(f".{path.name[:80]}.{secrets.token_hex(6)}.part")
    try:
        _write_durably(neighbour, text)
        os.replace(neighbour, path)
        flush_folder(path.parent)
    except OSError as error:
        raise InputError(
            f"cannot write {path}: {error.strerror or error}; no partial file was left"
        ) from error
    finally:
        neighbour.unlink(missing_ok=True)


def _write_durably(path: Path, text: str) -> None:
    with path.open("x", encoding="utf-8", newline="\n") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def flush_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
