"""Parts of an ensemble, searched one by one: against brute force, and by how many nodes."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("numba", reason="tacit-ml[verify] is not installed")

from tacit.verify import Budget, Certificate, Domain, Unknown, margin, verify
from tacit.verify import robustness as searching
from tacit.verify.box import ball, box_cells, place_witness
from tacit.verify.budget import Purse
from tacit.verify.components import UNSURE, search_parts
from tacit.verify.kernels.layout.reach import reach
from tacit.verify.kernels.presolve.scores import BLURRED, FOUND, PAUSED, PROVED
from tacit.verify.kernels.search.components import label_parts
from tacit.verify.models.build import build
from tacit.verify.objectives import make_sides

SEEDS = st.integers(0, 2**32 - 1)
KINDS = ("binary", "whole votes", "forest", "boosted", "regression")
AREA = Domain(-3.0, 3.0)


def shifted(tree, by):
    return replace(tree, feature=np.where(tree.left < 0, 0, tree.feature + by))


def grow_part(brute, rng, kind, *, first, width, count, depth):
    """Grow trees that ask for some features only."""
    scores = 3 if kind in ("forest", "boosted") else 1
    votes, trees = kind in ("whole votes", "forest"), []
    for _ in range(count):
        own = np.eye(scores)[rng.integers(scores)]

        def pay(rng, scores, own=own):
            return own * brute.reals(rng, scores)

        values = brute.votes if votes else pay if kind == "boosted" else brute.reals
        tree = brute.random_tree(rng, n_features=width, depth=depth, scores=scores, values=values)
        trees.append(shifted(tree, first))
    return trees


def draw_apart(brute, seed, kind):
    """Make an ensemble of two or three parts over four features, and a question about it."""
    rng = np.random.default_rng(seed)
    widths = [(2, 2), (1, 3), (1, 1, 2)][rng.integers(3)]
    starts = np.cumsum((0, *widths))
    trees = [
        tree
        for first, width in zip(starts, widths, strict=False)
        for tree in grow_part(
            brute, rng, kind, first=first, width=width, count=int(rng.integers(1, 12)), depth=3
        )
    ]
    trees = [trees[i] for i in rng.permutation(len(trees))]
    scores = trees[0].value.shape[1]
    task = "regress" if kind == "regression" else "classify"
    model = build(
        trees,
        base=brute.votes(rng, scores) if kind in ("whole votes", "forest") else np.zeros(scores),
        n_features=4,
        task=task,
        input_type="float64",
        sum_type="float32" if rng.random() < 0.3 else "float64",
    )
    rho = float(rng.uniform(0, 6)) if kind == "regression" else None
    return model, brute.random_input(rng, 4), float(rng.uniform(0.2, 2.5)), rho


@pytest.mark.parametrize("kind", KINDS)
@given(seed=SEEDS)
@settings(max_examples=150, deadline=None)
def test_ensembles_that_fall_into_parts_are_decided_as_by_brute_force(brute, kind, seed):
    model, x, eps, rho = draw_apart(brute, seed, kind)
    box = ball(model, x, eps, AREA)
    sides = make_sides(model, model.predict(box.center[None])[0], rho)
    low, high = box_cells(model, box)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(searching, "FEW_NODES", 1)
        outcome, _ = searching.persist(model, sides, low, high, Budget())
    assert outcome == BLURRED or (outcome == PROVED) == brute.is_robust(model, box, rho)
    if outcome == FOUND:
        point = place_witness(model, box, low, high)
        assert not brute.is_robust(model, replace(box, low=point, high=point), rho)


@pytest.mark.parametrize("kind", KINDS)
@given(seed=SEEDS, nodes=st.integers(1, 30))
@settings(max_examples=150, deadline=None)
def test_no_part_claims_what_is_not_so_whenever_the_budget_ends(brute, kind, seed, nodes):
    model, x, eps, rho = draw_apart(brute, seed, kind)
    box = ball(model, x, eps, AREA)
    sides = make_sides(model, model.predict(box.center[None])[0], rho)
    outcomes = []
    for side in range(sides.plus.size):
        low, high = box_cells(model, box)
        purse = Purse(nodes, None)
        outcomes.append(search_parts(model.index, sides, side, low, high, purse))
        assert purse.nodes <= nodes
        if outcomes[-1] == FOUND:
            point = place_witness(model, box, low, high)
            assert not brute.is_robust(model, replace(box, low=point, high=point), rho)
    if set(outcomes) == {PROVED}:
        assert brute.is_robust(model, box, rho)


@pytest.mark.parametrize("kind", ["binary", "whole votes"])
def test_the_least_sum_of_parts_is_found_to_the_last_bit(brute, kind):
    told = []
    for seed in range(60):
        model, x, _, _ = draw_apart(brute, seed, kind)
        box = ball(model, x, 2.5, AREA)
        scores = model.scores(brute.all_points(model, box))[:, 0]
        least, here = scores.min(), model.scores(x[None])[0, 0]
        above = np.nextafter(least, type(least)(np.inf))
        for cutoff, wanted in ((least, PROVED), (above, FOUND)):
            if here < cutoff:
                continue
            near, (low, high) = replace(model, cutoff=float(cutoff)), box_cells(model, box)
            sides = make_sides(near, 1, None)
            told.append(search_parts(near.index, sides, 0, *box_cells(near, box), Purse(99, None)))
            assert told[-1] in (wanted, UNSURE)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(searching, "FEW_NODES", 1)
                outcome, _ = searching.persist(near, sides, low, high, Budget())
            assert outcome == wanted
    # Sums of votes have no rounding, so that their parts always tell.
    assert told.count(PROVED) > 20 if kind == "whole votes" else told.count(FOUND) > 20


@pytest.mark.parametrize("kind", ["binary", "forest", "boosted"])
@given(seed=SEEDS, nodes=st.integers(1, 40))
@settings(max_examples=80, deadline=None)
def test_margins_of_parts_hold_whenever_the_budget_ends(brute, kind, seed, nodes):
    model, x, eps, _ = draw_apart(brute, seed, kind)
    box = ball(model, x, eps, AREA)
    label = int(model.predict(box.center[None])[0])
    scores = model.scores(brute.all_points(model, box)).astype(np.float64)
    if model.n_scores == 1:
        least = ((scores[:, 0] - model.cutoff) * (1 if label else -1)).min()
    else:
        least = (scores[:, label] - np.delete(scores, label, axis=1).max(axis=1)).min()
    found = margin(model, x, eps, domain=AREA, budget=Budget(nodes=nodes))
    assert found.low <= least <= found.high
    assert found.nodes <= nodes
    exact = margin(model, x, eps, domain=AREA)
    assert exact.is_exact
    assert exact.low <= least <= exact.high <= exact.low + 1e-4


def tight(brute, numbers):
    """Join hard parts of ten trees each, so that the least sum is one unit above the barrier."""
    parts = {}
    for number in numbers:
        rng = np.random.default_rng(number)
        parts[number] = grow_part(brute, rng, "binary", first=0, width=3, count=10, depth=4)
    rule = {"task": "classify", "input_type": "float64", "sum_type": "float64"}

    def whole(trees, **base):
        # Leaves of whole numbers: sums have no rounding, and a barrier can be met exactly.
        trees = [replace(tree, value=np.rint(1000 * tree.value)) for tree in trees]
        return build(trees, **rule, **base)

    least = 0.0
    for trees in parts.values():
        alone = whole(trees, base=np.zeros(1), n_features=3)
        least += alone.scores(brute.all_points(alone, ball(alone, np.zeros(3), 3.0, AREA))).min()
    joined = [shifted(t, 3 * at) for at, trees in enumerate(parts.values()) for t in trees]
    return whole(joined, base=np.array([1.0 - least]), n_features=3 * len(parts))


def search_alone(brute, number):
    """Prove one part by the deep search, without what comes before it; return its nodes."""
    model = tight(brute, [number])
    low, high = box_cells(model, ball(model, np.zeros(3), 3.0, AREA))
    sides = make_sides(model, 1, None)
    outcome, nodes = searching.persist(model, sides, low, high, Budget())
    assert outcome == PROVED
    return nodes


def test_nodes_of_parts_add_up_where_those_of_the_whole_multiply(brute):
    def nodes(numbers):
        model = tight(brute, numbers)
        told = verify(model, np.zeros(model.n_features), 3.0, domain=AREA)
        assert isinstance(told, Certificate)
        return told.nodes

    alone = [search_alone(brute, number) for number in range(6)]
    assert max(alone) > 4
    # What is spent on all trees together before, and one look at each part.
    for count in range(2, 7):
        assert nodes(range(count)) <= sum(alone[:count]) + searching.FEW_NODES + count


@pytest.mark.parametrize("nodes", [1, 5, 29, 35, 40, 50])
def test_a_budget_of_nodes_is_kept_among_parts(brute, nodes):
    model = tight(brute, range(5))
    told = verify(model, np.zeros(15), 3.0, domain=AREA, budget=Budget(nodes=nodes))
    assert told.nodes <= nodes
    assert isinstance(told, Certificate | Unknown)


def test_without_time_no_part_is_searched(brute):
    model = tight(brute, range(3))
    low, high = box_cells(model, ball(model, np.zeros(9), 3.0, AREA))
    assert label_parts(reach(model.index.trees, low, high))[2] == 3
    sides, purse = make_sides(model, 1, None), Purse(None, 0.0)
    assert search_parts(model.index, sides, 0, low, high, purse) == PAUSED
    assert purse.nodes == 0


def test_one_part_is_left_to_the_usual_search(brute):
    model = tight(brute, [0])
    low, high = box_cells(model, ball(model, np.zeros(3), 3.0, AREA))
    sides = make_sides(model, 1, None)
    assert search_parts(model.index, sides, 0, low, high, Purse(None, None)) == UNSURE
