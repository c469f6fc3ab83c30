"""Wrong numbers that users of other systems reported, asked of every protocol here.

The numbers are those of the reports; what is not right within the stated error must be refused.
"""

import math

import pytest
import torch

from support.mpc import ALICE, BOB, simulate
from tacit.errors import RangeError
from tacit.mpc import PROTOCOLS

ULP = 2.0**-16
pytestmark = pytest.mark.parametrize("protocol", PROTOCOLS)


def evaluate(program, *values, protocol, bound=8.0, frac_bits=16):
    """Run a program of secrets of alice and, from the second on, of bob; return what alice gets."""
    given = [torch.as_tensor(one, dtype=torch.float64) for one in values]
    owners = [ALICE, *[BOB] * (len(given) - 1)]

    def whole(ops):
        secrets = [
            ops.input(f"x{at}", owner=owner, shape=tuple(one.shape), bound=bound)
            for at, (owner, one) in enumerate(zip(owners, given, strict=True))
        ]
        return ops.open(program(ops, *secrets), to=(ALICE,), what="result", why="test")

    inputs: dict = {}
    for at, (owner, one) in enumerate(zip(owners, given, strict=True)):
        inputs.setdefault(owner, {})[f"x{at}"] = one
    return simulate(whole, protocol=protocol, inputs=inputs, frac_bits=frac_bits).values[ALICE]


def test_a_matrix_multiplied_by_itself_ten_times_is_right_or_does_not_fit(protocol):
    """MP-SPDZ#1747: -515,130,364.7 came out for -3,981.6."""
    matrix = torch.tensor([[-0.9462890625, -1.8623046875], [-1.5380859375, 0.68359375]]).double()

    def power(times):
        def program(ops, x):
            product = x
            for _ in range(times):
                product = ops.matmul(product, ops.transpose(x, 0, 1))
            return product

        return program

    for times in (2, 3):
        wanted = torch.linalg.multi_dot([matrix, *[matrix.T] * times])
        found = evaluate(power(times), matrix, protocol=protocol, bound=2.0)
        assert (found - wanted).abs().max() < 4**times * 8 * ULP
    with pytest.raises(RangeError):  # 2 · 4^10 is beyond what 64 bits hold with 16 of fraction
        evaluate(power(20), matrix, protocol=protocol, bound=2.0)


def test_a_product_of_many_numbers_is_right(protocol):
    """MP-SPDZ#1747, multiplication: errors of one factor must not grow with all others."""
    factors = [0.53515625, -0.5068359375, 1.080078125, 1.48046875, 0.876953125, 1.7783203125]

    def program(ops, x):
        product = ops.take(x, [0], dim=0)
        for at in range(1, len(factors)):
            product = ops.mul(product, ops.take(x, [at], dim=0))
        return product

    found = evaluate(program, factors, protocol=protocol, bound=2.0)
    assert abs(found.item() - math.prod(factors)) < 2**6 * 2 * ULP


def test_numbers_far_apart_are_sorted(protocol):
    """MP-SPDZ#1732 and #1747: -33,105.5 was the least of five numbers from -337.5 to 801.5."""
    numbers = torch.tensor([801.5085, -337.4791, -279.067, 351.338, 492.5254]).double()
    found = evaluate(lambda ops, x: ops.sort(x)[0], numbers, protocol=protocol, bound=1024.0)
    assert (found - numbers.sort(descending=True).values).abs().max() < 2 * ULP


def test_relu_and_sigmoid_hold_at_zero_and_far_from_it(protocol):
    """MP-SPDZ#1747: relu and sigmoid of ordinary numbers were off by thousands; #1724: of zero."""
    x = torch.tensor([-1000.0, -8.0, -ULP, 0.0, ULP, 0.75, 8.0, 1000.0]).double()
    relu = evaluate(lambda ops, x: ops.relu(x), x, protocol=protocol, bound=1024.0)
    assert (relu - x.relu()).abs().max() <= 2 * ULP
    sigmoid = evaluate(lambda ops, x: ops.sigmoid(x), x, protocol=protocol, bound=1024.0)
    assert (sigmoid - x.sigmoid()).abs().max() < 2**-9


def test_what_truncation_leaves_out_is_no_bias(protocol):
    """secretflow#1998: both parties rounded down, so every product was half a unit too small."""
    x = torch.linspace(-3, 3, 20_001, dtype=torch.float64)
    y = x.flip(0) * 0.9371 + 0.0113
    grid = [(one / ULP).round() * ULP for one in (x, y)]
    found = evaluate(lambda ops, a, b: ops.mul(a, b), *grid, protocol=protocol)
    off = (found - grid[0] * grid[1]) / ULP
    # A unit at most each; a mean of 20,001 of them is within 0.02 of its own with p > 1 - 2^-20.
    assert abs(off.mean().item()) < 0.02


def test_seven_digits_are_multiplied_to_the_stated_error(protocol):
    """spu#303: 0.6117647 · 0.7411765; spu#201: digits of decimal fractions were lost in a chain."""
    found = evaluate(
        lambda ops, a, b: ops.mul(a, b), [0.6117647], [0.7411765], protocol=protocol, frac_bits=20
    )
    assert abs(found.item() - 0.6117647 * 0.7411765) < 3 * 2.0**-20


def test_the_largest_of_ordinary_scores_is_found(protocol):
    """spu#155: argmax was always 0."""
    scores = torch.randn(20, 10, generator=torch.Generator().manual_seed(7)).double()
    found = evaluate(lambda ops, x: ops.argmax(x, dim=1), scores, protocol=protocol)
    assert torch.equal(found.long(), scores.argmax(1))


def test_a_variance_of_many_rows_is_not_zero(protocol):
    """spu#182: the variance of a long column was 0 each time, 6.67 in the clear."""
    column = torch.arange(30_000, dtype=torch.float64) % 10 - 4.5

    def program(ops, x):
        mean = ops.scale(ops.sum(x, dim=0), 1 / len(column))
        return ops.scale(ops.sum(ops.square(ops.sub(x, mean)), dim=0), 1 / len(column))

    found = evaluate(program, column, protocol=protocol)
    assert abs(found.item() - column.var(correction=0).item()) < 0.01


def test_a_whole_number_and_a_fraction_go_together(protocol):
    """SPDZ-2#78: (10.5 - 5) · 10.5 came out as 50.75; MP-SPDZ#1561: 9 > 8 counted as nothing."""
    found = evaluate(
        lambda ops, a, b: ops.mul(ops.sub(b, a), b), [5.0], [10.5], protocol=protocol, bound=16.0
    )
    assert abs(found.item() - 57.75) < 32 * ULP
    above = evaluate(
        lambda ops, x: ops.sign(ops.shift(x, -8.0)), [9.0], protocol=protocol, bound=16.0
    )
    assert above.item() == 1
