"""A realistic result: predictions for 171 patients between a hospital, a lab and a dealer."""

from dataclasses import is_dataclass, replace
from types import UnionType
from typing import Literal, get_args, get_origin, get_type_hints

import pytest
from hypothesis import strategies as st

from tacit.result import (
    SCHEMA,
    Claim,
    Cost,
    Curve,
    Forecast,
    Leak,
    Metric,
    PartyReport,
    Result,
    Span,
    Timing,
    Traffic,
)


@pytest.fixture
def example():
    planned = _traffic()
    setup = tuple(
        Traffic(sender=a, receiver=b, phase="setup", messages=2, payload_bytes=164)
        for a in ("hospital", "lab", "dealer")
        for b in ("hospital", "lab", "dealer")
        if a != b
    )
    cost = Cost(traffic=planned, offline_rounds=1, online_rounds=9)
    return Result(
        kind="inference",
        name="breast-cancer risk",
        protocol="additive2",
        launched="processes",
        created="2025-06-03T09:41:17+00:00",
        version="0.1.0",
        parties=_parties(),
        forecast=Forecast(cost=cost, timings=_timings(), plan_hash="b94d27b9934d3e08a52e52d7da7d"),
        metered=replace(cost, traffic=(*setup, *planned)),
        leakage=_leakage(),
        claims=_claims(),
        utility=_utility(),
        curves=_curves(),
        notes=(
            "The model was trained by the lab in the clear on 398 records of its own.",
            "Hospital and lab must not both be run by one person, or there is nothing to protect.",
        ),
    )


@pytest.fixture(scope="session")
def results():
    """A strategy for any result of this schema, however odd."""
    return _any(Result).map(lambda result: replace(result, schema=SCHEMA))


def _any(hint):
    if is_dataclass(hint):
        return st.builds(hint, **{k: _any(each) for k, each in get_type_hints(hint).items()})
    inner = get_args(hint)
    if get_origin(hint) is Literal:
        return st.sampled_from(inner)
    if get_origin(hint) is UnionType:
        return st.one_of(*map(_any, inner))
    if get_origin(hint) is tuple:
        if inner[-1] is Ellipsis:
            return st.lists(_any(inner[0]), max_size=3).map(tuple)
        return st.tuples(*map(_any, inner))
    return {
        str: st.text(max_size=8),
        int: st.integers(-(2**63), 2**63 - 1),
        float: st.floats(allow_nan=False, allow_infinity=False),
        type(None): st.none(),
    }[hint]


def _traffic():
    rows = (
        ("dealer", "hospital", "offline", 6, 32),
        ("dealer", "lab", "offline", 6, 96_264),
        ("hospital", "lab", "online", 11, 49_248),
        ("lab", "hospital", "online", 10, 18_976),
    )
    return tuple(
        Traffic(sender=a, receiver=b, phase=phase, messages=messages, payload_bytes=payload)
        for a, b, phase, messages, payload in rows
    )


def _parties():
    def spans(*stages):
        return tuple(Span(name=name, start_s=start, end_s=end) for name, start, end in stages)

    return (
        PartyReport(
            name="hospital",
            role="owns the records",
            host="10.0.4.17",
            seconds=1.482,
            cpu_seconds=0.91,
            peak_memory_bytes=312_400_000,
            spans=spans(
                ("connect", 0.0, 0.31),
                ("compare plans", 0.31, 0.38),
                ("receive randomness", 0.38, 0.52),
                ("share inputs", 0.52, 0.61),
                ("compute", 0.61, 1.39),
                ("open result", 1.39, 1.41),
            ),
        ),
        PartyReport(
            name="lab",
            role="owns the model",
            host="10.0.9.3",
            seconds=1.467,
            cpu_seconds=0.88,
            peak_memory_bytes=309_800_000,
            spans=spans(
                ("connect", 0.0, 0.29),
                ("compare plans", 0.29, 0.36),
                ("receive randomness", 0.36, 0.51),
                ("share inputs", 0.51, 0.6),
                ("compute", 0.6, 1.38),
            ),
        ),
        PartyReport(
            name="dealer",
            role="deals randomness",
            host="10.0.1.250",
            seconds=0.534,
            cpu_seconds=0.34,
            peak_memory_bytes=288_100_000,
            spans=spans(("connect", 0.0, 0.3), ("compare plans", 0.3, 0.37), ("deal", 0.37, 0.52)),
        ),
    )


def _timings():
    return (
        Timing(rtt_ms=0.2, mbit_per_s=10_000, offline_seconds=0.0012, online_seconds=0.0094),
        Timing(rtt_ms=10, mbit_per_s=1_000, offline_seconds=0.011, online_seconds=0.0912),
        Timing(rtt_ms=60, mbit_per_s=100, offline_seconds=0.068, online_seconds=0.5455),
    )


def _leakage():
    return (
        Leak(
            to="hospital",
            what="risk scores",
            why="the result that the job declares",
            kind="output",
            elements=171,
        ),
        Leak(
            to="lab", what="number of rows: 171", why="shapes are public", kind="size", elements=1
        ),
        Leak(
            to="hospital",
            what="number of features: 30",
            why="shapes are public",
            kind="size",
            elements=1,
        ),
        Leak(
            to="dealer",
            what="shapes of all products",
            why="the dealer must know how much randomness to deal",
            kind="size",
            elements=7,
        ),
    )


def _claims():
    return (
        Claim(
            subject="the patient records",
            guarantee="Lab and dealer learn nothing but the number of rows.",
            assumptions=(
                "Parties follow the protocol (semi-honest).",
                "The dealer colludes with neither side.",
                "AES-128 in counter mode is a pseudorandom generator.",
            ),
        ),
        Claim(
            subject="the model's weights",
            guarantee="Hospital learns nothing but what the scores themselves tell.",
            assumptions=(
                "Parties follow the protocol (semi-honest).",
                "The dealer colludes with neither side.",
            ),
        ),
        Claim(
            subject="what the scores tell about the model",
            guarantee="no guarantee",
            assumptions=("31 or more exact scores determine a linear model.",),
        ),
        Claim(
            subject="the lab's training records",
            guarantee="Differentially private training.",
            assumptions=("Records are independent between patients.",),
            epsilon=2.0,
            delta=1e-5,
            relation="add or remove one record",
            accountant="privacy loss distribution",
        ),
    )


def _utility():
    return (
        Metric(
            name="accuracy",
            value=0.9708,
            unit="fraction",
            samples=171,
            low=0.9334,
            high=0.9874,
            reference=0.9766,
        ),
        Metric(
            name="area under the ROC curve",
            value=0.9956,
            unit="fraction",
            samples=171,
            low=0.9869,
            high=1.0,
            reference=0.9958,
        ),
        Metric(
            name="largest error of a score",
            value=0.00041,
            unit="",
            samples=171,
            note="against the same model in float64",
        ),
    )


def _curves():
    steps = range(0, 101, 5)
    return (
        Curve(
            title="Training of the model",
            x_label="epoch",
            y_label="log loss",
            name="training",
            points=tuple((float(k), 0.07 + 0.62 / (1 + k / 6)) for k in steps),
        ),
        Curve(
            title="Training of the model",
            x_label="epoch",
            y_label="log loss",
            name="held out",
            points=tuple((float(k), 0.1 + 0.6 / (1 + k / 7)) for k in steps),
        ),
        Curve(
            title="ROC",
            x_label="false positive rate",
            y_label="true positive rate",
            name="private",
            points=((0.0, 0.0), (0.0, 0.78), (0.016, 0.94), (0.05, 0.98), (0.17, 1.0), (1.0, 1.0)),
        ),
    )
