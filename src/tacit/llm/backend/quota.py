"""How many tokens one user may have computed, ever: a file beside the owner's key remembers."""

import re
from pathlib import Path
from typing import final

from tacit.disk import durable
from tacit.errors import FrameError, InputError


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
