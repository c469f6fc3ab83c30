"""What an owner remembers beside its key: who was user and who dealer, and the tokens of each user.

A dealer knows the masks under which a user holds the weights. Every job has masks of its own, so a
user of one job who deals for another gets nothing by that alone; but it would take only one other
user's help, and the owner should know.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import final

from tacit.errors import ConfigError, FrameError
from tacit.llm.backend.chat_file import ChatFile
from tacit.vault import Counter, Once, UsedError


def enrol(jobs: Mapping[Path, ChatFile], keys: Path) -> None:
    """Note the users and dealers of an owner's jobs beside its key, and refuse who is both.

    Guarantee: a key that is user in one of these jobs, or in one that was served from this folder
    before, is dealer in none of them. Keys are told apart, not people: who has two is not noticed.

    Raises:
        ConfigError: a key is both.
        InputError: the file cannot be read or written, or is not what was written.
    """
    file = keys / "owner.roles"
    with Once(file, "roster").held() as roster:
        found = {
            f"{role} {job.parties[role].key}": path
            for path, job in jobs.items()
            for role in ("user", "dealer")
        }
        known = {**dict.fromkeys(roster, file), **found}
        for name, path in known.items():
            role, _, key = name.partition(" ")
            other = known.get(f"dealer {key}")
            if role == "user" and other is not None:
                raise ConfigError(
                    f"{key} is the user in {path} and the dealer in {other}: who deals for an "
                    "owner must use none of its models; choose another dealer, or another user"
                )
        roster.update(found)


@final
class TokenQuota:
    """The tokens of one key. Counted before they are computed, and kept when the owner restarts.

    Guarantee: from this folder a key gets no more than ``most`` tokens, whatever the session. Keys
    are told apart, not people. What a token shows depends on the protocol.
    """

    def __init__(self, folder: Path, key: str, most: int) -> None:
        self._counter = Counter(folder / "owner.tokens", "quota", most=most)
        self._key, self._most = key, most

    def __call__(self, tokens: int, user: str) -> None:
        """Count tokens.

        Raises:
            FrameError: they are more than are left.
            InputError: the file cannot be read or written, or is not what was written.
        """
        try:
            self._counter.use(self._key, tokens)
        except UsedError as error:
            raise FrameError(
                user,
                f"asks for {tokens} tokens, and {error.left} are left of the {self._most} that its "
                "key may have; the owner sets that with --quota",
            ) from None
