"""The dealer: turns masks into the owner's corrections. It never sees a value or a weight."""

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from tacit.errors import FrameError
from tacit.llm.architecture import Architecture
from tacit.llm.private.allowance import Account, Allowance, material_bytes
from tacit.llm.private.blueprint import Blueprint
from tacit.llm.private.crew import Crew, step_back
from tacit.llm.private.masks import (
    LayerMasks,
    draw_layer,
    first_stream,
    next_streams,
    noise,
    qkv_masks,
    scored_rows,
    tallies,
)
from tacit.llm.private.narrow import Item
from tacit.llm.private.order import ORDER_WORDS, Order, read_order
from tacit.llm.private.parcel import send_parcel
from tacit.llm.private.precision import Precision
from tacit.llm.private.resent import Resent
from tacit.llm.private.seats import Seats, channel
from tacit.llm.private.setup import (
    DealerMasks,
    agree_on,
    learn_precision,
    recv_key,
    take_masks,
)
from tacit.llm.private.shelf import Charge, Shelf
from tacit.llm.private.tape import Tape
from tacit.llm.private.transfer import deal_pads
from tacit.llm.private.weights import Weights
from tacit.party import Session
from tacit.ring import Prg


class Dealing:
    """One conversation at the dealer: the keys of both tapes, and the masks of its cache.

    Guarantee: what it yields is uniform to the owner, who does not know the user's tape. The
    dealer learns shapes and draws orders; nothing it holds depends on a text or a weight.
    Cost: the products U·r of every matrix, once per row.
    """

    def __init__(
        self,
        plan: Blueprint,
        masks: Weights,
        *,
        user: Prg,
        owner: Prg,
        charge: Charge | None = None,
    ) -> None:
        self._plan = plan
        self._weights = masks
        self._user = user
        self._owner = owner
        shelf = partial(Shelf, plan.architecture.layers, plan.heads, plan.device)
        self._cached, self._posted = (
            shelf() if charge is None else shelf(charge=charge) for _ in range(2)
        )
        self._before: Tensor | None = None
        self._counted: Tensor | None = None

    @property
    def nbytes(self) -> int:
        """Return how much memory the masks of the cache take."""
        return self._cached.nbytes + self._posted.nbytes

    def deal(self, order: Order) -> Iterator[tuple[list[Tensor], list[Item]]]:
        """Yield the parcels of an order: in front of the layers, one for each, and behind."""
        user, owner = self._tapes(order)
        plan = self._plan
        stream = first_stream(plan, user, order, self._before)
        self._before = next_streams(plan, user, order)[-1:]
        yield self._head(user, order, stream), plan.dealt_head(order)
        for layer in range(plan.architecture.layers):
            masks = draw_layer(plan, user, order, layer, stream, self._cached)
            yield self._layer(user, owner, order, layer, masks), plan.dealt(order, layer)
            stream = masks.after
        yield self._tail(user, owner, order, stream), plan.dealt_tail(order)

    def recall(self, order: Order, runs: int) -> None:
        """Draw again what an order left in the cache, after a dealer was replaced."""
        user, owner = self._tapes(order)
        for layer in range(self._plan.architecture.layers):
            draw_layer(self._plan, user, order, layer, torch.empty(0), self._cached)
            for run in range(runs):
                self._post(owner, order, layer, run)

    def pads(self, order: Order) -> Tensor:
        """Return the user's pads for naming the tokens it will choose."""
        return deal_pads(*self._tapes(order), order.runs, self._plan.architecture.vocab)

    def _tapes(self, order: Order) -> tuple[Tape, Tape]:
        user, owner = (
            Tape(prg.fork(f"order {order.number}"), device=self._plan.device)
            for prg in (self._user, self._owner)
        )
        return user, owner

    def _linear(self, user: Tape, name: str, share: Tensor) -> Tensor:
        out = self._weights.apply(name, share)
        return out + noise(user, name, *out.shape)

    def _head(self, user: Tape, order: Order, stream: Tensor) -> list[Tensor]:
        if not order.is_prompt:
            return []
        hot = user.words("first.hot.mask", order.rows, self._plan.architecture.vocab)
        return [self._linear(user, "embed", hot) - stream]

    def _layer(
        self, user: Tape, owner: Tape, order: Order, layer: int, masks: LayerMasks
    ) -> list[Tensor]:
        plan, p, rows = self._plan, self._plan.precision, order.rows
        project, turned = plan.project(layer), list[Tensor]()
        if plan.is_lean and masks.normed is not None:
            qkv = self._linear(user, f"{layer}.qkv", masks.normed)
            shown = [masks.stream]
            turned = [qkv - qkv_masks(plan, user, layer, rows)]
        else:
            qkv = self._linear(user, f"{layer}.qkv", masks.stream)
            shown = [masks.stream, *qkv.split_with_sizes([plan.inner, plan.kv, plan.kv], 1)]
        first = project.deal(user, project.orders(owner, rows), shown, rows)
        mixed = [
            part
            for run in range(order.runs)
            for part in self._attend(user, owner, order, layer, run, masks)
        ]
        skip = masks.stream
        if masks.normed is not None and plan.architecture.skips_from_norm:
            skip = self._linear(user, f"{layer}.skip1", masks.normed)
        moved = skip << (plan.middle_bits - p.stream)
        stream = moved + self._linear(user, f"{layer}.o", masks.mixed)
        fed = self._feed(user, owner, layer, masks, stream)
        if masks.kept is None:
            skip = self._linear(user, f"{layer}.skip2", masks.fed)
        else:
            skip = masks.kept << (p.stream - p.skip)
        stream = skip + self._linear(user, f"{layer}.down", masks.active)
        return [*first, *fed, *turned, *mixed, stream - masks.after]

    def _feed(
        self, user: Tape, owner: Tape, layer: int, masks: LayerMasks, stream: Tensor
    ) -> list[Tensor]:
        """Deal for what lies between attention and the last product of a layer."""
        plan, rows = self._plan, len(stream)
        up = self._linear(user, f"{layer}.up", masks.fed)
        branches = list(up.chunk(2 if plan.architecture.has_gate else 1, 1))
        shown = [[masks.fed, *branches]] if plan.is_merged else [[stream], branches]
        out = [
            part
            for one, shares in zip(plan.feeds(layer), shown, strict=True)
            for part in one.deal(user, one.orders(owner, rows), shares, rows)
        ]
        return [*out, stream - masks.fed] if plan.is_merged else out

    def _attend(
        self, user: Tape, owner: Tape, order: Order, layer: int, run: int, masks: LayerMasks
    ) -> list[Tensor]:
        self._post(owner, order, layer, run)
        kernel = self._plan.attention(layer, order, run)
        rows = slice(None) if order.is_prompt else slice(run, run + 1)
        n = order.end if order.is_prompt else order.past + run + 1
        cached = self._cached.upto(layer, n)
        query, out = masks.query[rows], masks.out[rows]
        if isinstance(kernel, Resent):
            return kernel.deal(user, owner, query=query, cached=cached, out=out)
        posted = self._posted.upto(layer, n)
        return kernel.deal(user, owner, query=query, cached=cached, posted=posted, out=out)

    def _post(self, owner: Tape, order: Order, layer: int, run: int) -> None:
        kernel = self._plan.attention(layer, order, run)
        if not isinstance(kernel, Resent):
            self._posted.put(layer, order.posted_before(run), *kernel.post(owner))

    def _tail(self, user: Tape, owner: Tape, order: Order, stream: Tensor) -> list[Tensor]:
        plan, rows, runs = self._plan, order.scores, order.runs
        score, choose, last = plan.score(), plan.choose(), plan.last_norm()
        stream, out = stream[scored_rows(order)], list[Tensor]()
        if last is not None:
            out += last.deal(user, last.orders(owner, rows), [stream], rows)
            shown = [self._linear(user, "output", last.masks(user, rows)[0])]
        else:
            shown = [stream, self._linear(user, "output", stream)]
        if plan.counts:
            counts, self._counted = tallies(plan, user, order, self._counted)
            shown.append(counts)
        orders = score.orders(owner, rows)
        out += score.deal(user, orders, shown, rows)
        chosen = {name: order_[rows - runs :] for name, order_ in orders.items()}
        out += choose.deal(user, chosen, [], runs)
        hot = choose.masks(user, runs)[0]
        after = self._weights.apply("embed", hot)
        after = after + noise(user, "next.embed", *after.shape)
        return [*out, after - next_streams(plan, user, order)]


