"""Parts of an ensemble, searched one by one: against brute force, and by how many nodes."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.verify import Budget, Domain, Outcome, Robust, Unknown, margin, verify
from tacit.verify import robustness as searching
from tacit.verify.box import ball, box_intervals, place_witness
from tacit.verify.components import search_components
from tacit.verify.kernels.layout.reach import reach
from tacit.verify.kernels.search.components import label_components
from tacit.verify.models.build import build
from tacit.verify.objectives import make_objectives
from tacit.verify.verdict import Spending

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
    objectives = make_objectives(model, model.predict(box.center[None])[0], rho)
    low, high = box_intervals(model, box)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(searching, "FEW_NODES", 1)
        outcome, _ = searching.search_on(model, objectives, low, high, Budget())
    assert outcome == Outcome.NEAR_TIE or (outcome == Outcome.ROBUST) == brute.is_robust(
        model, box, rho
    )
    if outcome == Outcome.COUNTEREXAMPLE:
        point = place_witness(model, box, low, high)
        assert not brute.is_robust(model, replace(box, low=point, high=point), rho)


@pytest.mark.parametrize("kind", KINDS)
@given(seed=SEEDS, nodes=st.integers(1, 30))
@settings(max_examples=150, deadline=None)
def test_no_part_claims_what_is_not_so_whenever_the_budget_ends(brute, kind, seed, nodes):
    model, x, eps, rho = draw_apart(brute, seed, kind)
    box = ball(model, x, eps, AREA)
    objectives = make_objectives(model, model.predict(box.center[None])[0], rho)
    outcomes = []
    for objective in range(objectives.plus.size):
        low, high = box_intervals(model, box)
        spending = Spending(Budget(nodes, None))
        outcomes.append(search_components(model.index, objectives, objective, low, high, spending))
        assert spending.nodes <= nodes
        if outcomes[-1] == Outcome.COUNTEREXAMPLE:
            point = place_witness(model, box, low, high)
            assert not brute.is_robust(model, replace(box, low=point, high=point), rho)
    if set(outcomes) == {Outcome.ROBUST}:
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
        for cutoff, wanted in ((least, Outcome.ROBUST), (above, Outcome.COUNTEREXAMPLE)):
            if here < cutoff:
                continue
            near, (low, high) = replace(model, cutoff=float(cutoff)), box_intervals(model, box)
            objectives = make_objectives(near, 1, None)
            told.append(
                search_components(
                    near.index, objectives, 0, *box_intervals(near, box), Spending(Budget(99, None))
                )
            )
            assert told[-1] in (wanted, None)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(searching, "FEW_NODES", 1)
                outcome, _ = searching.search_on(near, objectives, low, high, Budget())
            assert outcome == wanted
    # Sums of votes have no rounding, so that their parts always tell.
    assert (
        told.count(Outcome.ROBUST) > 20
        if kind == "whole votes"
        else told.count(Outcome.COUNTEREXAMPLE) > 20
    )


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
    """Join hard parts of ten trees each, so that the least sum is one unit above the threshold."""
    components = {}
    for number in numbers:
        rng = np.random.default_rng(number)
        components[number] = grow_part(brute, rng, "binary", first=0, width=3, count=10, depth=4)
    rule = {"task": "classify", "input_type": "float64", "sum_type": "float64"}

    def whole(trees, **base):
        # Leaves of whole numbers: sums have no rounding, and a threshold can be met exactly.
        trees = [replace(tree, value=np.rint(1000 * tree.value)) for tree in trees]
        return build(trees, **rule, **base)

    least = 0.0
    for trees in components.values():
        alone = whole(trees, base=np.zeros(1), n_features=3)
        least += alone.scores(brute.all_points(alone, ball(alone, np.zeros(3), 3.0, AREA))).min()
    joined = [shifted(t, 3 * at) for at, trees in enumerate(components.values()) for t in trees]
    return whole(joined, base=np.array([1.0 - least]), n_features=3 * len(components))


def search_alone(brute, number):
    """Prove one part by the deep search, without what comes before it; return its nodes."""
    model = tight(brute, [number])
    low, high = box_intervals(model, ball(model, np.zeros(3), 3.0, AREA))
    objectives = make_objectives(model, 1, None)
    outcome, nodes = searching.search_on(model, objectives, low, high, Budget())
    assert outcome == Outcome.ROBUST
    return nodes


def test_nodes_of_parts_add_up_where_those_of_the_whole_multiply(brute):
    def nodes(numbers):
        model = tight(brute, numbers)
        told = verify(model, np.zeros(model.n_features), 3.0, domain=AREA)
        assert isinstance(told, Robust)
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
    assert isinstance(told, Robust | Unknown)


def test_without_time_no_part_is_searched(brute):
    model = tight(brute, range(3))
    low, high = box_intervals(model, ball(model, np.zeros(9), 3.0, AREA))
    assert label_components(reach(model.index.trees, low, high))[2] == 3
    objectives, spending = make_objectives(model, 1, None), Spending(Budget(seconds=1e-9))
    assert search_components(model.index, objectives, 0, low, high, spending) == Outcome.UNDECIDED
    assert spending.nodes == 0


def test_one_part_is_left_to_the_usual_search(brute):
    model = tight(brute, [0])
    low, high = box_intervals(model, ball(model, np.zeros(3), 3.0, AREA))
    objectives = make_objectives(model, 1, None)
    assert search_components(model.index, objectives, 0, low, high, Spending(Budget())) is None
