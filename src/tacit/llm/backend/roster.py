"""Who was user and who was dealer of an owner's chats on this machine: no key may be both.

A dealer knows the masks under which a user holds the weights. Every job has masks of its own, so a
user of one job who deals for another gets nothing by that alone; but it would take only one other
user's help, and the owner should know.
"""

import errno
import fcntl
import os
from collections.abc import Mapping
from pathlib import Path

from tacit.errors import ConfigError
from tacit.llm.backend.chat_file import ChatFile

_LARGEST_BYTES = 1 << 20
Entry = tuple[str, str]
"""A role and a fingerprint."""


def enrol(jobs: Mapping[Path, ChatFile], keys: Path) -> None:
    """Note the users and dealers of an owner's jobs beside its key, and refuse who is both.

    Guarantee: a key that is user in one of these jobs, or in one that was served from this folder
    before, is dealer in none of them. Keys are told apart, not people: who has two is not noticed.

    Raises:
        ConfigError: a key is both, or the file cannot be written.
    """
    file = keys / "owner.roles"
    try:
        held = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_APPEND, 0o600)
    except OSError as error:
        raise ConfigError(
            f"cannot note in {file} who uses and who deals: {error.strerror}; the folder of the "
            "owner's key must be writable"
        ) from error
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        known = _read(os.read(held, _LARGEST_BYTES))
        found = {
            (role, job.parties[role].key): path
            for path, job in jobs.items()
            for role in ("user", "dealer")
        }
        _refuse_both({**dict.fromkeys(known, file), **found})
        # A line begins anew, whatever a full disk left of the one before.
        text = "".join(f"\n{role} {key}\n" for role, key in sorted(found.keys() - known)).encode()
        if os.write(held, text) != len(text):
            raise OSError(errno.ENOSPC, "no room for all of it")
        os.fsync(held)
    except OSError as error:
        raise ConfigError(
            f"cannot note in {file} who uses and who deals: {error.strerror}"
        ) from error
    finally:
        os.close(held)


def _read(data: bytes) -> set[Entry]:
    lines = [line.split() for line in data.decode(errors="replace").splitlines()]
    return {(words[0], words[1]) for words in lines if len(words) == 2}


def _refuse_both(entries: Mapping[Entry, Path]) -> None:
    for (role, key), path in entries.items():
        other = entries.get(("dealer", key))
        if role == "user" and other is not None:
            raise ConfigError(
                f"{key} is the user in {path} and the dealer in {other}: who deals for an owner "
                "must use none of its models; choose another dealer, or another user"
            )
