"""Dealing that is recorded: all that a dealer computes for a run is one graph, played for each.

What is drawn for a run has a fixed place: while dealing is recorded every draw is given one, and
for each run generators fill these places, each in the order in which they were given.
"""

from collections.abc import Callable
from math import prod
from typing import cast

import torch
from torch import Tensor

from tacit.mpc import tables
from tacit.mpc.cache import OpeningCache
from tacit.mpc.contract import in_host_memory
from tacit.mpc.material.dealer import Maker, step_stream
from tacit.mpc.material.randomness import OpeningTriple
from tacit.mpc.material.recording import CudaTape, LaunchTape
from tacit.mpc.plan import Plan
from tacit.mpc.share import Mask, SharePair
from tacit.party import Session
from tacit.ring import Prg

Path = tuple[str, int, *tuple[str, ...]]
"""Names a generator: whose it is, the step, and the labels by which it was forked from there."""


class _Draws:
    """Fixed places for all that is drawn for a run, on a device."""

    def __init__(self, count: int, device: torch.device) -> None:
        self._words = torch.empty(count, dtype=torch.int64, device=device)
        self._places: dict[Path, list[Tensor]] = {}
        self._spans: dict[Path, list[slice]] = {}
        self._used = 0
        self._host: Tensor | None = None

    def place(self, path: Path, number: int, shape: torch.Size) -> Tensor:
        """Return where the words lie that a generator draws next; the same for the same draw."""
        known = self._places.setdefault(path, [])
        if number == len(known):
            span = slice(self._used, self._used + shape.numel())
            known.append(self._words[span].view(shape))
            self._spans.setdefault(path, []).append(span)
            self._used = span.stop
        return known[number]

    def load(self, generator: Callable[[Path], Prg]) -> None:
        """Draw for a run, and bring it to the device."""
        if self._host is None:
            is_card = self._words.device.type == "cuda"
            self._host = torch.empty(self._used, dtype=torch.int64, pin_memory=is_card)
        for path, spans in self._spans.items():
            prg = generator(path)
            for span in spans:
                prg.fill(self._host[span])
        self._words[: self._used].copy_(self._host)


class _Noted:
    """Stands for a generator while dealing is recorded."""

    def __init__(self, draws: _Draws, path: Path) -> None:
        self._draws, self._path, self._number = draws, path, 0

    def fork(self, label: str) -> "_Noted":
        return _Noted(self._draws, (*self._path, label))

    def words(self, shape: tuple[int, ...] | int) -> Tensor:
        self._number += 1
        size = torch.Size((shape,) if isinstance(shape, int) else shape)
        return self._draws.place(self._path, self._number - 1, size)


class _RecordedMaker(Maker):
    """Makes corrections from draws and masks in fixed places."""

    def __init__(
        self, session: Session, plan: Plan, cache: OpeningCache, draws: _Draws, device: torch.device
    ) -> None:

        def noted(peer: str, number: int, past: int | None) -> Prg:
            assert past is None  # noqa: S101 - what was drawn before is remembered
            return cast("Prg", _Noted(draws, (peer, number)))

        # A method would refer to this, and its memory wait for the collector.
        super().__init__(noted, plan, cache=cache, device=device)
        self._session = session
        self.entries = {
            name: tuple(torch.zeros(spec.shape, dtype=torch.int64, device=device) for _ in "12")
            for name, spec in plan.grown
        }
        rows = {spec.mask.shape[spec.mask.dim] for _, spec in plan.grown} or {0}
        self.places = torch.zeros(max(rows), dtype=torch.int64, device=device)

    def _draw(self, mask: Mask) -> SharePair:
        if mask.run is None:
            return super()._draw(mask)
        known, self._stream = self._stream, self._past
        try:
            return super()._draw(mask)
        finally:
            self._stream = known

    def _past(self, peer: str, number: int, past: int | None) -> Prg:
        assert past is not None  # noqa: S101 - it was asked for
        return step_stream(self._session.shared(peer), past, number)

    def _recall(self, mask: Mask) -> SharePair:
        first, second = (self._brought(one) for one in super()._recall(mask))
        return first, second

    def _brought(self, words: Tensor | None) -> Tensor | None:
        if words is None or words.device == self._device:
            return words
        (there,) = tables.kept(tables.laid_out(words, self._device))
        return there

    def join_all(self) -> None:
        """Put the masks of new entries behind the others, also where no product reads them."""
        for _, spec in self._plan.grown:
            self._joined(spec.mask)

    def _joined(self, mask: Mask) -> SharePair:
        known = self._grown.get(mask.behind)
        if known is None:
            spec = dict(self._plan.grown)[mask.behind]
            known = cast("SharePair", self.entries[mask.behind])
            for there, new in zip(self.entries[mask.behind], self._draw(mask), strict=True):
                assert new is not None  # noqa: S101 - nobody's input
                there.index_copy_(spec.mask.dim, self.places, new)
            self._grown[mask.behind] = known
        return known


