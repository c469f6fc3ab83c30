"""Attacks on clipping: what one record could add, and what a training could let out unnoised."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, SubsetRandomSampler, TensorDataset

from tacit.dp import make_private
from tacit.dp.ghost import Ghost
from tacit.errors import ConfigError
from tacit.ring import Prg

KEY = bytes(range(16))


def flat(found, ghost):
    return torch.cat([found[name].flatten() for name in ghost.parameters]).double()


def losses_of(model, x, y):
    return F.cross_entropy(model(x), y, reduction="none")


def private_of(model, *, optimizer=None, batch=10, sampler=None, **options):
    x = torch.randn(40, 4, generator=torch.Generator().manual_seed(1))
    loader = DataLoader(TensorDataset(x, (x[:, 0] > 0).long()), batch_size=batch, sampler=sampler)
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=1.0)
    given = {"epsilon": 3.0, "delta": 1e-5, "epochs": 2, "prg": Prg(KEY), **options}
    return make_private(model, optimizer, loader, **given), optimizer


def test_autocast_does_not_round_a_record_over_the_clip():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    ghost = Ghost(model)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for _ in range(50):
            losses = losses_of(model, torch.randn(1, 64) * 10, torch.tensor([1]))
            assert flat(ghost.clipped_sum(losses, 0.01), ghost).norm() <= 0.01
        losses = losses_of(model, torch.randn(16, 64), torch.arange(16) % 10)
        ghost.clipped_sum(losses, 0.01)  # and its first batch is not refused


def test_a_record_of_numbers_whose_squares_vanish_is_clipped():
    model = nn.Linear(4000, 8, bias=False)
    ghost = Ghost(model)
    losses = (model(torch.full((1, 1, 4000), 2e-23)) * 4e18).sum((1, 2))
    assert 0.9e-3 < flat(ghost.clipped_sum(losses, 1e-3), ghost).norm() <= 1e-3


def test_a_record_of_any_size_in_any_layer_stays_within_the_clip():
    """A layer that is called twice has inputs and gradients of every size, side by side."""
    torch.manual_seed(4)
    sizes = torch.empty(200, 5).uniform_(-25, 25)
    for weight, first, second, loss, clip in sizes.tolist():
        layer = nn.Linear(6, 6)
        with torch.no_grad():
            layer.weight.mul_(10 ** (weight / 5))
        ghost = Ghost(layer)
        inner = layer(torch.randn(1, 3, 6) * 10**first).tanh() * 10**second
        scores = layer(inner) * 10**loss
        found = ghost.clipped_sum(scores.sum((1, 2)), 10 ** (clip / 8))
        assert flat(found, ghost).norm() <= 10 ** (clip / 8)


@pytest.mark.parametrize("clip", [1e-5, 1e-3, 1.0])
@pytest.mark.parametrize("kind", ["dense", "table"])
def test_a_gradient_as_large_as_numbers_go_is_no_more_than_the_clip(kind, clip):
    """Its factor can be so small that float32 has few digits for it, which would be 1.04 clips."""
    for size in torch.logspace(36, 38.3, 40).tolist():
        model = nn.Linear(4, 2) if kind == "dense" else nn.Embedding(3, 4)
        x = torch.full((1, 4), 0.3) if kind == "dense" else torch.tensor([[0, 0, 1]])
        ghost = Ghost(model)
        found = ghost.clipped_sum(model(x).flatten(1).sum(1) * size, clip)
        assert flat(found, ghost).norm() <= clip


def _wide(size):
    return nn.Linear(size, 2, bias=False), (1, 1, size)


def _pictures(size):
    return nn.Conv2d(1, 2, 1, bias=False), (1, 1, size // 32, 32)


def _biased(size):
    return nn.Linear(1, size), (1, 1)


def _scaled(size):
    return nn.LayerNorm(size), (1, size)


def _looked_up(size):
    return nn.Embedding(2, 1), (1, size)


def _unrolled(size):
    return nn.Linear(size, 3, bias=False), (1, 2, size)


@pytest.mark.parametrize("low", [2.0**-24.5, 2.0**-23.99, 2.0**-12.5, 2.0**-12.01])
@pytest.mark.parametrize("made", [_wide, _pictures, _biased, _scaled, _looked_up, _unrolled])
def test_a_row_of_a_one_and_many_numbers_that_rounding_drops_is_clipped(made, low):
    """Beside 1, float32 drops 2^-24 and squares of 2^-12: a million of them count nothing."""
    model, shape = made(2**20)
    ghost, clip = Ghost(model), 1e-3
    ghost.settle()
    chosen = torch.full(shape, low)
    chosen.view(-1)[0] = 1.0
    if isinstance(model, nn.Embedding):
        losses = (model(torch.zeros(shape, dtype=torch.long))[..., 0] * chosen).sum(1)
    elif made in (_wide, _pictures, _unrolled):
        losses = model(chosen).flatten(1).sum(1) * 10
    else:
        x = torch.ones(shape)
        x.view(-1)[::2] *= 1 if shape == (1, 1) else -1
        weights = torch.full((2**20,), low)
        weights[0] = 1.0
        losses = (model(x) * weights).sum(1) * 10
    found = flat(ghost.clipped_sum(losses, clip), ghost)
    assert 0.9 * clip < found.norm() <= clip


@pytest.mark.parametrize(
    "mix",
    [
        lambda s: torch.cumsum(s, 0),
        lambda s: torch.cat([s[:-1], s[-1:] * s[3]]),
        lambda s: torch.cat([s[:2], s[2:3] * s[4], s[3:]]),
    ],
    ids=["later ones see earlier ones", "the last sees one", "one sees a later one"],
)
def test_losses_that_mix_any_two_records_are_refused(mix):
    model = nn.Linear(4, 1)
    ghost = Ghost(model)
    with pytest.raises(ConfigError, match="depends on other records"):
        ghost.clipped_sum(mix(model(torch.randn(6, 4))[:, 0]), 1.0)


class Sorting(nn.Module):
    """Puts its rows in an order of their own: a record's place is another in the second layer."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x):
        order = x[:, 0].argsort()
        return self.second(self.first(x)[order])[order.argsort()][:, 0]


