"""The relation of marked text: an ε of its own, which is never added to that of records."""

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from tacit.dp import (
    ADD_REMOVE_CLIENT_MARKS,
    ADD_REMOVE_MARKS,
    ADD_REMOVE_RECORD,
    REPLACE_CLIENT_MARKS,
    Ledger,
    Pure,
    Relation,
    epsilon,
    ledger_from_record,
    ledger_to_record,
    make_private,
)
from tacit.errors import ConfigError


def spent(epsilon_, relation):
    return Pure(epsilon=epsilon_, relation=relation, mechanism="a vote")


def test_marks_are_never_added_to_records():
    ledger = Ledger()
    ledger.record(spent(1.0, ADD_REMOVE_MARKS))
    for other in (ADD_REMOVE_RECORD, ADD_REMOVE_CLIENT_MARKS, REPLACE_CLIENT_MARKS):
        mixed = Ledger(ledger.entries)
        mixed.record(spent(1.0, other))
        with pytest.raises(ConfigError, match="different neighbouring relations"):
            epsilon(mixed, delta=1e-5)


def test_a_claim_about_marks_says_so_and_survives_the_disk():
    ledger = Ledger()
    ledger.record(spent(0.5, REPLACE_CLIENT_MARKS))
    claim = epsilon(ledger_from_record(ledger_to_record(ledger)), delta=1e-5, accountant="basic")
    assert 0.499 < claim.epsilon <= 0.5
    assert claim.subject == "what a policy marks of each client"
    assert claim.relation == "replacing what a policy marks of one client"
    with pytest.raises(ConfigError, match="the unit is one of"):
        Relation("add-remove", "marks")


def test_training_writes_events_of_the_relation_it_is_told():
    model = torch.nn.Linear(3, 1)
    loader = DataLoader(TensorDataset(torch.ones(40, 3)), batch_size=10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    private = make_private(
        model, optimizer, loader, epsilon=1, delta=1e-3, epochs=1, relation=ADD_REMOVE_MARKS
    )
    for (x,) in private.loader:
        private.step(model(x).square().sum(1))
    assert private.claim.relation == str(ADD_REMOVE_MARKS)
    assert private.claim.epsilon <= 1
    with pytest.raises(ConfigError, match="wanted add-remove neighbours"):
        make_private(
            torch.nn.Linear(3, 1),
            optimizer,
            loader,
            epsilon=1,
            delta=1e-3,
            epochs=1,
            relation=REPLACE_CLIENT_MARKS,
        )
