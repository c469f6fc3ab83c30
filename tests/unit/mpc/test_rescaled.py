"""Products and functions that rescale as they open, and softmax and norms made of them."""

import pytest
import torch

from support.mpc import ALICE, BOB, CAROL, ROLES, simulate
from tacit.errors import InputError
from tacit.mpc import PROTOCOLS, make_plan
from tacit.mpc.functions.attention import saturated
from tacit.mpc.functions.norms import RangeWatch, RowProduct

ULP = 2.0**-16
GENERATOR = torch.Generator().manual_seed(5)


def draw(*shape, size=1.0):
    numbers = size * (2 * torch.rand(shape, generator=GENERATOR, dtype=torch.float64) - 1)
    return (numbers / ULP).round() * ULP


def asked(program, x, y, *, bound=8.0):
    """Run a program on inputs of both parties; return what it opens, and its plan's rounds."""

    def whole(ops):
        left = ops.input("x", owner=ALICE, shape=tuple(x.shape), bound=bound)
        right = ops.input("y", owner=BOB, shape=tuple(y.shape), bound=bound)
        return ops.open(program(ops, left, right), to=(ALICE,), what="z", why="test")

    run = simulate(whole, inputs={ALICE: {"x": x}, BOB: {"y": y}})
    assert run.metered == run.plan.cost
    return run.values[ALICE], run.plan.cost.online_rounds


@pytest.mark.parametrize("edge", [8.0, 8.0 - 2.0**-16, 2.0**-16, 0.0])
def test_operands_are_rescaled_in_the_round_that_opens_them(edge):
    x, y = draw(40, 6, size=8.0), draw(40, 6, size=8.0)
    x[0], y[0], x[1] = edge, -edge, -edge
    got, rounds = asked(lambda ops, a, b: ops.mul_rescaling(ops.mul(a, b), ops.mul(b, b)), x, y)
    assert rounds == 4  # a and b, their products, truncation, opening
    assert (got - (x * y) * (y * y)).abs().max() < (64 + 64) * 2 * ULP


def test_a_row_is_squared_and_scaled_by_one_opening():
    x, y = draw(5, 64, size=8.0), draw(5, 1, size=8.0)

    def program(ops, a, b):
        product = ops.mul(a, b)
        squares = ops.sum(ops.mul_rescaling(product, product), dim=-1, bound=2.0**18)
        return ops.mul_rescaling(product, ops.reshape(squares, (5, 1)), bound=2.0**24)

    got, _ = asked(program, x, y)
    product = x * y
    wanted = product * product.square().sum(-1, keepdim=True)
    assert (got - wanted).abs().max() < 2.0**-16 * 2 * (2.0**18 + 64 * 64 * 64 * 2)


def test_a_cut_product_is_right_in_the_ring_that_is_left_and_truncated_into_words():
    x, y = draw(3, 32, size=4.0), draw(3, 32, size=4.0)

    def program(ops, a, b):
        rows = ops.mul(a, b)
        columns = ops.transpose(ops.mul(b, b), 0, 1)
        cut = ops.matmul_within(rows, columns, bound=2.0**12)
        assert ops.spec(cut).ring_bits == 48
        return ops.add(cut, cut)

    got, rounds = asked(program, x, y)
    assert (got - 2 * (x * y) @ (y * y).T).abs().max() < 32 * 64 * 8 * ULP
    assert rounds == 4


def test_what_is_cut_is_read_by_few_kernels_and_refused_by_others():
    def program(ops):
        x = ops.input("x", owner=ALICE, shape=(2, 2), bound=8.0)
        y = ops.input("y", owner=BOB, shape=(2, 2), bound=8.0)
        cut = ops.matmul_within(ops.mul(x, y), ops.mul(y, y), bound=64.0)
        return ops.cumsum(cut, dim=0)

    with pytest.raises(InputError, match="truncate it first"):
        make_plan(program, PROTOCOLS["sealed"], ROLES, frac_bits=16)


@pytest.mark.parametrize("name", ["gelu", "silu", "sigmoid", "reciprocal"])
def test_a_function_rescales_its_argument_and_compares_without_a_tree(name):
    x, y = draw(300, size=6.0), torch.ones(300, dtype=torch.float64)
    x[:4] = torch.tensor([8.0, -8.0, 0.0, 2.0**-15])
    if name == "reciprocal":
        x = x.abs() + 0.1
    got, rounds = asked(
        lambda ops, a, b: ops.elementwise_rescaling(name, ops.mul(a, b)), x, y, bound=8.5
    )
    plain = {
        "gelu": torch.nn.functional.gelu,
        "silu": torch.nn.functional.silu,
        "sigmoid": torch.sigmoid,
        "reciprocal": torch.reciprocal,
    }[name]
    assert ((got - plain(x)).abs() / plain(x).abs().clamp(min=1)).max() < 1.2e-3
    assert rounds == (6 if name == "reciprocal" else 5)


