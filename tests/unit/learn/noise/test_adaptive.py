"""Adaptive noise. Seeds are fixed; a fresh seed fails with probability below 1e-6."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from tacit.dp import (
    ADD_REMOVE_RECORD,
    REPLACE_CLIENT,
    REPLACE_RECORD,
    Bounded,
    Unaccountable,
    clip,
    clip_layers,
    epsilon,
)
from tacit.errors import ConfigError, DataError
from tacit.learn.noise import (
    AttributeNoise,
    Selection,
    contribution_event,
    floored,
    layer_factors,
    layer_shares,
    perturb_attributes,
    perturb_layers,
    private_shares,
    show_contributions,
    unwhiten,
    upload_selected,
    whiten,
)
from tacit.ring import Prg


def prg(label="adaptive"):
    return Prg(b"a key for tests.").fork(label)


def test_contributions_cost_what_is_paid_for_them():
    rows = torch.tensor([[0.7, 0.2, 0.1]], dtype=torch.float64).expand(5000, 3)
    shares, event = private_shares(rows, epsilon=0.5, relation=ADD_REMOVE_RECORD, prg=prg())
    assert shares.tolist() == pytest.approx([0.7, 0.2, 0.1], abs=0.01)
    assert event.epsilon == pytest.approx(0.5, rel=1e-6)
    _, replaced = private_shares(rows, epsilon=0.5, relation=REPLACE_RECORD, prg=prg())
    assert float(replaced.scale) * 2.0**-30 > float(event.scale) * 2.0**-30 * 0.9


def test_rows_that_are_no_shares_are_refused():
    with pytest.raises(DataError, match="shares"):
        private_shares(torch.ones(2, 3), epsilon=1.0, relation=ADD_REMOVE_RECORD, prg=prg())


def test_no_share_is_zero_or_negative():
    shares = floored(torch.tensor([5.0, -1.0, 0.0]))
    assert float(shares.min()) > 0
    assert float(shares.sum()) == pytest.approx(1.0)


def test_attributes_get_noise_in_inverse_proportion_to_their_share():
    shares = torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64)
    settings = AttributeNoise(epsilon=2.0)
    source = prg()
    drawn = torch.stack(
        [
            perturb_attributes(
                torch.zeros(3), shares, settings, relation=REPLACE_RECORD, prg=source
            )[0]
            for _ in range(600)
        ]
    )
    for column, share in zip(drawn.T, shares.tolist(), strict=True):
        scale = 1 / (share * 2.0)
        assert stats.kstest(column.numpy(), stats.laplace(scale=scale).cdf).pvalue > 1e-6
        assert stats.kstest(column.numpy() / 2, stats.laplace(scale=scale).cdf).pvalue < 1e-6


def test_all_attributes_together_cost_the_budget():
    shares = torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64)
    _, event = perturb_attributes(
        torch.zeros(3), shares, AttributeNoise(epsilon=2.0), relation=REPLACE_RECORD, prg=prg()
    )
    assert event.epsilon == pytest.approx(2.0, rel=1e-6)


def test_leaving_attributes_alone_now_and_then_has_no_guarantee():
    shares = torch.tensor([0.9, 0.1], dtype=torch.float64)
    row = torch.tensor([0.25, 0.75], dtype=torch.float64)
    half = AttributeNoise(epsilon=2.0, threshold=0.2, p=0.5)
    source = prg()
    outcomes = [
        perturb_attributes(row, shares, half, relation=REPLACE_RECORD, prg=source)
        for _ in range(200)
    ]
    assert all(isinstance(event, Unaccountable) for _, event in outcomes)
    kept = sum(float(noisy[1]) == 0.75 for noisy, _ in outcomes)
    assert stats.binomtest(kept, 200, 0.5).pvalue > 1e-6
    assert not any(float(noisy[0]) == 0.25 for noisy, _ in outcomes)
    claim = epsilon([outcomes[0][1]], delta=1e-5, accountant="basic")
    assert claim.guarantee == "no guarantee"


def test_an_attribute_outside_its_range_is_clipped_before_the_noise():
    shares = torch.ones(1, dtype=torch.float64)
    settings = AttributeNoise(epsilon=100.0, low=-1.0, width=2.0)
    noisy, _ = perturb_attributes(
        torch.tensor([1e6]), shares, settings, relation=REPLACE_RECORD, prg=prg()
    )
    assert float(noisy[0]) == pytest.approx(1.0, abs=0.5)


def test_a_threshold_that_nothing_falls_below_keeps_the_guarantee():
    shares = torch.tensor([0.5, 0.5], dtype=torch.float64)
    settings = AttributeNoise(epsilon=2.0, threshold=0.2, p=0.5)
    _, event = perturb_attributes(
        torch.zeros(2), shares, settings, relation=REPLACE_RECORD, prg=prg()
    )
    assert not isinstance(event, Unaccountable)


def test_layers_together_are_one_gaussian_mechanism():
    layers = {
        "a": clip(torch.zeros(20_000), l2_bound=3.0),
        "b": clip(torch.zeros(20_000), l2_bound=0.5),
    }
    shares = {"a": 0.8, "b": 0.2}
    noisy, event = perturb_layers(
        layers, shares, multiplier=1.7, relation=REPLACE_CLIENT, prg=prg()
    )
    assert event.multiplier == pytest.approx(1.7, rel=1e-4)
    for name, bound in (("a", 3.0), ("b", 0.5)):
        sigma = 1.7 * 2 * bound / math.sqrt(shares[name])
        assert stats.kstest(np.asarray(noisy[name]), stats.norm(scale=sigma).cdf).pvalue > 1e-6
    # The ε of two mechanisms composed is the ε of the one.
    joint = sum(shares[n] / 1.7**2 for n in shares)
    assert joint == pytest.approx(1 / 1.7**2)


def test_whitened_layers_have_norm_one_and_come_back():
    generator = torch.Generator().manual_seed(4)
    update = {n: torch.randn(s, generator=generator) for n, s in (("a", (3, 4)), ("b", (5,)))}
    bounds, shares = {"a": 0.5, "b": 2.0}, {"a": 0.3, "b": 0.7}
    layers = clip_layers(update, l2_bounds=bounds)
    vector = whiten(layers, shares)
    assert float(vector.value.norm()) <= 1
    shapes = {n: layer.value.shape for n, layer in layers.items()}
    back = unwhiten(vector.value, shapes, layer_factors(bounds, shares))
    for name, layer in layers.items():
        assert torch.allclose(back[name], layer.value, rtol=1e-5)


def test_shares_of_layers_minimise_the_weighted_noise():
    weights, sizes = {"a": 0.9, "b": 0.1}, {"a": 10, "b": 4000}
    bounds = {"a": 1.0, "b": 2.0}

    def cost(share):
        parts = {"a": share, "b": 1 - share}
        return sum(weights[n] * sizes[n] * bounds[n] ** 2 / parts[n] for n in parts)

    best = layer_shares(weights, sizes, bounds)["a"]
    assert all(cost(best) <= cost(other) for other in (best / 1.3, best * 1.3, 0.5))


def test_selected_entries_are_the_large_ones_and_cost_both_budgets():
    update = torch.zeros(300)
    update[[7, 100, 250]] = torch.tensor([1.0, -1.0, 1.0])
    selection = Selection(
        bound=1.0, threshold=0.5, answers=3, choice_epsilon=150.0, value_epsilon=150.0
    )
    indices, values, events = upload_selected(update, selection, relation=REPLACE_CLIENT, prg=prg())
    assert indices.tolist() == [7, 100, 250]
    assert values.tolist() == pytest.approx([1.0, -1.0, 1.0], abs=0.6)
    assert sum(event.epsilon for event in events) == pytest.approx(300, rel=1e-4)


@pytest.mark.parametrize("value_epsilon", [1e-3, 1.0, 100.0])
@pytest.mark.parametrize("answers", [1, 40, 5000])
def test_a_selection_says_beforehand_what_it_costs(answers, value_epsilon):
    selection = Selection(
        bound=0.3, threshold=0.1, answers=answers, choice_epsilon=0.5, value_epsilon=value_epsilon
    )
    _, _, events = upload_selected(torch.zeros(5000), selection, relation=REPLACE_CLIENT, prg=prg())
    spent = sum(event.epsilon for event in events)
    assert selection.epsilon(REPLACE_CLIENT) == pytest.approx(spent, rel=1e-12)


def test_contributions_of_a_client_say_beforehand_what_they_cost():
    mean = torch.full((700,), 1 / 700, dtype=torch.float64)
    _, event = show_contributions(mean, epsilon=1e-3, prg=prg())
    assert contribution_event(700, epsilon=1e-3) == event
    assert event.epsilon > 1e-3 * (1 + 1e-4), "rounding of many entries counts"


@pytest.mark.parametrize("change", [{"epsilon": 0.0}, {"epsilon": math.nan}, {"p": 1.5}])
def test_settings_without_meaning_are_refused(change):
    with pytest.raises(ConfigError):
        AttributeNoise(**{"epsilon": 1.0, **change})


def test_shares_that_do_not_fit_the_layers_are_refused():
    layers = {"a": Bounded(torch.zeros(2, dtype=torch.float64), 1.0)}
    with pytest.raises(ConfigError, match="add up to one"):
        perturb_layers(layers, {"a": 0.5}, multiplier=1.0, relation=REPLACE_CLIENT, prg=prg())
