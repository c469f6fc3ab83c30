import math

import pytest
import torch

from tacit.errors import ConfigError, DataError
from tacit.federated.objective import (
    _effective,
    _minimiser,
    _Objective,
    _released,
    _tilt,
    fit_private_logistic,
)
from tacit.ring import Prg


def prg(label="objective"):
    return Prg(b"a key for tests.").fork(label)


def rows(count=2000, dimension=5):
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(count, dimension, generator=generator, dtype=torch.float64)
    x = x / x.norm(dim=1).max()
    truth = torch.tensor([3.0, -2.0, 0.0, 1.0, 0.0], dtype=torch.float64)
    return x, torch.where(x @ truth >= 0, 1, -1)


def test_a_large_budget_classifies_well_and_a_tiny_one_does_not():
    x, labels = rows()
    l2 = {"regularisation": 1e-3}
    good, event = fit_private_logistic(x, labels, epsilon=20.0, **l2, prg=prg())
    bad, _ = fit_private_logistic(x, labels, epsilon=1e-3, **l2, prg=prg("tiny"))

    def accuracy(w):
        return float((torch.sign(x @ w) == labels).double().mean())

    assert accuracy(good) > 0.93 > accuracy(bad)
    assert event.epsilon == 20.0


def test_the_weights_are_where_the_gradient_vanishes():
    x, labels = rows()
    w, _ = fit_private_logistic(x, labels, epsilon=2.0, regularisation=1e-2, prg=prg())
    epsilon, extra = _effective(2.0, 1e-2, len(x))
    tilt = _tilt(prg(), 5, epsilon)
    signs = labels.double()
    slope = -(signs * torch.sigmoid(-signs * (x @ w))) @ x / len(x)
    gradient = slope + (1e-2 + extra) * w + tilt / len(x)
    assert float(gradient.norm()) < 1e-4  # as far as the last noise lets it be seen


@pytest.mark.parametrize("regularisation", [1.0, 1e-3, 1e-8])
def test_the_search_ends_where_the_last_noise_reaches(regularisation):
    x, labels = rows()
    objective = _Objective(x * labels[:, None], regularisation, torch.full((5,), 1e-3).double())
    w = _minimiser(objective)
    assert float(objective.gradient(w).norm()) <= 1e-9
    # An independent minimum, from second derivatives alone and in other arithmetic.
    again = torch.zeros(5, dtype=torch.float64)
    for _ in range(200):
        again -= torch.linalg.solve(objective.curvature(again), objective.gradient(again))
    if torch.isfinite(again).all():
        assert torch.allclose(w, again, rtol=1e-5, atol=1e-6 / regularisation)


def test_a_search_that_does_not_end_releases_nothing(monkeypatch):
    monkeypatch.setattr("tacit.federated.objective._newton_step", lambda _, w, __: w + 1)
    monkeypatch.setattr("tacit.federated.objective.minimize", lambda *_, **__: Far())
    with pytest.raises(DataError, match="nothing is released"):
        fit_private_logistic(*rows(100), epsilon=1.0, prg=prg())


class Far:
    """What a search returns that stopped on its way."""

    x = torch.ones(5, dtype=torch.float64).numpy()


def test_the_last_noise_covers_the_distance_and_costs_its_part_of_epsilon():
    x, labels = rows(100)
    objective = _Objective(x * labels[:, None], 1e-2, torch.zeros(5).double())
    w = _minimiser(objective)
    drawn = torch.stack([_released(objective, w, 1.0, 0.9, prg=prg(str(i))) for i in range(400)])
    spread = float((drawn - w).abs().mean())
    # Laplace noise: its mean size is its scale, here at least twice the distance by ε/100.
    least = 2 * 2 * 1e-9 / 1e-2 * math.sqrt(5) / 0.01
    assert least < spread < 1e-2
    assert _effective(1.0, 1e-2, 100)[0] < 0.99


def test_the_random_term_has_the_length_that_epsilon_asks_for():
    source = prg()
    lengths = torch.tensor([float(_tilt(source, 6, 0.5).norm()) for _ in range(2000)])
    # Gamma(6, 4): mean 24, standard error 9.8 / sqrt(2000)
    assert float(lengths.mean()) == pytest.approx(24, abs=1.1)
    assert float(lengths.std()) == pytest.approx(math.sqrt(6) * 4, rel=0.1)


def test_a_weak_regulariser_is_strengthened_when_epsilon_cannot_pay_for_it():
    epsilon, extra = _effective(0.1, 1e-6, 100)
    assert epsilon == pytest.approx(0.99 * 0.05)
    assert extra > 0


def test_rows_and_labels_that_break_the_proof_are_refused():
    x, labels = rows(10)
    with pytest.raises(DataError, match="norm of at most 1"):
        fit_private_logistic(x * 10, labels, epsilon=1.0, prg=prg())
    with pytest.raises(DataError, match="−1 or"):
        fit_private_logistic(x, labels * 2, epsilon=1.0, prg=prg())
    with pytest.raises(ConfigError, match="epsilon"):
        fit_private_logistic(x, labels, epsilon=0.0, prg=prg())
