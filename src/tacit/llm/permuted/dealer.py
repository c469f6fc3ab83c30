"""The dealer: turns masks into the owner's corrections. It never sees a value or a weight."""

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from tacit.errors import FrameError
from tacit.llm.model.architecture import Architecture
from tacit.llm.parties import Account, Allowance, Seats
from tacit.llm.permuted.attention import Resent
from tacit.llm.permuted.batch import BATCH_WORDS, Batch, read_batch
from tacit.llm.permuted.blueprint import Blueprint
from tacit.llm.permuted.crew import Crew, step_back
from tacit.llm.permuted.exchange import Exchange
from tacit.llm.permuted.forecast import material_bytes
from tacit.llm.permuted.geometry import Charge, KvCache
from tacit.llm.permuted.masks import (
    attended,
    drop_bits,
    first_stream,
    fresh,
    next_streams,
    noise,
    tallies,
    turn,
)
from tacit.llm.permuted.messages import send_packed
from tacit.llm.permuted.precision import Precision
from tacit.llm.permuted.prepare import Masking
from tacit.llm.permuted.prf_stream import PrfStream, deal_pads
from tacit.llm.permuted.program import (
    Function,
    MatrixProduct,
    Seen,
    parts,
    run_end,
    run_layer,
    unknown,
)
from tacit.llm.permuted.setup import (
    DealerMasks,
    agree_on,
    learn_precision,
    recv_key,
    take_masks,
)
from tacit.llm.permuted.weights import Weights
from tacit.party import Session
from tacit.ring import Prg


class Dealing:
    """One conversation at the dealer: the keys of both prfs, and the masks of its cache.

    Guarantee: what it yields is uniform to the owner, who does not know the user's prf. The
    dealer learns shapes and draws permutations; nothing it holds depends on a text or a weight.
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
        cache = partial(KvCache, plan.architecture.layers, plan.heads, plan.device)
        cached, masked_kv = (cache() if charge is None else cache(charge=charge) for _ in range(2))
        self._cached, self._caches = cached, (cached, masked_kv)
        self._before: Tensor | None = None
        self._counted: Tensor | None = None

    @property
    def nbytes(self) -> int:
        """Return how much memory the masks of the cache take."""
        return sum(cache.nbytes for cache in self._caches)

    def deal(self, batch: Batch) -> Iterator[list[Tensor]]:
        """Yield what the owner is sent for a batch, in its `parts`."""
        user, owner = self._prfs(batch)
        plan = self._plan
        stream = first_stream(plan, user, batch, self._before)
        self._before = next_streams(plan, user, batch)[-1:]
        yield self._first(user, batch, stream)
        for layer in range(plan.architecture.layers):
            party = self._party(user, owner, batch, batch.rows)
            stream = run_layer(party, plan, layer, stream)
            yield party.dealt
        yield self._last(user, owner, batch, stream)

    def recall(self, batch: Batch, runs: int) -> None:
        """Draw again what a batch left in the cache, after a dealer was replaced."""
        (user, owner), plan = self._prfs(batch), self._plan
        party = self._party(user, owner, batch, batch.rows)
        start = unknown(batch.rows, plan.architecture.width)
        for layer in range(plan.architecture.layers):
            run_layer(Masking(plan, batch, user, batch.rows, self._cached), plan, layer, start)
            for run in range(runs):
                party.draw_kv_masks(layer, run)

    def pads(self, batch: Batch) -> Tensor:
        """Return the user's pads for naming the tokens it will choose."""
        return deal_pads(*self._prfs(batch), batch.runs, self._plan.architecture.vocab)

    def _party(self, user: PrfStream, owner: PrfStream, batch: Batch, rows: int) -> "_Party":
        return _Party(self._plan, self._weights, batch, (user, owner), rows, self._caches)

    def _prfs(self, batch: Batch) -> tuple[PrfStream, PrfStream]:
        user, owner = (
            PrfStream(prg.fork(f"batch {batch.number}"), device=self._plan.device)
            for prg in (self._user, self._owner)
        )
        return user, owner

    def _first(self, user: PrfStream, batch: Batch, stream: Tensor) -> list[Tensor]:
        if not batch.is_prompt:
            return []
        hot = user.words("first.hot.mask", batch.rows, self._plan.architecture.vocab)
        return [_dealt(self._weights, user, "embed", hot) - stream]

    def _last(
        self, user: PrfStream, owner: PrfStream, batch: Batch, stream: Tensor
    ) -> list[Tensor]:
        plan, rows, runs = self._plan, batch.scores, batch.runs
        tally: Tensor | None = None
        if plan.counts:
            tally, self._counted = tallies(plan, user, batch, self._counted)
        party = self._party(user, owner, batch, rows)
        run_end(party, plan, stream, scored=rows, counts=tally)
        choose = plan.choose()
        chosen = {name: places[rows - runs :] for name, places in party.permutations.items()}
        out = [*party.dealt, *choose.deal(user, chosen, [], runs)]
        after = self._weights.apply("embed", choose.masks(user, runs)[0])
        after = after + noise(user, "next.embed", *after.shape)
        return [*out, after - next_streams(plan, user, batch)]


