"""The scale of adaptive noise: even while nothing is known, larger where something was learned."""

import numpy as np

from tacit.federated import attribute_scale

SHAPES = [(10, 6), (10,)]


def test_a_fresh_model_is_scaled_evenly():
    assert np.array_equal(attribute_scale(np.zeros(70), SHAPES), np.ones(70))


def test_attributes_that_carry_something_get_a_larger_scale():
    matrix = np.full((10, 6), 0.01)
    matrix[:, 2] = 1.0
    scale = attribute_scale(np.concatenate([matrix.ravel(), np.zeros(10)]), SHAPES)
    columns = scale[:60].reshape(10, 6)
    assert (columns[:, 2] > 2 * columns[:, 0]).all()
    assert np.isclose(np.mean(scale**2), 1.0)


def test_the_scale_is_a_function_of_the_model_alone():
    weights = np.linspace(-1, 1, 70)
    assert np.array_equal(attribute_scale(weights, SHAPES), attribute_scale(weights, SHAPES))