def test_a_first_batch_that_happens_to_lie_in_order_does_not_pass_for_all():
    model = Sorting()
    ghost = Ghost(model)
    x = torch.randn(2, 4)
    x[:, 0] = torch.tensor([-1.0, 2.0])  # rows that are made up, 0 to 1, leave them in order
    ghost.clipped_sum(model(x), 1.0)
    with pytest.raises(ConfigError, match="depends on other records"):
        ghost.clipped_sum(model(x.flip(0)), 1.0)


def _normalised(model, x):
    return model(x - x.mean(0)).square().sum(1)


def _with_detached_negatives(model, x):
    z = model(x)
    return F.cross_entropy(z @ z.detach().T, torch.arange(len(x)), reduction="none")


@pytest.mark.parametrize("losses", [_normalised, _with_detached_negatives])
def test_mixing_without_a_gradient_is_not_seen_as_the_docs_say(losses):
    torch.manual_seed(2)
    model = nn.Linear(4, 3)
    ghost = Ghost(model)
    x = torch.randn(8, 4)
    other = x.clone()
    other[0] *= 1e4
    sums = [flat(ghost.clipped_sum(losses(model, rows), 0.1), ghost) for rows in (x, other)]
    assert (sums[0] - sums[1]).norm() > 2 * 0.1  # one record moved more than itself


def test_losses_that_are_divided_by_how_many_there_are_are_not_seen_as_the_docs_say():
    model, clip = nn.Linear(4, 1), 5**0.5 / 9
    ghost = Ghost(model)
    x = torch.ones(10, 4)
    x[9] *= -100
    sums = [
        flat(ghost.clipped_sum(model(rows)[:, 0] / len(rows), clip), ghost) for rows in (x, x[:9])
    ]
    assert (sums[0] - sums[1])[:4].norm() > 1.6 * clip  # of the weights alone


def test_recomputed_layers_are_counted_once():
    torch.manual_seed(0)
    layers = nn.ModuleList([nn.Linear(4, 8), nn.Linear(8, 2)])
    ghost = Ghost(layers)
    x, y = torch.randn(6, 4), torch.arange(6) % 2

    def run(rows):
        return layers[1](torch.relu(layers[0](rows)))

    plain = ghost.clipped_sum(losses_of(run, x, y), 0.1)
    for _ in range(2):  # what was recomputed in a step is not taken for the next one's
        scores = checkpoint(run, x, use_reentrant=False)
        found = ghost.clipped_sum(F.cross_entropy(scores, y, reduction="none"), 0.1)
        assert torch.equal(flat(found, ghost), flat(plain, ghost))


