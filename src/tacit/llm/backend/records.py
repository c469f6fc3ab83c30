"""What an owner remembers beside its key: who was user and who dealer, and the tokens of each user.

A dealer knows the masks under which a user holds the weights. Every job has masks of its own, so a
user of one job who deals for another gets nothing by that alone; but it would take only one other
user's help, and the owner should know.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import final

from tacit.disk import durable
from tacit.errors import ConfigError, FrameError, InputError
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
        known = _read_roles(roster.read() or b"", file)
        found = {
            (role, job.parties[role].key): path
            for path, job in jobs.items()
            for role in ("user", "dealer")
        }
        _refuse_both({**dict.fromkeys(known, file), **found})
        text = "".join(f"{role} {key}\n" for role, key in sorted(known | found.keys()))
        roster.write(text.encode())


def _read_roles(data: bytes, file: Path) -> set[Entry]:
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


@final
class TokenQuota:
    """The tokens of one key. Counted before they are computed, and kept when the owner restarts.

    Guarantee: from this folder a key gets no more than ``most`` tokens, whatever the session. Keys
    are told apart, not people. What a token shows depends on the protocol.
    """

    def __init__(self, folder: Path, key: str, most: int) -> None:
        self._file = folder / "owner.tokens"
        self._key = key
        self._most = most

    def __call__(self, tokens: int, user: str) -> None:
        """Count tokens.

        Raises:
            FrameError: they are more than are left.
            InputError: the file cannot be read or written, or is not what was written.
        """
        with durable(self._file) as file:
            counts = self._read(file.read() or b"")
            used = counts.get(self._key, 0)
            if used + tokens > self._most:
                raise FrameError(
                    user,
                    f"asks for {tokens} tokens, and {max(0, self._most - used)} are left of the "
                    f"{self._most} that its key may have; the owner sets that with --quota",
                )
            counts[self._key] = used + tokens
            file.write("".join(f"{key} {count}\n" for key, count in counts.items()).encode())

    def _read(self, data: bytes) -> dict[str, int]:
        # A line that is passed over would give its key a fresh quota: nothing is guessed here.
        lines = [line.split() for line in data.decode(errors="replace").splitlines()]
        if any(len(words) != 2 or not re.fullmatch("[0-9]{1,18}", words[1]) for words in lines):
            raise InputError(
                f"{self._file} is damaged: wanted a key and a number of tokens in every line; "
                "put back a copy, or remove the file, and every key starts at 0"
            )
        return {key: int(count) for key, count in lines}
