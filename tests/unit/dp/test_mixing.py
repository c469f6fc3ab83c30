"""Models in which one record changes what others get, and honest ones that look like it."""

import warnings
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tacit.dp import make_private
from tacit.dp.ghost import Ghost
from tacit.dp.mixing import (
    AnswerSketch,
    _gap,
    find_mixing,
    public_rows,
    refuse_mixing,
    scrambled,
    tell,
)
from tacit.errors import ConfigError
from tacit.ring import Prg


class Branch(nn.Module):
    """A residual branch that sees what `mix` makes of the batch; its last layer starts at zero."""

    def __init__(self, mix):
        super().__init__()
        self.mix = mix
        self.stem, self.last, self.head = nn.Linear(4, 6), nn.Linear(6, 6), nn.Linear(6, 2)
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)

    def forward(self, x):
        h = torch.relu(self.stem(x))
        return self.head(h + self.last(self.mix(h)))


class Adapted(nn.Module):
    """A frozen layer with an adapter of low rank, B = 0, on what `mix` makes of the batch."""

    def __init__(self, mix):
        super().__init__()
        self.mix = mix
        self.base, self.a, self.b = (
            nn.Linear(4, 2).requires_grad_(False),
            nn.Linear(4, 2, bias=False),
            nn.Linear(2, 2, bias=False),
        )
        nn.init.zeros_(self.b.weight)

    def forward(self, x):
        return self.base(x) + self.b(self.mix(self.a(x)))


class Before(nn.Module):
    """Changes the batch before its first layer: no gradient tells."""

    def __init__(self, mix):
        super().__init__()
        self.mix = mix
        self.layers = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))

    def forward(self, x):
        return self.layers(self.mix(x))


class Headed(Before):
    """The same with a head that starts at zero."""

    def __init__(self, mix):
        super().__init__(mix)
        nn.init.zeros_(self.layers[2].weight)

    def forward(self, x):
        return self.layers[2](torch.relu(self.mix(self.layers[0](x))))


class Behind(Before):
    """Changes the scores of a head that starts at zero: nothing is there to mix yet."""

    def __init__(self, mix):
        super().__init__(mix)
        nn.init.zeros_(self.layers[2].weight)
        nn.init.zeros_(self.layers[2].bias)

    def forward(self, x):
        return self.mix(self.layers(x))


MIXES = {
    "batch norm": lambda h: F.batch_norm(h, None, None, training=True),
    "centred": lambda h: h - h.mean(0),
    "detached": lambda h: h - h.mean(0).detach(),
    "neighbour": lambda h: h + 1e-3 * h.roll(1, 0),
    "counted": lambda h: h / len(h),
}
MODELS = [Branch, Adapted, Before, Headed, Behind]


def private_of(model, *, count=64, at_once=None):
    loader = DataLoader(TensorDataset(torch.randn(count, 4), torch.arange(count) % 2), count)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=1.0)
    key = Prg(bytes(range(16)))
    options = {"epsilon": 4.0, "delta": 1e-3, "epochs": 5, "prg": key, "at_once": at_once}
    return make_private(model, optimizer, loader, **options)


def train(private, model, losses):
    for _ in range(5):
        for x, y in private.loader:
            private.step(losses(model(x), y))


def usual(said, y):
    return F.cross_entropy(said, y, reduction="none")


@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("kind", MODELS)
def test_a_model_that_mixes_is_refused_before_its_first_step_also_where_it_starts_at_zero(
    kind, mix
):
    torch.manual_seed(1)
    model = kind(MIXES[mix])
    private = private_of(model)
    with pytest.raises(ConfigError, match="depends on"):
        train(private, model, usual)
    assert len(private.ledger) == 0