@pytest.mark.parametrize("value_bits", [51, 54, 60])
def test_exp_on_a_grid_is_near_and_needs_no_tree(value_bits):
    x, y = -draw(300, size=7.0).abs() - 1.0, torch.full((300,), 2.0).double()
    x[:3] = torch.tensor([0.0, -(2.0**-12), -8.0])

    def program(ops, a, b):
        below = ops.truncated(ops.mul(a, b), frac_bits=12)
        return ops.apply(ops.make("decay", 12, ops.bound(below), value_bits), below)

    got, rounds = asked(program, x, y)
    assert (got - (2 * x).exp()).abs().max() < 2.0**-12 + 6e-5
    assert rounds == 6  # a and b, truncation, two of exp, truncation, opening


def test_numbers_saturate_and_are_whole_within():
    x, y = torch.arange(-8, 8, 2.0**-4, dtype=torch.float64), torch.full((256,), 8.0).double()
    got, rounds = asked(lambda ops, a, b: saturated(ops, ops.mul(a, b)), x, y)
    product = x * y
    inside = product.abs() < 40
    assert (got - product)[inside].abs().max() < 2 * ULP
    assert (got.abs() <= 56).all()
    assert (got[product > 48] == 48).all()
    assert rounds == 4


@pytest.mark.parametrize("is_watched", [False, True])
@pytest.mark.parametrize("length", [1, 5, 70])
def test_attention_is_a_softmax_over_what_is_seen(length, is_watched):
    # Scores that nobody watches may be of any size; those that are watched reach 33 here.
    size = 3.0 if is_watched else 8.0
    x, y = draw(6, 8, size=size), draw(length, 8, size=size)
    seen = torch.ones(6, length, dtype=torch.bool)
    seen[0, 1:] = False

    def program(ops, a, b):
        scores = ops.matmul_within(a, ops.transpose(b, 0, 1), bound=512.0)
        return ops.attention(scores, seen, watch=RangeWatch() if is_watched else None)

    got, _ = asked(program, x, y)
    wanted = (x @ y.T).masked_fill(~seen, -1e9).softmax(-1)
    assert (got - wanted).abs().max() < 2e-3


@pytest.mark.parametrize("length", [1, 5, 70])
def test_values_are_mixed_before_they_are_divided(length):
    x, y = draw(6, 8, size=3.0), draw(length, 8, size=3.0)
    seen = torch.ones(6, length, dtype=torch.bool)
    seen[0, 1:] = False

    def mixed(ops, a, b, verb):
        scores = ops.matmul_within(a, ops.transpose(b, 0, 1), bound=512.0)
        return verb(scores, ops.scale(b, 1.0))

    def before(ops, a, b):
        return mixed(
            ops,
            a,
            b,
            lambda scores, values: ops.attention_mixed(
                scores, seen, lambda: values, frac_bits=(14, 17), watch=RangeWatch()
            ),
        )

    def after(ops, a, b):
        return mixed(
            ops,
            a,
            b,
            lambda scores, values: ops.mix(ops.attention(scores, seen, watch=RangeWatch()), values),
        )

    wanted = (x @ y.T).masked_fill(~seen, -1e9).softmax(-1) @ y
    (got, rounds), (_, usual) = asked(before, x, y), asked(after, x, y)
    assert (got - wanted).abs().max() < 6e-3
    assert rounds == usual


