"""The dealer: makes correlated randomness for a plan and streams it ahead of its use."""

import threading
from collections.abc import Callable, Iterator
from math import prod

import torch
from torch import Tensor

from tacit import ring
from tacit.mpc import outsource
from tacit.mpc.arithmetic.weights import in_columns, is_prepared
from tacit.mpc.cache import OpeningCache
from tacit.mpc.contract import Tells, in_host_memory, takes_role
from tacit.mpc.material.randomness import (
    Need,
    OpeningMask,
    OpeningTriple,
    Parts,
    Wrapping,
    has_corrections,
    pack,
)
from tacit.mpc.narrow import WORD_BYTES
from tacit.mpc.plan import Plan
from tacit.mpc.products import MatMul
from tacit.mpc.share import Mask, SharePair
from tacit.party import Session
from tacit.ring import Factor, Prg


def _stream(session: Session, peer: str, run: int, step: int) -> Prg:
    """Return the generator of one party's part of one step, known to it and to the dealer."""
    return step_stream(session.shared(peer), run, step)


def step_stream(shared: Prg, run: int, step: int) -> Prg:
    """Fork what a party and the dealer share for one step of one run."""
    return shared.fork(f"deal {run}.{step}")


AHEAD_BYTES = 128 << 20
"""How much material a helper deals beyond the step that it waits in."""


_LARGE_BYTES = 8 << 20
"""Masks of weights from here on are drawn in panels, where they are not remembered."""