def serve_dealer(
    session: Session,
    architecture: Architecture,
    *,
    precision: Precision | None = None,
    seats: Seats | None = None,
    device: torch.device | str = "cpu",
    known: DealerMasks | None = None,
    counts: bool = False,
    allowance: Allowance | None = None,
    account: Account | None = None,
) -> None:
    """Deal for every conversation of a session until the user leaves.

    Without a precision, that of the owner. The account is this user's alone.

    Guarantee: the dealer receives keys and sizes, and nothing that depends on a text or a weight.
    Cost: offline only; see `tacit.llm.private.forecast`.
    """
    seats, account = seats or Seats(), account or Account()
    told = learn_precision(session, seats.owner)
    precision = precision or told
    agree_on(session, architecture, precision, counts=counts)
    masks = take_masks(session, seats, architecture, known, device)
    plan = Blueprint(architecture, precision, masks.device, counts)
    most = (allowance or Allowance()).conversations
    try:
        with Crew(session) as crew:
            while (opened := _open(session, seats, plan, masks, account)) is not None:
                if crew.running >= most:
                    raise FrameError(seats.user, f"has more than {most} conversations open at once")
                crew.start(partial(_serve, session, seats, *opened, plan, account), "deal")
    finally:
        account.clear()


def _open(
    session: Session, seats: Seats, plan: Blueprint, masks: Weights, account: Account
) -> tuple[int, Dealing] | None:
    """Hear of a conversation, and take up what happened in it before; None if the user leaves."""
    words = session.recv(seats.user, "llm/open", (3,))
    # The owner hears of it from here: on its link with the user, a thread that waits for
    # such a word would be woken by every message of a pass.
    session.send(seats.owner, "llm/open", words, phase="setup")
    index, _, kept = (int(word) for word in words)
    if index < 0:
        return None
    keys = [
        recv_key(session, peer, f"{channel('key', index)}/{seat}")
        for peer, seat in ((seats.user, "user"), (seats.owner, "owner"))
    ]
    charge = partial(account.take, user=seats.user)
    dealing = Dealing(plan, masks, user=Prg(keys[0]), owner=Prg(keys[1]), charge=charge)
    _recall(session, seats, index, kept, dealing, plan.architecture)
    return index, dealing


