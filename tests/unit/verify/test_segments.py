"""Segments against the ranks that they stand for."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("numba", reason="tacit-ml[verify] is not installed")

from tacit.verify.box import Domain, ball, box_intervals
from tacit.verify.kernels.layout.reach import reach
from tacit.verify.kernels.layout.segments import make_segments


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=100, deadline=None)
def test_a_leaf_is_reached_from_whole_segments(brute, seed):
    rng = np.random.default_rng(seed)
    model = brute.random_ensemble(rng, most=20)
    box = ball(model, brute.random_input(rng, model.n_features), 2.0, Domain(-3.0, 3.0))
    r = reach(model.index.trees, *box_intervals(model, box))
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
