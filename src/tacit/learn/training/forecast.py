"""What many runs send: their plans, one after the other."""

import hashlib
from collections.abc import Iterable
from itertools import chain, repeat

from tacit.mpc import Plan
from tacit.mpc.cost import Round, cost_in_a_row, forecast_seconds
from tacit.mpc.pace import add_computing
from tacit.mpc.plan import NETWORKS
from tacit.result import Forecast


def sum_forecasts(runs: Iterable[tuple[Plan, int]], *, before: Iterable[Round] = ()) -> Forecast:
    """Add up what plans send, each so many times in a row.

    Args:
        runs: plans, and how often each is run.
        before: what is sent before the first of them, such as ids that are matched.
    """
    rows, first = tuple(runs), tuple(before)
    plans = chain.from_iterable(repeat(plan, times) for plan, times in rows)
    cost = cost_in_a_row(plans, before=first)
    digest = hashlib.sha256(repr(first).encode() if first else b"")
    for plan, times in rows:
        digest.update(plan.digest() + times.to_bytes(8, "big"))
    timings = tuple(forecast_seconds(cost, rtt_ms=rtt, mbit_per_s=mbit) for rtt, mbit in NETWORKS)
    forecast = Forecast(cost=cost, timings=timings, plan_hash=digest.hexdigest())
    return add_computing(forecast, rows)
