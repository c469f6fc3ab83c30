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
from tacit.llm.permuted.geometry import Grouped, Heads, ScoreLayout, grouped, inner, multiply
from tacit.llm.permuted.messages import Channel, Item, encode, wrap
from tacit.llm.permuted.precision import WordSizes
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
    layout: ScoreLayout
    fresh: int  # rows to send masked
    words: WordSizes

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


@dataclass(frozen=True, eq=False)
class Resent:
    """Attention of one new token over the last n keys.

    Guarantee: the user learns the scores up to a fresh uniform permutation of groups, of heads
    within a group, and of the keys of each group, and receives values under a uniform mask of the
    owner; the owner receives uniform words.
    Cost: 2 messages of heads·dim + 2·n·groups·dim + n·heads and n·heads + heads·dim words;
    offline as much as both to the owner.
    """

    label: str
    heads: Heads
    n: int
    words: WordSizes

    @property
    def _query_shape(self) -> tuple[int, ...]:
        """Return the shape of permuted queries, and of the permuted result."""
        return (self.heads.groups, self.heads.size, self.heads.dim)

    @property
    def _cached_shape(self) -> tuple[int, ...]:
        """Return the shape of permuted keys or values."""
        return (self.heads.groups, self.n, self.heads.dim)

    @property
    def _score_shape(self) -> tuple[int, ...]:
        """Return the shape of permuted scores."""
        return (self.heads.groups, self.heads.size, self.n)

    @property
    def dealt(self) -> list[Item]:
        """List what the dealer sends to the owner: for queries, keys, values, scores, result."""
        keys, values = self.words.key_bytes, self.words.value_bytes
        return [
            Item(self._query_shape, keys),
            Item(self._cached_shape, keys),
            Item(self._cached_shape, values),
            Item(self._score_shape, keys),
            Item((self.heads.count, self.heads.dim), values),
        ]

    @property
    def messages(self) -> list[list[Item]]:
        """List both online messages: the owner's, with its part of the scores; the user's."""
        query, keys, values, _, _ = self.dealt
        nbytes = self.words.value_bytes
        return [
            [query, keys, values, Item(self._score_shape, self.words.seen_bytes)],
            [Item(self._score_shape, nbytes), Item(self._query_shape, nbytes)],
        ]

    def deal(
        self,
        user: PrfStream,
        owner: PrfStream,
        *,
        query: Tensor,
        cached: tuple[Tensor, Tensor],
        out: Tensor,
    ) -> list[Tensor]:
        """Compute the owner's corrections; the arguments are as in `Incremental.deal`."""
        permutation = self._permutation(owner)
        r_q, r_k, r_v = self._fresh(user)
        s_q, s_k, s_v = self._blind(owner)
        # The user multiplies q + s_q and k + s_k: what masks bring into that product goes back.
        crossed = inner(s_q, r_k) + inner(r_q, s_k)
        answered = self._rest(user) - multiply(self._answer_mask(user), s_v)
        return [
            permutation.queries(query[0]) - r_q,
            permutation.cached(cached[0][-self.n :]) - r_k,
            permutation.cached(cached[1][-self.n :]) - r_v,
            crossed - self._split(user),
            permutation.undo(answered) - out.view(self.heads.count, self.heads.dim),
        ]

    def draw_owner(self, owner: PrfStream) -> None:
        """Draw beforehand what `serve` will want."""
        self._permutation(owner)
        self._blind(owner)

    def draw_user(self, user: PrfStream) -> None:
        """Draw beforehand what `ask` will want."""
        self._fresh(user)
        self._split(user)
        self._answer_mask(user)
        self._rest(user)

    def serve(
        self,
        talk: Channel,
        owner: PrfStream,
        dealt: list[Tensor],
        *,
        query: Tensor,
        cached: tuple[Tensor, Tensor],
    ) -> Tensor:
        """Compute as the owner, from its shares; returns its share of the result."""
        (shown, answered), permutation = self.messages, self._permutation(owner)
        d_q, d_k, d_v, d_z, rest = dealt
        keys, values = (part[-self.n :] for part in cached)
        q, k = permutation.queries(query[0]) + d_q, permutation.cached(keys) + d_k
        v = permutation.cached(values) + d_v
        own = (inner(q, k) - d_z) >> self.words.drop
        s_q, s_k, s_v = self._blind(owner)
        talk.send(shown, q + s_q, k + s_k, v + s_v, own)
        weights, mixed = talk.recv(answered)
        mixed = permutation.undo(mixed - multiply(weights, s_v))
        return (mixed + rest).view(1, -1)

    def ask(self, talk: Channel, user: PrfStream) -> Tensor:
        """Compute as the user; returns the scores it saw."""
        shown, answered = self.messages
        r_q, r_k, r_v = self._fresh(user)
        a, b, c, own = talk.recv(shown)
        part = inner(a, r_k) - self._split(user) + inner(r_q, b + r_k)
        seen = wrap((part >> self.words.drop) + own, self.words.seen_bytes)
        scores = ring.decode(seen, frac_bits=self.words.seen_bits)
        weights = encode(scores.softmax(2), self.words.weight_bits)
        mixed = multiply(weights, c + r_v)
        talk.send(answered, weights - self._answer_mask(user), mixed - self._rest(user))
        return seen

    def _permutation(self, owner: PrfStream) -> Grouped:
        return grouped(owner, self.label, self.heads, self.n)

    def _fresh(self, user: PrfStream) -> tuple[Tensor, Tensor, Tensor]:
        """Draw the user's fresh masks of permuted queries, keys and values."""
        return self._drawn(user, "fresh")

    def _blind(self, owner: PrfStream) -> tuple[Tensor, Tensor, Tensor]:
        """Draw the owner's masks of permuted queries, keys and values."""
        return self._drawn(owner, "blind")

    def _drawn(self, prf: PrfStream, what: str) -> tuple[Tensor, Tensor, Tensor]:
        return (
            prf.words(f"{self.label}.{what}.q", *self._query_shape),
            prf.words(f"{self.label}.{what}.k", *self._cached_shape),
            prf.words(f"{self.label}.{what}.v", *self._cached_shape),
        )

    def _split(self, user: PrfStream) -> Tensor:
        """Draw what hides the user's part of the scores."""
        return user.words(f"{self.label}.split", *self._score_shape)

    def _answer_mask(self, user: PrfStream) -> Tensor:
        return user.words(f"{self.label}.answer_mask", *self._score_shape)

    def _rest(self, user: PrfStream) -> Tensor:
        return user.words(f"{self.label}.rest", *self._query_shape)
