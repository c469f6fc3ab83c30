"""What many runs send: their plans, one after the other."""

import hashlib
from collections.abc import Iterable
from itertools import chain, repeat

from tacit.mpc import Plan
from tacit.mpc.cost import forecast_seconds
from tacit.mpc.plan import NETWORKS, cost_in_a_row
from tacit.result import Forecast


def sum_forecasts(runs: Iterable[tuple[Plan, int]]) -> Forecast:
    """Add up what plans send, each so many times in a row."""
    rows = tuple(runs)
    cost = cost_in_a_row(chain.from_iterable(repeat(plan, times) for plan, times in rows))
    digest = hashlib.sha256()
    for plan, times in rows:
        digest.update(plan.digest() + times.to_bytes(8, "big"))
    timings = tuple(forecast_seconds(cost, rtt_ms=rtt, mbit_per_s=mbit) for rtt, mbit in NETWORKS)
    return Forecast(cost=cost, timings=timings, plan_hash=digest.hexdigest())
