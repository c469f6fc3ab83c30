"""Regression by a cipher: the same weights as in the clear, and what its messages give away."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression

from support.crypto import short_key
from tacit.errors import ConfigError, DataError, PartyError
from tacit.learners.cipher import regression
from tacit.learners.cipher.regression import (
    Regression,
    coordinate,
    leaks_of_regression,
    partial_scores,
    regress,
    regress_masked,
)
from tacit.party import Meeting, run_threads

pytest.importorskip("gmpy2")
pytest.importorskip("tenseal")

X, Y = load_breast_cancer(return_X_y=True)
X = np.clip((X - X.mean(0)) / X.std(0), -8, 8)[:, :6]
Y = Y.astype(float)
FEW = np.r_[0:5, 19:22]  # both classes


def minimise_taylor(x, y, task):
    """Descend the same loss in the clear, over all columns and a constant."""
    wide, weights = np.hstack([x, np.ones((len(x), 1))]), np.zeros(x.shape[1] + 1)
    for rows in task.batches(len(x)):
        part = task.residual(wide[rows] @ weights, y[rows])
        lean = np.append(weights[:-1], 0.0)
        weights -= task.rate * (wide[rows].T @ part / len(rows) + task.penalty * lean)
    return weights


@pytest.fixture(autouse=True)
def _short_keys(monkeypatch):
    """Keys of 2048 bits, made once."""
    monkeypatch.setattr(regression, "make_key", short_key)


def learned(task, x, y, matched=None):
    parts = {task.other: x[:, :2], task.labelled: x[:, 2:]}

    def party(session):
        if session.me == task.coordinator:
            coordinate(session, task, matched)
            return None, None, session.ledger.entries(), session.cost()
        labels = y if session.me == task.labelled else None
        work = regress if task.coordinator is None else regress_masked
        weights = work(session, task, parts[session.me], labels)
        scores = partial_scores(session, task, parts[session.me], weights)
        return weights, scores, session.ledger.entries(), session.cost()

    names = [one for one in (task.other, task.labelled, task.coordinator) if one is not None]
    meeting = Meeting(parties=tuple(names), job_digest=b"r" * 32)
    return run_threads(dict.fromkeys(names, party), meeting)


@pytest.mark.parametrize(
    ("cipher", "loss", "batch", "rows"),
    [("bfv", "taylor", 0, 300), ("bfv", "squares", 100, 300), ("paillier", "taylor", 0, 24)],
)
def test_two_keys_give_the_weights_of_the_same_loss_in_the_clear(cipher, loss, batch, rows):
    task = Regression(
        labelled="bank", other="shop", cipher=cipher, loss=loss, batch=batch, max_iter=2
    )
    x, y = X[:rows], Y[:rows]
    ends = learned(task, x, y)
    wanted = minimise_taylor(x, y, task)
    found = np.concatenate([ends["shop"][0], ends["bank"][0]])
    assert np.abs(found - wanted).max() < 1e-4
    scores = np.hstack([x, np.ones((rows, 1))]) @ wanted
    assert np.abs(ends["bank"][1] - scores).max() < 1e-3
    assert ends["shop"][1] is None
    told = {(one.to, one.what) for one in ends["shop"][2] if one.kind == "protocol"}
    assert told == {("shop", "the gradient of its own weights at every step")}


def test_the_taylor_loss_is_another_loss():
    """Claimed is equality with it alone: its weights are not those of logistic regression."""
    task = Regression(labelled="bank", other="shop", max_iter=400)
    taylor = minimise_taylor(X, Y, task)
    true = LogisticRegression(C=1 / (0.01 * len(X))).fit(X, Y)
    assert np.abs(taylor[:-1] - true.coef_[0]).max() > 0.2
    answers = np.hstack([X, np.ones((len(X), 1))]) @ taylor > 0
    assert abs((answers == Y).mean() - true.score(X, Y)) < 0.03


def test_a_coordinator_learns_gradients_and_rows_that_do_not_match_do_not_count():
    x, y = X[:24], Y[:24]
    matched = np.ones(24, dtype=np.int64)
    matched[::4] = 0
    task = Regression(
        labelled="bank", other="shop", coordinator="judge", cipher="paillier", max_iter=2
    )
    ends = learned(task, x, y, matched)
    wanted = minimise_taylor(x[matched == 1], y[matched == 1], task)
    found = np.concatenate([ends["shop"][0], ends["bank"][0]])
    assert np.abs(found - wanted).max() < 1e-4
    listed = leaks_of_regression(task, 24, {"bank": 4, "shop": 2})
    whole = {(one.to, one.what): one.elements for one in listed}
    for name in ends:
        mine = {(one.to, one.what): one.elements for one in ends[name][2] if one.to == name}
        scores = ("bank", "the part of shop in the score of every row")  # asked for afterwards
        mine.pop(scores, None)
        # The constant of the labels' owner is a column of its part.
        assert mine == {entry: count for entry, count in whole.items() if entry[0] == name}
    assert not any("match" in one.what for name in ("bank", "shop") for one in ends[name][2])


def test_an_owner_cannot_try_numbers_against_the_mask(monkeypatch):
    """[[m]] raised to a small power is found by trying powers, unless hidden anew."""
    task = Regression(
        labelled="bank", other="shop", coordinator="judge", cipher="paillier", max_iter=1
    )
    sent = []
    send = regression.send_sealed

    def watched(session, to, tag, key, sealed):
        if tag == "half":
            sent.append((key, sealed))
        send(session, to, tag, key, sealed)

    monkeypatch.setattr(regression, "send_sealed", watched)
    learned(task, X[FEW], Y[FEW], np.ones(8, dtype=np.int64))
    # All weights are 0 at first: every power would be the number 1.
    assert all(part != 1 for part in sent[0][1].parts)
    sent.clear()
    monkeypatch.setattr(
        "tacit.crypto.cipher.paillier.PaillierPublicKey.encrypt",
        lambda key, numbers, layout, draw: key._made(layout, (1,) * layout.rows),
    )
    learned(task, X[FEW], Y[FEW], np.ones(8, dtype=np.int64))
    assert all(part == 1 for part in sent[0][1].parts)  # the test would have noticed


def test_a_key_without_its_proof_ends_the_run_with_its_senders_name(monkeypatch):
    """Before anything that weighs is sent; all keys of a peer come in through the same door."""
    task = Regression(labelled="bank", other="shop", cipher="paillier", max_iter=1)
    send = regression.send_key

    def forged(session, to, key):
        if session.me == "bank":
            data = key.to_bytes()
            data = data[:-1] + bytes([data[-1] ^ 1])  # of the last root
            key = type("Forged", (), {"to_bytes": lambda _: data})()
        send(session, to, key)

    monkeypatch.setattr(regression, "send_key", forged)
    with pytest.raises(PartyError, match=r"'bank'.*proof"):
        learned(task, X[FEW], Y[FEW])


def test_an_owner_with_a_column_of_one_row_reads_the_label_of_that_row():
    """What follows from one's own weights: no cipher helps against columns that are made up."""
    task = Regression(labelled="bank", other="shop", max_iter=1)
    for row in (0, 1, 19, 20):
        x = X[:30].copy()
        x[:, 0] = np.arange(30) == row
        weights = learned(task, x, Y[:30])["shop"][0]
        assert (weights[0] > 0) == (Y[row] == 1)