@pytest.mark.parametrize("kind", [Branch, Adapted, Before, Headed])
def test_without_the_check_one_record_moves_the_sum_by_many_clips(kind):
    torch.manual_seed(1)
    model = kind(MIXES["detached"])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    ghost, clip = Ghost(model), 1e-3
    ghost.settle()
    x, y = torch.randn(65, 4), torch.zeros(65, dtype=torch.long)
    x[64] = 1e3
    sums = [ghost.clipped_sum(usual(model(x[:n]), y[:n]), clip) for n in (64, 65)]
    moved = torch.cat([(sums[1][name] - sums[0][name]).flatten() for name in ghost.parameters])
    assert moved.norm() > 3 * clip


def test_losses_that_mix_once_weights_are_no_longer_zero_are_refused_in_a_later_step():
    torch.manual_seed(1)
    model = nn.Linear(4, 2)
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    with pytest.raises(ConfigError, match="loss of one record depends on other records"):
        train(private_of(model), model, lambda z, y: usual(z, y) + z[:, 0] * z[:, 1].mean())


def test_a_model_that_mixes_at_its_own_weights_alone_is_refused():
    torch.manual_seed(1)
    model = Before(lambda x: x - x.mean(0) if model.layers[0].bias[0] > 5 else x)
    nn.init.constant_(model.layers[0].bias, 7.0)
    private = private_of(model)
    with pytest.raises(ConfigError, match="depends on other records"):
        train(private, model, usual)
    assert len(private.ledger) == 0


