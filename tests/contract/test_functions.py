"""One suite of functions over the table of protocols: values, edges, costs, refusals."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.nn import functional

from support.mpc import ALICE, BOB, simulate
from tacit.errors import InputError, RangeError
from tacit.mpc import PROTOCOLS

ULP = 2.0**-16
BOUND = 64.0


def evaluate(private, *tensors, protocol="sealed", bound=BOUND, frac_bits=16):
    """Run a function of ops and secret tensors, and check that it cost what was declared."""

    def program(ops):
        secrets = [
            ops.input(f"x{at}", owner=ALICE, shape=tuple(x.shape), bound=bound)
            for at, x in enumerate(tensors)
        ]
        result = private(ops, *secrets)
        results = result if isinstance(result, tuple) else (result,)
        return [ops.open(one, to=(ALICE,), what="result", why="test") for one in results]

    inputs = {ALICE: {f"x{at}": x.double() for at, x in enumerate(tensors)}}
    run = simulate(program, protocol=protocol, inputs=inputs, frac_bits=frac_bits)
    assert run.metered == run.plan.cost
    values = run.values[ALICE]
    return values[0] if len(values) == 1 else values


def grid(*shape, seed=5, spread=8.0):
    """Draw numbers of the grid, so that rounding inputs is no part of an error."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=generator, dtype=torch.float64) * spread
    return (x.clamp(-BOUND, BOUND) / ULP).round() * ULP


def softplus(x):
    return functional.softplus(x, threshold=50)


PIECES = ((-2.0, 0.0, 1.5), ((1.0,), (0.5, -1.0), (0.25, 0.5, 0.25), (0.0, 1.0)))


def plain_pieces(x):
    middle = 0.25 + 0.5 * x + 0.25 * x**2
    low = torch.where(x < -2, torch.ones_like(x), 0.5 - x)
    return torch.where(x < 0, low, torch.where(x < 1.5, middle, x))


