"""What a box leaves open: segments, the bound by messages, descent; against every point of it."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.verify.box import Domain, ball, box_intervals
from tacit.verify.kernels.attack.descent import descend
from tacit.verify.kernels.layout.reach import is_reachable, make_segments, reach
from tacit.verify.kernels.search.mplp import make_mplp, price, restore, revive, save, tighten
from tacit.verify.kernels.search.problem import make_load, make_problem
from tacit.verify.objectives import make_objectives


def pose(brute, rng, most=12):
    """Make a problem over few ranks, or None if the box leaves nothing open."""
    model = brute.random_ensemble(rng, most=most, values=brute.reals)
    x = brute.random_input(rng, model.n_features)
    index = model.index
    r = reach(index.trees, *box_intervals(model, ball(model, x, 2.0, Domain())))
    if not r.tree_id.size:
        return None
    load = make_load(index.trees, index.base_fixed, r)
    return r, make_problem(r, load, make_objectives(model, model.predict(x[None])[0], None), 0)


def sums(r, task, low, high):
    """Return every point between low and high with the sum of the leaves that it reaches."""
    for point in itertools.product(*(range(a, b + 1) for a, b in zip(low, high, strict=True))):
        at, total = np.array(point, dtype=np.int32), int(task.base)
        for t in range(r.tree_id.size):
            leaves = range(r.leaf_start[t], r.leaf_start[t + 1])
            (value,) = (int(task.value[leaf]) for leaf in leaves if is_reachable(r, leaf, at, at))
            total += value
        yield point, total


def whole(r):
    """Return the ends of the whole box."""
    high = np.diff(r.rank_start).astype(np.int32) - 1
    return np.zeros_like(high), high


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_no_point_below_the_barrier_is_cut_off_or_below_the_bound(brute, seed):
    posed = pose(brute, np.random.default_rng(seed))
    if posed is None:
        return
    r, task = posed
    low, high = whole(r)
    points = list(sums(r, task, low, high))
    bound = tighten(r, task, make_mplp(r, make_segments(r)), low, high)
    for point, total in points:
        if total < task.threshold:
            assert bound <= total
            assert (low <= point).all()
            assert (point <= high).all()


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_messages_of_one_box_are_valid_in_every_other(brute, seed):
    rng = np.random.default_rng(seed)
    posed = pose(brute, rng)
    if posed is None:
        return
    r, task = posed
    a, memory = make_mplp(r, make_segments(r)), None
    for _ in range(6):
        ends = np.sort(rng.integers(0, np.diff(r.rank_start), (2, r.feature_id.size)), axis=0)
        low, high = ends.astype(np.int32)
        revive(r, a)
        bound = price(r, task, a, low, high)
        assert bound <= min(total for _, total in sums(r, task, low, high))
        if memory is not None:
            other = make_mplp(r, a.cut)
            restore(r, other, memory)
            assert price(r, task, other, low, high) == bound
        tighten(r, task, a, low, high)
        memory = np.zeros(a.min_marginal.size, np.int64)
        save(a, memory)


def test_the_bound_of_one_feature_is_exact(brute):
    rng, seen = np.random.default_rng(7), 0
    while seen < 20:
        posed = pose(brute, rng)
        if posed is None or posed[0].feature_id.size != 1:
            continue
        r, task = posed
        low, high = whole(r)
        least = min(total for _, total in sums(r, task, low, high))
        bound = tighten(r, task, make_mplp(r, make_segments(r)), low, high)
        # Shared potentials are rounded down once per tree.
        assert min(least, task.threshold) - r.tree_id.size <= bound
        seen += 1


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=100, deadline=None)
def test_a_leaf_is_reached_from_whole_segments(brute, seed):
    posed = pose(brute, np.random.default_rng(seed), most=20)
    if posed is None:
        return
    r, _ = posed
    cut = make_segments(r)
    for s in range(r.slot_feature.size):
        segments = range(cut.start[s], cut.start[s + 1])
        ranks = np.concatenate([np.arange(cut.first[k], cut.last[k] + 1) for k in segments])
        count = np.diff(r.rank_start)[r.slot_feature[s]]
        assert ranks.tolist() == list(range(count))
        first_leaf = r.leaf_start[r.slot_tree[s]]
        for pair in range(cut.pair_start[s], cut.pair_start[s + 1]):
            leaf = first_leaf + pair - cut.pair_start[s]
            low, high = 0, count - 1
            for c in range(r.con_start[leaf], r.con_start[leaf + 1]):
                if r.con_slot[c] == s:
                    low, high = r.con_low[c], r.con_high[c]
            assert (cut.first[cut.pair_first[pair]], cut.last[cut.pair_last[pair]]) == (low, high)


def total_at(r, task, point):
    """Add up the one leaf of every tree that a point of ranks reaches."""
    ((_, total),) = sums(r, task, point, point)
    return total


def test_the_sum_is_that_of_its_point_and_no_single_feature_lowers_it(brute):
    rng, seen = np.random.default_rng(2), 0
    while seen < 50:
        posed = pose(brute, rng, most=10)
        if posed is None:
            continue
        r, task = posed
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
        seen += 1
