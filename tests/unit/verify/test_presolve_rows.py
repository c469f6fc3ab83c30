"""Many boxes in one call, against one at a time."""

from time import thread_time

import numpy as np
import pytest

from tacit.verify import Domain, Inquiry, Outcome, Unknown, verify, verify_each
from tacit.verify.kernels.presolve.presolve import MOST_PARTS, answer
from tacit.verify.kernels.presolve.workspace import (
    UNTOLD,
    Boxes,
    make_answers,
    make_workspace,
    pick_model,
)
from tacit.verify.objectives import state_cases

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


def ask(model, boxes, cases, seconds):
    """Hand boxes to the small search; return what it says and how many it has begun and left."""
    out = make_answers(*boxes.center.shape)
    workspace = make_workspace(model.index, cases.plus.shape[1])
    told = answer(pick_model(model.index), workspace, cases, boxes, MOST_PARTS, out, seconds)
    return out, told


def test_a_center_whose_class_the_sums_do_not_tell_is_left_to_the_library(brute):
    model, rows = draw(brute, 0, scores=3, guard=100.0)
    _, cases, case = state_cases(model, rows, None)
    assert (case == UNTOLD).all()
    boxes = Boxes(rows, rows, rows, case, np.zeros(model.n_features, dtype=bool), False)
    out, (begun, left, found) = ask(model, boxes, cases, 10.0)
    assert (begun, left, found) == (len(rows), len(rows), 0)
    assert (out.outcome == Outcome.UNDECIDED).all()
    assert (out.case == UNTOLD).all()
    told = list(verify_each(model, rows, Inquiry(0.0)))
    assert [one.verdict.prediction for one in told] == model.predict(rows).tolist()


def test_no_box_is_begun_when_the_time_is_over(brute):
    model, rows = draw(brute, 1)
    _, cases, case = state_cases(model, rows, None)
    boxes = Boxes(rows, rows - 1, rows + 1, case, np.zeros(model.n_features, dtype=bool), False)
    assert ask(model, boxes, cases, 0.0)[1][0] == 1
    assert ask(model, boxes, cases, 60.0)[1][0] == len(rows)


def test_times_add_up_to_what_was_spent(brute):
    model, rows = draw(brute, 2, scores=3)
    list(verify_each(model, rows[:2], Inquiry(0.4)))
    begun = thread_time()
    told = list(verify_each(model, rows, Inquiry(0.4)))
    spent = thread_time() - begun
    assert all(0 < one.inside < one.seconds for one in told)
    assert sum(one.seconds for one in told) <= spent