def test_a_model_that_keeps_something_of_its_rows_is_refused():
    class Keeping(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.kept = nn.Linear(4, 2), 0.0

        def forward(self, x):
            found = self.layer(x + self.kept)
            self.kept = float(x.detach().mean())
            return found

    with pytest.raises(ConfigError, match="equal calls of the model answer differently"):
        refuse_mixing(Keeping(), (torch.randn(8, 4),), {}, records=8)


class Centred(nn.Module):
    """Keeps a running mean where no noise is, and needs it later alone."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.centre = nn.Parameter(torch.zeros(4), requires_grad=False)

    def forward(self, x):
        self.centre.data.mul_(0.9).add_(0.1 * x.detach().mean(0))
        return self.layer(x)


def test_rows_that_are_kept_in_a_frozen_parameter_are_refused():
    model = Centred()
    private = private_of(model)
    with pytest.raises(ConfigError, match="a call of the model changes centre"):
        train(private, model, usual)
    assert len(private.ledger) == 0


@pytest.mark.parametrize("usual_row", [0.0, 3.0])
def test_a_model_that_mixes_is_refused_though_all_rows_of_a_batch_are_alike(usual_row):
    """Once trained until the one row that differs came, and moved the sum by 64 clips."""
    torch.manual_seed(1)
    rows = torch.full((1000, 4), usual_row)
    model = Before(MIXES["detached"])
    loader = DataLoader(TensorDataset(rows, torch.zeros(1000).long()), 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    private = make_private(model, optimizer, loader, epsilon=4.0, delta=1e-4, epochs=5)
    with pytest.raises(ConfigError, match="depends on other records"):
        train(private, model, usual)
    assert len(private.ledger) == 0


def centred(x):
    return x - x.median(0).values


@pytest.mark.parametrize("size", [1e6, 1e30])
def test_a_few_huge_rows_do_not_hide_that_the_others_mix(size):
    """Once compared with the largest row: a third of them, and one record moved all others."""
    torch.manual_seed(1)
    rows = torch.randn(400, 4)
    rows[torch.rand(400) < 0.3] *= size
    model = Before(centred)
    loader = DataLoader(TensorDataset(rows, torch.randint(0, 2, (400,))), batch_size=40)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    private = make_private(model, optimizer, loader, epsilon=4.0, delta=1e-4, epochs=5)
    with pytest.raises(ConfigError, match="depends on other records"):
        train(private, model, usual)
    assert len(private.ledger) == 0


def test_what_has_cancelled_in_a_row_is_not_taken_for_mixing():
    old = torch.tensor([[1.0, 1.0], [2.0, 2.0], [1e-9, 1e-9], [3.0, 3.0]], dtype=torch.float64)
    assert _gap(old, old + 1e-7) < 2.0**-19
    huge = torch.tensor([[1.0, 1.0], [2.0, 2.0], [1e9, 1e9], [1e12, 1e12]], dtype=torch.float64)
    assert _gap(huge, huge + 1e-4) > 2.0**-19


class Card(torch.Tensor):
    """Numbers that say to be on a card."""

    device = property(lambda _: torch.device("cuda"))


@pytest.mark.parametrize("is_loose", [False, True])
def test_a_card_that_computes_alike_is_held_to_that(is_loose):
    """Once 2^-3.5 of a value was let pass in bfloat16: 3 % of a mean moved 64 records."""
    calls = torch.ones(()).double()

    def answer(x):
        calls.mul_(-1)
        said = x + 1e-3 * x.mean(0) + is_loose * 1e-4 * calls
        return [AnswerSketch(one.numbers.as_subclass(Card), 2.0**-7) for one in tell(said)]

    rows = torch.randn(16, 4, generator=torch.Generator().manual_seed(0))
    assert ("depends on other records" in find_mixing(answer, rows, records=16)) != is_loose


class Warming(nn.Module):
    """Mixes its rows when it is told to, in one way or another."""

    def __init__(self):
        super().__init__()
        self.stem, self.head = nn.Linear(4, 6), nn.Linear(6, 2)

    def forward(self, x, *, centre="nothing"):
        if centre == "rows" or not self.training:
            x = x - x.mean(0)
        h = self.stem(x)
        h = h - h.mean(1, keepdim=True)
        return self.head(torch.relu(h - h.mean(0) if centre == "hidden" else h))


def spread(model, x, y):
    said = model(x)
    return usual(said, y) + (said - said.mean(0)).square().sum(1)


@pytest.mark.parametrize(
    "late",
    [
        lambda model, x, y: usual(model(x, centre="rows"), y),
        lambda model, x, y: usual(model(x, centre="hidden"), y),
        lambda model, x, y: usual(model.eval()(x), y),
        spread,
    ],
    ids=["an argument", "a layer", "a mode", "a loss"],
)
def test_what_begins_to_mix_after_a_warm_up_is_refused_at_once(late):
    """Once at the next power of two: half of a training, under the same ε."""
    torch.manual_seed(1)
    model = Warming()
    ghost = Ghost(model)
    x, y = torch.randn(70, 4), torch.randint(0, 2, (70,))
    for _ in range(6):  # the next that is tried anyway is the eighth
        ghost.clipped_sum(usual(model(x), y), 1.0)
    with pytest.raises(ConfigError, match="depends on other records"):
        ghost.clipped_sum(late(model, x, y), 1.0)


def test_layers_that_are_dropped_and_batches_of_any_size_are_not_tried_again(monkeypatch):
    class Dropping(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(8))

        def forward(self, x):
            for layer in self.layers:
                x = x + torch.relu(layer(x)) if float(torch.rand(())) < 0.8 else x
            return x

    torch.manual_seed(3)
    model, tried = Dropping(), []
    ghost, check = Ghost(model), Ghost._check_calls
    monkeypatch.setattr(Ghost, "_check_calls", lambda *one: (tried.append(1), check(*one)))
    for step in range(63):
        size = 64 if step < 4 else 1 + step
        x, y = torch.randn(size, 4), torch.randint(0, 4, (size,))
        ghost.clipped_sum(usual(model(x), y), 1.0)
    assert len(tried) == 6  # batches 1, 2, 4, 8, 16, 32


def test_ids_that_are_all_alike_show_mixing_too():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(5, 3)

        def forward(self, ids):
            return self.table(ids).sum(1) + (ids == 4).double().mean()

    with pytest.raises(ConfigError, match="depends on other records"):
        refuse_mixing(Counting(), (torch.full((8, 2), 4),), {}, records=8)


@pytest.mark.parametrize("row", [[5, 2, 0], [0, 2, 5]])
def test_one_record_of_ids_at_a_time_is_tried_with_rows_that_a_model_takes(row):
    class Padded(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(9, 8, padding_idx=0)

        def forward(self, ids):
            lengths = (ids != 0).sum(1)
            if not bool(lengths.all()):  # as torch's own fast way for transformers does
                raise RuntimeError("all of a row is padding")
            return self.table(ids).sum(1) / lengths[:, None]

    refuse_mixing(Padded(), (torch.tensor([row]),), {}, records=1)


class Lagging(nn.Module):
    """Shows every record the one before it."""

    def __init__(self):
        super().__init__()
        self.layer, self.last = nn.Linear(4, 2), torch.zeros(4)

    def forward(self, x):
        found = self.layer(x + self.last)
        self.last = x[-1].detach()
        return found


@pytest.mark.parametrize("at_once", [1, None])
def test_what_is_kept_from_one_record_to_the_next_is_refused_one_at_a_time_too(at_once):
    model = Lagging()
    private = private_of(model, at_once=at_once)
    with pytest.raises(ConfigError, match=r"depends on|answer differently"):
        train(private, model, usual)
    assert len(private.ledger) == 0


class Scaled(torch.autograd.Function):
    """Brings what comes back to length 1 over the batch, as no loss shows."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return g / g.norm()


@pytest.mark.parametrize("way", ["function", "hook"])
def test_a_backward_that_mixes_records_is_refused(way):
    """Once one record moved what all others add, by many clips."""

    def said(z):
        if way == "function":
            return Scaled.apply(z)
        z.register_hook(lambda g: g / g.norm())
        return z

    model = nn.Linear(4, 2)
    private = private_of(model)
    with pytest.raises(ConfigError, match="what comes back to one record depends on other"):
        train(private, model, lambda z, y: usual(said(z), y))
    assert len(private.ledger) == 0


class Wrapped(nn.Module):
    """A model whose rows come in a box, or of which only a part is called."""

    def __init__(self, mix):
        super().__init__()
        self.part = Before(mix)

    def forward(self, box):
        return self.part(box.rows)


@pytest.mark.parametrize(
    "call", [lambda model, x: model(SimpleNamespace(rows=x)), lambda model, x: model.part(x)]
)
def test_parts_are_tried_where_rows_do_not_go_into_the_whole_model(call):
    torch.manual_seed(1)
    x, y = torch.randn(64, 4), torch.arange(64) % 2
    honest, mixing = (Wrapped(mix) for mix in (lambda h: h, MIXES["centred"]))
    Ghost(honest).clipped_sum(usual(call(honest, x), y), 1.0)
    ghost = Ghost(mixing)
    with pytest.raises(ConfigError, match="depends on other records"):
        ghost.clipped_sum(usual(call(mixing, x), y), 1.0)


def test_a_bias_before_a_normalisation_is_not_taken_for_one_that_is_used_elsewhere():
    """Its gradient is what rounding leaves of nothing: two such numbers are never alike."""
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.InstanceNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2)
    )
    ghost = Ghost(model)
    ghost.clipped_sum(usual(model(torch.randn(64, 1, 8, 8)), torch.arange(64) % 2), 1.0)
    assert ghost.is_checked