class DealingPace:
    """How far the third party has come in the plan, so that dealing stays only a little ahead.

    A helper deals on the same link on which its answers travel. What the second party has not
    asked for yet it must keep in memory while it waits for an answer.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._reached = 0
        self._is_stopped = False
        self._ahead: list[tuple[int, int]] = []

    def reach(self, step: int) -> None:
        """Say that the third party has come to this step."""
        with self._changed:
            self._reached = step
            self._ahead = [(at, size) for at, size in self._ahead if at > step]
            self._changed.notify_all()

    def stop(self) -> None:
        """End the dealing."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    def admits(self, step: int, size: int) -> bool:
        """Wait until the material of a step may be sent; False if it is no longer wanted."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_stopped or self._has_room(step))
            self._ahead.append((step, size))
            return not self._is_stopped

    def _has_room(self, step: int) -> bool:
        return step <= self._reached or sum(size for _, size in self._ahead) <= AHEAD_BYTES


def deal(
    session: Session,
    plan: Plan,
    *,
    run: int,
    pace: DealingPace,
    cache: OpeningCache | None = None,
    device: torch.device | str = "cpu",
) -> None:
    """Send the second party the corrections for every step that needs them.

    Guarantee: what is sent is uniform to the second party. The dealer learns shapes; it never
    receives anything that depends on an input.
    Cost: offline, one message per step that needs randomness; nothing to the first party.
    """

    def stream(peer: str, number: int, past: int | None) -> Prg:
        return _stream(session, peer, run if past is None else past, number)

    # Of a party's generator, not of a run: what a session has opened can be used in later runs.
    first, second = map(session.shared, plan.roles.computing)
    shared = first, second
    maker = Maker(stream, plan, cache=cache, device=torch.device(device), shared=shared)
    needing = maker.steps()
    with session.progress.stage("deal", len(needing)) as advance:
        for done, number in enumerate(needing, start=1):
            words = in_host_memory(maker.correction(number))
            if not pace.admits(number, words.nbytes):
                return
            session.send(plan.roles.second, f"deal/{run}.{number}", words, phase="offline")
            for receiver, mask in maker.told(number):
                session.send(receiver, f"mask/{run}.{number}", mask, phase="offline")
            advance(done)
    maker.keep_grown()


class Maker:
    """Makes the second party's corrections for every step of a plan.

    Args:
        stream: gives the generator of a computing party's part of a step, by its name, the number
            of the step and that of the run, if it is an earlier one.
        plan: what will be computed.
        cache: masks of earlier runs, so that they need not be drawn again.
        device: where products are computed.
        shared: the generators that the dealer shares with P0 and with P1, for `Wrapping` needs.
    """

    def __init__(
        self,
        stream: Callable[[str, int, int | None], Prg],
        plan: Plan,
        *,
        cache: OpeningCache | None = None,
        device: torch.device,
        shared: tuple[Prg, Prg] | None = None,
    ) -> None:
        self._shared = shared
        self._stream = stream
        self._plan = plan
        self._cache = cache or OpeningCache()
        self._device = device
        self._grown: dict[str, SharePair] = {}

    def steps(self) -> list[int]:
        """Return the numbers of the steps for which there is something to send."""
        return [at for at, step in enumerate(self._plan.steps) if has_corrections(step.needs)]

    def correction(self, number: int) -> Tensor:
        """Make the message for one step."""
        first, second = (self._stream(peer, number, None) for peer in self._plan.roles.computing)
        parts: list[Tensor] = []
        for need in self._plan.steps[number].needs:
            mine, yours = (
                self._placed(drawn) for drawn in (need.first(first), need.second(second))
            )
            parts += self._corrected(need, mine, yours)
        return pack(tuple(parts))

    def _corrected(self, need: Need, mine: Parts, yours: Parts) -> Parts:
        if takes_role(need, Wrapping):
            assert isinstance(need, Wrapping)  # noqa: S101 - its type says so
            assert self._shared is not None  # noqa: S101 - whoever deals such a plan has them
            inner = self._corrected(need.inner, mine, yours)
            return need.wrap(mine, yours, inner, self._shared)
        if isinstance(need, OpeningTriple):
            left = self._recall(need.left)
            if need.right.is_weight and is_prepared(need.right.shape, self._cache.weights_on):
                return need.correct_factor(mine, left, self._factor(need.right))
            if self._is_in_panels(need):
                return need.correct_panels(mine, left, self._panels(need.right))
            return need.correct(mine, left, self._recall(need.right))
        return need.correction(mine, yours)

    def _is_in_panels(self, need: OpeningTriple) -> bool:
        """Tell whether the mask of a weight is drawn while it is multiplied: memory is saved."""
        mask, nbytes = need.right, WORD_BYTES * prod(need.right.shape)
        is_plain = need.product == MatMul() and not (mask.views or mask.behind)
        is_large = mask.holder is not None and len(mask.shape) == 2 and nbytes >= _LARGE_BYTES
        is_here = self._device.type == "cpu" and outsource.current() is None
        if not (is_plain and is_large and is_here):
            return False
        return mask.run is None or not self._cache.has_room(_key(mask), nbytes)

    def _factor(self, mask: Mask) -> Factor:
        """Prepare the mask of a weight for an accelerator, or remember that."""
        if mask.run is None:
            return self._prepared(mask)
        return self._cache.remember_factor(_key(mask), lambda: self._prepared(mask))

    def _prepared(self, mask: Mask) -> Factor:
        (words,) = (one for one in self._draw(mask) if one is not None)
        return ring.prepare(words.to(self._cache.weights_on))

    def _panels(self, mask: Mask) -> Iterator[Tensor]:
        first, second = self._plan.roles.computing
        prg = self._stream(first if mask.holder == "first" else second, mask.step, mask.run)
        return OpeningMask(mask.place, mask.shape, mask.holder).panels(prg, ring.PANEL_BYTES)

    def told(self, number: int) -> Iterator[tuple[str, Tensor]]:
        """Give the mask of a step to everyone who neither computes nor deals and has to know it."""
        step, roles = self._plan.steps[number], self._plan.roles
        if takes_role(step.kernel, Tells):
            assert isinstance(step.kernel, Tells)  # noqa: S101 - its type says so
            first, second = (self._stream(peer, number, None) for peer in roles.computing)
            yield from step.kernel.tell(roles, (first, second), *step.operands)

    def _recall(self, mask: Mask) -> SharePair:
        """Draw a mask again that the parties drew in an earlier step, or remember it."""
        if mask.behind:
            first, second = self._joined(mask)
        elif mask.run is not None:
            first, second = self._cache.remember(_key(mask), lambda: self._laid_out(mask))
        else:
            first, second = self._draw(mask)
        return viewed(first, mask), viewed(second, mask)

    def _laid_out(self, mask: Mask) -> SharePair:
        """Draw a mask for many uses, that of a weight in columns."""
        first, second = self._draw(mask)
        if not mask.is_weight:
            return first, second
        first, second = (None if one is None else in_columns(one) for one in (first, second))
        return first, second

    def _draw(self, mask: Mask) -> SharePair:
        need = OpeningMask(mask.place, mask.shape, mask.holder)
        first, second = (
            self._stream(peer, mask.step, mask.run) for peer in self._plan.roles.computing
        )
        drawn = (need.first(first), need.second(second))
        one, other = (
            parts[0].to(self._device, non_blocking=True) if parts else None for parts in drawn
        )
        return one, other

    def _joined(self, mask: Mask) -> SharePair:
        """Put the masks of new entries behind those of the cache."""
        known = self._grown.get(mask.behind)
        if known is None:
            spec = dict(self._plan.grown)[mask.behind]
            known = self._cache.join_masks(spec, self._draw(mask))
            self._grown[mask.behind] = known
        return known

    def keep_grown(self) -> None:
        """Keep the masks of all entries of growing tensors for later runs."""
        for _, spec in self._plan.grown:
            self._joined(spec.mask)
        self._cache.grow(self._plan.grown, masks=self._grown)

    def _placed(self, parts: Parts) -> Parts:
        return tuple(part.to(self._device, non_blocking=True) for part in parts)


def _key(mask: Mask) -> tuple[int, int, int]:
    assert mask.run is not None  # noqa: S101 - it is of an earlier run
    return mask.run, mask.step, mask.place


def viewed(words: Tensor | None, mask: Mask) -> Tensor | None:
    """Lay words out as a mask lies now."""
    if words is None:
        return None
    for view in mask.views:
        words = view(words)
    return words
