"""Federated training as one call: the same as a job, for rows and models of one's own."""

import inspect
from dataclasses import fields

import numpy as np
import pytest
import torch

from tacit.data import load_dataset, split_dataset
from tacit.errors import ConfigError, DataError
from tacit.federated import (
    FederatedData,
    FederatedModel,
    FederatedSpec,
    Federation,
    Privacy,
    Training,
    fit,
)
from tacit.federated.summary import warnings_about
from tacit.result import Claim

FAST = Training(steps=5, batch=16, rate=0.5)
OPEN = Privacy(clip=2.0)


def make_rows(clients=8):
    whole = load_dataset("digits", ())
    train, test = (split_dataset(whole, part=part, seed=0) for part in ("train", "test"))
    x, y = train.features.reshape(len(train.labels), -1), train.labels
    rows = [(x[i::clients], y[i::clients]) for i in range(clients)]
    return rows, (test.features.reshape(len(test.labels), -1), test.labels)


def test_a_torch_model_is_trained_and_the_given_one_stays_as_it_was():
    rows, test = make_rows()
    model = torch.nn.Linear(64, 10)
    before = model.weight.detach().clone()
    shown = []
    found = fit(model, rows, privacy=OPEN, rounds=4, test=test, train=FAST, on_round=shown.append)
    assert torch.equal(model.weight, before)
    assert found.rounds == tuple(shown)
    right = float((found.predict(test[0]) == test[1]).mean())
    assert right == pytest.approx(found.rounds[-1].accuracy)
    assert right > 0.8
    assert found.predict_proba(test[0][:3]).sum(1) == pytest.approx(1.0, abs=1e-5)
    names = {metric.name for metric in found.rounds[0].metrics}
    assert names == {"accuracy", "most frequent class", "F1", "AUC", "calibration error"}
    assert found.epsilon is None
    assert "no guarantee" in repr(found)


def test_epsilon_comes_with_all_that_it_means_and_with_its_ledger():
    rows, _ = make_rows()
    privacy = Privacy(kind="central", clip=1.0, epsilon=20.0, delta=1e-3)
    found = fit("linear", rows, privacy=privacy, rounds=2, train=FAST, colluding_share=0.0)
    assert 19.0 < found.epsilon <= 20.0
    assert (found.delta, found.relation) == (1e-3, "replacing one client")
    assert found.accountant is not None
    assert len(found.ledger) == 2
    assert found.claims[1].guarantee == "hidden in the sum of those who stayed"
    assert "ε = " in repr(found)
    assert any("above 10" in note for note in found.notes)


def test_secure_aggregation_learns_what_plain_aggregation_learns():
    rows, _ = make_rows(4)
    rows = [(x[:16], y[:16]) for x, y in rows]  # a batch is all rows: nothing is left to chance
    plain, masked = (
        fit("linear", rows, privacy=OPEN, rounds=2, aggregator=name, train=FAST).model
        for name in ("plain", "masked")
    )
    for one, other in zip(plain.parameters(), masked.parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-4)


def test_class_weights_move_errors_from_one_class_to_the_other():
    """Of the two classes, which overlap, the one that counts more is found more often."""
    noise = np.random.default_rng(0)
    y = np.arange(400) % 2
    x = (noise.normal(size=(400, 2)) + y[:, None]).astype(np.float32)
    rows = [(x[i::4], y[i::4]) for i in range(4)]

    def found(kind, weights):
        privacy = OPEN
        if kind == "record":
            privacy = Privacy(kind=kind, clip=1.0, epsilon=20.0, delta=1e-3, records=100)
        training = Training(steps=10, batch=50, rate=0.5, class_weights=weights)
        trained = fit("linear", rows, privacy=privacy, rounds=2, train=training)
        return int(trained.predict(x).sum())

    assert found("none", (8.0, 1.0)) < found("none", None) < found("none", (1.0, 8.0))
    assert found("record", (8.0, 1.0)) < found("record", (1.0, 8.0))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": torch.nn.BatchNorm1d(64)}, "use GroupNorm"),
        ({"model": torch.nn.Linear(64, 3)}, "for each of 10 classes"),
        ({"privacy": None}, "needs a bound on every update: set clip"),
        ({"engine": "ray"}, "the engine is one of local, flower"),
        ({"aggregator": "none"}, "the aggregator is one of plain, masked, shuffled"),
        ({"train": Training(class_weights=(1.0, 2.0))}, "wanted 10 class weights, got 2"),
    ],
)
def test_what_cannot_be_trained_is_refused_in_words(changes, message):
    rows, _ = make_rows(4)
    settings = {"model": "linear", "privacy": OPEN, "rounds": 1, **changes}
    with pytest.raises(ConfigError, match=message):
        fit(clients=rows, **settings)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "two clients or more"),
        ([(np.zeros((3, 2)), np.zeros(2))], r"clients\[1\]: wanted a label for each"),
        ([(np.zeros((3, 1)), np.zeros(3))], r"clients\[1\]: wanted rows of shape"),
        ([(np.zeros((3, 2)), np.full(3, 0.5))], "are classes"),
    ],
)
def test_rows_that_do_not_go_together_are_refused_by_name(rows, message):
    with pytest.raises(DataError, match=message):
        fit("linear", [(np.zeros((3, 2)), np.zeros(3)), *rows], privacy=OPEN)


def test_an_epsilon_above_ten_is_warned_of():
    claim = Claim(subject="x", guarantee="y", assumptions=(), epsilon=10.0, delta=1e-5)
    assert warnings_about(claim) == ()
    (text,) = warnings_about(Claim(**{**vars(claim), "epsilon": 10.1}))
    assert text.startswith("an ε above 10 promises little")


UNUSED = {"federated.public_key": "a simulation makes keys of its own, and refuses this one"}
"""The keys of a job that `fit` has no use for, and why."""


def test_every_key_of_a_job_can_be_said_from_python():
    """Each key is of a record that `fit` takes; short words are named as their fields."""
    tables = {"data": FederatedData, "model": FederatedModel}
    tables |= {"federated": Federation, "privacy": Privacy, "train": Training}
    keys = {f"{name}.{one.name}" for name, table in tables.items() for one in fields(table)}
    assert keys.issuperset(UNUSED)
    assert {one.name for one in fields(FederatedSpec)} == tables.keys()
    taken = inspect.signature(fit).parameters
    assert tables.keys() - taken.keys() == {"data"}  # in the place of the clients' rows
    short = taken.keys() - tables.keys() - {"clients", "test", "on_round"}
    assert len(short) <= 8
    assert short <= {one.name for one in fields(Federation)}


def test_a_set_and_a_stack_are_named_as_in_a_job_file():
    data = FederatedData(set="digits", rows=300, partition="shards", test_share=0.2)
    model = FederatedModel(stack=("linear", "linear"), dropout=0.1, seed=3)
    found = fit(model, data, federated=Federation(clients=4, rounds=1), privacy=OPEN, train=FAST)
    assert (found.spec.data, found.spec.model) == (data, model)
    assert found.rounds[0].accuracy is not None
    with pytest.raises(ConfigError, match=r"federated\.clients: wanted 4, as many as have rows"):
        fit("linear", make_rows(4)[0], federated=Federation(clients=5, rounds=1), privacy=OPEN)
