"""Limits beside the box, against every whole-numbered input, or every interval, of small
ensembles."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("numba", reason="tacit-ml[verify] is not installed")
pytest.importorskip("z3", reason="tacit-ml[verify] is not installed")

from tacit.errors import ConfigError, DataError
from tacit.verify import (
    Counterexample,
    Domain,
    Limits,
    Robust,
    Sum,
    verify,
    verify_within,
    with_integers,
)
from tacit.verify.constrained import are_kept

seeds = st.integers(0, 2**32)
WHOLE = Domain(-2.0, 2.0)


def whole_points(n_features):
    return np.array(list(itertools.product(range(-2, 3), repeat=n_features)), dtype=float)


def draw_limits(rng, n):
    order = tuple((int(i), int(j)) for i, j in rng.integers(0, n, (int(rng.integers(2)), 2)))
    weights = {int(f): float(rng.integers(-2, 3)) for f in rng.integers(0, n, 2)}
    return Limits(
        order=order,
        sums=(Sum(weights, float(rng.integers(-4, 1)), float(rng.integers(0, 4))),),
        l1=float(rng.integers(1, 6)) if rng.random() < 0.5 else None,
        l0=int(rng.integers(0, n + 1)) if rng.random() < 0.5 else None,
    )


@given(seeds)
@settings(max_examples=150, deadline=None)
def test_whole_numbered_inputs_agree_with_trying_all(brute, seed):
    rng = np.random.default_rng(seed)
    scores = int(rng.choice([1, 3]))
    ensemble = brute.random_ensemble(rng, scores=scores)
    ensemble = with_integers(ensemble, range(ensemble.n_features))
    limits = draw_limits(rng, ensemble.n_features)
    points = whole_points(ensemble.n_features)
    kept = [x for x in points if are_kept(limits, x, x)]
    if not kept:
        return
    x = kept[rng.integers(len(kept))]
    reachable = np.array([one for one in points if are_kept(limits, x, one)])
    can_change = bool((ensemble.predict(reachable) != ensemble.predict(x)[0]).any())
    answer = verify_within(ensemble, x, np.inf, limits, domain=WHOLE)
    assert isinstance(answer, Counterexample if can_change else Robust)
    if isinstance(answer, Counterexample):
        assert (answer.x == np.rint(answer.x)).all()
        assert are_kept(limits, x, answer.x)
        assert ensemble.predict(answer.x)[0] != ensemble.predict(x)[0]


@given(seeds)
@settings(max_examples=100, deadline=None)
def test_real_inputs_within_an_l1_or_l0_ball_agree_with_trying_every_cell(brute, seed):
    rng = np.random.default_rng(seed)
    ensemble = brute.random_ensemble(rng, values=brute.votes)
    x = brute.random_input(rng, ensemble.n_features)
    limits = Limits(
        l1=float(rng.uniform(0, 4)) if rng.random() < 0.7 else None,
        l0=int(rng.integers(0, 4)) if rng.random() < 0.7 else None,
    )
    can_change = any(
        are_kept(limits, x, point) and ensemble.predict(point)[0] != ensemble.predict(x)[0]
        for point in nearest_points(ensemble, x)
    )
    answer = verify_within(ensemble, x, np.inf, limits, domain=Domain(-3.0, 3.0))
    assert isinstance(answer, Counterexample if can_change else Robust)


def nearest_points(ensemble, x):
    """List, for every combination of intervals, the input nearest to x."""
    axes = []
    for f in range(ensemble.n_features):
        cuts = np.unique(ensemble.threshold[ensemble.feature == f])
        tries = np.concatenate([[x[f]], cuts, np.nextafter(cuts, np.inf)])
        tries = tries[np.argsort(np.abs(tries - x[f]), kind="stable")]
        _, first = np.unique(np.searchsorted(cuts, tries), return_index=True)
        axes.append(tries[first])
    return np.array(list(itertools.product(*axes)))


def test_one_of_a_group_stays_one_of_a_group(brute):
    rng = np.random.default_rng(11)
    answers = set()
    for _ in range(30):
        ensemble = brute.random_ensemble(rng, values=brute.votes)
        n = ensemble.n_features
        limits = Limits(one_hot=(tuple(range(n)),))
        x = np.eye(n)[rng.integers(n)]
        can_change = bool((ensemble.predict(np.eye(n)) != ensemble.predict(x)[0]).any())
        answer = verify_within(ensemble, x, 1.0, limits)
        assert isinstance(answer, Counterexample if can_change else Robust)
        answers.add(type(answer))
    assert answers == {Counterexample, Robust}


@pytest.mark.parametrize("sum_type", ["float32", "float64"])
def test_float_sums_never_prove_falsely_nor_break_their_limits(brute, sum_type):
    rng = np.random.default_rng(3)
    known = 0
    for _ in range(40):
        ensemble = brute.random_ensemble(rng, values=brute.votes, sum_type=sum_type)
        n = ensemble.n_features
        x = np.round(rng.uniform(-2, 2, n), 1)
        most = float(np.round(x.sum() + rng.uniform(0, 1), 1))
        limits = Limits(sums=(Sum(dict.fromkeys(range(n), 1.0), high=most),))
        if not are_kept(limits, x, x):
            continue
        answer = verify_within(ensemble, x, 1.0, limits)
        known += isinstance(answer, Counterexample | Robust)
        if isinstance(answer, Counterexample):
            assert sum(map(Fraction, answer.x.tolist())) <= Fraction(most)
        if isinstance(answer, Robust):
            tries = rng.uniform(x - 1, x + 1, (500, n))
            tries = tries[tries.sum(axis=1) <= most]
            assert (ensemble.predict(tries) == ensemble.predict(x)[0]).all()
    assert known > 20


def test_no_limits_ask_the_question_of_verify(brute):
    rng = np.random.default_rng(0)
    for _ in range(20):
        ensemble = brute.random_ensemble(rng)
        x = brute.random_input(rng, ensemble.n_features)
        plain = verify(ensemble, x, 0.7)
        assert type(verify_within(ensemble, x, 0.7, Limits())) is type(plain)


def test_what_makes_no_sense_is_refused(brute):
    ensemble = brute.random_ensemble(np.random.default_rng(0))
    x = np.zeros(ensemble.n_features)
    with pytest.raises(ConfigError, match="numbered"):
        verify_within(ensemble, x, 1.0, Limits(order=((0, 99),)))
    with pytest.raises(DataError, match="breaks the limits"):
        verify_within(ensemble, x, 1.0, Limits(sums=(Sum({0: 1.0}, low=1.0),)))
    with pytest.raises(ConfigError, match="l1"):
        Limits(l1=-1.0)
    with pytest.raises(ConfigError, match="l0"):
        Limits(l0=-1)
