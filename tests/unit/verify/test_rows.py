"""Many boxes in one call, against one at a time."""

from time import thread_time

import numpy as np
import pytest

pytest.importorskip("numba", reason="tacit-ml[verify] is not installed")

from tacit.verify import Budget, Domain, Inquiry, Unknown, search, verify, verify_each
from tacit.verify.rows import ASKED, UNTOLD, Boxes, answer, make_answers
from tacit.verify.sides import state_cases

WIDE = Domain(-3.0, 3.0)


def draw(brute, seed, **rule):
    rng = np.random.default_rng(seed)
    model = brute.random_ensemble(rng, most=30, **rule)
    return model, np.array([brute.random_input(rng, model.n_features) for _ in range(150)])


@pytest.mark.parametrize(
    "rule",
    [{}, {"scores": 3}, {"scores": 3, "guard": 0.5}, {"task": "regress"}, {"sum_type": "float32"}],
    ids=["binary", "classes", "near ties", "regression", "float32"],
)
def test_rows_together_are_answered_like_rows_alone(brute, rule):
    rho = 1.0 if "task" in rule else None
    for seed in range(6):
        model, rows = draw(brute, seed, **rule)
        told = list(verify_each(model, rows, Inquiry(0.4, rho=rho, domain=WIDE)))
        for row, one in zip(rows, told, strict=True):
            alone = verify(model, row, 0.4, rho=rho, domain=WIDE)
            assert type(one.verdict) is type(alone)
            assert one.verdict.prediction == alone.prediction
            assert (one.verdict.box.low == alone.box.low).all()
            assert (one.verdict.box.center == row).all()
            if not isinstance(alone, Unknown):
                robust = brute.is_robust(model, alone.box, rho)
                assert robust == hasattr(one.verdict, "x") ^ True


def test_a_center_whose_class_the_sums_do_not_tell_is_left_to_the_library(brute):
    model, rows = draw(brute, 0, scores=3, guard=100.0)
    _, cases, case = state_cases(model, rows, None)
    assert (case == UNTOLD).all()
    boxes = Boxes(rows, rows, rows, case, np.zeros(model.n_features, dtype=bool), False)
    out = make_answers(*rows.shape)
    effort = search.make_effort(Budget(), 8)
    assert answer(model.index, cases, boxes, effort, out, 10.0)[1] == len(rows)
    assert (out.outcome == ASKED).all()
    told = list(verify_each(model, rows, Inquiry(0.0)))
    assert [one.verdict.prediction for one in told] == model.predict(rows).tolist()


def test_no_box_is_begun_when_the_time_is_over(brute):
    model, rows = draw(brute, 1)
    _, cases, case = state_cases(model, rows, None)
    boxes = Boxes(rows, rows - 1, rows + 1, case, np.zeros(model.n_features, dtype=bool), False)
    effort = search.make_effort(Budget(), 8)
    out = make_answers(*rows.shape)
    assert answer(model.index, cases, boxes, effort, out, 0.0)[0] == 1
    assert answer(model.index, cases, boxes, effort, out, 60.0)[0] == len(rows)


def test_times_add_up_to_what_was_spent(brute):
    model, rows = draw(brute, 2, scores=3)
    list(verify_each(model, rows[:2], Inquiry(0.4)))
    begun = thread_time()
    told = list(verify_each(model, rows, Inquiry(0.4)))
    spent = thread_time() - begun
    assert all(0 < one.inside < one.seconds for one in told)
    assert sum(one.seconds for one in told) <= spent
