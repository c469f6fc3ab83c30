"""Every cipher keeps one contract: sums and products that are exact, and refusals by name."""

import subprocess
import sys
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from tacit.crypto.cipher import SCHEMES, CipherLayout, load_public, make_key
from tacit.errors import ConfigError, DataError, InputError, RangeError
from tacit.ring import Prg

pytest.importorskip("gmpy2")
pytest.importorskip("tenseal")

DRAW = Prg(bytes(range(16)))
ROWS = CipherLayout(rows=300, width=2, bound=1 << 10, room=1 << 30)
SUMS = CipherLayout(rows=150, width=1, bound=1 << 20, room=1 << 30, form="sum")


@cache
def key_of(scheme, number=0):
    return make_key(scheme, DRAW.fork(f"{scheme} {number}").bytes, bits=2048)


def numbers(shape, bound):
    drawn = DRAW.words(shape).numpy()
    found = drawn % (2 * bound + 1) - bound
    found.reshape(-1)[:2] = bound, -bound  # the ends too
    return found


def encrypted(scheme, layout, *, by_owner=True):
    values, key = numbers((layout.rows, layout.width), layout.bound), key_of(scheme)
    maker = key if by_owner else key.public
    return values, maker.encrypt(values, replace(layout, by_owner=by_owner), DRAW.bytes)


@pytest.fixture(params=SCHEMES)
def scheme(request):
    return request.param


@pytest.mark.parametrize("by_owner", [True, False])
@pytest.mark.parametrize("layout", [replace(ROWS, rows=20), SUMS], ids=["rows", "sum"])
def test_what_was_encrypted_comes_out_after_a_journey(scheme, layout, by_owner):
    key, layout = key_of(scheme), replace(layout, by_owner=by_owner)
    values, sealed = encrypted(scheme, layout, by_owner=by_owner)
    peer = load_public(scheme, key.public.to_bytes())
    data = peer.dump(peer.load(key.public.dump(sealed), layout)) if not by_owner else None
    sent = data or key.public.dump(sealed)
    assert len(sent) == key.public.wire_bytes(layout)
    assert np.array_equal(key.decrypt(peer.load(sent, layout)), values)


def test_sums_are_exact_at_the_ends_of_their_room(scheme):
    key = key_of(scheme)
    layout = replace(SUMS, room=4 << 20)
    values, first = encrypted(scheme, layout)
    more, second = encrypted(scheme, layout, by_owner=False)
    total = key.public.add(first, second)
    total = key.public.add_plain(total, 2 * values, bound=2 << 20)
    assert total.layout.bound == total.layout.room
    assert np.array_equal(key.decrypt(total), 3 * values + more)
    with pytest.raises(RangeError, match="room"):
        key.public.add(total, first)


def test_weighing_is_a_product_from_the_left(scheme):
    """Shapes that fill blocks and groups, and that do not; negative weights; rows of zeros."""
    key = key_of(scheme)
    values, sealed = encrypted(scheme, ROWS)
    peer = load_public(scheme, key.public.to_bytes())
    matrix = numbers((33, 300), 1 << 9)
    matrix[5] = 0
    matrix[:, 256:] *= DRAW.words((33, 44)).numpy() % 2
    found = peer.weigh(matrix, sealed)
    assert np.array_equal(key.decrypt(found), matrix @ values)
    moved = peer.add_plain(found, numbers((33, 2), 1), bound=1)
    moved = peer.add(moved, peer.weigh(-matrix, sealed))
    released = peer.release(moved, DRAW.bytes)
    data = peer.dump(released)
    assert len(data) == peer.wire_bytes(released.layout)
    again = key.public.load(data, released.layout)
    assert np.abs(key.decrypt(again)).max() == 1
    assert len(data) < key.public.wire_bytes(moved.layout)


def test_gathering_is_weighing_by_zeros_and_ones(scheme):
    key = key_of(scheme)
    _, sealed = encrypted(scheme, ROWS)
    places = DRAW.words(300).numpy() % 72 - 1
    places[places == 40] = -1  # an output without rows
    matrix = (places[None, :] == np.arange(71)[:, None]).astype(np.int64)
    found = key.decrypt(key.public.gather(places, 71, sealed))
    assert np.array_equal(found, key.decrypt(key.public.weigh(matrix, sealed)))
    for wrong in (places[:-1], places + 1, places - 1):
        with pytest.raises(DataError, match="places"):
            key.public.gather(wrong, 71, sealed)


def test_scaling_row_by_row_or_a_refusal(scheme):
    key = key_of(scheme)
    values, sealed = encrypted(scheme, replace(ROWS, rows=20))
    factors = numbers(20, 100)
    if scheme == "bfv":
        with pytest.raises(ConfigError, match="paillier"):
            key.public.scale(sealed, factors)
        with pytest.raises(ConfigError, match="paillier"):
            key.public.take(sealed, factors)
        return
    chosen = np.array([3, 3, 19])
    assert np.array_equal(key.decrypt(key.public.take(sealed, chosen)), values[chosen])
    found = key.decrypt(key.public.scale(sealed, factors))
    assert np.array_equal(found, values * factors[:, None])


