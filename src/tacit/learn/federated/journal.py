"""What a node has let go, written on its disk: what may happen once happens once.

Flower hands every message of a node a copy of the node's state and keeps whichever copy comes back
last. A server that sends two messages at once would otherwise be answered twice from one state:
with one mask over two inputs, about two lists of survivors, or in more rounds than were planned.
"""

import errno
import fcntl
import hashlib
import os
import stat
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import final

from tacit.errors import ConfigError, InputError, PartyError

_ENTRY = struct.Struct("<Q16s")
_BEGUN = bytes(16)
_OVER = b"\xff" * 16
_SERVER = "server"


@final
class Journal:
    """The entries of one node in one run.

    Args:
        file: where they lie; every process of the node must see the same file.

    Guarantee: of any number of threads and processes, one enters a thing, and the rest are refused;
    what was entered stays entered if a process ends.
    Cost: 24 bytes per step; one flush to the disk each.
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    def begin(self, *, most: int, already: int = 0) -> int:
        """Enter a new round and return its number.

        Args:
            most: how many rounds there may be.
            already: how many the node's state knows of, from an earlier run.

        Raises:
            PartyError: it would be one more than that, or the run is over.
        """
        with self._opened() as held:
            _check_over(held)
            begun = [number for number, what in _entries(held) if what == _BEGUN]
            number = max([already, *begun]) + 1
            if number > most:
                raise PartyError(_SERVER, f"it asks for more than the {most} rounds of the spec")
            _enter(held, number, _BEGUN)
        return number

    def enter(self, number: int, what: bytes) -> None:
        """Enter one thing of a round, before its answer is worked out.

        Raises:
            PartyError: it was entered before, or the run is over.
        """
        digest = hashlib.sha256(b"tacit diary" + what).digest()[:16]
        with self._opened() as held:
            _check_over(held)
            if (number, digest) in _entries(held):
                raise PartyError(_SERVER, "it asked for a step of a round that was answered before")
            _enter(held, number, digest)

    def end(self) -> None:
        """Enter that the run is over for this node: nothing is answered in it any more.

        Raises:
            PartyError: it was over.
        """
        with self._opened() as held:
            _check_over(held)
            _enter(held, 0, _OVER)

    @contextmanager
    def _opened(self) -> Iterator[int]:
        """Hold the file alone; a lock belongs to the opened file, so threads wait as well.

        Raises:
            InputError: the disk is full or not to be written to.
        """
        try:
            held = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(held, fcntl.LOCK_EX)
                yield held
            finally:
                os.close(held)
        except OSError as error:
            raise InputError(
                f"this node cannot write its journal, and answers nothing: {error.strerror}"
            ) from error


def open_journal(folder: Path | None, *, run: int, node: int) -> Journal:
    """Find the journal of a node in a run.

    Args:
        folder: where journals lie; None takes one of this user's among the temporary files.
        run: Flower's number of the run.
        node: Flower's number of the node.

    Raises:
        ConfigError: others may write to the folder.
    """
    if folder is None:
        folder = Path(tempfile.gettempdir()) / f"tacit-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"the journal's folder cannot be made: {error.strerror}") from error
    found = folder.stat()
    if found.st_uid != os.getuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ConfigError(
            f"the journal's folder must be yours alone to write, which {folder} is not"
        )
    return Journal(folder / f"{run}-{node}.diary")


def journal_of(folder: Path | None, key: bytes) -> Journal:
    """Find the journal of a key: it is kept for as long as the key is, from run to run."""
    number = int.from_bytes(hashlib.sha256(b"tacit journal" + key).digest()[:8], "big")
    return open_journal(folder, run=0, node=number)


def _entries(held: int) -> list[tuple[int, bytes]]:
    raw = os.pread(held, os.fstat(held).st_size, 0)
    whole = len(raw) - len(raw) % _ENTRY.size  # what a crash cut short was never answered
    return list(_ENTRY.iter_unpack(raw[:whole]))


def _check_over(held: int) -> None:
    if (0, _OVER) in _entries(held):
        raise PartyError(_SERVER, "it goes on with a run that this node has ended")


def _enter(held: int, number: int, what: bytes) -> None:
    size = os.fstat(held).st_size
    entry = _ENTRY.pack(number, what)
    if os.pwrite(held, entry, size - size % _ENTRY.size) != len(entry):
        raise OSError(errno.ENOSPC, "no room for a whole entry")  # half of one counts as none
    os.fsync(held)
