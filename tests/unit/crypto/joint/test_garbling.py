"""Garbled circuits: values against plain comparisons, and what the evaluator gets."""

import numpy as np
import pytest
import torch

from support.crypto import complaints
from tacit.crypto.joint import garbling
from tacit.crypto.joint.garbling import Evaluator, Garbler, Thresholds, lowest_bits
from tacit.crypto.joint.transfer import Hash, draw_delta
from tacit.errors import DataError
from tacit.ring import Prg

HASH = Hash(b"h" * 16)


def labels(label, bits, count):
    drawn = Prg(b"l" * 16).fork(label).words((bits, count, 2))
    return drawn.numpy().view(np.uint64)


def planes(numbers, bits):
    return (numbers[None] >> np.arange(bits)[:, None] & 1).astype(np.uint64)


def run(circuit, left, right):
    delta = np.packbits(draw_delta(Prg(b"d" * 16).bytes), bitorder="little").view(np.uint64)
    bits, count = circuit.bits, len(left)
    mine, theirs = labels("mine", bits, count), labels("theirs", bits, count)
    tables, outs = Garbler(delta, HASH).garble(circuit, mine, theirs)
    evaluator = Evaluator(HASH)
    first = evaluator.reserve(circuit, count)
    active = [
        zero ^ planes(number, bits)[..., None] * delta
        for zero, number in ((mine, left), (theirs, right))
    ]
    found = evaluator.evaluate(circuit, active[1], active[0], tables, first)
    return lowest_bits(found) ^ lowest_bits(outs), tables, found, outs, delta


@pytest.mark.parametrize("above", [(), (1,), (1, 2, 7), (4,)])
def test_every_sum_of_five_bits_is_compared_rightly(above):
    bits = 5
    left, right = (one.reshape(-1) for one in np.meshgrid(np.arange(32), np.arange(32)))
    total = (left + right + 16) % 32 - 16
    # What is compared stays within the ring: a sum less a threshold must not wrap around.
    fits = total - max(above, default=0) >= -16
    got, *_ = run(Thresholds(bits, above), left, right)
    wanted = np.stack([total >= t for t in (0, *above)])
    assert np.array_equal(got[:, fits], wanted[:, fits])


def test_more_instances_than_a_part_and_the_declared_number_of_gates(monkeypatch):
    monkeypatch.setattr(garbling, "_PART", 64)
    circuit = Thresholds(20, (77, 1 << 15))
    left = Prg(b"x" * 16).below(1 << 20, 300).numpy()
    right = -left + np.arange(300) * 200 - 20_000 & (1 << 20) - 1
    got, tables, *_ = run(circuit, left, right)
    total = np.arange(300) * 200 - 20_000
    assert np.array_equal(got, np.stack([total >= t for t in (0, 77, 1 << 15)]))
    assert tables.nbytes == garbling.GATE_BYTES * circuit.gates * 300


def test_tables_and_labels_look_uniform_whatever_the_numbers_are():
    same = np.zeros(4096, np.int64)
    _, tables, found, _, _ = run(Thresholds(6), same, same)
    for gate in tables.view(np.int64).reshape(5, 4096, 4):
        assert complaints(torch.from_numpy(gate)) == []
    assert complaints(torch.from_numpy(found[0].view(np.int64))) == []


def test_an_evaluator_never_holds_two_labels_of_a_wire():
    same = np.zeros(512, np.int64)
    _, tables, found, outs, delta = run(Thresholds(6), same, same)
    held = {tuple(block) for block in np.concatenate((found[0], tables.reshape(-1, 2))).tolist()}
    assert not any((low ^ int(delta[0]), high ^ int(delta[1])) in held for low, high in held)
    assert tuple(delta.tolist()) not in held
    # The check would see it if the other label came along.
    both = held | {tuple(block) for block in (found[0] ^ delta).tolist()}
    assert any((low ^ int(delta[0]), high ^ int(delta[1])) in both for low, high in both)
    assert outs.shape == found.shape


def test_a_changed_table_gives_another_label_and_no_crash():
    left = right = np.arange(64)
    circuit = Thresholds(8)
    delta = np.array([1, 2], np.uint64)
    mine, theirs = labels("a", 8, 64), labels("b", 8, 64)
    tables, _ = Garbler(delta, HASH).garble(circuit, mine, theirs)
    good = Evaluator(HASH).evaluate(circuit, theirs, mine, tables, garbling._GATES)
    bad = Evaluator(HASH).evaluate(circuit, theirs, mine, tables ^ np.uint64(1), garbling._GATES)
    assert good.shape == bad.shape and not np.array_equal(good, bad)  # noqa: PT018
    assert left.shape == right.shape


def test_thresholds_that_do_not_fit_are_refused():
    for bits, above in ((1, ()), (4, (8,)), (4, (0,))):
        with pytest.raises(DataError, match="do not fit"):
            Thresholds(bits, above)
