"""`tacit.train`: one call for training on shares, with and without a promise."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import tacit
from tacit.errors import ConfigError, DataError, InputError
from tacit.training import Privacy, TrainModel, TrainProtection, front


def make_owners(rows=40, names=("bank", "shop", "clinic")):
    coins = np.random.default_rng(0)
    parts = {name: coins.normal(size=(rows, 6)).clip(-1, 1) for name in names}
    return {name: (x, (x[:, 0] > 0).astype(int)) for name, x in parts.items()}


def start(outputs=2):
    model = nn.Linear(6, outputs)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    return model


def test_a_model_is_trained_without_a_promise_and_with_one():
    owners, model = make_owners(), start()
    plain = tacit.train(model, owners, epochs=2, batch=20, rate=1.0)
    private = tacit.train(
        model,
        owners,
        epochs=6,
        rate=8.0,
        look_every=3,
        privacy=Privacy(epsilon=8, delta=1e-3, looks="noisy"),
    )
    assert not model.weight.any()  # the user's module is as it was
    x, y = owners["bank"]
    for found in (plain, private):
        assert (found.predict(x).numpy() == y).mean() > 0.8
        assert found.result.forecast.cost.traffic == tuple(
            one for one in found.cost.traffic if one.phase != "setup"
        )
    assert plain.claim is None
    assert plain.perplexity == pytest.approx(np.exp(plain.history[-1][1]))
    assert 7.9 < private.claim.epsilon <= 8
    assert {leak.to for leak in private.ledger if "right answers" in leak.what} == {"bank"}
    assert "ε" in repr(private) or "differential privacy" in repr(private)
    assert len(private.history) == 2


def test_a_data_set_of_torch_takes_the_place_of_arrays():
    owners = {
        name: TensorDataset(torch.tensor(x), torch.tensor(y))
        for name, (x, y) in make_owners(names=("bank", "shop")).items()
    }
    assert tacit.train(start(), owners, batch=20).history
    with pytest.raises(DataError, match="rows alone"):
        tacit.train(start(), {name: one[:][0] for name, one in owners.items()})


def test_weights_can_stay_shared():
    shared = TrainProtection(kind="sealed", dealer="dealer")
    found = tacit.train(start(), make_owners(), epsilon=8, delta=1e-3, epochs=1, protocol=shared)
    assert found.model is None
    assert not [leak for leak in found.ledger if leak.kind == "output"]
    told = {leak.to for leak in found.ledger if "how many rows shop has" in leak.what}
    assert told == set(found.plan.parties) - {"shop"}
    first, second = found.shares.values()
    assert int((first["weight"] + second["weight"]).abs().max()) < 1 << 24
    with pytest.raises(ConfigError, match=r"protocol\.give_to"):
        found.predict(np.zeros((1, 6)))


class Reader(nn.Module):
    """Reads at most four ids, and scores the next one at each."""

    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(7, 6), nn.Linear(6, 7)
        self.positions = nn.Parameter(torch.zeros(4, 6))

    def forward(self, ids):
        return self.head(torch.relu(self.table(ids) + self.positions))


def test_tokens_are_trained_and_texts_that_are_too_long_refused():
    ids = (np.arange(20)[:, None] + np.arange(5)) % 7
    owners = {name: (ids[at::2, :-1], ids[at::2, 1:]) for at, name in enumerate(("a", "b"))}
    torch.manual_seed(0)
    found = tacit.train(
        Reader(),
        owners,
        epochs=3,
        batch=9,
        rate=2.0,
        cap=8.0,
        look_every=2,
        model=TrainModel(bound=16.0),
    )
    assert found.history[-1][1] < found.history[0][1]
    assert found.predict(ids[:2, :-1]).shape == (2, 4)
    long = dict.fromkeys(("a", "b"), (ids, ids))
    with pytest.raises(DataError, match="longer than it takes"):
        tacit.train(Reader(), long)
    with pytest.raises(DataError, match="from 0 to 6"):
        tacit.train(Reader(), dict.fromkeys(("a", "b"), (ids[:, :4] + 1, ids[:, :4])))
    # A table of rows is no product per record that is bounded.
    with pytest.raises(InputError, match=r"'table.weight' is used"):
        tacit.train(Reader(), owners, epsilon=2, cap=8.0)


def spoilt(change):
    owners = make_owners()
    owners["shop"] = change(*owners["shop"])
    return owners


@pytest.mark.parametrize(
    ("owners", "options", "kind", "words"),
    [
        (make_owners(names=("bank",)), {}, ConfigError, "two owners"),
        (make_owners(names=("bank", "dealer")), {}, ConfigError, "dealer"),
        (spoilt(lambda x, y: (x * np.nan, y)), {}, DataError, "NaN"),
        (spoilt(lambda x, y: (x, y + 1)), {}, DataError, "from 0 to 1"),
        (spoilt(lambda x, y: (x, y[:-1])), {}, DataError, "labels"),
        (spoilt(lambda x, y: (x[:, :5], y)), {}, ConfigError, "shape"),
        (make_owners(), {"delta": 1e-3}, ConfigError, "epsilon"),
        (make_owners(), {"epsilon": 0}, ConfigError, "epsilon"),
        (make_owners(), {"epsilon": 2, "delta": 0.1}, ConfigError, "1/n or more"),
        (make_owners(), {"epsilon": 1e-4, "epochs": 10**4}, ConfigError, "no noise"),
        (make_owners(), {"epsilon": 2, "batch": 10}, ConfigError, "every step uses all 120 rows"),
        (spoilt(lambda x, y: (x * 0, y)), {"epsilon": 2}, DataError, "all zeros"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_a_row_is_shared(owners, options, kind, words):
    with pytest.raises(kind, match=words):
        tacit.train(start(), owners, **options)


def test_what_was_kept_of_a_training_is_that_of_the_same_module_alone(tmp_path, monkeypatch):
    found, made = [], front.StateFolder

    def noting(path, binding):
        found.append(binding)
        return made(path, binding)

    monkeypatch.setattr(front, "StateFolder", noting)
    rows = torch.linspace(-1, 1, 80).reshape(40, 2)
    owners = {
        one: (rows[at::2], (rows[at::2, 0] > 0).long()) for at, one in enumerate(("north", "south"))
    }
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        tacit.train(nn.Linear(2, 2), owners, epochs=1, out=tmp_path / "out")
    first, again, other = (found[at : at + 3] for at in (0, 3, 6))
    assert first == again
    assert not set(first) & set(other)
    assert not list(tmp_path.glob("out/*/step-*"))  # it ended, so nothing is kept
