"""Rows from wherever they lie: every front takes arrays, tensors, frames and data sets alike."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import tacit
from tacit.data import features_and_labels, features_of, to_array
from tacit.errors import DataError
from tacit.learners import Local, LogisticRegression

COINS = np.random.default_rng(3)
X = COINS.normal(size=(60, 4)).round(3)
Y = (X[:, 0] + X[:, 1] > 0).astype(np.int64)


class Pairs(Dataset):
    """A torch data set that makes its items when it is asked."""

    def __len__(self):
        return len(X)

    def __getitem__(self, at):
        return torch.tensor(X[at]), int(Y[at])


class Columns:
    """What a data set of Hugging Face's can do, as far as it concerns us."""

    def __init__(self, columns):
        self._columns = columns
        self.column_names = list(columns)

    def __len__(self):
        return len(next(iter(self._columns.values())))

    def __getitem__(self, key):
        if isinstance(key, str):
            return self._columns[key]
        return {name: values[key] for name, values in self._columns.items()}


class Frame:
    """A data frame, as far as it concerns us."""

    columns = ("a", "b", "c", "d")

    def to_numpy(self):
        return X


TABLE = Columns({**{f"x{at}": X[:, at].tolist() for at in range(4)}, "label": Y.tolist()})
VECTORS = Columns({"pixels": X.tolist(), "labels": Y.tolist()})
DATASETS = {
    "pair": (X, Y),
    "tensors": (torch.tensor(X, requires_grad=True), torch.tensor(Y)),
    "torch": Pairs(),
    "tensor data set": TensorDataset(torch.tensor(X), torch.tensor(Y)),
    "columns": TABLE,
    "one column": VECTORS,
    "of tensors": Columns({"x": list(torch.tensor(X)), "label": list(torch.tensor(Y))}),
}


@pytest.mark.parametrize("name", DATASETS)
def test_features_and_labels_are_found_in_whatever_holds_them(name):
    x, y = features_and_labels(DATASETS[name])
    assert np.array_equal(to_array(x), X)
    assert np.array_equal(to_array(y), Y)


def test_what_has_no_labels_has_none():
    for given in (X, X.tolist(), torch.tensor(X), Frame(), Columns({"x": X.tolist()})):
        assert np.array_equal(features_of(given), X)
        assert features_and_labels(given)[1] is None
    assert np.array_equal(features_of(tuple(X[:2])), X[:2])  # two rows, not a pair


@pytest.mark.parametrize(
    ("given", "word"),
    [
        (Columns({"text": ["a", "b"], "label": [0, 1]}), "not numbers"),
        (Columns({"a": [1, 2], "b": [[1], [2]], "label": [0, 1]}), "one number each"),
        (Columns({"label": [0, 1]}), "got none"),
        (TensorDataset(torch.zeros(0, 2), torch.zeros(0)), "empty"),
    ],
)
def test_what_cannot_be_used_is_refused_in_words(given, word):
    with pytest.raises(DataError, match=word):
        features_and_labels(given)


def test_a_stream_and_a_dictionary_of_parts_are_refused():
    class Stream:
        column_names = ("x", "label")

    class Parts(dict):
        column_names = {"train": ["x"], "test": ["x"]}  # noqa: RUF012

    with pytest.raises(DataError, match="stream"):
        features_and_labels(Stream())
    with pytest.raises(DataError, match="'train', 'test'; take one"):
        features_and_labels(Parts())


@pytest.mark.parametrize("given", [Pairs(), TABLE], ids=["torch", "columns"])
def test_every_front_takes_a_data_set(given):
    network = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)).double()
    with torch.no_grad():
        wanted = network(torch.tensor(X))
    answer = tacit.secure(network)(given)
    assert float((answer.values - wanted).abs().max()) < 1e-3
    with Local("a", "b") as parties:
        table = parties.rows({"a": given, "b": (X, Y)})
        assert table.shape == (120, 4)
        assert LogisticRegression(max_iter=4).fit(table, parties).score(table) > 0.7
    found = tacit.federated.fit(
        nn.Linear(4, 2), [given, (X, Y)], rounds=1, test=given, aggregator="plain"
    )
    assert np.array_equal(found.predict(given), found.predict(X.astype(np.float32)))
    split = tacit.split.fit(
        nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)),
        features=given,
        labels=given,
        cut="1",
        train=tacit.split.TrainingPace(epochs=1),
    )
    assert torch.equal(split.predict(given), split.predict(torch.tensor(X).float()))


def test_a_private_training_takes_a_loader_of_either():
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(VECTORS, batch_size=20, collate_fn=_collate)
    private = tacit.dp.make_private(model, optimizer, loader, epsilon=4, delta=1e-3, epochs=1)
    for batch in private.loader:
        loss = F.cross_entropy(model(batch["pixels"]), batch["labels"], reduction="none")
        private.step(loss)
    assert 0 < private.claim.epsilon <= 4


def _collate(rows):
    return {
        "pixels": torch.tensor([one["pixels"] for one in rows]),
        "labels": torch.tensor([one["labels"] for one in rows]),
    }
