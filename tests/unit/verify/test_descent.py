import numpy as np
import pytest

pytest.importorskip("numba", reason="tacit-ml[verify] is not installed")

from tacit.verify.box import Domain, ball, box_intervals
from tacit.verify.kernels.attack.descent import descend
from tacit.verify.kernels.layout.reach import is_reachable, reach
from tacit.verify.kernels.search.problem import make_load, make_problem
from tacit.verify.objectives import make_objectives


def total_at(r, task, point):
    """Add up the one leaf of every tree that a point of ranks reaches."""
    total = int(task.base)
    for t in range(r.tree_id.size):
        leaves = range(r.leaf_start[t], r.leaf_start[t + 1])
        reached = [leaf for leaf in leaves if is_reachable(r, leaf, point, point)]
        assert len(reached) == 1
        total += int(task.value[reached[0]])
    return total


def test_the_sum_is_that_of_its_point_and_no_single_feature_lowers_it(brute):
    rng = np.random.default_rng(2)
    looked_at = 0
    for _ in range(100):
        model = brute.random_ensemble(rng, most=10, values=brute.reals)
        x = brute.random_input(rng, model.n_features)
        index = model.index
        r = reach(index.trees, *box_intervals(model, ball(model, x, 2.0, Domain())))
        if not r.tree_id.size:
            continue
        load = make_load(index.trees, index.base_fixed, r)
        task = make_problem(r, load, make_objectives(model, model.predict(x[None])[0], None), 0)
        start = np.zeros(r.feature_id.size, dtype=np.int32)
        low, high = start.copy(), start.copy()
        total = descend(r, task, r.fixed_leaf.copy(), low, high)
        # Any point between the ends reaches the same leaves.
        assert total == total_at(r, task, low) == total_at(r, task, high)
        assert total <= total_at(r, task, start)
        for f in range(low.size):
            for rank in range(r.rank_start[f + 1] - r.rank_start[f]):
                other = low.copy()
                other[f] = rank
                assert total <= total_at(r, task, other)
        looked_at += 1
    assert looked_at > 50
