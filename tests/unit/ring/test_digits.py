"""The digit kernels that CUDA runs, here on the CPU against Python integers and torch's int64."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tacit.ring import Prg
from tacit.ring.digits import (
    digits_needed,
    multiply_float,
    multiply_int8,
    multiply_int8_stacked,
    split_float,
    split_int8,
)
from tacit.ring.product import Kernel, choose, multiply_with, prepare

KEY = bytes(range(16))
WORD = st.integers(-(2**63), 2**63 - 1)
ON_CPU: tuple[Kernel, ...] = ("int8", "stacked", "float64")


def wrap(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


@given(WORD)
def test_int8_digits_add_up_to_the_word(word):
    digits = split_int8(torch.tensor([[word]]), 8)[0, :, 0].tolist()
    assert wrap(sum(digit * 256**i for i, digit in enumerate(digits))) == word


@given(WORD)
def test_float_digits_add_up_to_the_word_and_are_balanced(word):
    digits = [int(digit) for digit in split_float(torch.tensor([[word]]))[0, :, 0]]
    assert wrap(sum(digit << (22 * i) for i, digit in enumerate(digits))) == word
    assert all(abs(digit) <= 2**21 for digit in digits)


@pytest.mark.parametrize("count", range(1, 8))
def test_digits_needed_is_the_fewest_that_hold_the_bound(count):
    largest = sum(127 * 256**i for i in range(count))
    assert digits_needed(largest) == count
    assert digits_needed(largest + 1) == count + 1
    for word in (largest, -largest):
        digits = split_int8(torch.tensor([[word]]), count)[0, :, 0].tolist()
        assert sum(digit * 256**i for i, digit in enumerate(digits)) == word


def test_the_smallest_word_needs_all_digits():
    assert digits_needed(2**63) == 8


@given(
    st.binary(min_size=16, max_size=16), st.integers(1, 6), st.integers(1, 40), st.integers(1, 6)
)
def test_every_kernel_multiplies_as_python_integers_do(key, m, k, n):
    prg = Prg(key)
    left, right = prg.words((m, k)), prg.words((k, n))
    columns = list(zip(*right.tolist(), strict=True))
    expected = [
        [wrap(sum(a * b for a, b in zip(row, column, strict=True))) for column in columns]
        for row in left.tolist()
    ]
    for kernel in ON_CPU:
        assert multiply_with(kernel, left, right).tolist() == expected


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_few_digits_are_enough_for_small_entries(count):
    prg = Prg(KEY)
    left = prg.words((3, 50))
    right = prg.below(2 * 100 * 256 ** (count - 1), (50, 7)) - 100 * 256 ** (count - 1)
    planes = split_int8(right.t(), count).flip(1)
    digits = split_int8(left, 8)
    for multiply in (multiply_int8, multiply_int8_stacked):
        assert torch.equal(multiply(digits, planes), left @ right)


@pytest.mark.parametrize("word", [-0x7F7F7F7F7F7F7F80, 0x7F7F7F7F7F7F7F7F])
@pytest.mark.parametrize("k", [16_368, 16_400, 131_080])
def test_sums_of_extreme_int8_digits_do_not_overflow(word, k):
    # Every digit of the first word is −128: the sums of products are the largest there are.
    left, right = torch.full((1, k), word), torch.full((k, 1), word)
    expected = [[wrap(word * word * k)]]
    for kernel in ("int8", "stacked"):
        assert multiply_with(kernel, left, right).tolist() == expected


@pytest.mark.parametrize("k", [1024, 1025, 2048])
def test_sums_of_extreme_float_digits_stay_exact(k):
    # The two low digits are −2^21, so the middle diagonal of 1024 terms comes to 2^53, the last
    # exact double; one product of odd digits makes a longer sum one that a double would round.
    word = -(2**21) - 2**43
    left, right = torch.full((1, k), word), torch.full((k, 1), word)
    left[0, 0] += 1
    right[0, 0] += 2**22
    expected = wrap(word * word * (k - 1) + (word + 1) * (word + 2**22))
    assert multiply_float(left, right).tolist() == [[expected]]


def test_the_float_kernel_broadcasts_batches():
    prg = Prg(KEY)
    left, right = prg.words((2, 1, 3, 1500)), prg.words((4, 1500, 2))
    assert torch.equal(multiply_float(left, right), torch.matmul(left, right))


def test_kernels_take_transposed_operands_and_factors():
    prg = Prg(KEY)
    left, right = prg.words((33, 5)).t(), prg.words((7, 33)).t()
    for kernel in ON_CPU:
        assert torch.equal(multiply_with(kernel, left, right), left @ right)
    for kernel in ("int8", "stacked"):
        assert torch.equal(multiply_with(kernel, left, prepare(right)), left @ right)


def test_large_products_go_to_the_tensor_cores():
    assert choose(4096, 4096, 4096, is_prepared=False) == "int8"
    assert choose(4, 4, 4, is_prepared=False) == "float64"
    assert choose(4096, 4096, 4096, is_prepared=True) == "int8"
    assert choose(1, 4096, 4096, is_prepared=True) in ("fused", "stacked")
