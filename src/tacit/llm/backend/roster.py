"""Who was user and who was dealer of an owner's chats on this machine: no key may be both.

A dealer knows the masks under which a user holds the weights. Every job has masks of its own, so a
user of one job who deals for another gets nothing by that alone; but it would take only one other
user's help, and the owner should know.
"""

from collections.abc import Mapping
from pathlib import Path

from tacit.disk import durable
from tacit.errors import ConfigError, InputError
from tacit.llm.backend.chat_file import ChatFile

Entry = tuple[str, str]
"""A role and a fingerprint."""


def enrol(jobs: Mapping[Path, ChatFile], keys: Path) -> None:
    """Note the users and dealers of an owner's jobs beside its key, and refuse who is both.

    Guarantee: a key that is user in one of these jobs, or in one that was served from this folder
    before, is dealer in none of them. Keys are told apart, not people: who has two is not noticed.

    Raises:
        ConfigError: a key is both.
        InputError: the file cannot be read or written, or is not what was written.
    """
    file = keys / "owner.roles"
    with durable(file) as roster:
        known = _read(roster.read() or b"", file)
        found = {
            (role, job.parties[role].key): path
            for path, job in jobs.items()
            for role in ("user", "dealer")
        }
        _refuse_both({**dict.fromkeys(known, file), **found})
        text = "".join(f"{role} {key}\n" for role, key in sorted(known | found.keys()))
        roster.write(text.encode())


def _read(data: bytes, file: Path) -> set[Entry]:
    lines = [line.split() for line in data.decode(errors="replace").splitlines()]
    if any(len(words) != 2 or words[0] not in ("user", "dealer") for words in lines):
        raise InputError(
            f"{file} is damaged: wanted 'user' or 'dealer' and a key in every line; put back a "
            "copy, or remove the file, and who was user or dealer before is forgotten"
        )
    return {(role, key) for role, key in lines}


def _refuse_both(entries: Mapping[Entry, Path]) -> None:
    for (role, key), path in entries.items():
        other = entries.get(("dealer", key))
        if role == "user" and other is not None:
            raise ConfigError(
                f"{key} is the user in {path} and the dealer in {other}: who deals for an owner "
                "must use none of its models; choose another dealer, or another user"
            )
