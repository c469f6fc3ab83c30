import numpy as np

from tacit.verify.box import Domain, ball, box_intervals
from tacit.verify.kernels.attack.descent import evaluate_point
from tacit.verify.kernels.attack.tabu import (
    NOWHERE,
    begin,
    descend_within,
    make_tabu,
    move,
    step,
)
from tacit.verify.kernels.layout.reach import reach
from tacit.verify.kernels.search.problem import make_load, make_problem
from tacit.verify.objectives import make_objectives


def some_walks(brute, count=60):
    """Make small problems, and a walk in each from a point drawn at random."""
    rng = np.random.default_rng(4)
    for _ in range(count):
        model = brute.random_ensemble(rng, most=12, values=brute.reals)
        x = brute.random_input(rng, model.n_features)
        near, far = (box_intervals(model, ball(model, x, size, Domain())) for size in (0.3, 2.0))
        index = model.index
        r = reach(index.trees, *far)
        if not r.tree_id.size:
            continue
        load = make_load(index.trees, index.base_fixed, r)
        task = make_problem(r, load, make_objectives(model, model.predict(x[None])[0], None), 0)
        s = make_tabu(r, *near)
        begin(r, task, s, draw_point(rng, r))
        yield rng, near, r, task, s


def draw_point(rng, r):
    return rng.integers(0, np.diff(r.rank_start)).astype(np.int32)


def total_at(r, task, point):
    free = np.diff(r.rank_start).astype(np.int32) - 1
    return evaluate_point(r, task, r.fixed_leaf.copy(), point, np.zeros_like(free), free)


def changes(r, task, point, f):
    """Move one feature to every rank in turn, and add up all trees each time."""
    here, found = total_at(r, task, point), []
    for rank in range(r.rank_start[f + 1] - r.rank_start[f]):
        other = point.copy()
        other[f] = rank
        found.append(int(total_at(r, task, other) - here))
    return np.array(found)


def least(changes):
    """The least change of a step that changes anything."""
    return min((c for c in changes.tolist() if c), default=NOWHERE)


def check_table(r, task, s):
    assert s.total[0] == total_at(r, task, s.point)
    for f in range(r.feature_id.size):
        found = changes(r, task, s.point, f)
        assert s.far[f] == least(found)
        assert s.near[f] == least(found[s.near_low[f] : s.near_high[f] + 1])
        if s.far[f] < NOWHERE:
            assert found[s.far_rank[f]] == s.far[f]
        if s.near[f] < NOWHERE:
            assert found[s.near_rank[f]] == s.near[f]
            assert s.near_low[f] <= s.near_rank[f] <= s.near_high[f]


def test_the_table_says_what_every_single_step_changes_after_any_moves(brute):
    looked_at = 0
    for rng, _, r, task, s in some_walks(brute):
        check_table(r, task, s)
        for _ in range(5):
            f = int(rng.integers(r.feature_id.size))
            move(r, task, s, f, int(draw_point(rng, r)[f]))
            check_table(r, task, s)
        looked_at += 1
    assert looked_at > 30


def test_the_smaller_box_is_the_ranks_that_meet_it(brute):
    for _, (low, high), r, _, s in some_walks(brute):
        for g, f in enumerate(r.feature_id):
            first, last = r.rank_start[g], r.rank_start[g + 1]
            meets = (r.rank_high[first:last] >= low[f]) & (r.rank_low[first:last] <= high[f])
            assert np.flatnonzero(meets).tolist() == [*range(s.near_low[g], s.near_high[g] + 1)]


def test_a_step_is_the_least_change_among_features_that_do_not_rest(brute):
    for _, _, r, task, s in some_walks(brute):
        before, moves = s.total[0], s.far.copy()
        if moves.min() == NOWHERE:
            assert not step(r, task, s, s.far, s.far_rank, before)
            continue
        assert step(r, task, s, s.far, s.far_rank, before)
        assert s.total[0] == before + moves.min()
        rests = s.until > s.clock[0]
        assert rests.sum() == 1
        was = s.point[rests].copy()
        floor = np.iinfo(np.int64).min
        step(r, task, s, s.far, s.far_rank, floor)
        assert (s.point[rests][:1] == was).all()


def test_a_walk_sinks_to_a_point_of_the_smaller_box_that_no_step_lowers(brute):
    for _, _, r, task, s in some_walks(brute):
        begin(r, task, s, s.near_low.copy())
        lowest = descend_within(r, task, s, 200)
        assert ((s.near_low <= lowest) & (lowest <= s.near_high)).all()
        for f in range(lowest.size):
            found = changes(r, task, lowest, f)
            assert found[s.near_low[f] : s.near_high[f] + 1].min() >= 0