class Remembering(nn.Module):
    """Keeps the mean of its rows, as a normalisation's running statistics."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
        self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
        return self.layer(x)


def test_a_model_that_keeps_statistics_of_rows_is_refused():
    model = Remembering()
    private, _ = private_of(model)
    x, y = next(iter(private.loader))
    with pytest.raises(ConfigError, match="buffer mean has changed"):
        private.step(losses_of(model, x, y))


def _add_group(model, optimizer):
    extra = nn.Parameter(torch.zeros(2))
    optimizer.add_param_group({"params": [extra]})
    return extra


def _unfreeze(model, optimizer):
    return model[0].weight.requires_grad_(True)


@pytest.mark.parametrize("sneak", [_add_group, _unfreeze])
def test_raw_gradients_of_parameters_that_came_later_are_not_applied(sneak):
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    model[0].requires_grad_(False)
    private, optimizer = private_of(model)
    extra = sneak(model, optimizer)
    before = extra.detach().clone()
    x, y = next(iter(private.loader))
    extra.grad = torch.ones_like(extra)
    with pytest.raises(ConfigError, match="trained without noise"):
        private.step(losses_of(model, x, y))
    assert torch.equal(extra, before)


def test_parts_of_two_batches_are_never_added_up():
    model = nn.Linear(4, 2)
    private, _ = private_of(model, batch=40, at_once=10)
    for x, y in itertools.islice(private.loader, 3):
        private.step(losses_of(model, x, y))
    with pytest.raises(ConfigError, match="within a batch"):
        next(iter(private.loader))
    assert len(private.ledger) == 0


def test_a_head_alone_behind_a_body_that_mixes_is_refused():
    """Once a head was trained behind the batch statistics of a body that nobody had frozen."""
    body, head = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), nn.Linear(4, 2)
    private, _ = private_of(head)
    x, y = next(iter(private.loader))
    losses = losses_of(nn.Sequential(body, head), x, y)
    with pytest.raises(ConfigError, match="hand over the whole model"):
        private.step(losses)
    assert len(private.ledger) == 0


def test_a_clip_that_is_lowered_between_parts_does_not_lower_the_noise():
    model = nn.Linear(4, 2)
    private, _ = private_of(model, at_once=4, batch=40)
    for x, y in private.loader:
        private.step(losses_of(model, x, y))
        private.clip *= 0.5
    (entry,) = private.ledger.entries
    assert entry.event.event.sigma == private.multiplier * 1.0


def test_a_rate_that_is_changed_within_a_pass_is_not_that_of_its_batches():
    """Once the ledger had the rate of now: ε of 0 for batches that were drawn at another."""
    model = nn.Linear(4, 2)
    private, _ = private_of(model)
    for x, y in private.loader:
        private.loader.rate = 1e-4
        private.step(losses_of(model, x, y))
    assert {entry.event.rate for entry in private.ledger.entries} == {0.25}


def test_weights_that_change_between_parts_are_noticed():
    model = nn.Linear(4, 2)
    private, _ = private_of(model, at_once=10, batch=40)
    for x, y in private.loader:
        private.step(losses_of(model, x, y))
    batches = iter(private.loader)
    for _ in range(4):
        x, y = next(batches)
        losses = losses_of(model, x, y)
        if private.loader.expected[1]:
            with pytest.raises(ConfigError, match="weights have changed"):
                private.step(losses)
        else:
            private.step(losses)
            model.weight.data.mul_(0.5)
    assert len(private.ledger) == 1


def test_two_passes_at_once_do_not_spend_more_than_was_planned():
    model = nn.Linear(4, 2)
    private, _ = private_of(model, epochs=1)
    first, second = iter(private.loader), iter(private.loader)
    for batches in (first, second):
        x, y = next(batches)
        private.step(losses_of(model, x, y))
    with pytest.raises(ConfigError, match="later pass"):
        next(first)
    for x, y in second:
        private.step(losses_of(model, x, y))
    assert len(private.ledger) == 4
    assert private.claim.epsilon <= 3.0


def test_a_step_that_fails_is_not_counted_and_does_not_open_the_loop():
    model = nn.Linear(4, 2)
    private, _ = private_of(model)
    batches = iter(private.loader)
    x, y = next(batches)
    copied = nn.Linear(4, 2)
    with pytest.raises(ConfigError, match="no trained layer of this model"):
        private.step(losses_of(copied, x, y))
    with pytest.raises(ConfigError, match="once for every batch"):
        next(batches)
    private.step(losses_of(model, x, y))  # the same batch, as it should be
    assert len(private.ledger) == 1


def test_loaders_and_layers_that_do_something_of_their_own_are_refused():
    with pytest.raises(ConfigError, match="SubsetRandomSampler"):
        private_of(nn.Linear(4, 2), sampler=SubsetRandomSampler(range(20)))
    layer = nn.Linear(4, 2)
    layer.scale = nn.Parameter(torch.ones(2))
    with pytest.raises(ConfigError, match="no per-record gradients"):
        Ghost(layer)


def test_a_second_training_does_not_share_the_optimizer():
    model = nn.Linear(4, 2)
    _, optimizer = private_of(model)
    second, _ = private_of(model, optimizer=optimizer)
    x, y = next(iter(second.loader))
    with pytest.raises(ConfigError, match="belongs to a private training"):
        second.step(losses_of(model, x, y))


def test_a_batch_of_everything_is_accounted_as_such():
    pytest.importorskip("dp_accounting")
    from dp_accounting import dp_event, pld

    for batch, rate, steps in ((100, 1.0, 2), (10, 0.25, 8)):
        model = nn.Linear(4, 2)
        private, _ = private_of(model, batch=batch)
        for _ in range(2):
            for x, y in private.loader:
                private.step(losses_of(model, x, y))
        theirs = pld.PLDAccountant()
        noise = dp_event.GaussianDpEvent(private.multiplier)
        theirs.compose(dp_event.PoissonSampledDpEvent(rate, noise), steps)
        assert private.claim.epsilon == pytest.approx(theirs.get_epsilon(1e-5), rel=1e-3)