# name → (private, plain, shape, error allowed in units of the last place)
EXACT = {
    "sign": (lambda ops, x: ops.sign(x), torch.sign, (3, 4), 0),
    "clamp": (lambda ops, x: ops.clamp(x, -1.5, 2.25), lambda x: x.clamp(-1.5, 2.25), (3, 4), 1),
    "min": (lambda ops, x: ops.min(x, dim=0), lambda x: x.amin(0), (5, 4), 0),
    "max": (lambda ops, x: ops.max(x, dim=1), lambda x: x.amax(1), (5, 3), 0),
    "argmax": (lambda ops, x: ops.argmax(x, dim=-1), lambda x: x.argmax(-1).double(), (4, 7), 0),
    "one-hot argmax": (
        lambda ops, x: ops.argmax_one_hot(x, dim=1),
        lambda x: functional.one_hot(x.argmax(1), 5).movedim(-1, 1).double(),
        (2, 5, 3),
        0,
    ),
    "sort": (lambda ops, x: ops.sort(x)[0], lambda x: x.sort(-1, descending=True)[0], (3, 7), 0),
    "top": (lambda ops, x: ops.top(x, count=2)[0], lambda x: x.topk(2)[0], (3, 9), 0),
    "public numbers beside whole ones": (
        lambda ops, x: ops.concatenate(
            (
                ops.shift(ops.sign(x), 0.5),
                ops.shift(ops.argmax_one_hot(x, dim=1), 0.4),
                ops.shift(ops.indicate(x), -0.25),
                ops.shift(ops.equal(x, x), 2.5),
                ops.fill(ops.sign(x), torch.eye(4).bool(), 0.5),
                ops.clamp(ops.sign(x), 0.3, 0.3),
                ops.offset(ops.sign(x), torch.full((4,), 0.5)),
                ops.fill(ops.scale(ops.indicate(x), 4.0), torch.eye(4).bool(), 1.0),
            ),
            dim=0,
        ),
        lambda x: torch.cat(
            (
                x.sign() + 0.5,
                functional.one_hot(x.argmax(1), 4) + 0.4,
                (x >= 0).double() - 0.25,
                torch.full_like(x, 3.5),
                torch.where(torch.eye(4).bool(), x.sign(), 0.5),
                torch.full_like(x, 0.3),
                x.sign() + 0.5,
                torch.where(torch.eye(4).bool(), 4.0 * (x >= 0).double(), 1.0),
            )
        ),
        (4, 4),
        0.5,
    ),
    "max pool": (
        lambda ops, x: ops.max_pool2d(x, size=(3, 3), stride=(2, 2), padding=(1, 1)),
        lambda x: functional.max_pool2d(x, 3, 2, 1),
        (2, 2, 6, 5),
        0,
    ),
    "average pool": (
        lambda ops, x: ops.avg_pool2d(x, size=(2, 3), stride=(2, 1), padding=(0, 1)),
        lambda x: functional.avg_pool2d(x, (2, 3), (2, 1), (0, 1)),
        (2, 2, 4, 5),
        40,
    ),
    "piecewise": (lambda ops, x: ops.piecewise(x, *PIECES), plain_pieces, (4, 5), 60),
    "polynomial": (
        lambda ops, x: ops.polynomial(ops.scale(x, 1 / 64), (1.0, -0.5, 0.0, 2.0)),
        lambda x: 1 - 0.5 * (x / 64) + 2 * (x / 64) ** 3,
        (4, 5),
        20,
    ),
    "joining and picking": (
        lambda ops, x: ops.take(ops.concatenate((x, ops.scale(x, 2)), dim=1), (5, 0, 0), dim=1),
        lambda x: torch.cat((x, 2 * x), 1)[:, [5, 0, 0]],
        (2, 3),
        0,
    ),
    "public factors": (
        lambda ops, x: ops.weigh(x, torch.linspace(-1, 1, 4)),
        lambda x: x * torch.linspace(-1, 1, 4),
        (3, 4),
        70,
    ),
    "public matrix": (
        lambda ops, x: ops.project(x, torch.linspace(-1, 1, 12).view(4, 3)),
        lambda x: x @ torch.linspace(-1, 1, 12).double().view(4, 3),
        (3, 4),
        280,
    ),
    "public matrix of whole numbers": (
        lambda ops, x: ops.project(x, torch.arange(8.0).view(4, 2) - 3),
        lambda x: x @ (torch.arange(8.0).double().view(4, 2) - 3),
        (2, 3, 4),
        0,
    ),
    "public offsets": (
        lambda ops, x: ops.offset(x, torch.linspace(-1, 1, 4)),
        lambda x: x + torch.linspace(-1, 1, 4),
        (3, 4),
        1,
    ),
}

