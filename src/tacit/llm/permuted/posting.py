"""Rows of keys and values that travel once: the user keeps them under the owner's masks."""

from dataclasses import dataclass

from torch import Tensor

from tacit.llm.permuted.geometry import Heads, Talk
from tacit.llm.permuted.narrow import Item
from tacit.llm.permuted.precision import Words
from tacit.llm.permuted.tape import Tape


@dataclass(frozen=True, eq=False)
class Posting:
    """The owner's first message: new queries, and the rows that were not posted yet, masked.

    Guarantee: the masks are uniform to the user; the owner and the dealer draw them.
    """

    label: str
    heads: Heads
    rows: int
    fresh: int
    words: Words

    @property
    def query(self) -> tuple[int, ...]:
        """Return the shape of the new queries."""
        return (self.rows, self.heads.count, self.heads.dim)

    @property
    def _shape(self) -> tuple[int, ...]:
        return (self.fresh, self.heads.groups, self.heads.dim)

    @property
    def items(self) -> list[Item]:
        """List what the message holds."""
        keys, values = self.words.key_bytes, self.words.value_bytes
        return [Item(self.query, keys), Item(self._shape, keys), Item(self._shape, values)]

    def draw(self, owner: Tape) -> tuple[Tensor, Tensor]:
        """Draw the masks of the posted rows: keys, values."""
        return (
            owner.words(f"{self.label}.post.k", *self._shape),
            owner.words(f"{self.label}.post.v", *self._shape),
        )

    def blind(self, owner: Tape) -> Tensor:
        """Draw the mask of the queries."""
        return owner.words(f"{self.label}.blind.q", *self.query)

    def send(
        self,
        talk: Talk,
        owner: Tape,
        *,
        query: Tensor,
        cached: tuple[Tensor, Tensor],
        posted: int,
    ) -> None:
        """Send the message, as the owner, from its shares."""
        keys, values = cached
        s_k, s_v = self.draw(owner)
        masked = (query + self.blind(owner), keys[posted:] + s_k, values[posted:] + s_v)
        talk.send(self.items, *masked)

    def crossed(
        self,
        owner: Tape,
        *,
        query: Tensor,
        cached: tuple[Tensor, Tensor],
        posted: tuple[Tensor, Tensor],
    ) -> Tensor:
        """Return the products of masks in the user's half of the scores, as the dealer."""
        return self.heads.scores(self.blind(owner), cached[0]) + self.heads.scores(query, posted[0])
