"""The library's arithmetic, compared with plain numpy."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.verify.kernels.layout.rounding import above, at_most


def predict_slowly(model, x):
    """Walk one tree after the other and add in the library's own type."""
    kind = np.dtype(model.sum_type).type
    scores = model.base.astype(kind)
    keys = np.asarray(x, dtype=model.input_type)
    for root in model.roots:
        node = root
        while model.feature[node] >= 0:
            goes_left = keys[model.feature[node]] <= model.threshold[node]
            node = model.left[node] if goes_left else model.right[node]
        scores = scores + model.value[node].astype(kind)
    return scores / kind(model.divisor)


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=200, deadline=None)
def test_scores_are_bit_equal_to_a_plain_walk(brute, seed):
    rng = np.random.default_rng(seed)
    model = brute.random_ensemble(
        rng,
        scores=2,
        values=brute.reals,
        sum_type=str(rng.choice(["float32", "float64"])),
        divisor=7.0,
        most=30,
    )
    x = brute.random_input(rng, model.n_features)
    assert (model.scores(x)[0] == predict_slowly(model, x)).all()


@given(
    cut=st.floats(-(2.0**100), 2.0**100, width=32),
    is_single=st.booleans(),
)
def test_the_inputs_on_both_sides_of_a_cut_are_neighbours(cut, is_single):
    key = np.float32 if is_single else np.float64
    left, right = at_most(cut, is_single, False), above(cut, is_single, False)
    assert key(left) <= cut < key(right)
    assert np.nextafter(left, np.inf) == right
