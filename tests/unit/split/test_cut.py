"""Any traceable model is cut where one value crosses, and both parts together are the model."""

import threading

import pytest
import torch
from torch import nn

from tacit.errors import ConfigError
from tacit.split import MODELS, Flat, ShapedTop, cut, cut_shape, make_model

SHAPES = {
    "gru4rec": (7, 30),
    "mlp": (6, 6),
    "resnet20": (3, 16, 16),
    "resnet20-quarters": (3, 16, 16),
    "textcnn": (9, 30),
    "two-conv": (28, 28),
    "vit": (3, 16, 16),
}


def example(kind, rows=3):
    generator = torch.Generator().manual_seed(0)
    shape = SHAPES[kind]
    if kind in ("gru4rec", "textcnn"):
        return torch.randint(0, shape[1], (rows, shape[0]), generator=generator)
    return torch.randn(rows, *shape, generator=generator)


@pytest.mark.parametrize("kind", MODELS)
def test_every_model_is_cut_at_its_last_hidden_layer(kind):
    model = make_model(kind, shape=SHAPES[kind], classes=5, width=48).eval()
    bottom, top = cut(model, "cut")
    x = example(kind)
    assert cut_shape(bottom, x) == (48,)
    torch.testing.assert_close(top(bottom(x)), model(x))
    assert model(x).shape == (3, 5)
    names = {id(p) for part in (bottom, top) for p in part.parameters()}
    assert names == {id(p) for p in model.parameters()}
    assert not {id(p) for p in bottom.parameters()} & {id(p) for p in top.parameters()}


@pytest.mark.parametrize("kind", MODELS)
def test_a_hidden_layer_belongs_to_the_label_owner(kind):
    plain, deep = (
        cut(make_model(kind, shape=SHAPES[kind], classes=5, width=48, hidden=h), "cut")
        for h in (0, 7)
    )
    names = [[name for name, _ in part.named_parameters()] for part in (plain[0], deep[0])]
    assert names[0] == names[1]
    assert [tuple(p.shape) for p in deep[1].parameters()] == [(7, 48), (7,), (5, 7), (5,)]
    assert [tuple(p.shape) for p in plain[1].parameters()] == [(5, 48), (5,)]


def test_quarters_are_averaged_apart():
    shape = SHAPES["resnet20-quarters"]
    model = make_model("resnet20-quarters", shape=shape, classes=5, width=64).eval()
    whole = make_model("resnet20", shape=shape, classes=5, width=16).eval()
    weights = {k: v for k, v in model.state_dict().items() if not k.startswith("head")}
    whole.load_state_dict(weights, strict=False)
    x = example("resnet20")
    quarters, average = cut(model, "cut")[0](x), cut(whole, "cut")[0](x)
    torch.testing.assert_close(quarters.unflatten(1, (16, 4)).mean(2), average)


@pytest.mark.parametrize(
    ("kind", "at"), [("resnet20", "block2"), ("mlp", "first"), ("vit", "embed")]
)
def test_a_model_is_cut_at_any_layer_that_is_named(kind, at):
    model = make_model(kind, shape=SHAPES[kind], classes=5, width=24).eval()
    bottom, top = cut(model, at)
    x = example(kind)
    shape = cut_shape(bottom, x)
    flat, shaped = Flat(bottom), ShapedTop(top, shape)
    assert flat(x).dim() == 2
    torch.testing.assert_close(shaped(flat(x)), model(x))


def test_a_normalised_cut_lies_on_a_sphere():
    bottom, _ = cut(make_model("mlp", shape=(6, 6), classes=5, width=24), "cut")
    h = Flat(bottom, is_normalised=True)(example("mlp"))
    torch.testing.assert_close(h.norm(dim=1), torch.full((3,), 24**0.5), atol=1e-2, rtol=0)


class Skipping(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return self.second(self.first(x)) + x


class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)

    def forward(self, x):
        return self.first(x) if x.sum() > 0 else x


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)

    def forward(self, x):
        return self.first(self.first(x))


def test_a_way_around_the_cut_is_named():
    with pytest.raises(ConfigError, match="the rest of the model needs x"):
        cut(Skipping(), "first")


def test_a_model_that_cannot_be_traced_is_refused_with_a_way_out():
    with pytest.raises(ConfigError, match="give the two parts as modules"):
        cut(Branching(), "first")


def test_a_layer_away_from_the_cut_may_do_what_it_likes():
    torch.manual_seed(0)
    model = nn.Sequential(Branching(), nn.Linear(4, 3), Branching())
    model[2].first = nn.Linear(3, 3)
    bottom, top = cut(model, "1")
    x = torch.randn(5, 4)
    assert torch.equal(top(bottom(x)), model(x))


def test_a_part_is_cut_again_at_a_block_or_inside_one():
    model = make_model("resnet20", shape=SHAPES["resnet20"], classes=5, width=16).eval()
    bottom, x = cut(model, "cut")[0].eval(), example("resnet20")
    below = model[:4](x)  # up to the first block
    one = model.block1(below)
    assert torch.equal(cut(bottom, "block2")[0].eval()(x), model.block2(one))
    inner = cut(Flat(bottom), "bottom.block2.0")[0].eval()
    assert torch.equal(inner(x), model.block2[0](one))


def test_a_layer_that_runs_twice_is_refused():
    with pytest.raises(ConfigError, match="runs 2 times"):
        cut(Twice(), "first")


def test_a_layer_that_does_not_exist_is_refused_by_name():
    with pytest.raises(ConfigError, match="no layer 'third'; it has first, second"):
        cut(Skipping(), "third")


@pytest.mark.parametrize(
    ("kind", "shape", "width"),
    [("two-conv", (8, 8), 4), ("resnet20", (3, 16, 12), 8), ("textcnn", (5,), 9), ("net", (2,), 3)],
)
def test_shapes_that_a_model_cannot_take_are_refused(kind, shape, width):
    with pytest.raises(ConfigError, match="model"):
        make_model(kind, shape=shape, classes=3, width=width)


def test_other_threads_run_their_models_while_one_is_cut():
    other, seen = nn.Linear(2, 3), []

    class Busy(nn.Module):
        def __init__(self):
            super().__init__()
            self.cut, self.head = nn.Linear(4, 4), nn.Linear(4, 2)

        def forward(self, x):
            thread = threading.Thread(target=lambda: seen.append(other(torch.ones(1, 2))))
            thread.start()
            thread.join()
            return self.head(self.cut(x))

    cut(Busy(), "cut")
    assert torch.equal(seen[0], other(torch.ones(1, 2)))
