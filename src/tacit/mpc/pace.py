"""How long computing takes on this machine: a short calibration, times what a plan counts.

An estimate, for one computing party that has a core of its own. It knows products, words and steps;
it knows nothing of memory that runs short, of other processes, or of what is computed between runs.
"""

import hashlib
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain, repeat
from math import prod

import torch

from tacit import ring
from tacit.mpc.arithmetic.coded import MultiplyCoded
from tacit.mpc.arithmetic.product import Multiply
from tacit.mpc.boundary import WORD_BYTES
from tacit.mpc.plan import NETWORKS, Plan
from tacit.mpc.registry import find_protocol
from tacit.party.cost import Round, cost_in_a_row, forecast_seconds
from tacit.result import Forecast
from tacit.ring import Prg

_SIDE = 192
_WORDS = 1 << 16
_SMALL = 16
_REPEATS = 3


@dataclass(frozen=True)
class Pace:
    """Seconds of a multiply-and-add, of a word that is drawn, masked and added, and of a step."""

    product_s: float
    word_s: float
    step_s: float


def sum_forecasts(runs: Iterable[tuple[Plan, int]], *, before: Iterable[Round] = ()) -> Forecast:
    """Add up what plans send, each so many times in a row.

    Args:
        runs: plans, and how often each is run.
        before: what is sent before the first of them, such as ids that are matched.
    """
    rows, first = tuple(runs), tuple(before)
    plans = chain.from_iterable(repeat(plan, times) for plan, times in rows)
    cost = cost_in_a_row([plan.flow for plan in plans], before=first)
    digest = hashlib.sha256(repr(first).encode() if first else b"")
    for plan, times in rows:
        digest.update(plan.digest() + times.to_bytes(8, "big"))
    timings = tuple(forecast_seconds(cost, rtt_ms=rtt, mbit_per_s=mbit) for rtt, mbit in NETWORKS)
    forecast = Forecast(cost=cost, timings=timings, plan_hash=digest.hexdigest())
    return add_computing(forecast, rows)


def add_computing(forecast: Forecast, runs: Iterable[tuple[Plan, int]]) -> Forecast:
    """Add to a forecast what one party computes, and notes, over plans that each run so often.

    Of two parties alone it is not known: they encrypt, transfer and garble, which no calibration
    here counts.
    """
    rows, seconds = tuple(runs), None
    if all(find_protocol(plan.protocol).has_dealer for plan, _ in rows):
        pace = measure_pace()
        seconds = sum(times * _seconds(plan, pace) for plan, times in rows)
    notes = dict.fromkeys(note for plan, _ in rows for note in plan.notes())
    return replace(forecast, computing_seconds=seconds, notes=tuple(notes))


def _seconds(plan: Plan, pace: Pace) -> float:
    products = sum(
        step.kernel.product.terms(*shapes) * prod(step.kernel.product.shape(*shapes))
        for step in plan.steps
        if isinstance(step.kernel, Multiply | MultiplyCoded)
        for shapes in [[spec.shape for spec in step.operands]]
    )
    touched = sum(prod(spec.shape) for step in plan.steps for spec in step.operands)
    sent = sum(entry.payload_bytes for entry in plan.cost.traffic) // WORD_BYTES
    # Of a product of two secrets each party computes two; see `arithmetic.product`.
    per_step = len(plan.steps) * pace.step_s
    return 2 * products * pace.product_s + (touched + sent) * pace.word_s + per_step


@cache
def measure_pace() -> Pace:
    """Measure how fast this machine is; takes a few hundredths of a second, once per process."""
    prg = Prg(bytes(16))
    left, right = prg.words((_SIDE, _SIDE)), prg.words((_SIDE, _SIDE))
    words, few = prg.words((_WORDS,)), prg.words((_SMALL,))
    per_step = _least(lambda: _handle(prg, few))
    return Pace(
        product_s=_least(lambda: ring.matmul(left, right)) / _SIDE**3,
        word_s=max(0.0, _least(lambda: _handle(prg, words)) - per_step) / _WORDS,
        step_s=per_step,
    )


def _handle(prg: Prg, words: torch.Tensor) -> None:
    """Do what a step does with its words: draw a mask, add it, write it, read the other's."""
    masked = words + prg.fork("step").words(tuple(words.shape))
    ring.from_bytes(bytes(ring.to_bytes(masked)), "i64", tuple(words.shape)).add_(masked)


def _least(work: Callable[[], object]) -> float:
    """Return the shortest of a few times: others that use the machine only make it longer."""
    found = []
    for _ in range(_REPEATS + 1):  # the first one fills caches
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    return min(found[1:])