class Attending(nn.Module):
    """Rows that attend to their own tokens under a mask that all share; scores of all tokens."""

    def __init__(self):
        super().__init__()
        self.table, self.q, self.out = nn.Embedding(9, 8), nn.Linear(8, 8), nn.Linear(8, 9)
        self.drop = nn.Dropout(0.5)

    def forward(self, ids, mask, *, places):
        x = self.table(ids) + places
        q = self.q(x)
        x = F.scaled_dot_product_attention(q, x, x, attn_mask=mask)
        return {"scores": self.out(self.drop(x)).flatten(0, 1), "last": [x[:, -1]]}


@pytest.mark.parametrize("records", [2, 6, 7])
def test_honest_models_with_dropout_masks_and_answers_of_any_form_pass(records):
    torch.manual_seed(2)
    model, ids = Attending(), torch.arange(records * 6).reshape(records, 6) % 9
    mask = torch.zeros(6, 6).masked_fill(torch.ones(6, 6).triu(1) > 0, -torch.inf)
    given = (ids, mask), {"places": torch.randn(6, 8)[None]}
    weights = scrambled(dict(model.named_parameters()))
    state = torch.get_rng_state()
    for some in (None, weights):
        refuse_mixing(model, *given, records=records, weights=some)
    assert torch.equal(torch.get_rng_state(), state)
    assert not any(layer._forward_pre_hooks for layer in model.modules())


