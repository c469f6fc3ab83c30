"""What two parties without a dealer see of each other, and every mask of it deleted in turn.

As in `test_transcripts` all that the corrupt party knows is fixed: its own generator gives zeros.
What it receives must then be uniform: words, labels, tables and columns of transfers as they are,
residues of ciphertexts in the bits that a prime fills evenly. Points of base transfers and public
keys depend on no secret. Two things are in no message and are looked at besides: what the key owner
decrypts, and the comparison's result that P0 would read off if P1's bit were not hidden.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from support.crypto import complaints
from support.mpc import ALICE, BOB, simulate
from tacit.crypto.joint import transfer
from tacit.crypto.joint.garbling import Garbler, lowest_bits
from tacit.mpc.protocols.two_party.garbled import Garbled
from tacit.mpc.protocols.two_party.matrices import Matrices
from tacit.mpc.protocols.two_party.pair import KEY_BYTES
from tacit.mpc.registry import NO_DEALER
from transcript.test_transcripts import columns

COUNT = 2048
SETUP = {transfer.OFFER_BYTES, transfer.CHOICES_BYTES, KEY_BYTES}


def program(ops):
    """Use every kind of material on the same constant secrets."""
    x = ops.input("x", owner=ALICE, shape=(COUNT,), bound=64.0)
    y = ops.input("y", owner=BOB, shape=(COUNT,), bound=64.0)
    ops.relu(x)  # P1's own share of it is drawn with P0
    ops.relu(ops.add(x, y))
    ops.is_positive(y)
    few, others = (ops.take(one, range(64), dim=0) for one in (x, y))
    ops.normalise_scale(ops.mul(few, others))
    ops.normalise_scale(ops.scale(y, 0.3))
    rows, more = ops.reshape(x, (64, 32)), ops.reshape(y, (32, 64))
    ops.matmul(rows, more)
    ops.matmul(ops.take(rows, range(16), dim=0), more)  # P0's is the smaller one here
    ops.matmul(ops.add(rows, rows), ops.add(more, more))


def inputs():
    def full(value):
        return torch.full((COUNT,), value, dtype=torch.float64)

    return {ALICE: {"x": full(3.25)}, BOB: {"y": full(-7.5)}}


def assert_clean():
    """Run with either party corrupt, and look at all that it sees."""
    for corrupt in (ALICE, BOB):
        with pytest.MonkeyPatch.context() as patch:
            decrypted, own_bits = spy(patch)
            run = simulate(program, protocol=NO_DEALER, inputs=inputs(), corrupt=corrupt)
        for tag, words in run.received[corrupt]:
            if words.numel() not in SETUP and words.numel() >= 512:
                assert complaints(seen(words)) == [], f"{corrupt} received {tag}"
        mine = [found for is_first, found in decrypted if is_first == (corrupt == ALICE)]
        assert complaints(torch.cat(mine).view(-1, 1)) == [], "a product is not masked"
        if corrupt == ALICE:
            received = run.received[ALICE]
            told = [
                w.numpy() for tag, w in received if tag.split()[0].endswith(".1") and "run" in tag
            ]
            for bits, packed in zip(own_bits, told, strict=True):
                # The secrets are all the same, and so is the result: P0 must not find it.
                tau = np.unpackbits(packed, count=len(bits), bitorder="little")
                assert 0.4 < (bits ^ tau).mean() < 0.6, "P0 reads the result of a comparison"


def seen(words):
    """Lay a message out; residues are recognised by their top bits, which are never set."""
    if words.dtype != torch.uint8 or words.numel() % 4:
        return columns(words)
    if len(words) > 1 << 17:
        words = torch.cat((words[: 1 << 16], words[-8 * COUNT :]))  # words may follow labels
    residues = words.numpy().view(np.uint32)
    is_small = residues >> 31 == 0
    if is_small.mean() < 0.99:  # but for the seeds between them
        return columns(words)
    low = residues[is_small].astype(np.int64) & 0xFFFF
    return torch.from_numpy(np.concatenate((low & 255, low >> 8)).astype(np.uint8)[:, None])


def spy(patch):
    """Note what is decrypted, by whom, and P0's bits of the results of comparisons."""
    decrypted, own_bits = [], []
    encrypt, garble = Matrices.encrypt, Garbler.garble

    def encrypting(self, pair, *args):
        found = encrypt(self, pair, *args)
        words = torch.from_numpy(np.ascontiguousarray(found).view(np.int64))
        decrypted.append((pair.is_first, words.reshape(-1)))
        return found

    def garbling(self, *args):
        tables, outs = garble(self, *args)
        own_bits.append(lowest_bits(outs).astype(np.uint8).reshape(-1))
        return tables, outs

    patch.setattr(Matrices, "encrypt", encrypting)
    patch.setattr(Garbler, "garble", garbling)
    return decrypted, own_bits


def test_each_party_sees_uniform_words_labels_and_ciphertexts():
    assert_clean()


def test_no_label_of_a_wire_comes_with_its_other_one():
    """P1 could work Δ out, and with it every comparison, if it ever held both."""
    run = simulate(program, protocol=NO_DEALER, inputs=inputs())
    blocks = [
        words.numpy().view(np.uint64).reshape(-1, 2)
        for _, words in run.received[BOB]
        if words.dtype == torch.uint8 and words.numel() % 16 == 0
    ]
    held = np.unique(np.concatenate(blocks), axis=0)
    # Were Δ the difference of two blocks of one message place, it would be there again and again.
    labels = [one for one in blocks if len(one) % COUNT == 0]
    differences = np.concatenate([one[1:] ^ one[:-1] for one in labels])
    _, times = np.unique(differences, axis=0, return_counts=True)
    assert times.max() == 1
    assert len(held)


def fuzzed(count):
    """Let a child read changed keys, ciphertexts, points and tables; it must end well."""
    script = Path(__file__).with_name("joint_fuzz.py")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, str(script), str(count)], env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    refused, taken = map(int, done.stdout.split())
    assert refused + taken == count
    assert refused > count // 8  # tables and most residues may be anything


def test_changed_messages_end_no_process():
    fuzzed(300)


@pytest.mark.slow
def test_ten_thousand_changed_messages_end_no_process():
    fuzzed(10_000)


def test_a_party_that_lies_makes_the_result_wrong_and_is_not_noticed(monkeypatch):
    """No guarantee against parties that deviate: the claim says so, and this is why."""

    def work(ops):
        x = ops.input("x", owner=ALICE, shape=(4,), bound=64.0)
        return ops.open(ops.relu(x), to=(ALICE,), what="y", why="test")

    honest = Garbled._run_second

    def lying(self, channel, mask, parts, words, size):
        return honest(self, channel, mask, parts, words + (100 << 16), size)

    given = {ALICE: {"x": torch.full((4,), -3.0, dtype=torch.float64)}}
    assert simulate(work, protocol=NO_DEALER, inputs=given).values[ALICE].abs().max() == 0
    monkeypatch.setattr(Garbled, "_run_second", lying)
    assert simulate(work, protocol=NO_DEALER, inputs=given).values[ALICE].min() > 60
