"""Columns and labels that are not those that go together: refused before a row is shared."""

import numpy as np
import pytest

from tacit.data import Rows
from tacit.errors import DataError, RangeError
from tacit.learners import Connected, GaussianNB, Local, LogisticRegression, Ridge, StandardScaler
from tacit.party import Meeting, run_threads

COINS = np.random.default_rng(2)
X = COINS.normal(size=(60, 4))
Y = (X[:, 0] > 0) + 0 + (X[:, 1] > 0.5)
NAMES = ("age", "dose", "size", "weight")


def frame(rows, order=(0, 1, 2, 3)):
    return Rows(features=rows[:, list(order)], columns=tuple(NAMES[at] for at in order))


def halves(order=(0, 1, 2, 3)):
    return {"bank": (frame(X[:30]), Y[:30]), "shop": (frame(X[30:], order), Y[30:])}


def goes_on(parties, work, words):
    """Let some work be refused, and see that nothing was shared and the parties are there."""
    before = parties.cost().online_rounds
    with pytest.raises(DataError, match=words):
        work()
    assert parties.cost().online_rounds == before


def test_owners_of_rows_with_columns_in_another_order_are_refused():
    with Local("bank", "shop") as parties:
        goes_on(parties, lambda: parties.rows(halves((1, 0, 2, 3))), "'shop'.*another order.*bank")
        plain = parties.rows(halves() | {"shop": (X[30:], Y[30:])})  # without names
        model = GaussianNB().fit(plain, parties)
        asked = {"bank": frame(X[:5, ::-1], (3, 2, 1, 0))}
        goes_on(parties, lambda: model.predict(parties.rows(asked)), "another order")
        assert model.score(parties.rows(halves())) > 0.8


def test_each_owner_refuses_the_order_of_another_by_its_mark_alone():
    def party(session):
        parties = Connected(session, owners=("bank", "shop"))
        mine = {name: one for name, one in halves((1, 0, 2, 3)).items() if name == session.me}
        with pytest.raises(DataError, match="another order"):
            parties.rows(mine)
        return [one.what for one in parties.ledger()]

    names = ("bank", "shop", "dealer")
    meeting = Meeting(parties=names, job_digest=bytes(32))
    told = run_threads(dict.fromkeys(names, party), meeting)
    assert any("hash of their names" in what for what in told["dealer"])


def test_owners_of_columns_tell_nothing_of_their_names():
    with Local("bank", "shop") as parties:
        one, other = frame(X), frame(X, (1, 0, 2, 3))
        table = parties.columns({"bank": one, "shop": (other, Y)})
    assert {holding.names for holding in table.holdings} == {0}


@pytest.mark.parametrize("learner", [GaussianNB(), LogisticRegression(max_iter=2), Ridge()])
def test_rows_of_another_width_are_refused_and_the_parties_go_on(learner):
    labels = Y if not isinstance(learner, Ridge) else X @ [1.0, 2.0, 0.5, 0.1]
    with Local("bank", "shop") as parties:
        data = parties.rows({"bank": (X[:30], labels[:30]), "shop": (X[30:], labels[30:])})
        model = learner.fit(data, parties)
        narrow = parties.rows({"bank": (X[:5, :3], labels[:5])})
        for ask in (model.predict, model.score):
            goes_on(parties, lambda ask=ask: ask(narrow), "3 columns, and 4 were learned from")
        bare = parties.rows({"bank": X[:5]})
        goes_on(parties, lambda: model.score(bare), "labels")
        assert len(model.predict(bare, to=("bank",))) == 5


def test_columns_cut_elsewhere_than_when_they_were_learned_are_refused():
    with Local("bank", "shop") as parties:
        data = parties.columns({"bank": X[:, :2], "shop": (X[:, 2:], Y)})
        model = GaussianNB().fit(data, parties)
        other = parties.columns({"bank": X[:, :1], "shop": (X[:, 1:], Y)})
        goes_on(parties, lambda: model.predict(other), "wanted columns of bank 2, shop 2")
        scaler = StandardScaler().fit(data, parties)
        goes_on(parties, lambda: scaler.transform(other), "wanted columns of bank 2, shop 2")


@pytest.mark.parametrize("classes", [(0,), (0, 1), (0, 1, 2)])
def test_a_score_on_rows_of_few_classes_is_scikit_learn_s(classes):
    asked = np.isin(Y, classes)
    with Local("bank", "shop") as parties:
        model = GaussianNB().fit(parties.rows({"bank": (X[:30], Y[:30])}), parties)
        data = parties.rows({"bank": (X[asked], Y[asked])})
        right = model.predict(data, to=("bank",)) == Y[asked]
        assert 0.5 < right.mean() < 1
        assert model.score(data) == pytest.approx(right.mean(), abs=1e-3)
        counted = model.confusion(data)
    assert counted.shape == (3, 3)
    assert counted.sum(axis=1).tolist() == [int((Y[asked] == one).sum()) for one in range(3)]


@pytest.mark.parametrize("learner", [GaussianNB(), Ridge(), StandardScaler()])
def test_rows_that_are_too_large_for_what_was_learned_do_not_end_the_parties(learner):
    labels = X[:, 0] if isinstance(learner, Ridge) else Y
    with Local("bank", "shop") as parties:
        data = parties.rows({"bank": (X, labels)})
        model = learner.fit(data, parties)
        ask = model.transform if isinstance(learner, StandardScaler) else model.predict
        large = parties.rows({"bank": X * 1e11})
        for _ in range(2):
            with pytest.raises(RangeError, match="62 bits"):
                ask(large)
        assert ask(data) is not None


def test_labels_of_other_classes_than_those_learned_are_refused():
    words = np.array(["no", "yes"])
    with Local("bank", "shop") as parties:
        data = parties.rows({"bank": (X, words[Y % 2])}, classes=("no", "yes"))
        scaler = StandardScaler()
        model = LogisticRegression(max_iter=2).fit(scaler.fit_transform(data, parties), parties)
        assert set(model.predict(scaler.transform(data))) <= {"no", "yes"}
        plain = LogisticRegression(max_iter=2).fit(data, parties)
        turned = parties.rows({"bank": (X, words[Y % 2])}, classes=("yes", "no"))
        goes_on(parties, lambda: plain.score(turned), "classes.*in this order")
        more = parties.rows({"bank": (X, Y)})
        goes_on(parties, lambda: plain.score(more), "name 3 classes, and 2 were learned")
        numbers = parties.rows({"bank": (X, X[:, 0])})
        goes_on(parties, lambda: plain.score(numbers), "labels that name classes")


def test_values_that_no_ring_holds_are_refused_by_their_owner_and_column():
    with Local("bank", "shop") as parties:
        large = X * [1.0, 1.0, 1e30, 1.0]
        words = "'bank' gave features beyond.*in 1 columns, the first of them at place 2"
        goes_on(parties, lambda: parties.rows({"bank": large}), words)
        goes_on(parties, lambda: parties.rows({"bank": (X, Y * 1e30)}), "'bank' has labels beyond")
