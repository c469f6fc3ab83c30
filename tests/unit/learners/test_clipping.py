"""No record moves the sum by more than the event says, whatever its row and its error are."""

import math

import pytest
import torch

from harness import ALICE, simulate
from tacit.learners.clipping import (
    LARGEST_ERROR,
    clip_errors,
    clip_factors,
    clipped_sum,
    sensitivity,
    shorten_rows,
)
from tacit.mpc import functions

FRAC_BITS = 16
UNIT = 2.0**-FRAC_BITS
CLASSES = 10


def grid(x):
    return (x * 2**FRAC_BITS).round() / 2**FRAC_BITS


def errors(count):
    """Draw errors of a softmax, errors of any size, and those around which clipping begins."""
    coins = torch.Generator().manual_seed(3)
    draw = torch.randn(4, count // 4, CLASSES, generator=coins, dtype=torch.float64)
    p, y = torch.softmax(6 * draw[0], dim=1), torch.eye(CLASSES)[torch.arange(count // 4) % CLASSES]
    sized = draw[1:] / draw[1:].norm(dim=-1, keepdim=True)
    any_size = sized[0] * 2.0 ** (torch.linspace(-14, 2, count // 4)[:, None])
    at_clip = sized[1] * (1 + torch.linspace(-60, 60, count // 4)[:, None] * UNIT)
    alone = torch.zeros_like(draw[3])
    alone[:, 0] = torch.linspace(-LARGEST_ERROR, LARGEST_ERROR, count // 4)
    all_ = torch.cat([p - y, any_size, at_clip, alone])
    largest = LARGEST_ERROR * torch.ones(1, CLASSES, dtype=torch.float64)
    return grid(torch.cat([all_, largest, -largest]).clamp(-LARGEST_ERROR, LARGEST_ERROR - UNIT))


def clipped(e, clip, protocol="sealed"):
    def program(ops):
        secret = ops.input("e", owner=ALICE, shape=tuple(e.shape), bound=LARGEST_ERROR)
        return ops.open(clip_errors(ops, secret, clip=clip), to=(ALICE,), what="c", why="test")

    return simulate(program, protocol=protocol, inputs={ALICE: {"e": e}}).values[ALICE]


def check_rows(e, clip, protocol="sealed"):
    norms = clipped(e, clip, protocol).norm(dim=1)
    assert norms.max() <= clip + math.sqrt(CLASSES) * UNIT


@pytest.mark.parametrize(
    ("clip", "protocol"), [(1.0, "sealed"), (0.3, "sealed"), (0.3, "permuted3")]
)
def test_no_clipped_row_is_longer_than_the_event_says(clip, protocol):
    e = errors(10_000)
    check_rows(e, clip, protocol)
    kept = clipped(e, clip, protocol)
    wanted = e * (clip / e.norm(dim=1, keepdim=True).clamp(min=clip))
    # From below, and no more than the margin of the inverse root.
    assert (kept - wanted).norm(dim=1).max() <= 0.006 * clip + 2.0**-10 * 7


def check_factors(e, clip):
    def program(ops):
        secret = ops.input("e", owner=ALICE, shape=tuple(e.shape), bound=LARGEST_ERROR)
        return ops.open(clip_factors(ops, secret, clip=clip), to=(ALICE,), what="f", why="test")

    factors = simulate(program, inputs={ALICE: {"e": e}}).values[ALICE]
    assert (factors * e.norm(dim=1)).max() <= clip
    assert factors.max() <= 1.0


def test_factors_are_never_above_and_without_the_margin_some_are(monkeypatch):
    e = errors(10_000)
    check_factors(e, 1.0)
    check_factors(e, 0.3)
    monkeypatch.setattr(functions, "rsqrt_below", functions.rsqrt)
    with pytest.raises(AssertionError):
        check_factors(e, 1.0)


def test_a_root_from_above_makes_a_row_too_long(monkeypatch):
    def above(ops, x):
        return ops.shift(functions.rsqrt(ops, x), 2.0**-12)

    monkeypatch.setattr(functions, "rsqrt_below", above)
    with pytest.raises(AssertionError):
        check_rows(errors(10_000), 1.0)


def test_without_clipping_a_row_is_too_long():
    assert errors(1000).norm(dim=1).max() > 1.0 + math.sqrt(CLASSES) * UNIT


@pytest.mark.parametrize("has_intercept", [True, False])
def test_rows_are_shortened_in_whole_numbers(has_intercept):
    coins = torch.Generator().manual_seed(4)
    sizes = 10.0 ** torch.linspace(-6, 9, 10_000, dtype=torch.float64)
    x = torch.randn(10_000, 12, generator=coins, dtype=torch.float64) * sizes[:, None]
    x[0] = 0.0
    words = shorten_rows(x, frac_bits=FRAC_BITS, has_intercept=has_intercept) * 2**FRAC_BITS
    assert torch.equal(words, words.round())
    assert int((words.long() ** 2).sum(dim=1).max()) <= 2 ** (2 * FRAC_BITS)
    long = x.norm(dim=1) > 1
    assert words[long].norm(dim=1).min() >= (1 - 12 * UNIT) * 2**FRAC_BITS


def test_one_record_moves_the_sum_by_no_more_than_the_event_says():
    """With each of 32 records left out in turn; rounding of the sum counted in."""
    coins = torch.Generator().manual_seed(5)
    rows = shorten_rows(
        torch.randn(32, 40, generator=coins, dtype=torch.float64),
        frac_bits=FRAC_BITS,
        has_intercept=True,
    )
    e = errors(10_000)[-32:]
    without = torch.ones(33, 32, 1, dtype=torch.float64)
    without[torch.arange(32), torch.arange(32)] = 0.0

    def program(ops):
        x = ops.input("x", owner=ALICE, shape=tuple(rows.shape), bound=1.0)
        secret = ops.input("e", owner=ALICE, shape=tuple(e.shape), bound=LARGEST_ERROR)
        kept = clip_errors(ops, secret, clip=1.0)
        sums = [clipped_sum(ops, x, ops.weigh(kept, without[at])) for at in range(33)]
        return [ops.open(one, to=(ALICE,), what="sum", why="test") for one in sums]

    *left_out, whole = simulate(program, inputs={ALICE: {"x": rows, "e": e}}).values[ALICE]
    stated = sensitivity(clip=1.0, columns=41, classes=CLASSES, frac_bits=FRAC_BITS)
    moved = [float((whole - one).norm()) for one in left_out]
    assert max(moved) <= stated
    assert max(moved) >= 0.98 * stated
