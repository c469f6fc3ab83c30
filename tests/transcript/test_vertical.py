"""The published protocols by a cipher: what a party receives says no more than the ledger.

Two data sets with the same public sizes, one class of labels turned over and all columns mirrored:
messages must be the same in number, order, tag and shape; no ciphertext may come twice; and what a
key owner decrypts for others must be uniform. A mask that is left out is noticed.
"""

import numpy as np
import pytest
import torch

from support.crypto import complaints, short_key
from support.mpc import PATIENCE, Wiretap
from tacit.crypto.cipher.bfv import BfvPublicKey, BfvSecretKey
from tacit.learners import GradientBoostingClassifier
from tacit.learners.cipher import regression, secureboost
from tacit.learners.cipher.boosting import Boosting
from tacit.learners.cipher.regression import Regression, coordinate, regress, regress_masked
from tacit.learners.cipher.secureboost import answer, boost
from tacit.party import Meeting, run_threads

pytest.importorskip("gmpy2")
pytest.importorskip("tenseal")

ROWS = 14
PLAIN = ("nodes", "splits", "left", "asked", "sides", "weights")
"""What the ledger lists as shown in the clear."""


@pytest.fixture(autouse=True)
def _short_keys(monkeypatch):
    monkeypatch.setattr(secureboost, "make_key", short_key)
    monkeypatch.setattr(regression, "make_key", short_key)


def data(sign, columns=2):
    coins = np.random.default_rng(0)
    x = sign * coins.normal(size=(ROWS, 2 * columns)).clip(-4, 4)
    y = (np.arange(ROWS) % 2 == (sign > 0)).astype(float)
    return {"shop": x[:, :columns], "bank": x[:, columns:]}, y


def by_boosting(session, parts, y):
    task = Boosting(
        active="bank",
        passive=("shop",),
        learner=GradientBoostingClassifier(n_estimators=2, max_depth=2, max_bins=4),
    )
    model = boost(session, task, parts[session.me], y if session.me == "bank" else None)
    answer(session, model, parts[session.me])


def by_two_keys(session, parts, y):
    task = Regression(labelled="bank", other="shop", max_iter=2)
    regress(session, task, parts[session.me], y if session.me == "bank" else None)


def by_a_coordinator(session, parts, y):
    task = Regression(
        labelled="bank", other="shop", coordinator="judge", cipher="paillier", max_iter=1
    )
    if session.me == "judge":
        coordinate(session, task, np.ones(ROWS, dtype=np.int64))
    else:
        regress_masked(session, task, parts[session.me], y if session.me == "bank" else None)


WAYS = {
    "boosting": (by_boosting, ("bank", "shop")),
    "two keys": (by_two_keys, ("bank", "shop")),
    "a coordinator": (by_a_coordinator, ("bank", "shop", "judge")),
}


def received(way, sign):
    work, names = WAYS[way]
    notes = {name: [] for name in names}
    parts, y = data(sign)
    meeting = Meeting(parties=names, job_digest=bytes(32), patience=PATIENCE)
    wrap = lambda me, link: Wiretap(link, notes[me])  # noqa: E731 - one line in place
    run_threads({one: lambda session: work(session, parts, y) for one in names}, meeting, wrap=wrap)
    return notes


@pytest.mark.parametrize("way", WAYS)
def test_two_data_sets_send_messages_of_the_same_sizes_and_no_ciphertext_twice(way):
    first, second = received(way, 1), received(way, -1)
    for name in first:
        shapes = [[(tag, w.shape, w.dtype) for tag, w in run[name]] for run in (first, second)]
        assert shapes[0] == shapes[1]
        sealed = [
            words.numpy().tobytes()
            for run in (first, second)
            for tag, words in run[name]
            if tag.split("/")[0].split()[0] not in PLAIN
        ]
        assert sealed
        assert len(set(sealed)) == len(sealed)


def opened_by_owners(monkeypatch, *, is_masked=True):
    """Give all plaintexts, of 48 bits, that key owners saw while they decrypted for others."""
    seen, open_masked, mask = [], BfvSecretKey.open_masked, BfvPublicKey.mask

    def watched(key, sealed):
        data = open_masked(key, sealed)
        seen.append(np.frombuffer(data, "<u8") & np.uint64((1 << 48) - 1))
        return data

    def bare(key, sealed, draw):
        found, masks = mask(key, sealed, lambda size: bytes(size))
        return found, masks

    monkeypatch.setattr(BfvSecretKey, "open_masked", watched)
    if not is_masked:
        monkeypatch.setattr(BfvPublicKey, "mask", bare)
    coins = np.random.default_rng(1)
    x, y = coins.normal(size=(300, 256)).clip(-4, 4), np.arange(300) % 2.0
    parts = {"shop": x[:, :128], "bank": x[:, 128:]}
    work = lambda session: by_two_keys(session, parts, y)  # noqa: E731 - one line in place
    run_threads(
        {"bank": work, "shop": work}, Meeting(parties=("bank", "shop"), job_digest=bytes(32))
    )
    words = np.concatenate(seen)
    return torch.from_numpy(words.view(np.uint8).reshape(-1, 8)[:, :6].copy())


def test_a_key_owner_decrypts_uniform_numbers(monkeypatch):
    assert complaints(opened_by_owners(monkeypatch)) == []


def test_a_mask_that_is_left_out_is_noticed(monkeypatch):
    assert complaints(opened_by_owners(monkeypatch, is_masked=False)) != []