def _recall(
    session: Session, seats: Seats, index: int, kept: int, dealing: Dealing, a: Architecture
) -> None:
    """Learn what happened in a conversation before this session."""
    if kept < 1:
        return
    tag = f"{channel('ctl', index)}/past"
    for words in session.recv(seats.user, tag, (kept, ORDER_WORDS + 1)):
        order = read_order(words[1:], sender=seats.user, architecture=a)
        if not 0 <= int(words[0]) <= order.runs:
            raise FrameError(seats.user, f"says that {int(words[0])} runs of an order were made")
        dealing.recall(order, int(words[0]))


def _serve(
    session: Session, seats: Seats, index: int, dealing: Dealing, plan: Blueprint, account: Account
) -> None:
    step_back()
    tag = f"{channel('ctl', index)}/order"
    while True:
        words = session.recv(seats.user, tag, (1 + ORDER_WORDS,))
        session.send(seats.owner, tag, words, phase="offline")
        if int(words[0]):
            account.give(dealing.nbytes)
            return
        order = read_order(words[1:], sender=seats.user, architecture=plan.architecture)
        _, largest = material_bytes(plan, order, sender=seats.user, most=account.most)
        with account.lent(largest, user=seats.user):
            _deal(session, seats, index, dealing, order, plan.architecture.layers)


def _deal(
    session: Session, seats: Seats, index: int, dealing: Dealing, order: Order, layers: int
) -> None:
    """Send the material of an order to the owner, part by part, and its pads to the user."""
    parts = ["head", *map(str, range(layers)), "tail"]
    for part, (tensors, items) in zip(parts, dealing.deal(order), strict=True):
        if items:
            tag = f"{channel('deal', index)}/{order.number}.{part}"
            send_parcel(session, seats.owner, tag, tensors, items)
    tag = f"{channel('pad', index)}/{order.number}"
    session.send(seats.user, tag, dealing.pads(order), phase="offline")
