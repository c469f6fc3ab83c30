"""What a node has let go, written on its disk: what may happen once happens once.

Flower hands every message of a node a copy of the node's state and keeps whichever copy comes back
last. A server that sends two messages at once would otherwise be answered twice from one state:
with one mask over two inputs, about two lists of survivors, or in more rounds than were planned.
"""

import hashlib
import os
import stat
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import final

from tacit.disk import DurableFile, durable, make_durable
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
    what was entered stays entered if a process ends or power is cut.
    Cost: a write of the whole file for every step; it has 24 bytes for each before.
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
        with self._opened() as (file, entries):
            begun = [number for number, what in entries if what == _BEGUN]
            number = max([already, *begun]) + 1
            if number > most:
                raise PartyError(_SERVER, f"it asks for more than the {most} rounds of the spec")
            _enter(file, entries, number, _BEGUN)
        return number

    def enter(self, number: int, what: bytes) -> None:
        """Enter one thing of a round, before its answer is worked out.

        Raises:
            PartyError: it was entered before, or the run is over.
        """
        digest = hashlib.sha256(b"tacit step" + what).digest()[:16]
        with self._opened() as (file, entries):
            if (number, digest) in entries:
                raise PartyError(_SERVER, "it asked for a step of a round that was answered before")
            _enter(file, entries, number, digest)

    def end(self) -> None:
        """Enter that the run is over for this node: nothing is answered in it any more.

        Raises:
            PartyError: it was over.
        """
        with self._opened() as (file, entries):
            _enter(file, entries, 0, _OVER)

    @contextmanager
    def _opened(self) -> Iterator[tuple[DurableFile, list[tuple[int, bytes]]]]:
        """Hold the file alone, with what was entered.

        Raises:
            PartyError: the run is over.
            InputError: the disk is full or not to be written to.
        """
        try:
            with durable(self._file) as file:
                raw = file.read() or b""
                # What a crash of an older version cut short was never answered.
                entries = list(_ENTRY.iter_unpack(raw[: len(raw) - len(raw) % _ENTRY.size]))
                if (0, _OVER) in entries:
                    raise PartyError(_SERVER, "it goes on with a run that this node has ended")
                yield file, entries
        except InputError as error:  # told to the server, so without the place
            raise InputError(
                "this node cannot write its journal, and answers nothing: " + why(error)
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
        make_durable(folder)
    except InputError as error:
        raise ConfigError(f"the journal's folder cannot be made: {why(error)}") from error
    found = folder.stat()
    if found.st_uid != os.getuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ConfigError(
            f"the journal's folder must be yours alone to write, which {folder} is not"
        )
    return Journal(folder / f"{run}-{node}.journal")


def journal_of(folder: Path | None, key: bytes) -> Journal:
    """Find the journal of a key: it is kept for as long as the key is, from run to run."""
    number = int.from_bytes(hashlib.sha256(b"tacit journal" + key).digest()[:8], "big")
    return open_journal(folder, run=0, node=number)


def why(error: InputError) -> str:
    """Say why a file could not be written, without its place."""
    return str(getattr(error.__cause__, "strerror", None) or "its file is not as it should be")


def _enter(file: DurableFile, entries: list[tuple[int, bytes]], number: int, what: bytes) -> None:
    file.write(b"".join(_ENTRY.pack(*one) for one in (*entries, (number, what))))
