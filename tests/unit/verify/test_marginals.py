"""The intervals to which attacks are drawn, against a plain reading of the trees."""

import numpy as np
import pytest

from tacit.verify.models.index import lay_minimisers


def average(packed, node, pull, rises):
    """Note what every question below a node changes on average; return mean and leaves."""
    feature, rank, left, right = packed[node]
    if feature < 0:
        return pull[node], 1
    (low, n_low), (high, n_high) = (average(packed, n, pull, rises) for n in (left, right))
    rises.append((feature, rank, (high - low) * (n_low + n_high)))
    return (low * n_low + high * n_high) / (n_low + n_high), n_low + n_high


def heights(index, roots, pull):
    """Draw the average over the intervals of each feature."""
    rises = []
    for root in roots:
        average(index.trees.packed, root, pull, rises)
    intervals = [np.zeros(n + 1) for n in np.diff(index.cut_start)]
    for feature, rank, rise in rises:
        intervals[feature][rank + 1 :] += rise
    return intervals


@pytest.mark.parametrize("seed", range(20))
def test_a_lure_is_where_the_average_is_least(brute, seed):
    model = brute.random_ensemble(np.random.default_rng(seed), scores=1, most=20)
    index = model.index
    intervals = heights(index, index.trees.roots, index.trees.fixed[:, 0])
    for f, height in enumerate(intervals):
        slack = 1e-6 * (1 + np.abs(height).max())
        assert height[index.minimiser[0, f]] <= height.min() + slack
        assert height[index.minimiser[1, f]] >= height.max() - slack


@pytest.mark.parametrize("seed", range(10))
def test_a_pair_of_classes_has_a_lure_of_its_own(brute, seed):
    model = brute.random_boosted(np.random.default_rng(seed), scores=4, most=20)
    index = model.index
    start, entry = index.nodes.group_start, index.nodes.entry // 4
    if start.size == 2:
        pytest.skip("trees of this model add to several classes")
    groups = [
        heights(index, entry[start[k] : start[k + 1]], index.trees.fixed[:, k])
        for k in range(start.size - 1)
    ]
    n_groups = len(groups)
    for first in range(n_groups):
        for second in range(n_groups):
            row = index.minimiser[first * n_groups + second]
            for f in range(model.n_features):
                height = groups[first][f] - groups[second][f]
                assert height[row[f]] <= height.min() + 1e-6 * (1 + np.abs(height).max())


def test_leaves_that_pull_several_scores_have_no_lure(brute):
    model = brute.random_ensemble(np.random.default_rng(1), scores=3, most=20)
    index = model.index
    assert lay_minimisers(index.trees.packed, index.nodes, index.cut_start).shape == (
        0,
        model.n_features,
    )
