"""Attention where only new rows travel: three round trips, for one row or for a whole prompt.

The user keeps keys and values masked by the owner, K + s, so that a row is sent once. Scores
come out as shares in their own order, and are permuted on their way to the user, each row by
itself: with a causal mask, a common order would betray the position of every key.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from tacit import ring
from tacit.llm.private.geometry import Heads, Rowwise, Talk
from tacit.llm.private.tape import Tape


@dataclass(frozen=True, eq=False)
class Incremental:
    """Attention of new rows over all keys, of which some rows still have to be posted.

    Guarantee: the user learns the scores of each row and head up to a fresh uniform order of
    heads and keys; the owner receives uniform words.
    Cost: 6 messages. With R rows, H heads, C scores in all, P rows to post, words:
    R·H·dim + 2·P·groups·dim, C, C, C, C, R·H·dim; offline 2·C + R·H·dim to the owner.
    """

    label: str
    heads: Heads
    layout: Rowwise
    fresh: int  # rows to post
    score_bits: int
    weight_bits: int

    @property
    def rows(self) -> int:
        """Return how many new rows there are."""
        return self.layout.visible.shape[0]

    @property
    def _query(self) -> tuple[int, ...]:
        return (self.rows, self.heads.count, self.heads.dim)

    @property
    def _posting(self) -> tuple[int, ...]:
        return (self.fresh, self.heads.groups, self.heads.dim)

    @property
    def dealt_words(self) -> int:
        """Return what the dealer sends to the owner."""
        return 2 * self.layout.count + self.rows * self.heads.count * self.heads.dim

    @property
    def message_words(self) -> tuple[int, ...]:
        """Return the size of every online message, the owner's first, then in turn."""
        query = self.rows * self.heads.count * self.heads.dim
        post = 2 * self.fresh * self.heads.groups * self.heads.dim
        return (query + post, *[self.layout.count] * 4, query)

    def post(self, owner: Tape) -> tuple[Tensor, Tensor]:
        """Draw the owner's masks of the rows that are posted now: keys, values."""
        return (
            owner.words(f"{self.label}.post.k", *self._posting),
            owner.words(f"{self.label}.post.v", *self._posting),
        )

    def deal(
        self,
        user: Tape,
        owner: Tape,
        *,
        query: Tensor,
        cached: tuple[Tensor, Tensor],
        posted: tuple[Tensor, Tensor],
        out: Tensor,
    ) -> list[Tensor]:
        """Compute the owner's corrections.

        Args:
            user: tape of the user and the dealer.
            owner: tape of the owner and the dealer.
            query: the user's masks of the new queries.
            cached: the user's masks of all keys and values.
            posted: the owner's masks of all keys and values, `post` included.
            out: the user's masks of the result.
        """
        order = self.layout.shuffled(owner, self.label)
        s_q, s_a = self._owner_masks(owner)
        r_a = self._weights_mask(user)
        crossed = self.heads.scores(s_q, cached[0]) + self.heads.scores(query, posted[0])
        alpha = self.layout.dense(user.words(f"{self.label}.halves", self.layout.count))
        delta = (alpha - crossed).view(-1)[order]
        delta -= user.words(f"{self.label}.veil", self.layout.count)
        cover = user.words(f"{self.label}.cover", self.layout.count)
        mixed = self.heads.mix(s_a, cached[1]) + self.heads.mix(r_a, posted[1])
        rest = user.words(f"{self.label}.rest", *self._query) - out.view(self._query) - mixed
        return [delta, cover - r_a.view(-1)[order], rest.reshape(-1)]

    def draw_owner(self, owner: Tape) -> None:
        """Draw beforehand what `serve` will want."""
        self.layout.shuffled(owner, self.label)
        self._owner_masks(owner)
        self.post(owner)

    def draw_user(self, user: Tape) -> None:
        """Draw beforehand what `ask` will want."""
        for what in ("halves", "veil", "cover", "weights"):
            user.words(f"{self.label}.{what}", self.layout.count)
        user.words(f"{self.label}.rest", *self._query)

    def serve(
        self,
        talk: Talk,
        owner: Tape,
        dealt: Tensor,
        *,
        query: Tensor,
        cached: tuple[Tensor, Tensor],
        posted: int,
    ) -> Tensor:
        """Compute as the owner, from its shares; returns its share of the result."""
        count = self.layout.count
        delta, g, rest = dealt.split_with_sizes([count, count, dealt.numel() - 2 * count])
        order = self.layout.shuffled(owner, self.label)
        (s_q, s_a), (s_k, s_v) = self._owner_masks(owner), self.post(owner)
        keys, values = cached
        talk.send(query + s_q, keys[posted:] + s_k, values[posted:] + s_v)
        own = self.heads.scores(query, keys)
        (half,) = talk.recv((count,))
        talk.send((own + self.layout.dense(half)).view(-1)[order] + delta)
        (answer,) = talk.recv((count,))
        weights = torch.zeros_like(own)
        weights.view(-1)[order] = answer + g
        talk.send((weights + s_a).view(-1)[self.layout.places])
        own = self.heads.mix(weights, values)
        (half,) = talk.recv(self._query)
        return (own + half + rest.view(self._query)).view(self.rows, -1)

    def ask(
        self,
        talk: Talk,
        user: Tape,
        *,
        query: Tensor,
        cached: tuple[Tensor, Tensor],
        posted: tuple[Tensor, Tensor],
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Compute as the user, from its masks.

        Returns:
            The rows posted now, keys and values, masked by the owner; and the scores it saw.
        """
        count = self.layout.count
        fresh = self.fresh
        a, new_k, new_v = talk.recv(self._query, self._posting, self._posting)
        r_k, r_v = cached
        new_k, new_v = new_k + r_k[len(r_k) - fresh :], new_v + r_v[len(r_v) - fresh :]
        keys, values = torch.cat([posted[0], new_k]), torch.cat([posted[1], new_v])
        half = self.heads.scores(a, r_k) + self.heads.scores(query, keys)
        packed = half.view(-1)[self.layout.places]
        talk.send(packed - user.words(f"{self.label}.halves", count))
        (shown,) = talk.recv((count,))
        seen = shown + user.words(f"{self.label}.veil", count)
        weights = self._softmax(seen)
        talk.send(weights - user.words(f"{self.label}.cover", count))
        (masked,) = talk.recv((count,))
        mixed = self.heads.mix(self.layout.dense(masked), r_v)
        mixed += self.heads.mix(self._weights_mask(user), values)
        talk.send(mixed - user.words(f"{self.label}.rest", *self._query))
        return new_k, new_v, seen

    def _softmax(self, seen: Tensor) -> Tensor:
        """Turn permuted scores into weights, segment by segment."""
        slots = self.layout.slots
        scores = torch.full(slots.shape, -torch.inf, dtype=torch.float64)
        scores[slots] = ring.decode(seen, frac_bits=self.score_bits)
        weights = scores.softmax(2)[slots]
        return ring.encode(weights, frac_bits=self.weight_bits)

    def _owner_masks(self, owner: Tape) -> tuple[Tensor, Tensor]:
        s_a = self.layout.dense(owner.words(f"{self.label}.blind.a", self.layout.count))
        return owner.words(f"{self.label}.blind.q", *self._query), s_a

    def _weights_mask(self, user: Tape) -> Tensor:
        return self.layout.dense(user.words(f"{self.label}.weights", self.layout.count))
