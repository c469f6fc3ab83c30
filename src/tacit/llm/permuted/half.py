"""Attention of one new token with its values sent again, permuted: two round trips."""

from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.llm.permuted.geometry import Talk
from tacit.llm.permuted.narrow import Item, wrap
from tacit.llm.permuted.posting import Posting
from tacit.llm.permuted.resent import Weighting
from tacit.llm.permuted.tape import Tape


@dataclass(frozen=True, eq=False)
class Half:
    """Scores from posted keys, in shares; then softmax and product in the user's one answer.

    Guarantee: as `Resent`.
    Cost: 4 messages of heads·dim + 2·P·groups·dim, n·heads, n·heads + n·groups·dim and
    n·heads + heads·dim words, with P rows to post.
    """

    weighting: Weighting
    fresh: int  # rows to post

    @property
    def posting(self) -> Posting:
        """Return the first message."""
        w = self.weighting
        return Posting(w.label, w.heads, 1, self.fresh, w.words)

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
        return [self.posting.items, [half], [w.seen_item, w.value_item], w.answer]

    def post(self, owner: Tape) -> tuple[Tensor, Tensor]:
        """Draw the owner's masks of the rows that are posted now: keys, values."""
        return self.posting.draw(owner)

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
        """Compute the owner's corrections; the arguments are as in `Incremental.deal`."""
        w = self.weighting
        order = w.order(owner)
        cached = cached[0][-w.n :], cached[1][-w.n :]
        posted = posted[0][-w.n :], posted[1][-w.n :]
        crossed = self.posting.crossed(owner, query=query, cached=cached, posted=posted)
        halves = self._halves(user) - (crossed[0] >> w.words.drop)
        return [
            order.scores(halves) - self._veil(user),
            w.remask(user, order, cached[1], "v"),
            w.rest(user, owner, order, out),
        ]

    def draw_owner(self, owner: Tape) -> None:
        """Draw beforehand what `serve` will want."""
        self.weighting.draw_owner(owner)
        self.posting.blind(owner)
        self.post(owner)

    def draw_user(self, user: Tape) -> None:
        """Draw beforehand what `ask` will want."""
        self.weighting.draw_user(user)
        self._halves(user)
        self._veil(user)

    def serve(
        self,
        talk: Talk,
        owner: Tape,
        dealt: list[Tensor],
        *,
        query: Tensor,
        cached: tuple[Tensor, Tensor],
        posted: int,
    ) -> Tensor:
        """Compute as the owner, from its shares; returns its share of the result."""
        w, (_, sent, shown, answer) = self.weighting, self.messages
        delta, d_v, rest = dealt
        order = w.order(owner)
        keys, values = cached
        self.posting.send(talk, owner, query=query, cached=cached, posted=posted)
        keys, values = keys[-w.n :], values[-w.n :]
        own = w.heads.scores(query, keys)[0] >> w.words.drop
        again = order.cached(values) + d_v + w.blind(owner, "v")
        (half,) = talk.recv(sent)
        talk.send(shown, order.scores(own + half) + delta, again)
        return w.collect(owner, order, rest, talk.recv(answer))

    def ask(
        self,
        talk: Talk,
        user: Tape,
        *,
        query: Tensor,
        cached: tuple[Tensor, Tensor],
        posted: tuple[Tensor, Tensor],
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Compute as the user; returns as `Incremental.ask`."""
        w, (post, sent, shown, answer) = self.weighting, self.messages
        a, new_k, new_v = talk.recv(post)
        r_k, r_v = cached
        first = len(r_k) - self.fresh
        new_k, new_v = new_k + r_k[first:], new_v + r_v[first:]
        keys, r_k = torch.cat([posted[0], new_k])[-w.n :], r_k[-w.n :]
        half = w.heads.scores(a, r_k) + w.heads.scores(query, keys)
        talk.send(sent, (half[0] >> w.words.drop) - self._halves(user))
        words, values = talk.recv(shown)
        seen = wrap(words + self._veil(user), w.words.seen_bytes)
        talk.send(answer, *w.weigh(user, seen, values + w.fresh(user, "v")))
        return new_k, new_v, seen

    def _halves(self, user: Tape) -> Tensor:
        return user.words(f"{self.weighting.label}.halves", *self._scores)

    def _veil(self, user: Tape) -> Tensor:
        return user.words(f"{self.weighting.label}.veil", *self.weighting.score_shape)
