"""DP-SGD for any torch model: gradients of single records, what is refused, and the budget."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tacit.dp import Poisson, Repeated, epsilon, make_private
from tacit.dp.ghost import Ghost
from tacit.dp.private import PrivateLoader
from tacit.errors import ConfigError
from tacit.ring import Prg

KEY = bytes(range(16))


class Tied(nn.Module):
    """A table that is looked up and makes the scores: two uses of one parameter."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(11, 4)
        self.norm = nn.LayerNorm(4)
        self.head = nn.Linear(4, 11, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids):
        return self.head(self.norm(self.table(ids))).mean(1)


class Unrolled(nn.Module):
    """One layer that is called several times."""

    def __init__(self):
        super().__init__()
        self.cell = nn.Linear(6, 6)
        self.out = nn.Linear(6, 3)

    def forward(self, x):
        for _ in range(3):
            x = torch.tanh(self.cell(x))
        return self.out(x)


def dense(*layers, inputs):
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(inputs, 3))


MODELS = {
    "dense": (lambda: dense(nn.Linear(5, 7), nn.ReLU(inplace=True), inputs=7), (5,)),
    "tokens": (lambda: dense(nn.Linear(5, 7), nn.RMSNorm(7), inputs=28), (4, 5)),
    "long": (lambda: dense(nn.Linear(2, 3), inputs=60), (20, 2)),
    "conv1d": (lambda: dense(nn.Conv1d(4, 6, 3, padding=1, groups=2), inputs=54), (4, 9)),
    "conv2d": (
        lambda: dense(nn.Conv2d(2, 4, 3, stride=2, padding=1), nn.GroupNorm(2, 4), inputs=64),
        (2, 8, 8),
    ),
    "dilated": (
        lambda: dense(nn.Conv2d(2, 4, (3, 2), dilation=2, padding="same"), inputs=256),
        (2, 8, 8),
    ),
    "reflected": (
        lambda: dense(nn.Conv2d(2, 4, 3, padding=1, padding_mode="reflect"), inputs=144),
        (2, 6, 6),
    ),
    "unrolled": (Unrolled, (6,)),
}


def made(name):
    make, shape = MODELS[name]
    model = make().double()
    x = torch.randn(6, *shape, dtype=torch.float64) * torch.arange(1, 7).view(-1, *[1] * len(shape))
    return model, x, torch.arange(6) % 3


def losses_of(model, x, y):
    return F.cross_entropy(model(x), y, reduction="none")


def one_by_one(model, x, y):
    """Return every record's gradient by autograd, parameters side by side."""
    rows = []
    for at in range(len(x)):
        loss = losses_of(model, x[at : at + 1], y[at : at + 1]).sum()
        found = torch.autograd.grad(loss, list(model.parameters()))
        rows.append(torch.cat([value.flatten() for value in found]))
    return torch.stack(rows)


def flat(found, ghost):
    return torch.cat([found[name].flatten() for name in ghost.parameters])


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("clip", [0.05, 1e6])
def test_the_clipped_sum_is_that_of_single_records(name, clip):
    model, x, y = made(name)
    each = one_by_one(model, x, y)
    ghost = Ghost(model)
    found = flat(ghost.clipped_sum(losses_of(model, x, y), clip), ghost)
    factors = (clip / each.norm(dim=1)).clamp_max(1.0)
    assert (found - factors @ each).norm() < 1e-3 * (factors @ each).norm()


def test_two_uses_of_one_parameter_are_never_clipped_too_little():
    model = Tied().double()
    ids = torch.randint(0, 11, (5, 7))
    y = torch.arange(5)
    each = one_by_one(model, ids, y)
    ghost = Ghost(model)
    for at in range(5):
        part = slice(at, at + 1)
        found = flat(ghost.clipped_sum(losses_of(model, ids[part], y[part]), 0.01), ghost)
        assert 0.005 < found.norm() <= 0.01
        assert F.cosine_similarity(found, each[at], dim=0) > 0.9999


