"""What is tried about open sides, where two of them ask about the same trees."""

import numpy as np
import pytest

pytest.importorskip("numba", reason="tacit-ml[verify] is not installed")

from tacit.verify import Certificate, Counterexample, Domain, verify
from tacit.verify.box import ball, box_cells
from tacit.verify.build import Tree, build
from tacit.verify.glance import FAR, look, make_glance, sum_center
from tacit.verify.press import press_sides
from tacit.verify.pull import CUT, LATE, PLAN_BITS, _bound, _bound_roughly
from tacit.verify.sides import make_sides

N_FREE, N_TORN = 40, 3


def stump(feature, threshold, left, right):
    """Make a tree that asks one question."""
    return Tree(
        feature=np.array([feature, 0, 0]),
        threshold=np.array([threshold, 0.0, 0.0]),
        left=np.array([1, -1, -1]),
        right=np.array([2, -1, -1]),
        missing_left=np.zeros(3, dtype=bool),
        value=np.array([[0.0], [left], [right]]),
    )


def draw(seed, rise):
    """Make a regression with many features, and by how much it can fall from its center.

    Two stumps about the same feature are torn: one falls on the left, the other on the right.
    Where they do not fall they may rise, by at most `rise`.
    """
    rng = np.random.default_rng(seed)
    trees, fall = [], 0
    for feature in range(N_FREE):
        deep, slight = (int(n) for n in rng.integers(1, 50, 2))
        trees.append(stump(feature, 0.5, 0.0, -float(deep)))
        if feature < N_TORN:
            up = float(rng.integers(rise + 1))
            trees += [stump(feature, -0.5, -float(slight), 0.0), stump(feature, 0.5, 0.0, up)]
            fall += max(deep - up, slight, 0)
        else:
            fall += deep
    order = rng.permutation(len(trees))
    rule = {"task": "regress", "input_type": "float64", "sum_type": "float64"}
    trees = [trees[i] for i in order]
    return build(trees, base=np.zeros(1), n_features=N_FREE, **rule), fall


@pytest.mark.parametrize("seed", range(20))
def test_a_regression_of_many_features_is_proved_and_refuted_at_its_very_edge(seed):
    model, fall = draw(seed, 1)
    x = np.zeros(N_FREE)
    assert isinstance(verify(model, x, 0.7, rho=fall), Certificate)
    assert isinstance(verify(model, x, 0.7, rho=fall - 0.5), Counterexample)


def test_cuts_know_the_trees_by_their_own_side_after_the_other_has_asked():
    closed = 0
    for seed in range(200):
        model, fall = draw(seed, 200)
        for rho in (fall, fall - 0.5):
            index, sides = model.index, make_sides(model, 0.0, rho)
            low, high = box_cells(model, ball(model, np.zeros(N_FREE), 0.7, Domain()))
            g = make_glance(index, 2)
            g.at[:] = box_cells(model, ball(model, np.zeros(N_FREE), 0.0, Domain()))[0]
            g.free[:-1], g.free[-1] = np.arange(N_FREE), N_FREE
            look(index.paths, g, low, high)
            sum_center(index, g)
            bound = _bound_roughly(index.paths, g, 0, 0)
            gap = _bound(index.paths, g, 0, 0, low, high, bound, FAR) - sides.barrier[0]
            _bound_roughly(index.paths, g, 0, 1)
            g.order[0], g.bound[0] = 0, (int(gap) << PLAN_BITS) | CUT | LATE
            is_closed = gap < 0 and press_sides(index, sides, g, 1, low, high) == 0
            assert not (is_closed and rho < fall)
            closed += is_closed
    assert closed > 0
