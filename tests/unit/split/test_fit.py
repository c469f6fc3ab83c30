"""`fit`: split models from Python, held against the same training by plain torch."""

import copy
from collections import OrderedDict

import numpy as np
import pytest
import torch
from torch import nn

from tacit.errors import ConfigError, DataError
from tacit.split import Compression, CutSpec, Defence, TrainingPace, fit
from tacit.split.rows import divide_rows

ROWS, CLASSES = 120, 3
# One batch is all rows: then the order of rows, which parties draw in secret, does not matter.
WHOLE = {"epochs": 6, "batch": 1000, "optimiser": "sgd", "rate": 0.2}


@pytest.fixture
def rows():
    draw = torch.Generator().manual_seed(0)
    y = torch.arange(ROWS) % CLASSES
    return torch.randn(CLASSES, 7, generator=draw)[y] + torch.randn(ROWS, 7, generator=draw), y


def make_bottom(inputs):
    return nn.Sequential(nn.Linear(inputs, 8), nn.Tanh())


def make_model():
    torch.manual_seed(1)
    layers = {"first": nn.Linear(7, 16), "cut": nn.Tanh(), "head": nn.Linear(16, CLASSES)}
    return nn.Sequential(OrderedDict(layers))


def train_plainly(model, x, y, class_weights=None):
    """Train in one place, by torch alone; a row counts as much as its class."""
    model, optimiser = copy.deepcopy(model), None
    optimiser = torch.optim.SGD(model.parameters(), 0.2, momentum=0.9)
    for _ in range(WHOLE["epochs"]):
        optimiser.zero_grad()
        each = nn.functional.cross_entropy(model(x), y, reduction="none")
        (each if class_weights is None else each * torch.tensor(class_weights)[y]).mean().backward()
        optimiser.step()
    return model


def test_one_model_is_cut_and_trained_as_it_would_be_in_one_place(rows):
    x, y = rows
    model = make_model()
    before = copy.deepcopy(model.state_dict())
    found = fit(model, cut="cut", features=x.numpy(), labels=y.numpy(), train=TrainingPace(**WHOLE))
    train_x, train_y = (divide_rows(one, test_share=0.2, is_scaled=False).train for one in rows)
    plain = train_plainly(model, train_x, train_y)
    assert torch.allclose(found.logits(x), plain(x), atol=1e-4)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert found.metrics[0].name == "accuracy"
    assert found.metrics[0].samples == 24
    assert len(found.epochs) == 6
    assert found.predict(x).shape == (ROWS,)
    assert {leak.to for leak in found.ledger} == {"features", "labels"}
    assert found.claims[0].guarantee == "no guarantee"
    assert "16 parameters" not in repr(found)
    assert "<table>" in found._repr_html_()


class Beside(nn.Module):
    """Two bottoms and a top as one model."""

    def __init__(self, first, second, top):
        super().__init__()
        self.first, self.second, self.top = first, second, top

    def forward(self, x):
        return self.top(torch.cat([self.first(x[:, :4]), self.second(x[:, 4:])], 1))


@pytest.mark.parametrize("hidden", [False, True], ids=["linear top", "deep top"])
def test_a_label_owner_with_columns_trains_as_one_model_and_sends_no_more(rows, hidden):
    x, y = rows
    torch.manual_seed(2)
    top = nn.Linear(16, CLASSES)
    if hidden:
        top = nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, CLASSES))
    clinic, lab = make_bottom(4), make_bottom(3)
    # The label owner's cut layer comes last, wherever its name stands.
    found = fit(
        {"labels": lab, "clinic": clinic},
        top=top,
        features={"clinic": x[:, :4], "labels": x[:, 4:]},
        labels=y,
        train=TrainingPace(**WHOLE, micro_batches=4),
    )
    train_x, train_y = (divide_rows(one, test_share=0.2, is_scaled=False).train for one in rows)
    plain = train_plainly(Beside(clinic, lab, top), train_x, train_y)
    given = {"clinic": x[:, :4], "labels": x[:, 4:]}
    assert torch.allclose(found.logits(given), plain(x), atol=1e-4)
    alone = fit(
        {"clinic": clinic},
        top=nn.Linear(8, CLASSES),
        features={"clinic": x[:, :4]},
        labels=y,
        train=TrainingPace(**WHOLE, micro_batches=4),
    )
    # What the label owner computes from its own columns never travels.
    assert _online(found) == _online(alone)
    assert found.claims[-1].subject.startswith("the label owner's own columns")
    assert {(one.to, one.elements) for one in found.ledger} == {
        (one.to, one.elements) for one in alone.ledger
    }


def _online(model):
    return sorted(
        (one.sender, one.receiver, one.messages, one.payload_bytes)
        for one in model.cost.traffic
        if one.phase == "online"
    )