class RecordedDealing:
    """A dealer's runs of a plan: the first is recorded, and all are played.

    Guarantee: that of `tacit.mpc.material.dealer.deal`, message by message.
    """

    def __init__(
        self,
        session: Session,
        plan: Plan,
        cache: OpeningCache,
        *,
        device: torch.device,
        tape: LaunchTape,
    ) -> None:
        self.plan = plan
        self._session, self._cache, self._tape = session, cache, tape
        self._draws = _Draws(_most_words(plan), device)
        self._maker = _RecordedMaker(session, plan, cache, self._draws, device)
        self._numbers = self._maker.steps()
        self._tables: list[Tensor] = []
        self._set: int | None = None
        tape.renew()
        with tape.running(), tables.keeping(self._tables):
            tape.begin()
            parts = [self._maker.correction(number) for number in self._numbers]
            self._maker.join_all()
            self._sizes = [len(part) for part in parts]
            self._made = torch.cat(parts)
            self._launch = tape.end()

    def play(self, run: int) -> None:
        """Deal for a run."""
        session, second = self._session, self.plan.roles.second

        def generator(path: Path) -> Prg:
            peer, step, *labels = path
            prg = step_stream(session.shared(peer), run, step)
            for label in labels:
                prg = prg.fork(label)
            return prg

        self._set = self._cache.leave(self._set)
        with self._tape.running(), session.progress.stage("deal", len(self._numbers)) as advance:
            self._draws.load(generator)
            self._maker.places.copy_(self._cache.places(len(self._maker.places)))
            for name, spec in self.plan.grown:
                self._cache.lay_out(spec, self._maker.entries[name])
            self._launch()
            made = in_host_memory(self._made) if self._made.is_cuda else self._made.clone()
            parts = made.split_with_sizes(self._sizes)
            for done, (number, words) in enumerate(zip(self._numbers, parts, strict=True), start=1):
                session.send(second, f"deal/{run}.{number}", words, phase="offline")
                advance(done)
        masks = {name: cast("SharePair", pair) for name, pair in self._maker.entries.items()}
        self._cache.grow(self.plan.grown, masks=masks)


class DealingRecorder:
    """Deals for runs on an accelerator, recorded by plan; keeps one recording."""

    def __init__(
        self,
        session: Session,
        device: torch.device,
        *,
        tape: Callable[[torch.device], LaunchTape] = CudaTape,
    ) -> None:
        self._session, self._device = session, device
        self._tape = tape(device)
        self._dealing: RecordedDealing | None = None

    def takes(self, plan: Plan, cache: OpeningCache) -> bool:
        """Tell whether dealing for a plan can be recorded: masks of weights are on the card."""
        needs = (need for step in plan.steps for need in step.needs)
        weights = (
            need.right for need in needs if isinstance(need, OpeningTriple) and need.right.is_weight
        )
        return all(cache.has_factor(mask) for mask in weights if len(mask.shape) == 2)

    def deal(self, plan: Plan, *, run: int, cache: OpeningCache) -> None:
        """Deal for a run on which all have agreed, before anyone has begun it; as its dealer."""
        cache.bind(self._session)
        if self._dealing is None or self._dealing.plan is not plan:
            self._dealing = None  # its memory first
            self._dealing = RecordedDealing(
                self._session, plan, cache, device=self._device, tape=self._tape
            )
        self._dealing.play(run)


def _most_words(plan: Plan) -> int:
    """Bound how many words are drawn for a run."""
    count = _Counting()
    for need in (need for step in plan.steps for need in step.needs):
        need.first(cast("Prg", count))
        need.second(cast("Prg", count))
        for mask in (need.left, need.right) if isinstance(need, OpeningTriple) else ():
            if mask.run is None:
                count.total += 2 * prod(mask.shape)
    return count.total


class _Counting:
    """Stands for a generator, and counts what is drawn."""

    def __init__(self) -> None:
        self.total = 0

    def fork(self, label: str) -> "_Counting":
        return self

    def words(self, shape: tuple[int, ...] | int) -> Tensor:
        size = torch.Size((shape,) if isinstance(shape, int) else shape)
        self.total += size.numel()
        return torch.zeros((), dtype=torch.int64).expand(size)
