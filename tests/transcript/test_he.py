"""What either side of an encrypted run sees, and that every mask of the answers is needed."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import chi2
from torch import nn

import tacit
from tacit.crypto.cipher import slots
from tacit.crypto.cipher.slots import Noise, OwnSlotKeys, SlotKeys, SlotRing
from tacit.inference.he.circuit import trace
from tacit.inference.he.layouts import InRow, InSlots
from tacit.inference.he.parameters import make_whole
from tacit.ring import Prg

pytest.importorskip("tenseal")
RING = SlotRing(degree=8192, plain_bits=20, primes=2, prime_bits=46, special_bits=44, number=0)
HALF, ROWS, CELLS = RING.degree // 2, 3, 16


def is_uniform(values, modulus):
    """Compare counts of sixteen equal parts; wrong once in 1e9."""
    counts = np.bincount((values.astype(float) * CELLS // modulus).astype(int), minlength=CELLS)
    expected = len(values) / CELLS
    return ((counts - expected) ** 2 / expected).sum() < chi2.isf(1e-9, CELLS - 1)


class Run:
    """One batch of one linear layer, evaluated once or more on the same ciphertexts."""

    def __init__(self, layout, weight, x):
        model = nn.Linear(2, 1, bias=False).double()
        with torch.no_grad():
            model.weight[:] = torch.tensor(weight)
        imported = tacit.nn.import_module(model)
        self.whole = make_whole(trace(imported, imported.weights, (1, 2)), bits=2, bound=1.0)
        structure = trace(imported, {"weight": torch.ones(1, 2)}, (1, 2))
        self.arranged = InSlots(2, 1) if layout == "slots" else InRow(structure)
        self.own = OwnSlotKeys(RING, ())
        self.keys = SlotKeys(RING, self.own.public, self.own.switching, ())
        self.arranged.prepare(self.keys, self.whole)
        rows = np.array([x] * (ROWS if layout == "slots" else 1), float)
        self.rows = len(rows)
        self.sent = list(self.arranged.encrypt(self.own, self.whole.encode(rows)))

    def answer(self):
        parts = iter(self.sent)
        (data,) = self.arranged.evaluate(
            self.keys,
            self.whole,
            lambda: self.keys.received(next(parts)),
            self.rows,
            Prg.from_os().bytes,
        )
        loaded = self.own._sizes.load(data, RING.primes - 1, is_seeded=False)
        return self.own.decrypt(data), self.own.budget(loaded), loaded


def complaints(layout):
    """Say what the receiver of answers could learn beside them."""
    found = []
    light, heavy = Run(layout, (0.25, 0.25), (1, 1)), Run(layout, (1.0, -1.0), (0.25, -0.25))
    (first, noise, cipher), (second, _, again) = light.answer(), light.answer()
    if layout == "slots":
        if set(first[:ROWS]) != set(second[:ROWS]):
            found.append("an answer is wrong")
        kept = (first[ROWS:], second[ROWS:])
    else:
        terms = [one[:2].sum() % RING.plain_modulus for one in (first, second)]
        if terms[0] != terms[1]:
            found.append("an answer is wrong")
        kept = (first, second)
    for one in kept:
        if not is_uniform(one, RING.plain_modulus):
            found.append("slots without an answer are not uniform")
    if (kept[0] == kept[1]).mean() > 0.01:
        found.append("slots without an answer come again")
    # The second polynomial of an answer must be new: it would tell the turns and weights.
    count = RING.degree
    if [cipher[count + at] for at in range(64)] == [again[count + at] for at in range(64)]:
        found.append("a polynomial comes again")
    budgets = [noise, heavy.answer()[1]]
    room = RING.primes * RING.prime_bits - RING.plain_bits - Noise(RING).most_flood_bits
    if any(not 0 < one <= room for one in budgets):
        found.append(f"noise is not flooded: {budgets} bits are left of {room}")
    return found


@pytest.mark.parametrize("layout", ["slots", "row"])
def test_the_owner_of_rows_sees_answers_under_one_noise_and_random_numbers(layout):
    assert complaints(layout) == []


def no_flood(ring, bits, kept, randomness):
    return np.zeros((ring.primes, ring.degree), np.uint64)


def stale(keys, zero=SlotKeys.zero):
    """Begin an answer with nothing instead of a fresh encryption of zero."""
    zeros = np.zeros((keys.ring.primes, keys.ring.degree), np.uint64)
    return keys.ring.noise(zero(keys), zeros)


MUTATIONS = {
    "noise is not flooded": (slots, "flood", no_flood),
    "not uniform": (SlotKeys, "draw", lambda self, randomness, n: np.zeros(n, np.int64)),
    "a polynomial comes again": (SlotKeys, "zero", stale),
}


@pytest.mark.parametrize("layout", ["slots", "row"])
@pytest.mark.parametrize("said", list(MUTATIONS))
def test_a_missing_mask_is_noticed(layout, said, monkeypatch):
    monkeypatch.setattr(*MUTATIONS[said])
    assert any(said in one for one in complaints(layout))


def test_the_evaluator_sees_uniform_polynomials_whatever_the_rows_are():
    sizes = set()
    for x in ((0, 0), (1, 1)):
        run = Run("slots", (0.5, 0.5), x)
        assert run.sent[0] != run.sent[1]  # the same numbers, twice
        for data in run.sent:
            sizes.add(len(data))
            part = run.keys.received(data)
            for prime, modulus in enumerate(RING.moduli[: RING.primes]):
                words = np.array([part[prime * RING.degree + at] for at in range(RING.degree)])
                assert is_uniform(words, modulus)
    assert len(sizes) == 1


def fuzzed(count):
    """Let a child read keys, rows and answers with changed bytes; it must end well."""
    script = Path(__file__).with_name("he_fuzz.py")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, str(script), str(count)], env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    refused, taken = map(int, done.stdout.split())
    assert refused + taken == count
    assert refused > count // 3
    assert taken > count // 10  # any number below its modulus may be meant, and any seed


def test_changed_bytes_of_keys_rows_and_answers_end_no_process():
    fuzzed(500)


@pytest.mark.slow
def test_ten_thousand_changed_messages_end_no_process():
    fuzzed(10_000)
