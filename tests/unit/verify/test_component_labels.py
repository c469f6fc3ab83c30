"""Trees that share no open feature: which they are, and what they make of a sum."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.verify.box import Domain, ball, box_intervals
from tacit.verify.kernels.layout.reach import reach
from tacit.verify.kernels.search.branch import Open
from tacit.verify.kernels.search.components import hull_intervals, label_components, start_part
from tacit.verify.kernels.search.problem import whole_box
from tacit.verify.objectives import make_objectives

SEEDS = st.integers(0, 2**32 - 1)


def draw(brute, seed):
    rng = np.random.default_rng(seed)
    model = brute.random_ensemble(rng, most=8)
    x, eps = brute.random_input(rng, model.n_features), rng.uniform(0.1, 2.0)
    intervals = box_intervals(model, ball(model, x, eps, Domain(-3.0, 3.0)))
    return model, intervals, reach(model.index.trees, *intervals)


def features_of(r, t):
    return set(r.slot_feature[r.slot_start[t] : r.slot_start[t + 1]].tolist())


@given(seed=SEEDS)
@settings(max_examples=200, deadline=None)
def test_trees_of_different_parts_share_no_feature_and_a_part_hangs_together(brute, seed):
    _, _, r = draw(brute, seed)
    label, count, n_shared = label_components(r)
    assert set(label.tolist()) == set(range(count))
    for t, u in itertools.combinations(range(label.size), 2):
        if label[t] != label[u]:
            assert not features_of(r, t) & features_of(r, u)
    for component in range(n_shared):
        members = np.flatnonzero(label == component).tolist()
        assert len(members) > 1
        reached, grown = features_of(r, members[0]), None
        while reached != grown:
            grown = set(reached)
            for t in members:
                reached |= features_of(r, t) if features_of(r, t) & reached else set()
        assert all(features_of(r, t) <= reached for t in members)


@given(seed=SEEDS)
@settings(max_examples=200, deadline=None)
def test_trees_that_share_nothing_are_one_part_that_does_not_count(brute, seed):
    _, _, r = draw(brute, seed)
    label, count, n_shared = label_components(r)
    lonely = label == n_shared
    assert count - n_shared == lonely.any()
    for t in np.flatnonzero(lonely):
        others = [features_of(r, u) for u in range(label.size) if u != t]
        assert not features_of(r, t) & set().union(*others)


@given(seed=SEEDS)
@settings(max_examples=200, deadline=None)
def test_a_part_by_itself_has_its_trees_and_the_ranks_that_it_had(brute, seed):
    model, intervals, r = draw(brute, seed)
    objectives = make_objectives(model, 1, None)
    label, count, _ = label_components(r)
    leaves = r.fixed_leaf.copy()
    leaves[r.tree_id] = r.leaf_node[r.leaf_start[:-1]]
    for component in range(count):
        alone = start_part(model.index, objectives, 0, r, label, component, leaves, intervals).r
        assert alone.tree_id.tolist() == r.tree_id[label == component].tolist()
        elsewhere = np.setdiff1d(np.arange(leaves.size), alone.tree_id)
        assert (alone.fixed_leaf[elsewhere] == leaves[elsewhere]).all()
        for g, f in enumerate(alone.feature_id):
            (whole,) = np.flatnonzero(r.feature_id == f)
            was = slice(r.rank_start[whole], r.rank_start[whole + 1])
            now = slice(alone.rank_start[g], alone.rank_start[g + 1])
            assert alone.rank_low[now].tolist() == r.rank_low[was].tolist()


@given(seed=SEEDS)
@settings(max_examples=100, deadline=None)
def test_a_hull_holds_every_box_and_no_more(brute, seed):
    _, intervals, r = draw(brute, seed)
    rng, n = np.random.default_rng(seed), r.feature_id.size
    most = whole_box(r)[n:]
    stack = np.sort(rng.integers(0, most + 1, (3, 2, n)), axis=1).reshape(3, 2 * n)
    low, high = (end.copy() for end in intervals)
    hull_intervals(r, Open(stack.astype(np.int32), np.zeros((3, 3), np.int64)), 3, low, high)
    for g, f in enumerate(r.feature_id):
        first, last = stack[:, g].min(), stack[:, n + g].max()
        assert low[f] == r.rank_low[r.rank_start[g] + first]
        assert high[f] == r.rank_high[r.rank_start[g] + last]
    others = np.setdiff1d(np.arange(low.size), r.feature_id)
    assert (low[others] == intervals[0][others]).all()
    assert (high[others] == intervals[1][others]).all()