def test_another_key_another_cipher_and_wrong_layouts_are_refused(scheme):
    key, other = key_of(scheme), key_of(scheme, 1)
    layout = replace(ROWS, rows=20)
    values, sealed = encrypted(scheme, layout)
    stranger = other.encrypt(values, replace(layout, by_owner=True), DRAW.bytes)
    for refused in (
        lambda: key.public.add(sealed, stranger),
        lambda: key.decrypt(stranger),
        lambda: key.public.load(other.public.dump(stranger), stranger.layout),
        lambda: key_of("bfv" if scheme == "paillier" else "paillier").decrypt(sealed),
    ):
        with pytest.raises(DataError, match="another key or cipher"):
            refused()
    with pytest.raises(DataError, match="bytes"):
        key.public.load(key.public.dump(sealed)[:-1], sealed.layout)
    with pytest.raises(DataError, match="columns"):
        key.public.weigh(numbers((3, 19), 5), sealed)
    with pytest.raises(DataError, match="shape"):
        key.encrypt(values[:-1], sealed.layout, DRAW.bytes)
    with pytest.raises(RangeError, match="bound"):
        key.encrypt(values + 1, sealed.layout, DRAW.bytes)
    with pytest.raises(RangeError, match="room"):
        key.public.weigh(numbers((3, 20), 1 << 18), sealed)
    with pytest.raises(InputError, match="form"):
        key.public.release(sealed, DRAW.bytes)
    with pytest.raises(InputError, match="key owner"):
        key.public.encrypt(values, sealed.layout, DRAW.bytes)
    with pytest.raises(DataError):
        load_public(scheme, key.public.to_bytes()[:-3])
    with pytest.raises(DataError):
        load_public(scheme, bytes(len(key.public.to_bytes())))


def test_released_results_are_fresh_each_time(scheme):
    """Weighing by 1 would hand the row itself back; a release has none of it."""
    key = key_of(scheme)
    _, sealed = encrypted(scheme, replace(ROWS, rows=20))
    unit = np.eye(1, 20, dtype=np.int64)
    found = key.public.weigh(unit, sealed)
    first, second = (key.public.release(found, DRAW.bytes) for _ in range(2))
    one, two = (key.public.dump(sent) for sent in (first, second))
    assert one != two
    assert key.public.dump(found) != one
    assert np.array_equal(key.decrypt(first), key.decrypt(second))


def test_a_masked_result_tells_the_key_owner_nothing(scheme):
    key = key_of(scheme)
    values, sealed = encrypted(scheme, ROWS)
    matrix = numbers((33, 300), 1 << 9)
    peer = load_public(scheme, key.public.to_bytes())
    sent, mask = peer.mask(peer.weigh(matrix, sealed), DRAW.bytes)
    again = key.public.load(peer.dump(sent), sent.layout)
    opened = key.open_masked(again)
    assert len(opened) == peer.opened_bytes(sent.layout)
    assert np.array_equal(peer.unmask(opened, mask, sent.layout), matrix @ values)
    other, _ = peer.mask(peer.weigh(matrix, sealed), DRAW.bytes)
    assert key.open_masked(other)[:8] != opened[:8]
    with pytest.raises(DataError, match="decrypted bytes"):
        peer.unmask(opened[:-8], mask, sent.layout)


FUZZ = """
import sys
from tacit.crypto.cipher import CipherLayout, load_public, make_key
from tacit.errors import DataError
from tacit.ring import Prg
import numpy as np

scheme = sys.argv[1]
draw = Prg(bytes(16))
key = make_key(scheme, draw.bytes, bits=2048)
layout = CipherLayout(rows=3, bound=9, room=99, by_owner=True)
sealed = key.encrypt(np.ones((3, 1), np.int64), layout, draw.bytes)
public = key.public
good = public.dump(sealed)
refused = read = 0
for turn in range(60):
    data = bytearray(good if turn % 3 else public.to_bytes())
    for _ in range(1 + turn % 5):
        where = int.from_bytes(draw.bytes(4), "big")
        # The first bytes say what follows; most of the rest is as good as random anyway.
        place = 16 + where % 80 if turn % 2 else where % len(data)
        data[place] ^= 1 << (where >> 29)
    if turn % 7 == 0:
        data = data[: len(data) // 2] + data[: len(data) - len(data) // 2]
    if turn % 11 == 0:
        data[16:] = draw.bytes(len(data) - 16)
    try:
        if turn % 3:
            found = public.load(bytes(data), layout)
            public.weigh(np.ones((2, 3), np.int64), found)
            key.decrypt(found)
        else:
            load_public(scheme, bytes(data))
        read += 1
    except DataError:
        refused += 1
print(refused, read)
"""


def test_broken_ciphertexts_and_keys_end_no_process(scheme):
    done = subprocess.run(
        [sys.executable, "-c", FUZZ, scheme], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    refused, read = map(int, done.stdout.split())
    assert refused + read == 60
    assert refused > 12