class _Party:
    """Walk a pass with r of every value: U·r + w behind a product, and what was drawn elsewhere."""

    def __init__(
        self,
        plan: Blueprint,
        weights: Weights,
        batch: Batch,
        prfs: tuple[PrfStream, PrfStream],
        rows: int,
        caches: tuple[KvCache, KvCache],
    ) -> None:
        self._plan, self._weights, self._batch, self._rows = plan, weights, batch, rows
        self._user, self._owner = prfs
        self._cached, self._masked_kv = caches
        self.dealt: list[Tensor] = []
        self.permutations: dict[str, Tensor] = {}

    def linear(self, product: MatrixProduct, x: Tensor, skip: Tensor | None = None) -> Tensor:
        """Compute U·r + w, and what gives the result a fresh mask."""
        out = _dealt(self._weights, self._user, product.name, x)
        if product.skip is not None and skip is not None:
            if product.skip.name:
                skip = _dealt(self._weights, self._user, product.skip.name, skip)
            out = out + (skip << product.skip.bits)
        if not product.is_fresh:
            return out
        mask = fresh(self._user, product.name, *out.shape)
        self.dealt.append(out - mask)
        return mask

    def look(self, exchange: Exchange, shown: list[Tensor], function: Function) -> list[Tensor]:
        """Compute what permutes the masks of an exchange."""
        self.show(exchange, shown, function)
        return exchange.masks(self._user, self._rows)

    def attend(self, layer: int, qkv: list[Tensor]) -> Tensor:
        """Keep the masks of keys and values, and deal for every run."""
        plan, batch = self._plan, self._batch
        query, keys, values = turn(plan, batch, layer, slice(None), qkv, drop_bits)
        self._cached.put(layer, batch.past, keys, values)
        out = attended(plan, self._user, layer, self._rows)
        for run in range(batch.runs):
            rows = batch.rows_of(run)
            self.dealt += self._deal_run(layer, run, query=query[rows], out=out[rows])
        return drop_bits(out, plan.out_drop)

    def show(self, exchange: Exchange, shown: list[Tensor], function: Function) -> Seen:
        """Compute what permutes the masks of what is shown."""
        self.permutations = exchange.permutations(self._owner, self._rows)
        self.dealt += exchange.deal(self._user, self.permutations, shown, self._rows)
        return {}

    def draw_kv_masks(self, layer: int, run: int) -> None:
        """Draw the owner's masks of the keys and values that a run sends masked."""
        kernel = self._plan.attention(layer, self._batch, run)
        if not isinstance(kernel, Resent):
            before = self._batch.masked_before(run)
            self._masked_kv.put(layer, before, *kernel.kv_masks(self._owner))

    def _deal_run(self, layer: int, run: int, *, query: Tensor, out: Tensor) -> list[Tensor]:
        self.draw_kv_masks(layer, run)
        user, owner = self._user, self._owner
        kernel = self._plan.attention(layer, self._batch, run)
        n = self._batch.past + self._batch.rows_of(run).stop
        cached = self._cached.upto(layer, n)
        if isinstance(kernel, Resent):
            return kernel.deal(user, owner, query=query, cached=cached, out=out)
        masked_kv = self._masked_kv.upto(layer, n)
        return kernel.deal(user, owner, query=query, cached=cached, masked_kv=masked_kv, out=out)


def _dealt(weights: Weights, user: PrfStream, name: str, share: Tensor) -> Tensor:
    # W = UV of step 3 in algorithm 6.1, with the w that `prepare` took off: r of the product.
    out = weights.apply(name, share)
    return out + noise(user, name, *out.shape)


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
    Cost: offline only; see `tacit.llm.permuted.forecast`.
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
        recv_key(session, peer, f"key{index}/{seat}")
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
    tag = f"ctl{index}/past"
    for words in session.recv(seats.user, tag, (kept, BATCH_WORDS + 1)):
        batch = read_batch(words[1:], sender=seats.user, architecture=a)
        if not 0 <= int(words[0]) <= batch.runs:
            raise FrameError(seats.user, f"says that {int(words[0])} runs of a batch were made")
        dealing.recall(batch, int(words[0]))


def _serve(
    session: Session, seats: Seats, index: int, dealing: Dealing, plan: Blueprint, account: Account
) -> None:
    step_back()
    tag = f"ctl{index}/batch"
    while True:
        words = session.recv(seats.user, tag, (1 + BATCH_WORDS,))
        session.send(seats.owner, tag, words, phase="offline")
        if int(words[0]):
            account.give(dealing.nbytes)
            return
        batch = read_batch(words[1:], sender=seats.user, architecture=plan.architecture)
        _, largest = material_bytes(plan, batch, sender=seats.user, most=account.most)
        with account.lent(largest, user=seats.user):
            names = parts(plan, batch)
            for (part, items), tensors in zip(names, dealing.deal(batch), strict=True):
                name = f"deal{index}/{batch.number}.{part}"
                send_packed(session, seats.owner, name, tensors, items.dealt)
            pads = dealing.pads(batch)
            session.send(seats.user, f"pad{index}/{batch.number}", pads, phase="offline")
