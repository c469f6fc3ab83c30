"""The short way to a membership audit, as a user of scikit-learn or torch would type it."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

import tacit.audit
from tacit.errors import DataError
from tacit.report import from_json, to_json

ROWS = 120


@pytest.fixture
def noise():
    """Return rows whose labels cannot be learned, only remembered: members, then strangers."""
    draw = np.random.default_rng(3)
    x, y = draw.normal(size=(2 * ROWS, 12)), draw.integers(0, 2, 2 * ROWS)
    return (x[:ROWS], y[:ROWS]), (x[ROWS:], y[ROWS:])


def test_a_tree_that_knows_its_rows_by_heart_is_found_out_by_its_own_copies(noise):
    members, strangers = noise
    model = DecisionTreeClassifier(random_state=0).fit(*members)
    told = []
    found = tacit.audit.membership(
        model, members, strangers, shadows=8, report=lambda done, total: told.append((done, total))
    )
    assert told == [(done, 8) for done in range(9)]
    # Right about every member, and about a stranger by a coin: an AUC of ¾ at least.
    assert found.auc > 0.7
    assert found.best.is_found
    assert "membership, shadow models" in {one.threat.name for one in found.findings}
    assert "Membership audit" in repr(found)
    assert "<table>" in found._repr_html_()
    result = found.result()
    assert from_json(to_json(result), source="test") == result


def test_a_model_that_was_trained_on_neither_side_gives_nobody_away(noise):
    members, strangers = noise
    others = np.random.default_rng(4).normal(size=(ROWS, 12)), np.arange(ROWS) % 2
    model = LogisticRegression().fit(*others)
    found = tacit.audit.membership(model, members, strangers, threats=["scores"])
    assert not found.best.is_found  # 5 % over all attacks; the seed is fixed


def train(x, y):
    model = torch.nn.Sequential(torch.nn.Linear(12, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))
    optimiser = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(60):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimiser.step()
    return model


def test_a_torch_module_is_attacked_with_shadows_where_a_function_trains_them(noise):
    members, strangers = ((torch.tensor(x, dtype=torch.float32), torch.tensor(y)) for x, y in noise)
    torch.manual_seed(0)
    model = train(*members)
    alone = tacit.audit.membership(model, members, strangers)
    assert any("shadow models: not measured" in note for note in alone.notes)
    both = tacit.audit.membership(
        model, members, strangers, train=train, threats=["scores", "shadows"], shadows=8
    )
    assert both.auc > 0.75
    assert both.auc >= max(one.headline.value for one in alone.findings if "loss" in one.attack)


def test_what_cannot_be_measured_is_refused(noise):
    members, strangers = noise
    model = DecisionTreeClassifier().fit(*members)
    with pytest.raises(DataError, match="the model has no gradients"):
        tacit.audit.membership(model, members, strangers, threats=["gradients"])
    few = members[0][:5], members[1][:5]
    with pytest.raises(DataError, match="wanted 20 records or more"):
        tacit.audit.membership(model, few, strangers)
