"""Distance correlation against brute force, known values and the predictor of seed 000."""

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist

from tacit.audit.permutation import (
    DISTRIBUTIONS,
    distance_correlation,
    independence_p,
    predicted_correlation,
    simulate,
)
from tacit.audit.permutation.distance import chi_mean, mean_product
from tacit.errors import DataError


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def brute_force(x, y):
    """The definition over all different i, j, k, l, as an unbiased average (n is small)."""
    a, b, n = cdist(x, x), cdist(y, y), len(x)

    def covariance(a, b):
        total = 0.0
        count = 0
        for i in range(n):
            for j in range(n):
                for k in range(n):
                    for m in range(n):
                        if len({i, j, k, m}) == 4:
                            total += a[i, j] * (b[i, j] + b[k, m] - 2 * b[i, k])
                            count += 1
        return total / count

    return covariance(a, b) / np.sqrt(covariance(a, a) * covariance(b, b))


def test_the_estimator_is_the_average_over_all_quadruples():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(9, 3))
    y = x[:, :2] ** 2 + rng.normal(size=(9, 2))
    assert distance_correlation(x, y) == pytest.approx(brute_force(x, y), abs=1e-12)


def test_a_rotation_keeps_everything_and_independence_nothing():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(200, 10))
    rotation, _ = np.linalg.qr(rng.normal(size=(10, 10)))
    assert distance_correlation(x, 3 * x @ rotation + 1) == pytest.approx(1.0)
    other = distance_correlation(x, rng.normal(size=(200, 10)))
    assert abs(other) < 0.05
    # One of a thousand independent samples would fall below this.
    assert independence_p(other, 200) > 1e-3
    assert independence_p(distance_correlation(x, x**2), 200) < 1e-6


def test_too_few_rows_are_refused():
    with pytest.raises(DataError, match="at least 4 rows"):
        distance_correlation(np.zeros((3, 2)), np.zeros((3, 2)))
    with pytest.raises(DataError, match="as many rows"):
        distance_correlation(np.eye(5), np.eye(6))


def test_the_mean_product_is_that_of_gaussian_projections():
    rng = np.random.default_rng(2)
    for width in (1, 3):
        u, v = rng.normal(size=(2, 200_000, width))
        assert chi_mean(width) == pytest.approx(np.linalg.norm(u, axis=1).mean(), rel=0.01)
        for cosine in (0.0, 0.6, 1.0):
            w = cosine * u + np.sqrt(1 - cosine**2) * v
            drawn = (np.linalg.norm(u, axis=1) * np.linalg.norm(w, axis=1)).mean()
            found = float(mean_product(np.array(cosine), width))
            assert found == pytest.approx(drawn, rel=0.015)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_the_predictor_meets_projections_and_permutation_stays_below_one_number(name):
    projected, predicted, permuted = simulate(
        name, rows=300, generator=generator(), widths=(1, 8, 64)
    )
    for (_, measured), (_, foretold) in zip(projected.points, predicted.points, strict=True):
        assert foretold == pytest.approx(measured, abs=0.06)
    one_number = predicted.points[0][1]
    assert all(value < one_number + 0.02 for _, value in permuted.points[1:])
    # The order of one number is no secret.
    assert permuted.points[0] == projected.points[0]


def test_the_mean_product_of_wide_projections_goes_on_where_the_library_ends():
    cosine = np.linspace(0, 1, 5)
    for width in (63, 64, 65, 66, 500):
        found = mean_product(cosine, width)
        assert found[-1] == pytest.approx(width, rel=1e-9)
        assert found[0] == pytest.approx(chi_mean(width) ** 2)


def test_a_wide_projection_of_a_line_is_predicted_to_keep_everything():
    line = np.outer(np.random.default_rng(3).normal(size=100), np.ones(5))
    assert predicted_correlation(line, 200, generator=generator()) == pytest.approx(1.0, abs=0.02)
