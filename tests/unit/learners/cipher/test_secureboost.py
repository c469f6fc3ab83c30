"""SecureBoost: XGBoost's own trees, a ledger of all it shows, and attacks that use it."""

import numpy as np
import pytest
import torch
import xgboost
from sklearn.datasets import make_classification

from support.crypto import short_key
from tacit.audit.vertical import bins_from_sums, labels_from_membership
from tacit.errors import ConfigError, DataError, PartyError
from tacit.learners import GradientBoostingClassifier
from tacit.learners.cipher import secureboost
from tacit.learners.cipher.boosting import (
    Boosting,
    declare_boosting,
    leaks_of_boosting,
    sums_layout,
)
from tacit.learners.cipher.exchange import recv_key, send_bytes
from tacit.learners.cipher.secureboost import Active, answer, boost
from tacit.party import Meeting, merge_costs, run_threads, without_setup
from tacit.party.cost import CostTally

pytest.importorskip("gmpy2")
pytest.importorskip("tenseal")


def boosting(**parameters):
    learner = GradientBoostingClassifier(**parameters)
    return Boosting(active="bank", passive=("shop",), learner=learner)


@pytest.fixture(autouse=True)
def _short_keys(monkeypatch):
    """Keys of 2048 bits, made once."""
    monkeypatch.setattr(secureboost, "make_key", short_key)


X, Y = make_classification(240, 6, n_informative=4, random_state=1)
X, Y = np.round(X, 3), Y.astype(float)


def run(programs):
    meeting = Meeting(parties=tuple(programs), job_digest=b"b" * 32)
    return run_threads(programs, meeting)


def fitted(task, x=X, y=Y, *, cut=2):
    """Let all owners learn and answer for the same rows."""
    parts = np.split(x, [cut * (at + 1) for at in range(len(task.passive))], axis=1)
    columns = dict(zip((task.active, *task.passive), parts, strict=True))

    def party(session):
        labels = y if session.me == task.active else None
        model = boost(session, task, columns[session.me], labels)
        return model, answer(session, model, columns[session.me]), session.ledger.entries()

    return run(dict.fromkeys(columns, party))


def theirs(ends, task, x=X, y=Y):
    """Let XGBoost learn from the same bins."""
    edges = np.concatenate([ends[one][0].edges for one in (task.active, *task.passive)])
    binned = np.stack([np.searchsorted(e, c) for e, c in zip(edges, x.T, strict=True)], axis=1)
    options = {
        "n_estimators": task.learner.n_estimators,
        "max_depth": task.learner.max_depth,
        "max_bin": 256,
    }
    options |= {"learning_rate": 0.3, "tree_method": "hist"}
    if task.classes:
        kind, options = xgboost.XGBClassifier, options | {"base_score": 0.5}
    else:
        kind, options = xgboost.XGBRegressor, options | {"base_score": 0.0}
    margins = kind(**options).fit(binned, y).predict(binned, output_margin=True)
    return margins - (0.5 if task.classes > 2 else 0.0)  # where XGBoost starts several classes


@pytest.mark.parametrize(
    ("cipher", "passive", "classes"),
    [
        ("bfv", ("shop",), 2),
        ("bfv", ("shop", "clinic"), 3),
        ("bfv", ("shop",), 0),
        ("paillier", ("shop",), 2),
    ],
)
def test_trees_are_those_of_xgboost_on_the_same_bins(cipher, passive, classes):
    x, y = X, Y
    if classes == 3:
        y = Y + (X[:, 0] > 0)
    if classes == 0:
        y = X[:, 0] + X[:, 3] / 2
    if cipher == "paillier":
        x, y = X[:60], Y[:60]
    task = Boosting(
        active="bank",
        passive=passive,
        cipher=cipher,
        classes=classes,
        learner=GradientBoostingClassifier(
            2,
            # At first all gradients of a class are alike: deeper, some splits are worth the same.
            max_depth={2: 3, 3: 1, 0: 3}[classes] if cipher == "bfv" else 2,
            max_bins=8,
        ),
    )
    ends = fitted(task, x, y)
    found = ends["bank"][1]
    wanted = theirs(ends, task, x, y).reshape(found.shape)
    assert np.abs(found - wanted).max() < 1e-5
    assert ends["shop"][1] is None
    assert not len(ends["shop"][0].splits)


def test_the_ledger_lists_what_the_protocol_shows():
    task = boosting(n_estimators=1, max_depth=2, max_bins=8)
    ends = fitted(task)
    listed = leaks_of_boosting(task, 240, {"bank": 2, "shop": 4}, asked=240)
    most = {(one.to, one.what): one.elements for one in listed}
    told = {(one.to, one.what): one.elements for end in ends.values() for one in end[2]}
    assert set(told) == set(most)
    assert all(count <= most[key] for key, count in told.items())


def test_a_passive_owner_guesses_labels_from_row_membership(monkeypatch):
    """Why there is no guarantee for labels: rows that lie together are alike."""
    task = boosting(n_estimators=6, max_depth=3, max_bins=16)
    seen = []
    divide = Active._divide

    def watched(self, node, chosen):
        found = divide(self, node, chosen)
        seen.append(found[0])  # the next message to the passive owner
        return found

    monkeypatch.setattr(Active, "_divide", watched)
    fitted(task)
    nodes = np.stack(seen[2::3], axis=1)
    known = {row: int(Y[row]) for row in range(40)}
    guessed = labels_from_membership(nodes, known)
    assert (guessed[40:] == Y[40:]).mean() > 0.8
    assert max(Y.mean(), 1 - Y.mean()) < 0.55


