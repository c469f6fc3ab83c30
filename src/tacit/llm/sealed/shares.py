"""Keys and values of a conversation, one party's shares."""

from dataclasses import dataclass, field, replace

import torch

from tacit.errors import DataError
from tacit.mpc import Share


@dataclass(eq=False)
class KvShares:
    """A party's shares of the keys and values of every layer, by name as the program has them.

    Guarantee: one party's shares are uniform, whatever the text.
    """

    shares: dict[str, Share] = field(default_factory=dict)
    length: int = 0

    def upto(self, past: int) -> dict[str, Share]:
        """Return the shares of the first tokens.

        Raises:
            DataError: so many were never kept.
        """
        if past > self.length:
            raise DataError(f"wanted {past} tokens of a conversation, {self.length} are kept")
        if not past:
            return {}
        return {name: _cut(share, past) for name, share in self.shares.items()}

    def rewind(self, past: int) -> None:
        """Forget all but the first tokens.

        Raises:
            DataError: so many were never kept.
        """
        self.shares, self.length = self.upto(past), past

    def extend(self, past: int, keys: list[Share], values: list[Share]) -> None:
        """Write the shares of new tokens behind the first ``past`` ones."""
        old = self.upto(past)
        fresh = {f"{i}.k": one for i, one in enumerate(keys)}
        fresh |= {f"{i}.v": one for i, one in enumerate(values)}
        self.shares = {
            name: _join(old[name], share) if past else share for name, share in fresh.items()
        }
        self.length = past + next(iter(fresh.values())).spec.shape[2]


def _cut(share: Share, length: int) -> Share:
    words = share.words[:, :, :length]
    return Share(words, replace(share.spec, shape=tuple(words.shape)))


def _join(first: Share, second: Share) -> Share:
    words = torch.cat([first.words, second.words], 2)
    return Share(words, replace(first.spec, shape=tuple(words.shape)))
