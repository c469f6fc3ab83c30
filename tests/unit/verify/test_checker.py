"""The checker accepts what the search proves and refuses everything that is not so."""

import inspect
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import DataError
from tacit.verify import (
    Domain,
    Robust,
    check_proof,
    dump_proof,
    load_proof,
    prove,
    verify,
)
from tacit.verify.box import ball
from tacit.verify.proof import checker

SEEDS = st.integers(0, 2**32 - 1)
WIDE = Domain(-100.0, 100.0)


def draw_proof(brute, rng, most=12):
    """Draw questions until one is answered with a certificate."""
    values = brute.votes if rng.random() < 0.5 else brute.reals
    kind = {"values": values, "sum_type": str(rng.choice(["float32", "float64"])), "most": most}
    while True:
        rho = None
        if rng.random() < 0.3:
            model, rho = brute.random_ensemble(rng, task="regress", divisor=3.0, **kind), 1.5
        else:
            model = brute.random_ensemble(rng, scores=int(rng.integers(1, 4)), **kind)
        x = brute.random_input(rng, model.n_features)
        eps = float(rng.choice([0.3, 0.5, 1.0, 2.5]))
        answer = verify(model, x, eps, rho=rho, domain=WIDE)
        if isinstance(answer, Robust):
            return model, prove(model, answer)


@given(seed=SEEDS)
@settings(max_examples=300, deadline=None)
def test_every_proof_of_the_search_is_accepted_even_after_a_trip_through_json(brute, seed):
    model, proof = draw_proof(brute, np.random.default_rng(seed), most=30)
    assert check_proof(model, proof) is None
    assert check_proof(model, load_proof(dump_proof(proof))) is None


@given(seed=SEEDS)
@settings(max_examples=300, deadline=None)
def test_a_claim_that_is_false_is_refused_whatever_steps_it_borrows(brute, seed):
    rng = np.random.default_rng(seed)
    model, proof = draw_proof(brute, rng)
    wider = ball(model, proof.box.center, float(rng.choice([1.0, 2.5, np.inf])), WIDE)
    if brute.is_robust(model, wider, proof.rho):
        return
    assert check_proof(model, replace(proof, box=wider)) is not None
    lazy = tuple(replace(objective, steps=(("bound",),)) for objective in proof.sides)
    assert check_proof(model, replace(proof, box=wider, sides=lazy)) is not None
    lazy = tuple(replace(objective, steps=(("point",),)) for objective in proof.sides)
    assert check_proof(model, replace(proof, box=wider, sides=lazy)) is not None


@pytest.fixture(scope="module")
def long_proof(brute):
    """Find a proof that splits and shares."""
    for seed in range(2000):
        model, proof = draw_proof(brute, np.random.default_rng(seed), most=40)
        kinds = {step[0] for objective in proof.sides for step in objective.steps}
        if {"split", "share"} <= kinds:
            return model, proof
    pytest.fail("no such proof in 2000 draws")


def edit(proof, change):
    """Change the steps of every objective."""
    return replace(
        proof,
        sides=tuple(
            replace(objective, steps=tuple(change(objective.steps))) for objective in proof.sides
        ),
    )


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda steps: steps[:-1], "left open"),
        (lambda steps: (*steps, ("bound",)), "left over"),
        (lambda steps: [("guess",) for _ in steps], "does not reach"),
        (lambda steps: [("split", 0, -1e9), *steps], "does not split"),
        (lambda steps: [("split", 99, 0.0), *steps], "malformed"),
        (lambda steps: [("share", [0, [0]], [0, [0]]) for _ in steps], "twice"),
        (lambda steps: [("share", [0, [0, 0]]) for _ in steps], "twice"),
        (lambda steps: [("share", [0, [-1]]) for _ in steps], "twice"),
        (lambda steps: [("share", 5) for _ in steps], "malformed"),
    ],
)
def test_a_proof_that_was_tampered_with_is_refused(long_proof, change, why):
    model, proof = long_proof
    assert check_proof(model, proof) is None
    assert why in check_proof(model, edit(proof, change))


@pytest.mark.parametrize("prediction", [-1.0, 7.0, 0.5, 1.0, float("nan")])
def test_a_claim_about_another_prediction_is_refused(long_proof, prediction):
    model, proof = long_proof
    assert check_proof(model, replace(proof, prediction=prediction)) is not None


def test_a_proof_that_skips_a_rival_is_refused(long_proof):
    model, proof = long_proof
    assert "sides" in check_proof(model, replace(proof, sides=proof.sides[1:]))


def test_what_is_not_a_proof_cannot_be_loaded():
    for text in ("", "[]", '{"sides": 3}'):
        with pytest.raises(DataError, match="not a proof"):
            load_proof(text)


def test_the_checker_is_short_and_shares_no_code_with_the_search():
    lines = inspect.getsource(checker).splitlines()
    assert len(lines) < 260
    assert sorted({line for line in lines if line.startswith("from tacit")}) == [
        "from tacit.verify.box import Box",
        "from tacit.verify.models.ensemble import Ensemble",
        "from tacit.verify.proof.proof import Proof, Side, read_group, read_split",
    ]