def test_the_active_party_reads_bins_of_rows_off_the_sums(monkeypatch):
    """Why there is no guarantee for columns: sums say who lies in which bin, tree after tree.

    Guessing is right for one row in eight; rows that share all leaves stay alike to the attack.
    """
    task = boosting(n_estimators=8, max_depth=3, max_bins=8)
    views = []
    sums = Active._sums

    def watched(self, both, node, asked, above, is_open):
        found = sums(self, both, node, asked, above, is_open)
        views.append((both, node, found["shop"][:, 0]))
        return found

    monkeypatch.setattr(Active, "_sums", watched)
    x, y = X[:40], Y[:40]
    ends = fitted(task, x, y)
    truth = np.searchsorted(ends["shop"][0].edges[0], x[:, 2])
    one = (bins_from_sums(views[:3]) == truth).mean()
    all_ = (bins_from_sums(views) == truth).mean()
    assert 0.2 < one < all_
    assert all_ > 0.4


def test_an_active_party_that_encrypts_row_numbers_reads_every_bin(monkeypatch):
    """Why all must follow the protocol: powers of 2 in place of gradients keep every bound."""
    task = boosting(n_estimators=1, max_depth=1, max_bins=8)
    x, y = X[:40], Y[:40]
    forged = np.zeros((40, 2), dtype=np.int64)
    forged[np.arange(40), np.arange(40) // 20] = 1 << (np.arange(40) % 20)
    grow, sums, views = Active._grow, Active._sums, []

    def watched(self, *given):
        found = sums(self, *given)
        views.append(found["shop"][0, 0])
        return found

    monkeypatch.setattr(Active, "_grow", lambda self, both: grow(self, forged))
    monkeypatch.setattr(Active, "_sums", watched)
    ends = fitted(task, x, y)
    truth = np.searchsorted(ends["shop"][0].edges[0], x[:, 2])
    shown = (views[0][:, np.arange(40) // 20] >> (np.arange(40) % 20)) & 1
    assert np.array_equal(shown.argmax(axis=0), truth)


def test_messages_are_sized_by_what_is_public(monkeypatch):
    """Trees of other shapes, and labels that end them at once, send the same number of bytes."""
    task = boosting(n_estimators=1, max_depth=3, max_bins=8)
    costs = []
    for y in (Y[:60], (np.arange(60) == 7).astype(float)):
        parts = {"bank": X[:60, :2], "shop": X[:60, 2:]}

        def party(session, parts=parts, y=y):
            model = boost(session, task, parts[session.me], y if session.me == "bank" else None)
            answer(session, model, parts[session.me])
            return session.cost()

        costs.append(without_setup(merge_costs(run(dict.fromkeys(parts, party)))))
    assert costs[0] == costs[1]
    tally = CostTally()
    tally.add(declare_boosting(task, 60, {"bank": 2, "shop": 4}, asked=60), "online")
    assert costs[0] == tally.cost()


def test_what_cannot_be_learned_from_is_refused_before_anything_is_sent():
    task = Boosting(active="bank", passive=("shop",))
    wrong = [
        (X[:, :2], np.where(Y == 1, 2.0, 0.0), "classes from 0 to 1"),
        (X[:, :2], np.zeros(240), "one class"),
        (X[:, :2], Y[:-1], "label for every row"),
        (np.where(X[:, :2] > 1, np.nan, X[:, :2]), Y, "finite"),
        (X[:1, :2], Y[:1], "two rows"),
    ]
    for x, y, words in wrong:
        sent = []

        class Silent:
            me = "bank"

            def send(self, *given, **named):
                sent.append(given)  # noqa: B023

        with pytest.raises(DataError, match=words):
            boost(Silent(), task, x, y)
        assert not sent
    for options in ({"passive": ()}, {"passive": ("bank",)}, {"classes": 1}):
        with pytest.raises(ConfigError):
            Boosting(**{"active": "bank", "passive": ("shop",)} | options)
    with pytest.raises(ConfigError):
        boosting(max_depth=0)


def test_owners_with_other_rows_and_wrong_messages_are_named():
    task = boosting(n_estimators=1)
    with pytest.raises(PartyError, match="match ids first"):
        run(
            {
                "bank": lambda session: boost(session, task, X[:, :2], Y),
                "shop": lambda session: boost(session, task, X[:-1, 2:]),
            }
        )

    def liar(session):
        session.send("bank", "setup/part", torch.tensor([240, 4]), phase="setup")
        session.recv("bank", "setup/part", (2,))
        key = recv_key(session, "bank", "bfv")
        size = key.wire_bytes(sums_layout(task, 240, 32))
        send_bytes(session, "bank", "sums 0", key.key_id + bytes(size - 16))

    with pytest.raises(PartyError, match="'shop' failed: sent a ciphertext that is none"):
        run({"bank": lambda session: boost(session, task, X[:, :2], Y), "shop": liar})
