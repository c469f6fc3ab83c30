"""Attention where only new rows travel: three round trips, for one row or for a whole prompt.

The document's algorithm 6.2, for the scores and for the product with the values: one factor grows
by a row per token, and what masks it is opened once, row by row. The user keeps keys and values
masked by the owner, K + s, so that a row is sent once. Between both products is algorithm 6.4:
scores come out as shares in their own order, and are permuted on their way to the user, each row
by itself. With a causal mask, a common permutation would betray the position of every key.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from tacit import ring
from tacit.llm.permuted.geometry import Heads, Rowwise
from tacit.llm.permuted.messages import Channel, Item, encode, wrap
from tacit.llm.permuted.precision import Words
from tacit.llm.permuted.prf_stream import PrfStream


@dataclass(frozen=True, eq=False)
class Incremental:
    """Attention of new rows over all keys, of which some rows have yet to be sent.

    Guarantee: the user learns the scores of each row and head up to a fresh uniform permutation of
    heads and keys; the owner receives uniform words.
    Cost: 6 messages. With R rows, H heads, C scores in all, P rows to send masked, words:
    R·H·dim + 2·P·groups·dim, C, C, C, C, R·H·dim; offline 2·C + R·H·dim to the owner.
    """

    label: str
    heads: Heads
    layout: Rowwise
    fresh: int  # rows to send masked
    words: Words

    @property
    def rows(self) -> int:
        """Return how many new rows there are."""
        return self.layout.visible.shape[0]

    @property
    def _query(self) -> tuple[int, ...]:
        return (self.rows, self.heads.count, self.heads.dim)

    @property
    def _fresh(self) -> tuple[int, ...]:
        return (self.fresh, self.heads.groups, self.heads.dim)

    @property
    def dealt(self) -> list[Item]:
        """List what the dealer sends to the owner."""
        seen, weights = self._scores
        return [seen, weights, Item(self._query, self.words.value_bytes)]

    @property
    def messages(self) -> list[list[Item]]:
        """List every online message, the owner's first, then in turn.

        The first has the new queries, and the keys and values that the user has not got yet.
        """
        (seen, weights), keys, values = self._scores, self.words.key_bytes, self.words.value_bytes
        first = [Item(self._query, keys), Item(self._fresh, keys), Item(self._fresh, values)]
        return [first, [seen], [seen], [weights], [weights], [Item(self._query, values)]]

    @property
    def _scores(self) -> tuple[Item, Item]:
        """Return what scores and weights are in a message."""
        shape = (self.layout.count,)
        return Item(shape, self.words.seen_bytes), Item(shape, self.words.value_bytes)

    def kv_masks(self, owner: PrfStream) -> tuple[Tensor, Tensor]:
        """Draw the owner's masks of the rows that are sent now: keys, values."""
        return (
            owner.words(f"{self.label}.masked.k", *self._fresh),
            owner.words(f"{self.label}.masked.v", *self._fresh),
        )

    def deal(
        self,
        user: PrfStream,
        owner: PrfStream,
        *,
        query: Tensor,
        cached: tuple[Tensor, Tensor],
        masked_kv: tuple[Tensor, Tensor],
        out: Tensor,
    ) -> list[Tensor]:
        """Compute the owner's corrections.

        Args:
            user: prf of the user and the dealer.
            owner: prf of the owner and the dealer.
            query: the user's masks of the new queries.
            cached: the user's masks of all keys and values.
            masked_kv: the owner's masks of all keys and values, `kv_masks` included.
            out: the user's masks of the result.
        """
        permutation = self.layout.shuffled(owner, self.label)
        s_q, s_a = self.owner_masks(owner)
        r_a = self.weights_mask(user)
        # The user will compute (m_q + s_q)·r_k + r_q·(k + s_k): all of q·k but m_q·m_k, which the
        # owner has, and two products of masks too much. So for weights and values, below.
        crossed = self.heads.scores(s_q, cached[0]) + self.heads.scores(query, masked_kv[0])
        alpha = self.layout.dense(user.words(f"{self.label}.score_shares", self.layout.count))
        delta = (alpha - (crossed >> self.words.drop)).view(-1)[permutation]
        delta -= user.words(f"{self.label}.reveal_mask", self.layout.count)
        answer_mask = user.words(f"{self.label}.answer_mask", self.layout.count)
        mixed = self.heads.mix(s_a, cached[1]) + self.heads.mix(r_a, masked_kv[1])
        rest = user.words(f"{self.label}.rest", *self._query) - out.view(self._query) - mixed
        return [delta, answer_mask - r_a.view(-1)[permutation], rest]

    def draw_owner(self, owner: PrfStream) -> None:
        """Draw beforehand what `serve` will want."""
        self.layout.shuffled(owner, self.label)
        self.owner_masks(owner)
        self.kv_masks(owner)

    def draw_user(self, user: PrfStream) -> None:
        """Draw beforehand what `ask` will want."""
        for what in ("score_shares", "reveal_mask", "answer_mask", "weights"):
            user.words(f"{self.label}.{what}", self.layout.count)
        user.words(f"{self.label}.rest", *self._query)

    def serve(
        self,
        talk: Channel,
        owner: PrfStream,
        dealt: list[Tensor],
        *,
        query: Tensor,
        cached: tuple[Tensor, Tensor],
        masked_kv: int,
    ) -> Tensor:
        """Compute as the owner, from its shares; returns its share of the result."""
        first, sent, shown, weighed, reveal_correction, last = self.messages
        delta, g, rest = dealt
        permutation = self.layout.shuffled(owner, self.label)
        (s_q, s_a), (s_k, s_v) = self.owner_masks(owner), self.kv_masks(owner)
        keys, values = cached
        # Step 5 of algorithm 6.2: Y − V, and X' − U' of the rows that the user has not got yet.
        talk.send(first, query + s_q, keys[masked_kv:] + s_k, values[masked_kv:] + s_v)
        own = self.heads.scores(query, keys).bitwise_right_shift_(self.words.drop)
        (half,) = talk.recv(sent)
        talk.send(shown, (own + self.layout.dense(half)).view(-1)[permutation] + delta)
        (answer,) = talk.recv(weighed)
        weights = torch.zeros_like(own)
        weights.view(-1)[permutation] = answer + g
        talk.send(reveal_correction, self.layout.packed(weights + s_a))
        own = self.heads.mix(weights, values)
        (half,) = talk.recv(last)
        return (own + half + rest).view(self.rows, -1)

    def ask(
        self,
        talk: Channel,
        user: PrfStream,
        *,
        query: Tensor,
        cached: tuple[Tensor, Tensor],
        masked_kv: tuple[Tensor, Tensor],
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Compute as the user, from its masks.

        Returns:
            The rows sent now, keys and values, masked by the owner; and the scores it saw.
        """
        first, sent, shown, weighed, mixing, last = self.messages
        count, fresh, drop = self.layout.count, self.fresh, self.words.drop
        r_a, (r_k, r_v) = self.weights_mask(user), cached
        old = len(r_k) - fresh
        # What does not wait for the owner is done before it answers.
        known = self.heads.scores(query, masked_kv[0]) if old else query.new_empty(0)
        mixed = self.heads.mix(r_a[..., :old], masked_kv[1]) if old else query.new_zeros(())
        a, new_k, new_v = talk.recv(first)
        new_k, new_v = new_k + r_k[old:], new_v + r_v[old:]
        half = self.heads.scores(a, r_k)
        half[..., old:] += self.heads.scores(query, new_k)
        if old:
            half[..., :old] += known
        packed = self.layout.packed(half) >> drop
        talk.send(sent, packed - user.words(f"{self.label}.score_shares", count))
        (words,) = talk.recv(shown)
        seen = wrap(words + user.words(f"{self.label}.reveal_mask", count), self.words.seen_bytes)
        weights = self._softmax(seen)
        talk.send(weighed, weights - user.words(f"{self.label}.answer_mask", count))
        (masked,) = talk.recv(mixing)
        mixed = mixed + self.heads.mix(r_a[..., old:], new_v)
        mixed += self.heads.mix(self.layout.dense(masked), r_v)
        talk.send(last, mixed - user.words(f"{self.label}.rest", *self._query))
        return new_k, new_v, seen

    def _softmax(self, seen: Tensor) -> Tensor:
        """Turn permuted scores into weights, segment by segment."""
        scores = ring.decode(seen, frac_bits=self.words.seen_bits)
        weights = self.layout.segments(scores, -torch.inf).softmax(2)
        return encode(self.layout.flat(weights), self.words.weight_bits)

    def owner_masks(self, owner: PrfStream) -> tuple[Tensor, Tensor]:
        """Draw the owner's masks of the new queries and of the weights."""
        s_q = owner.words(f"{self.label}.blind.q", *self._query)
        return s_q, self.layout.dense(owner.words(f"{self.label}.blind.a", self.layout.count))

    def weights_mask(self, user: PrfStream) -> Tensor:
        """Draw the user's share of the weights."""
        return self.layout.dense(user.words(f"{self.label}.weights", self.layout.count))