APPROXIMATE = {
    # name → (private, plain, shape, largest error)
    "softplus": (lambda ops, x: ops.softplus(x), softplus, (40,), 7e-4),
    "group norm": (
        lambda ops, x: ops.group_norm(x, groups=2),
        lambda x: functional.group_norm(x, 2),
        (2, 4, 3),
        6e-3,
    ),
    "masked softmax": (
        lambda ops, x: ops.softmax(ops.hide(x, torch.ones(4, 4).tril().bool())),
        lambda x: x.masked_fill(~torch.ones(4, 4).tril().bool(), -torch.inf).softmax(-1),
        (4, 4),
        2e-3,
    ),
    "cross-entropy": (
        lambda ops, x: ops.cross_entropy(x, ops.argmax_one_hot(ops.scale(x, -1), dim=-1)),
        lambda x: functional.cross_entropy(x, x.argmin(-1)),
        (4, 5),
        8e-3,
    ),
    "binary cross-entropy": (
        lambda ops, x: ops.binary_cross_entropy(x, ops.equal(x, x)),
        lambda x: functional.binary_cross_entropy_with_logits(x, torch.ones_like(x)),
        (4, 5),
        1e-3,
    ),
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("name", EXACT)
def test_a_function_is_exact_up_to_rounding(protocol, name):
    private, plain, shape, units = EXACT[name]
    x = grid(*shape)
    got = evaluate(private, x, protocol=protocol)
    assert (got - plain(x)).abs().max() <= units * ULP


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("name", APPROXIMATE)
def test_a_function_is_within_its_stated_error(protocol, name):
    private, plain, shape, allowed = APPROXIMATE[name]
    x = grid(*shape)
    got = evaluate(private, x, protocol=protocol)
    assert (got - plain(x)).abs().max() < allowed


edges = st.sampled_from([0.0, -0.0, ULP, -ULP, BOUND, -BOUND, 1.0, 1.0 + ULP, 1e-9])
rows = st.lists(edges, min_size=6, max_size=6).map(lambda v: torch.tensor(v, dtype=torch.float64))


def everything(ops, x):
    """Run what must be exact at edges and ties, in one program."""
    row = ops.reshape(x, (1, 6))
    ordered, carried = ops.sort(row, payload=(row,))
    return (
        ops.sign(x),
        ops.equal(x, ops.scale(x, -1)),
        ops.clamp(x, -1.0, 1.0),
        ops.argmax_one_hot(x, dim=0),
        ordered,
        carried,
        ops.min(x, dim=0),
    )


@pytest.mark.parametrize("protocol", PROTOCOLS)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(x=rows)
def test_edges_and_ties_are_exact(protocol, x):
    word = (x / ULP).round() * ULP
    sign, equal, clamp, hot, ordered, carried, least = evaluate(everything, x, protocol=protocol)
    best = (word == word.max()).nonzero()[:, 0].tolist()
    assert torch.equal(sign, torch.sign(word))
    assert torch.equal(equal, (word == -word).double())
    assert (clamp - word.clamp(-1, 1)).abs().max() <= ULP
    assert hot.sort().values.tolist() == [0, 0, 0, 0, 0, 1]
    assert int(hot.argmax()) in (best[:1] if protocol == "sealed" else best)
    assert torch.equal(ordered[0], word.sort(descending=True)[0])
    assert torch.equal(carried, ordered)
    assert least == word.min()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_payload_goes_where_its_key_goes(protocol):
    keys, values = grid(2, 6), grid(2, 6, seed=8)
    top, carried = evaluate(
        lambda ops, k, v: ops.top(k, count=3, payload=(v,)), keys, values, protocol=protocol
    )
    best = keys.topk(3)
    assert torch.equal(top, best.values)
    assert torch.equal(carried, values.gather(1, best.indices))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_embedding_reads_the_rows_that_secret_ids_name_and_the_nearest_beyond(protocol):
    table, ids = grid(5, 3), torch.tensor([[0.0, 4.0], [2.0, 9.0]])
    got = evaluate(lambda ops, t, i: ops.embedding(t, i), table, ids, protocol=protocol)
    assert (got - table[ids.long().clamp(max=4)]).abs().max() <= 2 * ULP


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_series_is_convolved_as_torch_does(protocol):
    x, weight = grid(2, 3, 9, spread=1.0), grid(4, 3, 3, spread=1.0, seed=6)
    got = evaluate(
        lambda ops, x, w: ops.conv1d(x, w, stride=2, padding=1), x, weight, protocol=protocol
    )
    assert (got - functional.conv1d(x, weight, stride=2, padding=1)).abs().max() < 30 * ULP


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_dropout_keeps_what_it_does_not_drop_and_scales_it(protocol):
    x = torch.full((4000,), 2.0)
    got = evaluate(lambda ops, x: ops.dropout(x, 0.25), x, protocol=protocol)
    kept = got != 0
    assert (got[kept] - 2 / 0.75).abs().max() < 4 * ULP
    # Binomial(4000, 0.75): 7 standard deviations, false alarm below 1e-11.
    assert abs(kept.double().mean() - 0.75) < 7 * (0.25 * 0.75 / 4000) ** 0.5


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    ("private", "words"),
    [
        (lambda ops, x: ops.piecewise(x, (1.0, 0.0), ((0.0,), (1.0,), (2.0,))), "increase"),
        (lambda ops, x: ops.piecewise(x, (), ((0.0,),)), "breakpoint"),
        (lambda ops, x: ops.clamp(x, 2.0, 1.0), "empty range"),
        (lambda ops, x: ops.top(x, count=9), "largest 9 of 4"),
        (lambda ops, x: ops.sort(x, payload=(ops.sum(x, dim=0),))[0], "payload"),
        (lambda ops, x: ops.take(x, (7,), dim=0), "no position 7"),
        (lambda ops, x: ops.concatenate((x, ops.sum(x, dim=0)), dim=0), "cannot join"),
        (lambda ops, x: ops.cross_entropy(x, ops.sum(x, dim=0)), "one-hot"),
        (lambda ops, x: ops.dropout(x, 1.0), "below 1"),
        (lambda ops, x: ops.max_pool2d(x, size=(2, 2), stride=(2, 2), padding=(0, 0)), "images"),
        (lambda ops, x: ops.weigh(x, torch.tensor([float("nan")])), "NaN"),
        (lambda ops, x: ops.project(x, torch.ones(4)), "public matrix"),
        (lambda ops, x: ops.project(x, torch.ones(3, 4)), "cannot multiply"),
        (lambda ops, x: ops.polynomial(x, ()), "coefficient"),
        (lambda ops, x: ops.one_hot(x, classes=1), "two classes"),
        (lambda ops, x: ops.group_norm(x, groups=3), "equal groups"),
        (lambda ops, x: ops.conv1d(x, x, stride=1, padding=0), "cannot convolve"),
    ],
)
def test_what_makes_no_sense_is_refused_when_planned(protocol, private, words):
    with pytest.raises(InputError, match=words):
        evaluate(private, grid(3, 4), protocol=protocol)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    "private",
    [
        lambda ops, x: ops.polynomial(x, (0.0,) * 9 + (1.0,)),
        lambda ops, x: ops.piecewise(x, (0.0,), ((0.0,) * 11 + (1.0,), (1.0,))),
        lambda ops, x: ops.weigh(x, torch.full((4,), 2.0**50)),
        lambda ops, x: ops.project(x, torch.full((4, 2), 2.0**50)),
    ],
)
def test_what_could_overflow_is_refused_when_planned(protocol, private):
    with pytest.raises(RangeError, match="fraction bits"):
        evaluate(private, grid(3, 4), protocol=protocol)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_product_with_a_public_matrix_sends_nothing(protocol):
    def cost(private):
        def program(ops):
            x = ops.input("x", owner=ALICE, shape=(3, 4), bound=BOUND)
            return ops.open(private(ops, x), to=(ALICE,), what="result", why="test")

        return simulate(program, protocol=protocol, inputs={ALICE: {"x": grid(3, 4)}}).metered

    whole, fine = torch.eye(4).flip(0) * 3, torch.linspace(-1, 1, 16).view(4, 4)
    assert cost(lambda ops, x: ops.project(x, whole)) == cost(lambda ops, x: x)
    # Numbers with fractions are rounded once, as after any public factor.
    rounded = cost(lambda ops, x: ops.weigh(x, fine[0]))
    assert cost(lambda ops, x: ops.project(x, fine)) == rounded


