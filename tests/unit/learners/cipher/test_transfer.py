"""Transfer learning by a cipher: the maps of the same loss in the clear, and their use."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

from support.crypto import short_key
from support.observer import Observer
from tacit.errors import ConfigError, DataError
from tacit.learners.cipher import transfer
from tacit.learners.cipher.transfer import (
    Transfer,
    carry_over,
    scores_of_target,
)
from tacit.party import Meeting, run_threads

pytest.importorskip("gmpy2")
pytest.importorskip("tenseal")

X, Y = load_breast_cancer(return_X_y=True)
X, Y = np.clip((X - X.mean(0)) / X.std(0), -8, 8), Y.astype(float)
# The source has rows 0 to 300, the target rows 200 to 569 in other columns: 100 are common.
PARTS = {"bank": X[:300, :8], "shop": X[200:, 8:16]}
COMMON = {"bank": np.arange(200, 300), "shop": np.arange(100)}


def transfer_in_the_clear(task, parts, common, y):
    """Descend the same loss with both owners' rows at hand."""
    signs = 2 * y - 1
    maps = {name: task.start(x.shape[1], name) for name, x in parts.items()}
    for _ in range(task.steps):
        spaces = {name: parts[name] @ maps[name] for name in parts}
        moved = {}
        for name, other in ((task.source, task.target), (task.target, task.source)):
            mine = signs if name == task.source else None
            given = transfer._parts(
                task, spaces[other], common[other], None if mine is not None else signs
            )
            left, known = transfer._equations(task, parts[name], maps[name], common[name], mine)
            gradient = known + sum(left[tag] @ given[tag] for tag in left)
            moved[name] = maps[name] - task.rate * (gradient + task.penalty * maps[name])
        maps = moved
    carrier = transfer._carrier(parts[task.source] @ maps[task.source], signs)
    return {**maps, task.source: np.vstack([maps[task.source], carrier])}


@pytest.fixture(autouse=True)
def _short_keys(monkeypatch):
    monkeypatch.setattr(transfer, "make_key", short_key)


def learned(task, parts=PARTS, common=COMMON, y=Y[:300], wrap=lambda me, link: link):
    def party(session):
        mine, labels = parts[session.me], y if session.me == task.source else None
        found = carry_over(session, task, mine, common[session.me], labels)
        return found, scores_of_target(session, task, mine, found), session.ledger.entries()

    meeting = Meeting(parties=("bank", "shop"), job_digest=b"t" * 32)
    return run_threads(dict.fromkeys(("bank", "shop"), party), meeting, wrap=wrap)


@pytest.mark.parametrize(("cipher", "steps"), [("bfv", 4), ("paillier", 1)])
def test_maps_and_scores_are_those_of_the_same_loss_in_the_clear(cipher, steps):
    common = COMMON if cipher == "bfv" else {name: one[:12] for name, one in COMMON.items()}
    task = Transfer(source="bank", target="shop", width=3, steps=steps, cipher=cipher)
    ends = learned(task, common=common)
    wanted = transfer_in_the_clear(task, PARTS, common, Y[:300])
    for name in PARTS:
        assert np.abs(ends[name][0] - wanted[name]).max() < 1e-3
    scores = PARTS["shop"] @ wanted["shop"] @ wanted["bank"][-1]
    assert np.abs(ends["shop"][1] - scores).max() < 1e-2
    assert ends["bank"][1] is None
    told = {(one.to, one.what) for one in ends["shop"][2] if one.kind == "protocol"}
    assert told == {("shop", "the gradient of its own weights at every step")}


def test_sizes_and_scores_are_in_the_ledger_of_who_gets_them(monkeypatch):
    observer = Observer(monkeypatch)
    task = Transfer(source="bank", target="shop", width=2, steps=1)
    ends = learned(task, wrap=observer.tap)
    for me in PARTS:
        assert not observer.unsaid(me, ends[me][2])
        assert not observer.plain(me)
    told = {(one.to, one.what): one.elements for name in PARTS for one in ends[name][2]}
    assert told["shop", "the scores of its own rows"] == len(PARTS["shop"])
    assert told["bank", "how many common rows shop counts"] == 1
    # Once for the columns of its map, once for its rows.
    assert told["bank", "how many numbers shop has decrypted under its mask, each time"] == 2


def test_a_step_follows_the_gradient_of_the_stated_loss():
    task = Transfer(source="bank", target="shop", width=2, steps=1, penalty=0.0)
    start = {name: task.start(8, name) for name in PARTS}
    signs = 2 * Y[:300] - 1

    def loss(maps):
        source, target = (PARTS[name] @ maps[name] for name in ("bank", "shop"))
        here, there = source[COMMON["bank"]], target[COMMON["shop"]]
        score = there @ (signs @ source / 300)
        taylor = -0.5 * signs[COMMON["bank"]] * score + score**2 / 8
        return taylor.mean() + task.alignment * ((here - there) ** 2).sum(axis=1).mean()

    moved = transfer_in_the_clear(task, PARTS, COMMON, Y[:300])
    for name, rows in (("bank", 8), ("shop", 8)):
        taken = (start[name] - moved[name][:rows]) / task.rate
        for at in ((0, 0), (3, 1), (7, 0)):
            ends = []
            for sign in (1, -1):
                maps = {one: weights.copy() for one, weights in start.items()}
                maps[name][at] += sign * 1e-5
                ends.append(loss(maps))
            assert taken[at] == pytest.approx((ends[0] - ends[1]) / 2e-5, abs=1e-6)


def test_rows_of_the_target_alone_are_told_apart_without_a_label_of_theirs():
    task = Transfer(source="bank", target="shop", steps=60)
    found = transfer_in_the_clear(task, PARTS, COMMON, Y[:300])
    scores = PARTS["shop"][100:] @ found["shop"] @ found["bank"][-1]
    assert ((scores > 0) == (Y[300:] == 1)).mean() > 0.8


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"parts": {name: 9 * one for name, one in PARTS.items()}}, "standardise"),
        ({"common": {name: one[:8] for name, one in COMMON.items()}}, "more common rows"),
        ({"y": np.ones(300)}, "both of which"),
    ],
)
def test_what_cannot_be_learned_from_is_refused(change, words):
    with pytest.raises(DataError, match=words):
        learned(Transfer(source="bank", target="shop"), **change)
    with pytest.raises(ConfigError):
        Transfer(source="bank", target="bank")
