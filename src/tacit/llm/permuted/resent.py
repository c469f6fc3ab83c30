"""Attention of one new token with keys and values sent again, permuted: one or two round trips.

The owner permutes heads and keys, the dealer has turned the user's masks into fresh ones that fit,
and the user computes softmax and its product with the values in one go. `Resent` sends keys and
values; `Half` sends the values only, and computes scores as `Incremental` does.
"""

from dataclasses import dataclass

from torch import Tensor

from tacit import ring
from tacit.llm.permuted.geometry import Grouped, Heads, Talk, grouped, inner, multiply
from tacit.llm.permuted.messages import Item, encode, wrap
from tacit.llm.permuted.precision import Words
from tacit.llm.permuted.prf_stream import PrfStream


@dataclass(frozen=True, eq=False)
class Weighting:
    """Softmax and product with permuted values, in the user's one answer.

    Guarantee: the user receives values under a uniform mask of the owner; the owner receives
    weights and products under uniform masks of the user.
    Cost: 2·n·groups·dim words to the user, n·heads + heads·dim back.
    """

    label: str
    heads: Heads
    n: int
    words: Words

    @property
    def value_shape(self) -> tuple[int, ...]:
        """Return the shape of permuted keys or values."""
        return (self.heads.groups, self.n, self.heads.dim)

    @property
    def score_shape(self) -> tuple[int, ...]:
        """Return the shape of permuted scores."""
        return (self.heads.groups, self.heads.size, self.n)

    @property
    def out_shape(self) -> tuple[int, ...]:
        """Return the shape of the permuted result."""
        return (self.heads.groups, self.heads.size, self.heads.dim)

    @property
    def value_item(self) -> Item:
        """Return what permuted values are in a message."""
        return Item(self.value_shape, self.words.value_bytes)

    @property
    def seen_item(self) -> Item:
        """Return what permuted scores are in a message."""
        return Item(self.score_shape, self.words.seen_bytes)

    @property
    def rest_item(self) -> Item:
        """Return what corrects the result in a packed message."""
        return Item((self.heads.count, self.heads.dim), self.words.value_bytes)

    @property
    def answer(self) -> list[Item]:
        """Return the user's answer: weights, and what they give."""
        value = self.words.value_bytes
        return [Item(self.score_shape, value), Item(self.out_shape, value)]

    def permutation(self, owner: PrfStream) -> Grouped:
        """Draw the secret permutation."""
        return grouped(owner, self.label, self.heads, self.n)

    def fresh(self, user: PrfStream, what: str) -> Tensor:
        """Draw the user's fresh masks of permuted keys or values."""
        return user.words(f"{self.label}.fresh.{what}", *self.value_shape)

    def blind(self, owner: PrfStream, what: str) -> Tensor:
        """Draw the owner's masks of permuted keys or values."""
        return owner.words(f"{self.label}.blind.{what}", *self.value_shape)

    def remask(self, user: PrfStream, permutation: Grouped, share: Tensor, what: str) -> Tensor:
        """Compute, as the dealer, what gives permuted keys or values the user's fresh mask."""
        return permutation.cached(share) - self.fresh(user, what)

    def rest(self, user: PrfStream, owner: PrfStream, permutation: Grouped, out: Tensor) -> Tensor:
        """Compute, as the dealer, what gives the result the mask ``out``."""
        crossed = multiply(self._answer_mask(user), self.blind(owner, "v"))
        return permutation.undo(self._rest(user) - crossed) - out.view(
            self.heads.count, self.heads.dim
        )

    def draw_owner(self, owner: PrfStream) -> None:
        """Draw beforehand what the owner will want."""
        self.permutation(owner)
        self.blind(owner, "v")

    def draw_user(self, user: PrfStream) -> None:
        """Draw beforehand what the user will want."""
        self.fresh(user, "v")
        self._answer_mask(user)
        self._rest(user)

    def weigh(self, user: PrfStream, seen: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Answer, as the user, to permuted scores and masked values."""
        scores = ring.decode(seen, frac_bits=self.words.seen_bits)
        weights = encode(scores.softmax(2), self.words.weight_bits)
        mixed = multiply(weights, values)
        return weights - self._answer_mask(user), mixed - self._rest(user)

    def collect(
        self, owner: PrfStream, permutation: Grouped, rest: Tensor, answer: list[Tensor]
    ) -> Tensor:
        """Turn the user's answer, as the owner, into its share of the result: (1, heads·dim)."""
        weights, mixed = answer
        mixed = permutation.undo(mixed - multiply(weights, self.blind(owner, "v")))
        return (mixed + rest).view(1, -1)

    def _answer_mask(self, user: PrfStream) -> Tensor:
        return user.words(f"{self.label}.answer_mask", *self.score_shape)

    def _rest(self, user: PrfStream) -> Tensor:
        return user.words(f"{self.label}.rest", *self.out_shape)


@dataclass(frozen=True, eq=False)
class Resent:
    """Keys and values both travel: one round trip.

    Guarantee: the user learns the scores up to a fresh uniform permutation of groups, of heads
    within a group, and of the keys of each group; the owner receives uniform words.
    Cost: 2 messages of heads·dim + 2·n·groups·dim + n·heads and n·heads + heads·dim words;
    offline as much as both to the owner.
    """

    weighting: Weighting

    @property
    def dealt(self) -> list[Item]:
        """List what the dealer sends to the owner."""
        w, keys = self.weighting, self.weighting.words.key_bytes
        query, cached = Item(w.out_shape, keys), Item(w.value_shape, keys)
        return [query, cached, w.value_item, Item(w.score_shape, keys), w.rest_item]

    @property
    def messages(self) -> list[list[Item]]:
        """List every online message, the owner's first, then in turn."""
        w, keys = self.weighting, self.weighting.words.key_bytes
        query, cached = Item(w.out_shape, keys), Item(w.value_shape, keys)
        return [[query, cached, w.value_item, w.seen_item], w.answer]

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
        w = self.weighting
        permutation = w.permutation(owner)
        r_q, r_k = self._fresh_query(user), w.fresh(user, "k")
        s_q, s_k = self._blind_query(owner), w.blind(owner, "k")
        crossed = inner(s_q, r_k) + inner(r_q, s_k)
        return [
            permutation.queries(query[0]) - r_q,
            w.remask(user, permutation, cached[0][-w.n :], "k"),
            w.remask(user, permutation, cached[1][-w.n :], "v"),
            crossed - self._split(user),
            w.rest(user, owner, permutation, out),
        ]

    def draw_owner(self, owner: PrfStream) -> None:
        """Draw beforehand what `serve` will want."""
        self.weighting.draw_owner(owner)
        self.weighting.blind(owner, "k")
        self._blind_query(owner)

    def draw_user(self, user: PrfStream) -> None:
        """Draw beforehand what `ask` will want."""
        self.weighting.draw_user(user)
        self.weighting.fresh(user, "k")
        self._fresh_query(user)
        self._split(user)

    def serve(
        self,
        talk: Talk,
        owner: PrfStream,
        dealt: list[Tensor],
        *,
        query: Tensor,
        cached: tuple[Tensor, Tensor],
    ) -> Tensor:
        """Compute as the owner, from its shares; returns its share of the result."""
        w, (shown, answer) = self.weighting, self.messages
        d_q, d_k, d_v, d_z, rest = dealt
        permutation = w.permutation(owner)
        keys, values = (part[-w.n :] for part in cached)
        q, k = permutation.queries(query[0]) + d_q, permutation.cached(keys) + d_k
        v = permutation.cached(values) + d_v
        own = (inner(q, k) - d_z) >> w.words.drop
        s_q, s_k, s_v = self._blind_query(owner), w.blind(owner, "k"), w.blind(owner, "v")
        talk.send(shown, q + s_q, k + s_k, v + s_v, own)
        return w.collect(owner, permutation, rest, talk.recv(answer))

    def ask(self, talk: Talk, user: PrfStream) -> Tensor:
        """Compute as the user; returns the scores it saw."""
        w, (shown, answer) = self.weighting, self.messages
        r_q, r_k, r_v = self._fresh_query(user), w.fresh(user, "k"), w.fresh(user, "v")
        a, b, c, own = talk.recv(shown)
        half = inner(a, r_k) - self._split(user) + inner(r_q, b + r_k)
        seen = wrap((half >> w.words.drop) + own, w.words.seen_bytes)
        talk.send(answer, *w.weigh(user, seen, c + r_v))
        return seen

    def _fresh_query(self, user: PrfStream) -> Tensor:
        return user.words(f"{self.weighting.label}.fresh.q", *self.weighting.out_shape)

    def _blind_query(self, owner: PrfStream) -> Tensor:
        return owner.words(f"{self.weighting.label}.blind.q", *self.weighting.out_shape)

    def _split(self, user: PrfStream) -> Tensor:
        return user.words(f"{self.weighting.label}.split", *self.weighting.score_shape)