def test_a_curve_that_the_word_cannot_hold_precisely_is_refused():
    with pytest.raises(RangeError, match="degree 3"):
        evaluate(lambda ops, x: ops.piecewise(x, (0.0,), ((0.0,), (0.0, 0.0, 0.0, 0.1))), grid(3))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_dropped_secret_of_two_owners_is_the_same_mask_at_both(protocol):
    def program(ops):
        x = ops.input("x", owner=ALICE, shape=(64,), bound=2.0)
        y = ops.input("y", owner=BOB, shape=(64,), bound=2.0)
        return ops.open(ops.dropout(ops.add(x, y), 0.5), to=(ALICE,), what="z", why="test")

    ones = torch.ones(64, dtype=torch.float64)
    run = simulate(program, protocol=protocol, inputs={ALICE: {"x": ones}, BOB: {"y": ones}})
    assert set(run.values[ALICE].tolist()) == {0.0, 4.0}


@pytest.mark.parametrize("bound", [1.0, 4.0, 16.0, 64.0])
def test_a_sigmoid_is_right_at_zero_and_off_on_average_near_it_by_what_is_said(bound):
    x = torch.arange(-0.5, 0.5, 2.0**-10, dtype=torch.float64)
    off = evaluate(lambda ops, x: ops.sigmoid(x), x, bound=bound) - torch.sigmoid(x)
    assert off[x == 0].item() == 0
    assert off.abs().max() < 5.8e-4
    assert off.mean().abs() < 2.3e-4
