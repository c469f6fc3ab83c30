"""What a whole training sends: its plans, each as often as it is run."""

import hashlib
from collections import Counter
from collections.abc import Iterable

from tacit.learn.training.loop import actions
from tacit.learn.training.task import TrainTask
from tacit.mpc import Plan
from tacit.mpc.cost import forecast_seconds
from tacit.mpc.plan import NETWORKS
from tacit.result import Cost, Forecast, Phase, Traffic


def total_forecast(task: TrainTask, runs: Iterable[tuple[Plan, int]]) -> Forecast:
    """Add up the forecasts of all runs of a training."""
    return sum_forecasts(runs)


def sum_forecasts(runs: Iterable[tuple[Plan, int]]) -> Forecast:
    """Add up what plans send, each as often as it is run."""
    messages: Counter[tuple[str, str, Phase]] = Counter()
    octets: Counter[tuple[str, str, Phase]] = Counter()
    offline = online = 0
    digest = hashlib.sha256()
    for plan, times in runs:
        digest.update(plan.digest() + times.to_bytes(8, "big"))
        offline += plan.cost.offline_rounds * times
        online += plan.cost.online_rounds * times
        for one in plan.cost.traffic:
            key = (one.sender, one.receiver, one.phase)
            messages[key] += one.messages * times
            octets[key] += one.payload_bytes * times
    traffic = tuple(
        Traffic(
            sender=key[0],
            receiver=key[1],
            phase=key[2],
            messages=messages[key],
            payload_bytes=octets[key],
        )
        for key in messages
    )
    cost = Cost(traffic=traffic, offline_rounds=offline, online_rounds=online)
    timings = tuple(forecast_seconds(cost, rtt_ms=rtt, mbit_per_s=mbit) for rtt, mbit in NETWORKS)
    return Forecast(cost=cost, timings=timings, plan_hash=digest.hexdigest())


def count_runs(task: TrainTask) -> Counter[bool]:
    """Count looks (True) and steps (False) of a training."""
    return Counter(action.is_look for action in actions(task))