def test_few_rows_would_give_residuals_away_and_are_refused():
    """A gradient over no more rows than columns is solved for the residuals, hence the labels."""
    few = X[:6]
    hidden = 0.25 * 0 - (Y[:6] - 0.5)
    solved = np.linalg.solve(few.T, few.T @ hidden)
    assert np.array_equal(solved < 0, Y[:6] == 1)
    task = Regression(labelled="bank", other="shop", batch=3)
    with pytest.raises(DataError, match="residuals"):
        learned(task, X, Y)


@pytest.mark.parametrize(
    ("x", "y", "words"),
    [
        (X * 100, Y, "standardise"),
        (X, Y * 2, "two classes"),
        (X, np.ones(len(X)), "both of which"),
        (np.where(X > 2, np.nan, X), Y, "finite"),
        (X[:1], Y[:1], "two rows"),
    ],
)
def test_what_cannot_be_learned_from_is_refused(x, y, words):
    with pytest.raises(DataError, match=words):
        learned(Regression(labelled="bank", other="shop"), x, y)


@pytest.mark.parametrize(
    "options",
    [{"other": "bank"}, {"coordinator": "judge"}, {"max_iter": 0}, {"rate": 0.0}],
)
def test_impossible_tasks_are_refused(options):
    with pytest.raises(ConfigError):
        Regression(**{"labelled": "bank", "other": "shop"} | options)
