import os
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.crypto import recover, recover_bytes, share, share_bytes
from tacit.crypto.field import PRIME
from tacit.errors import InputError

elements = st.sampled_from([0, 1, PRIME - 1]) | st.integers(0, PRIME - 1)
secret_lists = st.lists(elements, min_size=1, max_size=6)
sizes = st.integers(2, 7).flatmap(
    lambda parties: st.tuples(st.integers(2, parties), st.just(parties))
)


def words(values):
    return np.array(values, np.uint64)


def deal(values, threshold, parties):
    return share(words(values), threshold=threshold, parties=parties, randomness=os.urandom)


@given(secret_lists, sizes, st.data())
def test_any_threshold_of_the_shares_recovers(values, size, data):
    threshold, parties = size
    chosen = data.draw(st.permutations(deal(values, threshold, parties)))[:threshold]
    assert recover(chosen).tolist() == values


@given(secret_lists, sizes)
def test_shares_are_the_values_of_the_drawn_polynomial(values, size):
    threshold, parties = size
    drawn = []

    def record(count):
        drawn.append(os.urandom(count))
        return drawn[-1]

    shares = share(words(values), threshold=threshold, parties=parties, randomness=record)
    (raw,) = drawn
    coefficients = [int.from_bytes(raw[i : i + 8], "little") & PRIME for i in range(0, len(raw), 8)]
    for point, one in enumerate(shares, start=1):
        expected = [
            (value + sum(
                coefficients[k * len(values) + i] * point ** (k + 1) for k in range(threshold - 1)
            )) % PRIME
            for i, value in enumerate(values)
        ]  # fmt: skip
        assert one.point == point
        assert one.values.tolist() == expected


def solve(matrix, right):
    """Solve a regular system over the field by Gauss's elimination, in Python integers."""
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for i in range(len(rows)):
        pivot = next(k for k in range(i, len(rows)) if rows[k][i] % PRIME)
        rows[i], rows[pivot] = rows[pivot], rows[i]
        inverse = pow(rows[i][i], -1, PRIME)
        rows[i] = [value * inverse % PRIME for value in rows[i]]
        for k in range(len(rows)):
            if k != i:
                factor = rows[k][i]
                rows[k] = [(a - factor * b) % PRIME for a, b in zip(rows[k], rows[i], strict=True)]
    return [row[-1] for row in rows]


@given(elements, elements, sizes, st.data())
def test_fewer_shares_than_the_threshold_come_from_any_secret_equally(secret, other, size, data):
    threshold, parties = size
    seen = data.draw(st.permutations(deal([secret], threshold, parties)))[: threshold - 1]
    matrix = [[one.point**k for k in range(1, threshold)] for one in seen]
    # The coefficients under which the other secret looks just the same: they exist, once.
    explained = solve(matrix, [int(one.values[0]) - other for one in seen])
    randomness = b"".join(value.to_bytes(8, "little") for value in explained)
    again = share(
        words([other]), threshold=threshold, parties=parties, randomness=lambda count: randomness
    )
    for one in seen:
        assert again[one.point - 1].values.tolist() == one.values.tolist()


@given(st.binary(max_size=40), sizes)
def test_byte_strings_of_any_length_recover(secret, size):
    threshold, parties = size
    shares = share_bytes(secret, threshold=threshold, parties=parties, randomness=os.urandom)
    assert shares[0].values.shape == (len(secret) // 7 + 1,)
    assert recover_bytes(shares[-threshold:]) == secret


@given(sizes.filter(lambda size: size[0] < size[1]), st.data())
def test_a_changed_share_is_noticed_when_there_are_more_than_needed(size, data):
    shares = list(deal([1, 2, 3], *size))
    liar = data.draw(st.integers(0, len(shares) - 1))
    changed = shares[liar].values.copy()
    changed[1] = (int(changed[1]) + data.draw(st.integers(1, PRIME - 1))) % PRIME
    shares[liar] = replace(shares[liar], values=changed)
    with pytest.raises(InputError, match="does not fit"):
        recover(shares)


@settings(max_examples=5)
@given(st.integers(0, 2**32))
def test_many_secrets_of_any_shape_recover_across_blocks(seed):
    values = np.random.default_rng(seed).integers(0, PRIME, (3, 4001), dtype=np.uint64)
    shares = share(values, threshold=3, parties=20, randomness=os.urandom)
    assert np.array_equal(recover(shares[5:9]), values)


def test_the_largest_point_is_exact():
    shares = share(words([PRIME - 1] * 2), threshold=3, parties=65535, randomness=os.urandom)
    assert recover(shares[-3:]).tolist() == [PRIME - 1] * 2


def test_no_secrets_are_shared_as_no_values():
    assert recover(deal([], 2, 3)[:2]).shape == (0,)


@pytest.mark.parametrize(("threshold", "parties"), [(1, 3), (0, 3), (4, 3), (2, 65536), (-1, -1)])
def test_thresholds_out_of_range_are_refused(threshold, parties):
    with pytest.raises(InputError, match=f"threshold {threshold} and {parties} parties"):
        deal([1], threshold, parties)


def test_secrets_outside_the_field_are_refused_and_not_shown():
    with pytest.raises(InputError, match=r"shape \(2,\)") as caught:
        deal([3, PRIME], 2, 3)
    assert str(PRIME) not in str(caught.value)
    with pytest.raises(InputError, match="int64"):
        share(np.array([1], np.int64), threshold=2, parties=3, randomness=os.urandom)


def test_too_few_shares_are_refused():
    with pytest.raises(InputError, match="got 2 with thresholds"):
        recover(deal([1], 3, 4)[:2])
    with pytest.raises(InputError, match="got 0"):
        recover([])


def test_two_shares_of_one_point_are_refused():
    first, second, _ = deal([1], 2, 3)
    with pytest.raises(InputError, match=r"points \[1, 1\]"):
        recover([first, replace(second, point=1)])


def test_a_share_of_the_secret_itself_is_refused():
    first, second, _ = deal([1], 2, 3)
    with pytest.raises(InputError, match=r"points \[1, 0\]"):
        recover([first, replace(second, point=0)])


def test_shares_of_different_sharings_are_refused():
    one, other = deal([1], 2, 3), deal([1, 2], 2, 3)
    with pytest.raises(InputError, match="shapes"):
        recover([one[0], other[1]])
    with pytest.raises(InputError, match=r"thresholds \[2, 3\]"):
        recover([one[0], deal([1], 3, 3)[1]])


def test_values_outside_the_field_are_refused():
    first, second, _ = deal([1], 2, 3)
    with pytest.raises(InputError, match="point 2"):
        recover([first, replace(second, values=words([PRIME]))])


def test_numbers_that_are_no_byte_string_are_refused():
    for secret in ([0], [2**60], [0x80, 0]):
        with pytest.raises(InputError, match="no byte string"):
            recover_bytes(deal(secret, 2, 2))


def test_a_share_does_not_show_its_values():
    one = deal([1], 2, 2)[0]
    assert str(one.values[0]) not in repr(one)
    assert repr(one) == "ShamirShare(point=1, threshold=2)"
