"""Attention of one new token with its values sent again, permuted: two round trips."""

from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.llm.permuted.geometry import Talk
from tacit.llm.permuted.masked_qkv import MaskedQkv
from tacit.llm.permuted.messages import Item, wrap
from tacit.llm.permuted.prf_stream import PrfStream
from tacit.llm.permuted.resent import Weighting


@dataclass(frozen=True, eq=False)
class Half:
    """Scores from masked keys, in shares; then softmax and product in the user's one answer.

    Guarantee: as `Resent`.
    Cost: 4 messages of heads·dim + 2·P·groups·dim, n·heads, n·heads + n·groups·dim and
    n·heads + heads·dim words, with P rows to send masked.
    """

    weighting: Weighting
    fresh: int  # rows to send masked

    @property
    def masked_qkv(self) -> MaskedQkv:
        """Return the first message."""
        w = self.weighting
        return MaskedQkv(w.label, w.heads, 1, self.fresh, w.words)

    @property
    def _scores(self) -> tuple[int, ...]:
        return (self.weighting.heads.count, self.weighting.n)

    @property
    def dealt(self) -> list[Item]:
        """List what the dealer sends to the owner."""
        w = self.weighting
        return [w.seen_item, w.value_item, w.rest_item]

    @property
    def messages(self) -> list[list[Item]]:
        """List every online message, the owner's first, then in turn."""
        w = self.weighting
        half = Item(self._scores, w.words.seen_bytes)
        return [self.masked_qkv.items, [half], [w.seen_item, w.value_item], w.answer]

    def kv_masks(self, owner: PrfStream) -> tuple[Tensor, Tensor]:
        """Draw the owner's masks of the rows that are sent now: keys, values."""
        return self.masked_qkv.draw(owner)

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
        """Compute the owner's corrections; the arguments are as in `Incremental.deal`."""
        w = self.weighting
        permutation = w.permutation(owner)
        cached = cached[0][-w.n :], cached[1][-w.n :]
        masked_kv = masked_kv[0][-w.n :], masked_kv[1][-w.n :]
        crossed = self.masked_qkv.crossed(owner, query=query, cached=cached, masked_kv=masked_kv)
        score_shares = self._score_shares(user) - (crossed[0] >> w.words.drop)
        return [
            permutation.scores(score_shares) - self._reveal_mask(user),
            w.remask(user, permutation, cached[1], "v"),
            w.rest(user, owner, permutation, out),
        ]

    def draw_owner(self, owner: PrfStream) -> None:
        """Draw beforehand what `serve` will want."""
        self.weighting.draw_owner(owner)
        self.masked_qkv.blind(owner)
        self.kv_masks(owner)

    def draw_user(self, user: PrfStream) -> None:
        """Draw beforehand what `ask` will want."""
        self.weighting.draw_user(user)
        self._score_shares(user)
        self._reveal_mask(user)

    def serve(
        self,
        talk: Talk,
        owner: PrfStream,
        dealt: list[Tensor],
        *,
        query: Tensor,
        cached: tuple[Tensor, Tensor],
        masked_kv: int,
    ) -> Tensor:
        """Compute as the owner, from its shares; returns its share of the result."""
        w, (_, sent, shown, answer) = self.weighting, self.messages
        delta, d_v, rest = dealt
        permutation = w.permutation(owner)
        keys, values = cached
        self.masked_qkv.send(talk, owner, query=query, cached=cached, masked_kv=masked_kv)
        keys, values = keys[-w.n :], values[-w.n :]
        own = w.heads.scores(query, keys)[0] >> w.words.drop
        again = permutation.cached(values) + d_v + w.blind(owner, "v")
        (half,) = talk.recv(sent)
        talk.send(shown, permutation.scores(own + half) + delta, again)
        return w.collect(owner, permutation, rest, talk.recv(answer))

    def ask(
        self,
        talk: Talk,
        user: PrfStream,
        *,
        query: Tensor,
        cached: tuple[Tensor, Tensor],
        masked_kv: tuple[Tensor, Tensor],
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Compute as the user; returns as `Incremental.ask`."""
        w, (opened, sent, shown, answer) = self.weighting, self.messages
        a, new_k, new_v = talk.recv(opened)
        r_k, r_v = cached
        first = len(r_k) - self.fresh
        new_k, new_v = new_k + r_k[first:], new_v + r_v[first:]
        keys, r_k = torch.cat([masked_kv[0], new_k])[-w.n :], r_k[-w.n :]
        half = w.heads.scores(a, r_k) + w.heads.scores(query, keys)
        talk.send(sent, (half[0] >> w.words.drop) - self._score_shares(user))
        words, values = talk.recv(shown)
        seen = wrap(words + self._reveal_mask(user), w.words.seen_bytes)
        talk.send(answer, *w.weigh(user, seen, values + w.fresh(user, "v")))
        return new_k, new_v, seen

    def _score_shares(self, user: PrfStream) -> Tensor:
        return user.words(f"{self.weighting.label}.score_shares", *self._scores)

    def _reveal_mask(self, user: PrfStream) -> Tensor:
        return user.words(f"{self.weighting.label}.reveal_mask", *self.weighting.score_shape)