@pytest.mark.parametrize("defences", [(), (Defence(kind="gradient-norm"),)], ids=["fast", "traced"])
def test_class_weights_count_as_in_plain_torch(rows, defences):
    x, y = rows
    weights, pace = (
        (1.0, 4.0, 0.5),
        TrainingPace(**WHOLE, class_weights=(1.0, 4.0, 0.5), micro_batches=3),
    )
    found = fit(
        make_model(),
        cut="cut",
        features=x,
        labels=y,
        train=pace,
        split=CutSpec(also_defend=defences),
    )
    train_x, train_y = (divide_rows(one, test_share=0.2, is_scaled=False).train for one in rows)
    weighted, alike = (
        train_plainly(make_model(), train_x, train_y, one) for one in (weights, None)
    )
    if defences:  # it changes the bottom; the weights are still felt
        assert (found.predict(x) == 1).sum() > (alike(x).argmax(1) == 1).sum()
    else:
        assert torch.allclose(found.logits(x), weighted(x), atol=1e-4)
    with pytest.raises(ConfigError, match="class_weights: wanted 3, got 2"):
        fit(
            make_model(),
            cut="cut",
            features=x,
            labels=y,
            train=TrainingPace(class_weights=(1.0, 2.0)),
        )


def test_processes_send_what_threads_send_and_train_what_they_train(rows):
    x, y = rows
    both = [
        fit(
            make_model(),
            cut="cut",
            features=x,
            labels=y,
            train=TrainingPace(**WHOLE),
            compress=Compression(kind="topk", k=6),
            launch=launch,
        )
        for launch in ("threads", "processes")
    ]
    assert torch.allclose(both[0].logits(x), both[1].logits(x), atol=1e-4)
    assert _online(both[0]) == _online(both[1])
    assert both[0].ledger == both[1].ledger
    assert both[1].result.launched == "processes"


def test_gradients_can_be_watched_and_steps_counted_as_they_go(rows):
    x, y = rows
    seen, told = [], []
    pace = TrainingPace(epochs=1, batch=32)
    fit(
        make_model(),
        cut="cut",
        features=x,
        labels=y,
        train=pace,
        on_gradient=lambda owner, one: seen.append((owner, len(one.rows))),
        report=lambda *where: told.append(where),
    )
    assert ("train", 3, 3) in told
    assert sum(count for _, count in seen) == 96
    assert {owner for owner, _ in seen} == {"features"}


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"cut": None}, ConfigError, "wanted cut="),
        ({"cut": "nowhere"}, ConfigError, "no layer 'nowhere'"),
        ({"labels": np.zeros(5)}, DataError, "wanted a label per row"),
        ({"model": {"labels": make_bottom(7)}}, ConfigError, "at least one beside 'labels'"),
        ({"model": {"clinic": make_bottom(7)}}, ConfigError, "wanted top="),
        ({"launch": "hosts"}, ConfigError, "wanted 'threads' or 'processes'"),
        (
            {"launch": "processes", "on_gradient": lambda owner, one: None},
            ConfigError,
            "watch parties of this process",
        ),
    ],
)
def test_what_does_not_fit_is_refused(rows, change, error, text):
    asked = {"model": make_model(), "cut": "cut", "features": rows[0], "labels": rows[1], **change}
    with pytest.raises(error, match=text):
        fit(asked.pop("model"), **asked)


def test_a_model_that_cannot_travel_is_refused_before_anything_starts(rows):
    class Mine(nn.Linear):
        """Nobody else can look this class up."""

    bottom = Mine(7, 8)
    with pytest.raises(ConfigError, match="cannot be sent to another process"):
        fit(
            {"clinic": bottom},
            top=nn.Linear(8, CLASSES),
            features={"clinic": rows[0]},
            labels=rows[1],
            launch="processes",
        )


def test_gradients_tell_a_feature_owner_the_label_owners_own_column():
    """Why nothing is promised about it: rows whose column speaks for their label come back short.

    The attacker takes the gradients of the last pass and the labels, which clusters of gradients
    give away anyway; its own columns are noise.
    """
    draw = torch.Generator().manual_seed(4)
    y = torch.arange(400) % 2
    column = torch.where(torch.rand(400, generator=draw) < 0.8, y, 1 - y)
    torch.manual_seed(0)
    seen = {}
    fit(
        {"clinic": make_bottom(2), "labels": nn.Linear(1, 4)},
        top=nn.Linear(12, 2),
        features={
            "clinic": torch.randn(400, 2, generator=draw),
            "labels": column[:, None].float(),
        },
        labels=y,
        train=TrainingPace(epochs=15, batch=64, rate=0.02),
        on_gradient=lambda owner, one: seen.update(
            zip(one.rows.tolist(), one.gradient.norm(dim=1).tolist(), strict=True)
        ),
    )
    truth, told = (divide_rows(one, test_share=0.2, is_scaled=False).train for one in (column, y))
    norms = torch.tensor([seen[row] for row in range(len(truth))])
    # A long gradient: the column speaks against the label.
    guess = torch.where(norms > norms.median() * 2, 1 - told, told)
    assert (guess == truth).float().mean() > 0.95  # knowing the label alone: about 0.8