def test_a_record_never_adds_more_than_the_clip_even_where_its_parts_cancel():
    model = nn.Sequential(nn.Linear(8, 8, bias=False), nn.Flatten(), nn.Linear(8 * 40, 1))
    with torch.no_grad():
        model[2].weight.copy_(torch.tensor([1.0, -1.0]).repeat(20).repeat_interleave(8))
    torch.manual_seed(3)
    x = torch.randn(1, 1, 8).expand(64, 40, 8) * 1e3 + torch.randn(64, 40, 8) * 1e-3
    ghost = Ghost(model)
    for at in range(64):
        found = flat(ghost.clipped_sum(model(x[at : at + 1])[:, 0], 1.0), ghost)
        assert found.norm() <= 1.0


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e38])
def test_one_broken_record_adds_nothing_and_stops_nobody(value):
    model, x, y = made("conv2d")
    each = one_by_one(model, x, y)
    x[2] = value
    ghost = Ghost(model)
    found = flat(ghost.clipped_sum(losses_of(model, x, y), 0.1), ghost)
    factors = (0.1 / each.norm(dim=1)).clamp_max(1.0)
    factors[2] = 0
    if value != 1e38:
        assert torch.allclose(found, factors @ each, rtol=2e-3, atol=1e-9)
    assert bool(torch.isfinite(found).all())


@pytest.mark.parametrize(
    ("model", "word"),
    [
        (nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), "GroupNorm"),
        (nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, affine=False)), "GroupNorm"),
        (nn.LSTM(4, 4), "no per-record gradients"),
        (nn.MultiheadAttention(4, 2), "no per-record gradients"),
        (nn.Embedding(4, 4, max_norm=1.0), "max_norm"),
        (nn.ReLU(), "no parameter"),
    ],
)
def test_layers_without_gradients_of_single_records_are_refused_by_name(model, word):
    with pytest.raises(ConfigError, match=word):
        Ghost(model)


def test_losses_that_mix_records_are_refused():
    model = nn.Linear(4, 3)
    x = torch.randn(6, 4)
    ghost = Ghost(model)
    scores = model(x)
    with pytest.raises(ConfigError, match="depends on other records"):
        ghost.clipped_sum((scores - scores.mean(0)).square().sum(1), 1.0)


class Outside(nn.Module):
    """Uses a weight where no layer sees it."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return F.linear(self.layer(x), self.layer.weight)


class Changing(nn.Module):
    """Changes in place what a layer has taken; autograd would not notice without the weights."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        x = x * 1.0
        found = self.layer(x)
        x.mul_(0.001)
        return found + x


@pytest.mark.parametrize(("model", "word"), [(Outside(), "outside"), (Changing(), "in place")])
def test_what_the_layers_do_not_tell_is_refused(model, word):
    ghost = Ghost(model)
    losses = model(torch.randn(3, 4)).sum(1)
    with pytest.raises(ConfigError, match=word):
        ghost.clipped_sum(losses, 1.0)


def rows(count=200, width=4):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(count, width, generator=generator)
    return TensorDataset(x, (x[:, 0] > 0).long())


def private_of(model, *, optimizer=None, count=200, batch=50, **options):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=1.0)
    loader = DataLoader(rows(count), batch_size=batch)
    given = {"epsilon": 3.0, "delta": 1e-5, "epochs": 2, "prg": Prg(KEY), **options}
    return make_private(model, optimizer, loader, **given), optimizer


def train(private, model, epochs=2):
    for _ in range(epochs):
        for x, y in private.loader:
            private.step(F.cross_entropy(model(x), y, reduction="none"))


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_a_training_learns_and_spends_what_was_planned(kind):
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    private, _ = private_of(
        model, optimizer=kind(model.parameters(), lr=0.1), count=2000, batch=200, epochs=4
    )
    train(private, model, 4)
    x, y = rows(2000).tensors
    assert (model(x).argmax(1) == y).float().mean() > 0.85
    claim = private.claim
    assert 2.99 < claim.epsilon <= 3.0
    event = private.ledger.entries[0].event
    assert isinstance(event, Poisson)
    assert event.rate == pytest.approx(0.1)
    by_hand = epsilon([Repeated(event=event, count=40)], delta=1e-5, accountant="fourier")
    assert by_hand.epsilon == pytest.approx(claim.epsilon, rel=1e-9)


