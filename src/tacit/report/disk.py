"""Writing a file so that it is there whole or not at all."""

import os
import secrets
from pathlib import Path

from tacit.errors import InputError


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
        _settle_folder(path.parent)
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


def _settle_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
