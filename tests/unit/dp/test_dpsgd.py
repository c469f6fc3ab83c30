"""DP-SGD on our randomness. Seeds are fixed; a fresh seed fails with probability below 1e-6."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from tacit.dp import DpSgd, epsilon, train_dp_sgd
from tacit.dp.dpsgd import (
    _clipped_sum,
    _drawn,
    _per_record,
    _poisson_batch,
    _units,
)
from tacit.errors import ConfigError, DataError
from tacit.ring import Prg

pytest.importorskip("opacus")
ONE = DpSgd(steps=1, sample_rate=0.5, clip=1.0, multiplier=1.0)


def prg(label="dpsgd"):
    return Prg(b"a key for tests.").fork(label)


def problem(count=600):
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(count, 4, generator=generator)
    return x, (x[:, 0] + x[:, 1] > 0).long()


def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))


def sums_of(model, clip, *batches):
    """The clipped sums of batches: rows, labels and, where there are some, owners."""
    wrapped, parameters = _per_record(model), list(model.parameters())
    found = [_clipped_sum(wrapped, parameters, x, y, clip, *whose) for x, y, *whose in batches]
    wrapped.remove_hooks()
    return found


def test_a_model_learns_and_the_event_says_what_it_cost():
    x, labels = problem()
    model = build()
    settings = DpSgd(steps=60, sample_rate=0.2, clip=1.0, multiplier=1.0, rate=0.5)
    event = train_dp_sgd(model, x, labels, settings, prg=prg())
    assert float((model(x).argmax(1) == labels).double().mean()) > 0.85
    spent = epsilon([event], delta=1e-5, accountant="fourier").epsilon
    planned = epsilon([settings.event], delta=1e-5, accountant="fourier").epsilon
    assert spent == pytest.approx(planned, rel=1e-4)
    assert event.count == 60


def test_every_record_is_clipped_by_itself():
    x, labels = problem(300)
    model = build()
    parameters = list(model.parameters())
    (total,) = sums_of(model, 0.05, (x, labels))
    expected = torch.zeros_like(total)
    for row, label in zip(x, labels, strict=True):
        loss = nn.functional.cross_entropy(model(row[None]), label[None])
        gradient = torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, parameters)])
        expected += (gradient * min(1.0, 0.05 / float(gradient.norm()))).double()
    assert torch.allclose(total, expected, atol=1e-4)


def test_an_added_record_moves_the_sum_by_no_more_than_the_clip():
    x, labels = problem(40)
    x[-1] *= 1e4
    whole, less = sums_of(build(), 0.3, (x, labels), (x[:-1], labels[:-1]))
    assert float((whole - less).norm()) <= 0.3


def test_records_join_a_batch_by_independent_coins():
    source = prg()
    sizes = [len(_poisson_batch(1000, 0.1, source)) for _ in range(400)]
    dispersion = (np.array(sizes) - 100) ** 2 / 90
    assert stats.chi2.sf(dispersion.sum(), 400) > 1e-6
    assert stats.chi2.cdf(dispersion.sum(), 400) > 1e-6


def test_an_empty_batch_is_a_step_of_pure_noise():
    x, labels = problem(3)
    model = build()
    before = [p.detach().clone() for p in model.parameters()]
    settings = DpSgd(steps=1, sample_rate=1e-9, clip=1.0, multiplier=1e-8, rate=1e-9)
    train_dp_sgd(model, x, labels, settings, prg=prg())
    moved = max(
        float((a - b.detach()).abs().max()) for a, b in zip(before, model.parameters(), strict=True)
    )
    assert moved < 1e-5


def test_a_model_that_mixes_records_is_refused():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    with pytest.raises(ConfigError, match="no per-record gradients"):
        train_dp_sgd(model, *problem(8), ONE, prg=prg())


class Mixing(nn.Module):
    """Changes what its first layer makes of the batch, and has layers that all pass by type."""

    def __init__(self, mix, *, starts_at_zero):
        super().__init__()
        self.mix, self.first, self.last = mix, nn.Linear(4, 6), nn.Linear(6, 2)
        if starts_at_zero:
            nn.init.zeros_(self.last.weight)

    def forward(self, x):
        return self.last(torch.relu(self.mix(self.first(x))))


class Centred(nn.Module):
    """Keeps a mean of its rows where no noise is, and needs it later alone."""

    def __init__(self, place):
        super().__init__()
        self.layer = nn.Linear(4, 2)
        if place == "frozen":
            self.centre = nn.Parameter(torch.zeros(4), requires_grad=False)
        else:
            self.register_buffer("centre", torch.zeros(4))
        self.is_new = place == "new buffer"

    def forward(self, x):
        mean = x.detach().mean(0)
        if self.is_new:
            self.centre = mean
        else:
            self.centre.data.copy_(mean)
        return self.layer(x)


@pytest.mark.parametrize("place", ["buffer", "new buffer", "frozen"])
def test_a_mean_of_rows_that_is_kept_beside_the_weights_is_refused(place):
    """Once the mean of the last batch stood in the model, without noise, under the same ε."""
    with pytest.raises(ConfigError, match="a call of the model changes centre"):
        train_dp_sgd(Centred(place), *problem(60), ONE, prg=prg())


class Folded(nn.Module):
    """Takes the times of a record for records of their own, and adds up what it finds."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))

    def forward(self, x):
        return self.layers(x.flatten(0, 1)).unflatten(0, x.shape[:2]).sum(1)