def test_the_noise_that_is_added_is_the_noise_of_the_event():
    model = nn.Linear(400, 100)
    private, _ = private_of(model, count=50, batch=10, epochs=1)
    before = torch.nn.utils.parameters_to_vector(model.parameters()).detach().clone()
    private.loader.expected = (2, True)
    x = torch.zeros(2, 400)
    private.step(model(x).sum(1) * 0)
    moved = torch.nn.utils.parameters_to_vector(model.parameters()).detach() - before
    event = private.ledger.entries[0].event.event
    # 40,100 numbers: the deviation of a standard deviation is 0.35 %; 6 of these is 2e-9.
    assert moved.std() * 10 == pytest.approx(event.sigma, rel=0.021)
    assert event.l2_sensitivity == pytest.approx(1.0, rel=1e-3)


def test_parts_of_a_batch_add_up_to_the_batch():
    results = []
    for at_once in (None, 7):
        torch.manual_seed(5)
        model = nn.Linear(4, 2)
        private, _ = private_of(model, at_once=at_once)
        train(private, model)
        results.append(torch.nn.utils.parameters_to_vector(model.parameters()))
        assert len(private.ledger) == 8
    assert torch.allclose(*results, atol=1e-5)


def test_an_empty_batch_is_a_step_of_noise():
    model = nn.Linear(4, 2)
    private, _ = private_of(model, count=20, batch=1, epochs=1)
    train(private, model, 1)
    assert len(private.ledger) == 20  # about seven of them without a record


def test_batches_hold_every_record_by_a_coin_of_its_own():
    loader = DataLoader(TensorDataset(torch.arange(100)), batch_size=25)
    drawn = PrivateLoader(loader, rate=0.25, steps=400, at_once=None, prg=Prg(KEY))
    counts, sizes = torch.zeros(100), []
    for _ in range(100):
        for (records,) in drawn:
            counts[records] += 1
            sizes.append(len(records))
            drawn.expected = None
    # 400 draws of a coin of 1/4: 100 ± 8.7; six deviations over 100 records: 2e-7.
    assert counts.min() > 100 - 52
    assert counts.max() < 100 + 52
    assert len(set(sizes)) > 10


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"delta": 0.01}, "1/n or more for n = 200"),
        ({"epochs": 0}, "epochs"),
        ({"clip": math.nan}, "clip"),
        ({"at_once": 0}, "at_once"),
        ({"optimizer": torch.optim.LBFGS}, "LBFGS"),
    ],
)
def test_what_cannot_be_is_refused_before_any_row_is_read(options, word):
    model = nn.Linear(4, 2)
    if "optimizer" in options:
        options = {"optimizer": options["optimizer"](model.parameters())}
    with pytest.raises(ConfigError, match=word):
        private_of(model, **options)
    assert not model._forward_hooks


def test_an_optimizer_of_other_parameters_is_refused():
    model = nn.Linear(4, 2)
    with pytest.raises(ConfigError, match="exactly what the model trains"):
        private_of(model, optimizer=torch.optim.SGD(nn.Linear(4, 2).parameters(), lr=1.0))


def test_a_loop_that_forgets_privacy_fails_closed():
    model = nn.Linear(4, 2)
    private, optimizer = private_of(model)
    x, y = next(iter(private.loader))
    F.cross_entropy(model(x), y).backward()
    with pytest.raises(ConfigError, match=r"private\.step"):
        optimizer.step()


def test_a_loop_that_leaves_batches_out_or_passes_means_is_refused():
    model = nn.Linear(4, 2)
    private, _ = private_of(model)
    batches = iter(private.loader)
    x, y = next(batches)
    with pytest.raises(ConfigError, match="one per record"):
        private.step(F.cross_entropy(model(x), y))
    with pytest.raises(ConfigError, match="once for every batch"):
        next(batches)


def test_the_budget_ends_with_the_planned_epochs():
    model = nn.Linear(4, 2)
    private, _ = private_of(model)
    assert "nothing" in repr(private)
    train(private, model)
    assert "0 left" in repr(private)
    assert "δ = 1e-05" in private._repr_html_()
    with pytest.raises(ConfigError, match="planned epochs are over"):
        train(private, model, 1)
    with pytest.raises(ConfigError, match="take a batch"):
        private.step(torch.zeros(3))


def test_a_look_at_other_rows_does_not_disturb_a_step():
    model = nn.Linear(4, 2)
    private, _ = private_of(model)
    x, y = next(iter(private.loader))
    losses = F.cross_entropy(model(x), y, reduction="none")
    model(torch.randn(3, 4))
    private.step(losses)
    private.remove()
    assert not model._forward_hooks
