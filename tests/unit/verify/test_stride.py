"""Walks of several trees at a time, by thresholds, against walks by cells."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("numba", reason="tacit-ml[verify] is not installed")

from tacit.verify import lanes
from tacit.verify.box import Box, Domain, ball, box_cells
from tacit.verify.glance import look, make_glance, mark_groups, sum_center
from tacit.verify.lanes import lay_planes
from tacit.verify.rows import Boxes
from tacit.verify.stride import hold_keys, is_summed, locate, stride

SEEDS = st.integers(0, 2**32 - 1)
DOMAIN = Domain(-3.0, 3.0)
KINDS = {
    "one score": {"scores": 1},
    "several scores, float32": {"scores": 3, "sum_type": "float32"},
    "boosted": {"scores": 4},
}


def draw(brute, seed, kind):
    rng = np.random.default_rng(seed)
    make = brute.random_boosted if kind == "boosted" else brute.random_ensemble
    model = make(rng, most=30, **KINDS[kind])
    return model, ball(
        model, brute.random_input(rng, model.n_features), rng.uniform(0.0, 2.5), DOMAIN
    )


def draw_asking(brute, kind):
    """Make a model that asks at least one question."""
    models = (draw(brute, seed, kind) for seed in range(100))
    return next((model, box) for model, box in models if model.index.asked.size)


def state(model, box):
    rows = (end[None] for end in (box.center, box.low, box.high))
    is_single = model.input_type == "float32"
    return Boxes(*rows, np.zeros(1, np.int64), np.zeros(model.n_features, dtype=bool), is_single)


@pytest.mark.parametrize("kind", KINDS)
@given(seed=SEEDS)
@settings(max_examples=100, deadline=None)
def test_a_walk_by_thresholds_sees_what_a_walk_by_cells_sees(brute, kind, seed):
    model, box = draw(brute, seed, kind)
    index, (low, high) = model.index, box_cells(model, box)
    slow, fast = make_glance(index, 1), make_glance(index, 1)
    slow.at[:] = box_cells(model, Box(box.center, box.center, box.center))[0]
    count = look(index.paths, slow, low, high)
    assert hold_keys(index, state(model, box), 0, fast)
    sum_center(index, slow)
    # Many features are walked by another step: with more of them that no tree asks for.
    asked = np.concatenate([index.asked, np.zeros(lanes.FEW_FEATURES, np.int32)])
    for other in (index, index._replace(asked=asked)):
        assert stride(other, fast) == count
        mark_groups(index.paths, fast, count)
        assert (fast.reached == slow.reached).all()
        assert set(fast.undecided[:count]) == set(slow.undecided[:count])
        assert (fast.open_start == slow.open_start).all()
        assert not is_summed(index) or (fast.sums == slow.sums).all()
        for tree in slow.undecided[:count]:
            ways = [
                set(g.pending[g.pending_start[tree] : g.pending_end[tree]]) for g in (slow, fast)
            ]
            assert ways[0] == ways[1]


@pytest.mark.parametrize("kind", KINDS)
@given(seed=SEEDS)
@settings(max_examples=60, deadline=None)
def test_a_walk_sees_the_ways_of_a_box_without_end(brute, kind, seed):
    model, box = draw(brute, seed, kind)
    rng = np.random.default_rng(seed)
    low, high = (
        np.where(rng.random(end.size) < 0.5, end, far)
        for end, far in ((box.low, -np.inf), (box.high, np.inf))
    )
    center = np.where(rng.random(low.size) < 0.2, high, box.center)
    box = Box(center, low, high)
    index, (low, high) = model.index, box_cells(model, box)
    slow, fast = make_glance(index, 1), make_glance(index, 1)
    slow.at[:] = box_cells(model, Box(center, center, center))[0]
    count = look(index.paths, slow, low, high)
    assert hold_keys(index, state(model, box), 0, fast)
    assert stride(index, fast) == count
    assert (fast.reached == slow.reached).all()
    for tree in slow.undecided[:count]:
        ways = [set(g.pending[g.pending_start[tree] : g.pending_end[tree]]) for g in (slow, fast)]
        assert ways[0] == ways[1]


@pytest.mark.parametrize("most", [0, 2, 64])
@given(seed=SEEDS)
@settings(max_examples=60, deadline=None)
def test_cells_are_the_same_counted_or_searched_for(brute, most, seed):
    model, box = draw(brute, seed, "several scores, float32")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lanes, "MANY_CUTS", most)
        patch.setattr(lanes, "LEAST_FEATURES", 0)
        cuts = model.index.cuts, model.index.cut_start
        planes = lay_planes(*cuts, model.index.asked, is_single=True)
    index = model.index._replace(planes=planes)
    assert planes.searched == (np.diff(index.cut_start)[index.asked] > most).sum()
    g, (low, high) = make_glance(index, 1), box_cells(model, box)
    found = np.zeros_like(low), np.zeros_like(high)
    hold_keys(index, state(model, box), 0, g)
    locate(index, g, *found)
    assert (found[0] == low).all()
    assert (found[1] == high).all()
    assert (g.at == box_cells(model, Box(box.center, box.center, box.center))[0]).all()
    assert g.free[: g.free[-1]].tolist() == np.flatnonzero((low < high) | (g.at != low)).tolist()


def test_cuts_between_two_float32_numbers_are_counted_as_they_are_searched_for():
    cuts = np.sort(np.random.default_rng(0).normal(size=40))
    near = np.float32(cuts).astype(np.float64)
    keys = np.concatenate([near, np.nextafter(np.float32(cuts), np.float32(9.0))])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lanes, "LEAST_FEATURES", 0)
        planes = lay_planes(cuts, np.array([0, 40]), np.array([0]), is_single=True)
    assert planes.searched == 0
    for key in keys:
        assert (planes.cut < np.float32(key)).sum() == np.searchsorted(cuts, key)


@pytest.mark.parametrize("beside", [np.nan, 5.0, -5.0])
def test_a_center_beside_the_box_is_noticed(brute, beside):
    model, box = draw_asking(brute, "one score")
    center = box.center.copy()
    center[model.index.asked[-1]] = beside
    g = make_glance(model.index, 1)
    assert hold_keys(model.index, state(model, box), 0, g)
    assert not hold_keys(model.index, state(model, Box(center, box.low, box.high)), 0, g)


def test_of_many_features_only_those_asked_for_are_rounded(brute):
    model, box = draw_asking(brute, "several scores, float32")
    wide = np.concatenate([np.zeros(4 * model.n_features + 1), np.ones(3)])
    index = model.index
    g = make_glance(index, 1)
    longer = (np.concatenate([end, wide]) for end in (box.center, box.low, box.high))
    names = ("key_low", "key_at", "key_high")
    g = g._replace(**{name: np.zeros(len(wide) + model.n_features) for name in names})
    assert hold_keys(index, state(model, Box(*longer)), 0, g)
    assert (g.key_at[index.asked] == np.float32(box.center[index.asked])).all()
    assert not g.key_at[model.n_features :].any()