@pytest.mark.parametrize("model", [Folded(), nn.Sequential(Folded(), nn.Linear(2, 2))])
def test_parts_of_a_record_are_not_clipped_for_themselves(model):
    """Once a record of 20 times moved the sum by up to 20 clips."""
    x, labels = torch.randn(50, 20, 4), torch.randint(0, 2, (50,))
    before = [parameter.clone() for parameter in model.parameters()]
    settings = DpSgd(steps=2, sample_rate=0.2, clip=0.01, multiplier=1.0)
    with pytest.raises(ConfigError, match="320 rows for 16 records"):
        train_dp_sgd(model, x, labels, settings, prg=prg())
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


class Scaled(torch.autograd.Function):
    """Brings what comes back to length 1 over the batch, which no answer shows."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return g / g.norm()


class ScaledBack(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 6), nn.Linear(6, 2)

    def forward(self, x):
        return self.last(Scaled.apply(self.first(x)))


def test_a_backward_over_the_batch_is_refused():
    """Once one record moved what all others add."""
    torch.manual_seed(0)
    with pytest.raises(ConfigError, match="what comes back to one record depends on other"):
        train_dp_sgd(ScaledBack(), *problem(60), ONE, prg=prg())


@pytest.mark.parametrize("starts_at_zero", [False, True])
@pytest.mark.parametrize(
    "mix",
    [
        lambda a: nn.functional.batch_norm(a, None, None, training=True),
        lambda a: a - a.mean(0),
        lambda a: a - a.mean(0).detach(),
    ],
)
def test_functions_over_the_batch_are_refused_whatever_the_layers_are(mix, starts_at_zero):
    torch.manual_seed(0)
    x, labels = problem(60)
    model = Mixing(mix, starts_at_zero=starts_at_zero)
    with pytest.raises(ConfigError, match="depends on other records"):
        train_dp_sgd(model, x, labels, ONE, prg=prg())
    # What was claimed to be one clip at most:
    x, labels = torch.cat([x, torch.full((1, 4), 1e3)]), torch.cat([labels, labels[:1]])
    model = Mixing(mix, starts_at_zero=False)
    sums = sums_of(model, 1e-3, (x[:-1], labels[:-1]), (x, labels))
    assert float((sums[1] - sums[0]).norm()) > 4e-3


@pytest.mark.parametrize("at_own_weights", [False, True])
def test_mixing_that_shows_at_some_weights_alone_is_refused(at_own_weights):
    """Behind a head that is zero, with no other weights nothing shows; or at weights of its own."""

    class Late(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(4, 6), nn.Linear(6, 2)
            nn.init.zeros_(self.last.weight)
            nn.init.constant_(self.last.bias, 7.0 * at_own_weights)

        def forward(self, x):
            if at_own_weights:
                return self.last(torch.relu(self.first(x - (self.last.bias[0] > 5) * x.mean(0))))
            scores = self.last(torch.relu(self.first(x)))
            return scores - scores.mean(0).detach()

    with pytest.raises(ConfigError, match="depends on other records"):
        train_dp_sgd(Late(), *problem(60), ONE, prg=prg())


@pytest.mark.parametrize("value", [math.nan, math.inf, -1e38])
@pytest.mark.parametrize("per_owner", [1, 3])
def test_a_record_that_is_not_finite_counts_as_one_of_gradient_zero(value, per_owner):
    x, labels = problem(30)
    spoilt = x.clone()
    spoilt[4] = value
    owners = torch.arange(30) // per_owner
    others = torch.arange(30) != 4
    without = x[others], labels[others], owners[others]
    found, wanted = sums_of(build(), 0.3, (spoilt, labels, owners), without)
    # A huge record has a gradient, cut to the clip; nothing it does moves the sum further.
    assert float((found - wanted).norm()) <= (0.3 * (2 if value == -1e38 else 0) + 1e-9)


def test_one_spoilt_record_does_not_end_a_training():
    x, labels = problem()
    x[7] = math.nan
    model = build()
    settings = DpSgd(steps=40, sample_rate=0.2, clip=1.0, multiplier=1.0, rate=0.5)
    event = train_dp_sgd(model, x, labels, settings, prg=prg())
    good = torch.arange(len(x)) != 7
    assert float((model(x[good]).argmax(1) == labels[good]).double().mean()) > 0.8
    assert event == train_dp_sgd(build(), *problem(), settings, prg=prg())


def test_weights_that_are_lost_end_a_training():
    settings = DpSgd(steps=3, sample_rate=0.01, clip=1.0, multiplier=1.0, rate=3e38)
    with pytest.raises(DataError, match="diverged"):
        train_dp_sgd(build(), *problem(8), settings, prg=prg())


def test_discrete_noise_trains_as_well_and_is_accounted_for_without_the_library():
    x, labels = problem()
    model = build()
    settings = DpSgd(
        steps=60, sample_rate=0.2, clip=1.0, multiplier=1.0, rate=0.5, noise="discrete"
    )
    event = train_dp_sgd(model, x, labels, settings, prg=prg())
    assert float((model(x).argmax(1) == labels).double().mean()) > 0.85
    spent = epsilon([event], delta=1e-5, accountant="renyi").epsilon
    smooth = replace(settings, noise="continuous").event
    # At whole orders the moments are those of the continuous Gaussian; only whole ones are used.
    assert epsilon([smooth], delta=1e-5, accountant="renyi").epsilon <= spent
    assert spent <= 1.1 * epsilon([smooth], delta=1e-5, accountant="renyi").epsilon
    assert spent == pytest.approx(
        epsilon([settings.event], delta=1e-5, accountant="renyi").epsilon, rel=1e-4
    )
    with pytest.raises(ConfigError, match="continuous, discrete"):
        DpSgd(steps=1, sample_rate=0.5, clip=1.0, multiplier=1.0, noise="uniform")


@pytest.mark.parametrize(
    "change", [{"sample_rate": 0.0}, {"clip": -1.0}, {"multiplier": 0.0}, {"steps": 0}]
)
def test_settings_without_meaning_are_refused(change):
    with pytest.raises(ConfigError):
        DpSgd(**{"steps": 1, "sample_rate": 0.5, "clip": 1.0, "multiplier": 1.0, **change})


@pytest.mark.parametrize("per_chunk", [2, 3, 256])
def test_all_records_of_an_owner_are_clipped_together(per_chunk, monkeypatch):
    monkeypatch.setattr("tacit.dp.dpsgd._CHUNK", per_chunk)
    x, labels = problem(12)
    owners = torch.tensor([7, 3, 7, 7, 3, 9, 7, 7, 1, 1, 9, 7])
    model = build()
    parameters = list(model.parameters())
    units, whose = _units(12, owners)
    rows, names = _drawn(torch.tensor([0, 1, 2]), whose)  # all but the owner 9
    (total,) = sums_of(model, 0.05, (x[rows], labels[rows], names))
    expected = torch.zeros_like(total)
    for owner in (1, 3, 7):
        own = owners == owner
        loss = nn.functional.cross_entropy(model(x[own]), labels[own], reduction="sum")
        gradient = torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, parameters)])
        expected += (gradient * min(1.0, 0.05 / float(gradient.norm()))).double()
    assert units == 4
    assert torch.allclose(total, expected, atol=1e-4)


def test_an_owner_with_many_copies_moves_the_sum_by_no_more_than_the_clip():
    x, labels = problem(50)
    x[40:], labels[40:] = 100.0, 0  # the wrong class, by far
    _, whose = _units(50, torch.arange(50).clamp_max(40))
    fewer = x[:40], labels[:40], whose[:40]
    whole, less, apart = sums_of(build(), 0.3, (x, labels, whose), fewer, (x, labels))
    assert float((whole - less).norm()) <= 0.3
    assert float((apart - less).norm()) > 2  # ten records, each clipped by itself


def test_training_by_owners_claims_privacy_for_a_client():
    x, labels = problem(60)
    settings = DpSgd(steps=2, sample_rate=0.5, clip=1.0, multiplier=1.0)
    event = train_dp_sgd(
        build(), x, labels, settings, prg=prg(), owners=torch.arange(60) // 3
    )  # fmt: skip
    claim = epsilon([event], delta=1e-5, accountant="fourier")
    assert claim.relation == "adding or removing one client"
    assert claim.epsilon == pytest.approx(
        epsilon([settings.event], delta=1e-5, accountant="fourier").epsilon, rel=1e-4
    )


@pytest.mark.parametrize("owners", [torch.zeros(7, dtype=torch.long), torch.zeros(8)])
def test_owners_that_fit_no_rows_are_refused(owners):
    with pytest.raises(DataError, match="whole number per row"):
        train_dp_sgd(build(), *problem(8), ONE, prg=prg(), owners=owners)
