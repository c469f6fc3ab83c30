"""Oblivious transfer: the receiver gets what it chose and the sender learns nothing of it."""

import hashlib

import numpy as np
import pytest
import torch

from support.crypto import complaints
from tacit.crypto.joint import transfer
from tacit.errors import DataError
from tacit.ring import Prg

COUNT = 5000


def sides(seed=b"t" * 16):
    own = Prg(seed)
    delta = transfer.draw_delta(own.bytes)
    base = transfer.BaseSender()
    chosen = transfer.BaseReceiver(delta, base.offer())
    pairs = base.seeds(chosen.choices)
    hashing = transfer.Hash(b"k" * 16)
    return transfer.Sender(delta, chosen.seeds, hashing), transfer.Receiver(pairs, hashing), pairs


def test_the_receiver_has_the_seed_of_each_pair_that_it_chose_and_not_the_other():
    delta = transfer.draw_delta(Prg(b"d" * 16).bytes)
    base = transfer.BaseSender()
    chosen = transfer.BaseReceiver(delta, base.offer())
    for bit, seed, pair in zip(delta, chosen.seeds, base.seeds(chosen.choices), strict=True):
        assert seed == pair[bit] != pair[1 - bit]
    assert delta[0] == 1


@pytest.mark.parametrize("count", [1, 7, 64, COUNT])
def test_correlations_differ_by_delta_where_the_bit_is_one(count):
    sender, receiver, _ = sides()
    bits = Prg(b"b" * 16).bits(count).numpy()
    for _ in range(2):  # the streams go on
        columns, theirs = receiver.extend(bits)
        assert columns.size == transfer.column_bytes(count)
        mine = sender.extend(columns, count)
        assert np.array_equal(theirs, mine ^ bits.astype(np.uint64)[:, None] * sender.delta)
        zero, one = sender.pads(mine, 3)
        assert np.array_equal(receiver.pads(theirs, 3), np.where(bits, one, zero))
        assert not (zero == one).any()


def test_what_the_sender_sees_does_not_depend_on_the_bits():
    _, receiver, _ = sides()
    columns, _ = receiver.extend(np.zeros(COUNT, np.uint8))
    assert complaints(torch.from_numpy(columns.reshape(-1, 1))) == []


class _Nothing:
    def update(self, zeros):
        return zeros


def read_bits(receiver, bits):
    """A sender's attack with the one seed of a pair that it has: take that stream off a column."""
    receiver._streams[0] = (transfer._stream(b"s" * 16), receiver._streams[0][1])
    columns, _ = receiver.extend(bits)
    known = transfer._stream(b"s" * 16).update(bytes(columns.shape[1]))
    column = columns[0] ^ np.frombuffer(known, np.uint8)
    return np.unpackbits(column, bitorder="little")[: len(bits)]


def test_a_sender_cannot_read_the_bits_with_the_seed_that_it_has():
    _, receiver, _ = sides()
    assert 0.4 < read_bits(receiver, np.ones(COUNT, np.uint8)).mean() < 0.6


def test_a_missing_second_stream_shows_the_bits():
    """The mutation: what hides the bits from the holder of the first seed is left out."""
    _, receiver, _ = sides()
    receiver._streams = [(zero, _Nothing()) for zero, _ in receiver._streams]
    assert read_bits(receiver, np.ones(COUNT, np.uint8)).all()


def test_malformed_base_transfers_are_refused_by_name():
    base = transfer.BaseSender()
    delta = transfer.draw_delta(Prg(b"d" * 16).bytes)
    good = transfer.BaseReceiver(delta, base.offer()).choices
    offer = base.offer()
    for changed in (b"", good[:-1], b"\x05" + good[1:], b"\x02" + b"\xff" * 32 + good[33:]):
        with pytest.raises(DataError, match="base transfer"):
            base.seeds(changed)
    with pytest.raises(DataError, match="repeats the offer"):
        base.seeds(offer[:33] + good[33:])
    for changed in (b"", offer[:-1], b"\x00" * 66):
        with pytest.raises(DataError):
            transfer.BaseReceiver(delta, changed)


def test_random_points_and_changed_bytes_never_crash():
    base, drawn = transfer.BaseSender(), hashlib.shake_256(b"fuzz")
    delta = transfer.draw_delta(Prg(b"d" * 16).bytes)
    good = transfer.BaseReceiver(delta, base.offer()).choices
    places = np.frombuffer(drawn.digest(4 * 12), np.uint32) % len(good)
    for place in places.tolist():
        changed = bytearray(good)
        changed[place] ^= 1 + place % 255
        try:
            base.seeds(bytes(changed))
        except DataError:
            continue
