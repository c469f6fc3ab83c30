"""Files that a job names, opened only if they end, and without running what they hold."""

import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO
from zipfile import BadZipFile

import numpy as np
from numpy.lib.npyio import NpzFile

from tacit.errors import DataError

_ONE_READER = threading.Lock()
"""Parties may be threads of one process, and open their files at the same time. NumPy parses the
head of every array with `ast`, whose parser in Python 3.11 counts its depth for all threads
together: we have seen it fail with a SystemError when two of them read at once."""
_DAMAGED = (BadZipFile, EOFError, NotImplementedError, RuntimeError, zlib.error)
"""What a zip raises that is cut, packed in a way that Python lacks, encrypted, or false."""


def refuse_endless(path: Path) -> None:
    """Refuse what is there and no file: a pipe or a device need not end, and jobs may name any.

    Raises:
        DataError: it is a folder, a pipe or a device.
    """
    if path.exists() and not path.is_file():
        raise DataError(f"{path}: wanted a file, got a folder, a pipe or a device")


def check_file(path: Path | None, key: str) -> None:
    """Make sure, cheaply, that a file that a key of a job names is there.

    Raises:
        DataError: there is no such file.
    """
    if path is not None and not path.is_file():
        raise DataError(f"{key}: no such file: {path} (looked for from {Path.cwd()})")


@contextmanager
def open_arrays(source: Path | IO[bytes]) -> Iterator[NpzFile]:
    """Open an npz file of plain arrays; other threads wait until it is closed.

    Raises:
        ValueError: it holds objects, or one array without a name, or is damaged.
    """
    with _ONE_READER:
        try:
            found = np.load(source, allow_pickle=False)
        except (ValueError, *_DAMAGED) as error:
            # NumPy takes whatever it does not know for a pickle, and says how to run its code.
            raise ValueError("no npz file, which is a zip of arrays") from error
        if not isinstance(found, NpzFile):
            raise ValueError("a single array without a name")
        try:
            with found:
                yield found
        except _DAMAGED as error:  # arrays are unpacked when they are asked for
            raise ValueError(f"a damaged npz file: {error}") from error
