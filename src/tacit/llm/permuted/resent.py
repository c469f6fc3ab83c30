"""Attention of one new token with keys and values sent again, permuted: one round trip.

Three steps of the document are one here: the scores (algorithm 6.2), softmax in a secret order
(algorithm 6.4) and the product with the values. The owner permutes heads and keys, the dealer has
turned the user's masks into fresh ones that fit, and the user computes the scores from masked
queries and keys, their softmax, and its product with masked values, in one go.
"""

from dataclasses import dataclass

from torch import Tensor

from tacit import ring
from tacit.llm.permuted.geometry import Grouped, Heads, grouped, inner, multiply
from tacit.llm.permuted.messages import Channel, Item, encode, wrap
from tacit.llm.permuted.precision import Words
from tacit.llm.permuted.prf_stream import PrfStream


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
    words: Words

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
