"""Rows of every kind are the same rows at every front; what is not rows is refused by name."""

import numpy as np
import pyarrow
import pytest
import torch
from sklearn.tree import DecisionTreeClassifier
from torch import nn

import tacit
from tacit.data import Rows, names_of, numbers_of, take_rows
from tacit.errors import ConfigError, DataError
from tacit.federated.data import shard_rows
from tacit.party import Meeting, run_threads
from tacit.ring import check_device
from tacit.training.rows import exchange_holdings

COINS = np.random.default_rng(1)
X = COINS.integers(-8, 9, size=(60, 4)) / 4  # numbers of 16 bits hold them
Y = (X[:, 0] + X[:, 1] > 0).astype(np.int64)
NAMES = ("a", "b", "c", "d")


class Frame:
    """A data frame whose columns are of several kinds, as far as it concerns us."""

    columns = NAMES

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def to_numpy(self):
        return self.rows


KINDS = {
    "rows of a loader": Rows(features=X, columns=NAMES),
    "single precision": X.astype(np.float32),
    "half precision": X.astype(np.float16),
    "big-endian": X.astype(">f8"),
    "long": X.astype(np.longdouble),
    "by columns": np.asfortranarray(X),
    "list": X.tolist(),
    "tensor of 16 bits": torch.tensor(X, dtype=torch.bfloat16),
    "tensor with gradients": torch.tensor(X, requires_grad=True),
    "arrow": pyarrow.table({name: X[:, at] for at, name in enumerate(NAMES)}),
    "frame of several kinds": Frame(X.astype(object)),
}


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))


def federated(x):
    return shard_rows([(x, Y), (X, Y)], test=(x, Y)).features  # what follows is drawn by chance


def split(x):
    pace = tacit.split.TrainingPace(epochs=1)
    found = tacit.split.fit(network(), features=x, labels=Y, cut="1", train=pace)
    return found.predict(x)


def audit(x):
    model = DecisionTreeClassifier(random_state=0).fit(X, Y)
    return tacit.audit.membership(model, (x, Y), (X[::-1].copy(), Y), threats=["scores"]).auc


def verified(x):
    model = DecisionTreeClassifier(random_state=0).fit(X, Y)
    ensemble = tacit.verify.import_ensemble(model)
    return ensemble.predict(x)


FRONTS = {"federated": federated, "split": split, "audit": audit, "verify": verified}


@pytest.mark.parametrize("front", FRONTS)
def test_rows_of_every_kind_are_the_same_rows(front):
    wanted = np.asarray(FRONTS[front](X))
    for kind, rows in KINDS.items():
        assert np.array_equal(np.asarray(FRONTS[front](rows)), wanted), kind


@pytest.mark.parametrize("front", ["federated", "audit", "split"])
@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (np.where(X > 1.9, np.nan, X), "NaN"),
        (Frame(np.where(X > 1.9, None, X.astype(object))), "NaN"),
        (X.astype("U4"), "wanted rows of numbers"),
        (X.astype("M8[D]"), "wanted rows of numbers"),
    ],
)
def test_what_is_no_number_is_refused_at_every_front(front, rows, words):
    with pytest.raises(DataError, match=words):
        FRONTS[front](rows)


def test_what_can_be_read_with_one_word_more_says_which():
    class LazyFrame:
        """Polars', as far as it concerns us."""

    with pytest.raises(DataError, match=r"LazyFrame; give what its \.collect"):
        numbers_of(LazyFrame())


def test_labels_that_are_no_classes_are_refused_in_an_audit():
    model = DecisionTreeClassifier().fit(X, Y)
    for labels in (None, Y.astype(str), Y + 0.5):
        with pytest.raises(DataError, match="members: wanted a label per row"):
            tacit.audit.membership(model, (X, labels), (X, Y))


def test_clients_whose_frames_have_other_columns_are_refused():
    one, other = (Rows(features=X, columns=names) for names in (NAMES, NAMES[::-1]))
    with pytest.raises(DataError, match=r"'clients\[1\]'.*another order"):
        tacit.federated.fit(network(), [(one, Y), (other, Y)])


def test_rows_of_a_loader_bring_their_labels_along():
    rows = Rows(features=X, labels=Y, columns=NAMES)
    assert np.array_equal(shard_rows([rows, rows]).labels, np.concatenate([Y, Y]))
    assert names_of(rows) == NAMES
    assert take_rows(rows) is rows


def test_names_are_those_of_features_wherever_they_stand():
    table = pyarrow.table({"a": [1.0], "label": [0], "b": [2.0]})
    assert names_of(table) == ("a", "b")
    assert names_of((Frame(X), Y)) == NAMES
    assert names_of({"x": [1]}) == ("x",)
    assert names_of(X) == names_of(X.tolist()) == names_of(torch.tensor(X)) == ()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("abc", "wanted cpu, cuda or cuda:N, got 'abc'"),
        ("meta", "wanted cpu"),
        ("cuda:99", "finds"),
    ],
)
def test_a_device_that_is_not_here_is_refused_by_name(name, words):
    with pytest.raises(ConfigError, match=f"train.device: .*{words}"):
        check_device(name, "train.device")
    with pytest.raises(ConfigError, match=words):
        tacit.secure(network(), device=name)


def test_owners_who_train_with_columns_in_another_order_are_refused():
    one, other = (Rows(features=X, columns=names) for names in (NAMES, NAMES[::-1]))
    with pytest.raises(DataError, match=r"'south'.*another order.*'north'"):
        tacit.train(network(), {"north": (one, Y), "south": (other, Y)})


@pytest.mark.parametrize("split", ["rows", "columns"])
def test_between_hosts_owners_of_rows_alone_say_what_their_columns_are_called(split):
    def party(session):
        names = NAMES if session.me == "north" else NAMES[::-1]
        mine = Rows(features=np.asarray(X, float), columns=names)
        return exchange_holdings(session, ("north", "south"), mine, split=split)

    owners = ("north", "south")
    found = run_threads(dict.fromkeys(owners, party), Meeting(parties=owners, job_digest=bytes(32)))
    assert found["north"] == found["south"]
    marks = {one.names for one in found["north"]}
    assert len(marks) == 2 if split == "rows" else marks == {0}
