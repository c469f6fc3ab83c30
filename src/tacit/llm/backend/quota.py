"""How many tokens one user may have computed, ever: a file beside the owner's key remembers."""

import errno
import fcntl
import os
from pathlib import Path
from typing import final

from tacit.errors import ConfigError, FrameError

_LARGEST_BYTES = 1 << 20


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
            ConfigError: the file cannot be written.
        """
        try:
            held = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(
                f"cannot count tokens in {self._file}: {error.strerror}; the folder of the owner's "
                "key must be writable"
            ) from error
        try:
            fcntl.flock(held, fcntl.LOCK_EX)
            counts = _read(os.read(held, _LARGEST_BYTES))
            used = counts.get(self._key, 0)
            if used + tokens > self._most:
                raise FrameError(
                    user,
                    f"asks for {tokens} tokens, and {max(0, self._most - used)} are left of the "
                    f"{self._most} that its key may have; the owner sets that with --quota",
                )
            counts[self._key] = used + tokens
            # Counts of one width lie where they lay: a disk that is full cuts none of them short.
            text = "".join(f"{key} {count:020d}\n" for key, count in counts.items()).encode()
            if os.pwrite(held, text, 0) != len(text):
                raise OSError(errno.ENOSPC, "no room for all of it")
            os.fsync(held)
        except OSError as error:
            raise ConfigError(f"cannot count tokens in {self._file}: {error.strerror}") from error
        finally:
            os.close(held)


def _read(data: bytes) -> dict[str, int]:
    lines = (line.split() for line in data.decode(errors="replace").splitlines())
    return {words[0]: int(words[1]) for words in lines if len(words) == 2 and words[1].isdigit()}
