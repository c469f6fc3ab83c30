"""Rows of keys and values that travel once: the user keeps them under the owner's masks."""

from dataclasses import dataclass

from torch import Tensor

from tacit.llm.permuted.geometry import Heads, Talk
from tacit.llm.permuted.messages import Item
from tacit.llm.permuted.precision import Words
from tacit.llm.permuted.prf_stream import PrfStream


@dataclass(frozen=True, eq=False)
class MaskedQkv:
    """The owner's first message: new queries, and the rows that the user has not got yet, masked.

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

    def draw(self, owner: PrfStream) -> tuple[Tensor, Tensor]:
        """Draw the masks of these rows: keys, values."""
        return (
            owner.words(f"{self.label}.masked.k", *self._shape),
            owner.words(f"{self.label}.masked.v", *self._shape),
        )

    def blind(self, owner: PrfStream) -> Tensor:
        """Draw the mask of the queries."""
        return owner.words(f"{self.label}.blind.q", *self.query)

    def send(
        self,
        talk: Talk,
        owner: PrfStream,
        *,
        query: Tensor,
        cached: tuple[Tensor, Tensor],
        masked_kv: int,
    ) -> None:
        """Send the message, as the owner, from its shares."""
        keys, values = cached
        s_k, s_v = self.draw(owner)
        message = (query + self.blind(owner), keys[masked_kv:] + s_k, values[masked_kv:] + s_v)
        talk.send(self.items, *message)

    def crossed(
        self,
        owner: PrfStream,
        *,
        query: Tensor,
        cached: tuple[Tensor, Tensor],
        masked_kv: tuple[Tensor, Tensor],
    ) -> Tensor:
        """Return the products of masks in the user's half of the scores, as the dealer."""
        return self.heads.scores(self.blind(owner), cached[0]) + self.heads.scores(
            query, masked_kv[0]
        )
