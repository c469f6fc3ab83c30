import copy
import math
import os
import pickle
from collections import Counter

import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from tacit.errors import DataError, RangeError, TacitError
from tacit.ring import Prg

KEY = bytes(range(16))
FALSE_ALARM = 1e-6  # of each statistical test, had the key been drawn at random


def raw_stream(key: bytes, count: int) -> bytes:
    return Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor().update(bytes(count))


def test_the_stream_is_the_published_aes_ctr_key_stream():
    # NIST SP 800-38A, F.5.1: key, initial counter, and the first two output blocks.
    prg = Prg(bytes.fromhex("2b7e151628aed2a6abf7158809cf4f3c"))
    prg.seek(16 * int("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff", 16))
    assert prg.bytes(32).hex() == (
        "ec8cdf7398607cb0f2d21675ea9ea1e4" + "362b7c3c6773516318a077d7fc5073ae"
    )


@given(st.lists(st.sampled_from([0, 1, 7, 16, 4095, 4096, 8191, 8192, 9000, 300_000]), max_size=6))
def test_draws_of_any_size_walk_through_one_stream(sizes):
    prg = Prg(KEY)
    drawn = b"".join(prg.bytes(size) for size in sizes)
    assert drawn == raw_stream(KEY, sum(sizes))
    assert prg.position == sum(sizes)


@given(st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 9000)), max_size=6))
def test_seek_is_exact(jumps):
    prg, stream = Prg(KEY), raw_stream(KEY, 30_000)
    for position, count in jumps:
        prg.seek(position)
        assert prg.position == position
        assert prg.bytes(count) == stream[position : position + count]
        assert prg.position == position + count


def test_words_are_the_bytes_of_the_stream():
    words = Prg(KEY).words((3, 5))
    expected = [
        int.from_bytes(raw_stream(KEY, 120)[i : i + 8], "little", signed=True)
        for i in range(0, 120, 8)
    ]
    assert words.dtype == torch.int64
    assert words.flatten().tolist() == expected


def test_fill_writes_what_words_would_draw():
    target = torch.empty((100, 1000), dtype=torch.int64)
    Prg(KEY).fill(target)
    assert torch.equal(target, Prg(KEY).words((100, 1000)))
    with pytest.raises(DataError, match="contiguous"):
        Prg(KEY).fill(target.t())


