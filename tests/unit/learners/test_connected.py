"""Parties that run other programs than the rest are noticed before anything is opened."""

import numpy as np
import pytest

from tacit.errors import ConfigError, DataError, DisagreementError, RangeError
from tacit.learners import Connected, DecisionTreeClassifier, GaussianNB, Local, LogisticRegression
from tacit.party import Meeting, run_threads

X = np.random.default_rng(0).normal(size=(20, 4))
Y = (X[:, 0] > 0).astype(int)
PARTS = {"bank": X[:, :2], "shop": (X[:, 2:], Y)}
NAMES = ("bank", "shop", "dealer")


def run(program):
    meeting = Meeting(parties=NAMES, job_digest=bytes(32))
    return run_threads(dict.fromkeys(NAMES, program), meeting)


def begin(session, **options):
    parties = Connected(session, owners=("bank", "shop"), **options)
    mine = {session.me: PARTS[session.me]} if session.me in PARTS else {}
    return parties, parties.columns(mine)


def other_parameters(session):
    parties, data = begin(session)
    LogisticRegression(C=2.0 if session.me == "shop" else 1.0, max_iter=1).fit(data, parties)


def another_dealer(session):
    parties, data = begin(session)
    LogisticRegression(C=2.0 if session.me == "dealer" else 1.0, max_iter=1).fit(data, parties)


def another_protocol(session):
    begun = begin(session, protocol="permuted3" if session.me == "shop" else "sealed")
    GaussianNB().fit(begun[1], begun[0])


def another_receiver(session):
    parties, data = begin(session)
    GaussianNB().fit(data, parties).theta_.reveal(to=(session.me,))


def another_order(session):
    parties, data = begin(session)
    model = GaussianNB().fit(data, parties)
    for one in (model.score, model.predict) if session.me == "shop" else (model.predict,):
        one(data)


@pytest.mark.parametrize(
    "program",
    [other_parameters, another_dealer, another_protocol, another_receiver, another_order],
)
def test_a_party_with_another_program_is_noticed(program):
    with pytest.raises(DisagreementError, match="another plan"):
        run(program)


def test_values_beyond_what_was_announced_are_not_shared():
    def program(session):
        parties, data = begin(session)
        if session.me == "bank":
            data.values["bank"].mul_(1000.0)
        GaussianNB().fit(data, parties)

    with pytest.raises(RangeError, match="exceed the bound"):
        run(program)


def test_an_owner_without_data_computes_all_the_same():
    def program(session):
        parties = Connected(session, owners=("bank", "shop"))
        data = parties.columns({"shop": (X, Y)} if session.me == "shop" else {})
        return data.owners, GaussianNB().fit(data, parties).score(data)

    found = run(program)
    assert found["bank"] == (("shop",), None)
    assert found["shop"][1] > 0.8
    with pytest.raises(DataError, match="no owner gave features"):
        run(lambda session: Connected(session, owners=("bank", "shop")).columns({}))


def test_one_party_may_ask_for_a_forecast_alone():
    def program(session):
        parties, data = begin(session)
        model = GaussianNB()
        if session.me == "bank":
            model.forecast(data, parties)
        return model.fit(data, parties).score(data, to=("shop",))

    assert run(program)["shop"] > 0.8


def test_a_forecast_does_not_change_a_model_that_is_fitted():
    with Local("bank", "shop") as parties:
        data = parties.columns(PARTS)
        model = DecisionTreeClassifier(1, max_bins=3).fit(data, parties)
        before = model.predict(data)
        model.forecast(parties.columns({"bank": X[::-1, :2], "shop": (X[::-1, 2:], Y)}), parties)
        assert (model.predict(data) == before).all()


def test_a_dealer_who_has_data_is_refused():
    with pytest.raises(ConfigError, match="must be three"):
        Local("bank", "shop", dealer="bank")