class Placed(nn.Module):
    """Tokens beside places that all records share, and that may be as many as there are records."""

    def __init__(self):
        super().__init__()
        self.table, self.places = nn.Embedding(9, 4), nn.Embedding(9, 4)
        self.norm, self.out = nn.LayerNorm(4), nn.Linear(4, 2)

    def forward(self, places, ids):
        x = self.table(ids) + self.places(places.expand(len(ids), -1))
        return self.out(self.norm(x)).mean(1)


def test_what_kept_its_length_in_another_batch_is_nobodys_row():
    torch.manual_seed(3)
    model = Placed()
    ghost, places = Ghost(model), torch.arange(6)
    for records in (5, 6, 6, 7):
        ids = torch.randint(0, 9, (records, 6))
        ghost.clipped_sum(usual(model(places, ids), torch.arange(records) % 2), 1.0)
    fresh = Ghost(model)
    with pytest.raises(ConfigError, match="depends on other records"):  # it cannot be told yet
        fresh.clipped_sum(usual(model(places, ids[:6]), torch.arange(6) % 2), 1.0)


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e4])
def test_mixing_behind_a_norm_shows_though_all_rows_have_one_length_there(size):
    class Normed(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.out = nn.LayerNorm(8), nn.Linear(8, 2)

        def forward(self, x):
            h = self.norm(x)
            self.out(F.layer_norm(h + 1e-2 * h.roll(1, 0), (8,)))  # in no answer of the model
            return x[:, :2] + 0 * self.out(h)

    torch.manual_seed(3)
    x = torch.randn(8, 8) * size
    with pytest.raises(ConfigError, match="depends on other records"):
        refuse_mixing(Normed(), (x,), {}, records=8)


def test_honest_models_under_autocast_and_compiled_ones_pass():
    torch.manual_seed(2)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.Flatten(), nn.Linear(288, 2))
    ghost = Ghost(model)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        losses = usual(model(torch.randn(64, 3, 8, 8)), torch.arange(64) % 2)
    ghost.clipped_sum(losses, 1.0)
    assert ghost.is_checked


@pytest.mark.slow
def test_a_compiled_model_is_tried_like_any_other():
    torch.manual_seed(2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = torch.compile(Branch(lambda h: h), backend="eager")
        train(private_of(model), model, usual)
        mixing = torch.compile(Branch(MIXES["centred"]), backend="eager")
        with pytest.raises(ConfigError, match="depends on"):
            train(private_of(mixing), mixing, usual)


def test_rows_for_a_trial_take_nothing_of_the_real_ones_but_their_kind():
    model = nn.Sequential(nn.Embedding(7, 3), nn.Linear(3, 2))
    ids = public_rows(model, torch.full((3, 5), 6), records=16)
    assert ids.shape == (16, 5)
    assert set(ids.flatten().tolist()) == set(range(7))
    same = [public_rows(model, torch.full((3, 5), value), records=4) for value in (0.0, 9.0)]
    assert torch.equal(*same)
    assert len({tuple(row) for row in same[0].tolist()}) == 4