@given(st.integers(0, 200))
def test_bits_are_the_bits_of_the_stream(count):
    prg = Prg(KEY)
    number = int.from_bytes(raw_stream(KEY, 32), "little")
    assert prg.bits(count).tolist() == [number >> i & 1 for i in range(count)]
    assert prg.position == -(-count // 8)


def test_shapes_may_be_empty_or_scalar():
    prg = Prg(KEY)
    assert prg.words((0, 3)).shape == (0, 3)
    assert prg.words(()).shape == ()
    assert prg.bits((2, 0)).shape == (2, 0)
    assert prg.below(10, 0).shape == (0,)
    assert prg.permutation(0).tolist() == []
    assert prg.permutation(1).tolist() == [0]


def test_a_fork_depends_on_key_and_label_alone():
    parent, moved = Prg(KEY), Prg(KEY)
    moved.words(1000)
    child = parent.fork("layer.1").bytes(64)
    assert child == moved.fork("layer.1").bytes(64)
    assert parent.position == 0
    others = [
        parent.fork("layer.2"),
        parent.fork(""),
        parent.fork("layer.1").fork("layer.1"),
        Prg(bytes(16)).fork("layer.1"),
        Prg(KEY),
    ]
    assert len({child, *(other.bytes(64) for other in others)}) == 6


def test_keys_from_the_system_differ():
    assert Prg.from_os().bytes(16) != Prg.from_os().bytes(16)


@pytest.mark.parametrize("length", [0, 15, 17, 32])
def test_a_key_of_another_length_is_refused(length):
    with pytest.raises(DataError, match=f"16 bytes, got {length}"):
        Prg(bytes(length))


def test_the_key_is_not_shown():
    shown = repr(Prg(b"0123456789abcdef")) + str(Prg(b"0123456789abcdef"))
    assert "0123" not in shown
    assert "30313233" not in shown


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_generator_is_not_duplicated_by_accident(duplicate):
    with pytest.raises(TypeError, match="fork"):
        duplicate(Prg(KEY))


@pytest.mark.parametrize("bound", [1, 2, 3, 7, 64, 1000, 2**31 - 1, 2**62 + 1, 2**63 - 1, 2**63])
def test_draws_below_a_bound_stay_below_it(bound):
    values = Prg(KEY).below(bound, (10, 100))
    assert values.shape == (10, 100)
    assert int(values.min()) >= 0
    assert int(values.max()) < bound


@pytest.mark.parametrize("bound", [3 * 2**61, 2**62 + 1])
def test_a_large_bound_is_uniform_although_much_is_redrawn(bound):
    # Without rejection, 2^63 mod bound would be hit twice as often as the rest.
    values = Prg(KEY).below(bound, 60_000)
    check_uniform([int((values // -(-bound // 6) == i).sum()) for i in range(6)])


@pytest.mark.parametrize("bound", [5, 64, 1000])
def test_draws_below_a_small_bound_are_uniform(bound):
    check_uniform(torch.bincount(Prg(KEY).below(bound, 100_000), minlength=bound).tolist())


@pytest.mark.parametrize("bound", [0, -1, 2**63 + 1])
def test_an_impossible_bound_is_refused(bound):
    with pytest.raises(RangeError, match=str(bound)):
        Prg(KEY).below(bound, 3)


def test_a_permutation_holds_every_index_once():
    order = Prg(KEY).permutation(10_007)
    assert torch.equal(order.sort().values, torch.arange(10_007))


def test_every_permutation_of_four_is_equally_likely():
    prg = Prg(KEY)
    counts = Counter(tuple(prg.permutation(4).tolist()) for _ in range(9600))
    assert len(counts) == math.factorial(4)
    check_uniform(list(counts.values()))


def test_a_tie_of_keys_makes_a_permutation_be_drawn_again(monkeypatch):
    draws = [torch.tensor([5, 1, 5]), torch.tensor([3, 1, 2])]
    monkeypatch.setattr(Prg, "words", lambda self, shape: draws.pop(0))
    assert Prg(KEY).permutation(3).tolist() == [1, 2, 0]


def test_bits_and_bytes_are_balanced():
    prg = Prg(KEY)
    check_uniform(torch.bincount(prg.bits(1 << 20).int(), minlength=2).tolist())
    check_uniform(list(Counter(prg.bytes(1 << 18)).values()))


def check_uniform(counts: list[int]) -> None:
    expected = sum(counts) / len(counts)
    statistic = sum((count - expected) ** 2 for count in counts) / expected
    assert statistic < chi2.isf(FALSE_ALARM, len(counts) - 1)


def after_fork(check):
    """Run a check in a forked process, and return what it says."""
    inlet, outlet = os.pipe()
    pid = os.fork()
    if pid == 0:  # nothing of pytest's may run here
        try:
            os.write(outlet, check())
        finally:
            os._exit(0)
    os.close(outlet)
    os.waitpid(pid, 0)
    with os.fdopen(inlet, "rb") as said:
        return said.read()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("draw", ["bytes", "fork"])
def test_a_forked_process_does_not_repeat_the_stream(draw):
    prg = Prg(KEY)
    prg.bytes(16)

    def check():
        try:
            return prg.bytes(16) if draw == "bytes" else prg.fork("a").bytes(16)
        except TacitError as error:
            return str(error).encode()

    said = after_fork(check)
    assert b"made before os.fork" in said
    assert len(prg.bytes(16)) == 16, "the parent goes on"


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_draws_from_a_generator_of_its_own():
    assert after_fork(lambda: Prg(KEY).bytes(16)) == Prg(KEY).bytes(16)