@pytest.mark.parametrize("eps", [1e-5, 1e-2, 64.0])
@pytest.mark.parametrize("size", [1e-4, 1e-2, 1.0])
def test_rows_that_are_short_beside_eps_do_not_wrap_around(size, eps):
    x, y = draw(4, 24, size=8.0), torch.full((4, 1), size).double()
    y = (y / ULP).round() * ULP
    largest = float((x * y).square().mean(-1).max())

    def program(ops, a, b):
        return ops.norm_within(ops.mul(a, b), eps=eps, largest_mean=largest, centred=False)

    got, _ = asked(program, x, y)
    rows = x * y
    wanted = rows / (rows.square().mean(-1, keepdim=True) + eps).sqrt()
    assert (got - wanted).abs().max() < 2e-3


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("largest", [2.0**4, 2.0**16])
def test_rows_of_very_different_lengths_are_normalised(centred, largest):
    # No shorter than 2^-24 of the largest mean square, and a width that is no power of two.
    x = draw(4, 24, size=1.0) * torch.tensor([0.05, 0.3, 1.0, 2.0]).double()[:, None]
    y = torch.full((4, 1), 0.25 * largest**0.5 / 4).double()

    def program(ops, a, b):
        return ops.norm_within(ops.mul(a, b), eps=1e-5, largest_mean=largest, centred=centred)

    got, rounds = asked(program, x, y, bound=16.0)
    rows = x * y
    rows = rows - rows.mean(-1, keepdim=True) if centred else rows
    wanted = rows / (rows.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    assert (got - wanted).abs().max() < 1e-2
    assert rounds == 8


def test_what_is_posted_shares_the_round_of_what_is_sent_next():
    x, y = draw(40, 6, size=8.0), draw(40, 6, size=8.0)

    def program(ops, a, b):
        product, square = ops.mul(a, b), ops.mul(b, b)
        wait = ops.post(product, is_exact=True)
        other = ops.rescaled(square)
        wait()
        return ops.mul_whole(ops.rescaled(product), other)

    got, rounds = asked(program, x, y)
    assert rounds == 5  # a and b, both products, both again, truncation, opening
    assert (got - (x * y) * (y * y)).abs().max() < (64 + 64) * 2 * ULP


def test_what_is_posted_and_waited_for_at_once_is_a_round_of_its_own():
    x, y = draw(3, 5, size=8.0), draw(3, 5, size=8.0)

    def program(ops, a, b):
        ops.post(a, b)()
        return ops.mul(a, b)

    got, rounds = asked(program, x, y)
    assert rounds == 3
    assert (got - x * y).abs().max() < 2 * ULP


@pytest.mark.parametrize("to", [(BOB,), (CAROL,)])
def test_what_is_sent_one_way_does_not_wait_for_what_was_posted(to):
    x, y = draw(6, size=8.0), draw(6, size=8.0)

    def program(ops, a, b):
        wait = ops.begin_rescaling("sigmoid", ops.scale(ops.mul(a, b), 0.125))
        ops.open(a, to=to, what="a", why="test")
        square = ops.mul(b, ops.scale(b, 1.0))
        return ops.add(wait(), square)

    got, _ = asked(program, x, y)  # what is declared is what is metered
    assert (got - torch.sigmoid(x * y / 8) - y * y).abs().max() < 2e-3


@pytest.mark.parametrize("edge", [8.0, 8.0 - 2.0**-16, 2.0**-16, 0.0])
def test_an_opening_truncates_what_it_opens(edge):
    x, y = draw(30, size=8.0), draw(30, size=8.0)
    x[0], y[0], x[1] = edge, -edge, -edge
    got, rounds = asked(lambda ops, a, b: ops.rescaled(ops.mul(a, b)), x, y)
    assert rounds == 3
    assert (got - x * y).abs().max() < 1.5 * ULP


def test_shares_are_taken_of_openings_whose_mask_nobody_knows():
    def program(ops):
        x = ops.input("x", owner=ALICE, shape=(2,), bound=8.0)
        (opening,) = ops.opened(x)
        return ops.apply(ops.make("from_opening"), opening)

    with pytest.raises(InputError, match="a mask that nobody knows"):
        make_plan(program, PROTOCOLS["sealed"], ROLES, frac_bits=16)


@pytest.mark.parametrize("turns", [False, True])
@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("largest", [2.0**4, 2.0**16])
def test_a_product_behind_a_norm_is_that_of_normalised_rows(centred, largest, turns):
    x = draw(4, 24, size=1.0) * torch.tensor([0.05, 0.3, 1.0, 2.0]).double()[:, None]
    size, matrix = 0.25 * largest**0.5 / 4, draw(24, 10)
    normals = []

    def program(ops, a, b):
        ops.cache_openings(b)
        facts = {"eps": 1e-5, "largest_mean": largest, "centred": centred}

        def parts(joined):
            cuts = (range(4), range(4, 10))
            return [RowProduct(ops.take(joined, cut, dim=1), 32.0, len(cut) // 3) for cut in cuts]

        row = ops.scale(a, size)
        outs, normal = ops.product_behind_norm(
            row, b, bound=32.0, parts=parts, turns=turns, **facts
        )
        normals.append(ops.shape(normal()))
        return ops.concatenate(outs, dim=1)

    got, rounds = asked(program, x, matrix, bound=16.0)
    rows = x * size
    rows = rows - rows.mean(-1, keepdim=True) if centred else rows
    wanted = rows / (rows.square().mean(-1, keepdim=True) + 1e-5).sqrt() @ matrix
    assert (got - wanted).abs().max() < 2e-2
    assert rounds == 7  # a row, its length, two of the root, the product; truncation, opening
