"""What is tried about open sides, where two of them ask about the same trees."""

import numpy as np
import pytest

pytest.importorskip("numba", reason="tacit[verify] is not installed")

from tacit.verify import Certificate, Counterexample, verify
from tacit.verify.build import Tree, build

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


def draw(seed):
    """Make a regression that can fall by much and hardly rise, and by how much it can fall.

    Two stumps about the same feature are torn: one falls on the left, the other on the right.
    """
    rng = np.random.default_rng(seed)
    trees, fall = [], 0
    for feature in range(N_FREE):
        deep, slight = (int(n) for n in rng.integers(1, 50, 2))
        trees.append(stump(feature, 0.5, 0.0, -float(deep)))
        lost = deep
        if feature < N_TORN:
            trees.append(stump(feature, -0.5, -float(slight), 0.0))
            lost = max(deep, slight)
        fall += lost
    order = rng.permutation(len(trees))
    trees = [trees[i] for i in order] + [stump(0, 0.75, 0.0, 1.0)]
    return build(
        trees,
        base=np.zeros(1),
        n_features=N_FREE,
        task="regress",
        input_type="float64",
        sum_type="float64",
    ), fall


@pytest.mark.parametrize("seed", range(20))
def test_two_sides_of_a_regression_do_not_mix_what_they_know_of_the_trees(seed):
    model, fall = draw(seed)
    at_rest = model.predict(np.zeros((1, N_FREE)))[0]
    assert at_rest == 0.0
    # Where the last stump rises, the first feature is on the right: all that fell there is lost.
    told = verify(model, np.zeros(N_FREE), 0.7, rho=fall)
    assert isinstance(told, Certificate)
    assert isinstance(verify(model, np.zeros(N_FREE), 0.7, rho=fall - 0.5), Counterexample)
    wide = verify(model, np.zeros(N_FREE), 1.0, rho=fall)
    assert isinstance(wide, Certificate)
