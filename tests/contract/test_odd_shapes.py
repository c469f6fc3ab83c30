"""Values without elements, without dimensions and with one element: right, or refused by name."""

import pytest
import torch
from torch.nn import functional

from support.mpc import ALICE, BOB, CAROL, simulate
from tacit.errors import InputError
from tacit.mpc import PROTOCOLS, Roles, find_protocol, make_plan

ROLES = Roles(ALICE, BOB, CAROL)
X = -0.75
OFF = 1e-3


def ones(ops, x):
    return torch.ones(ops.shape(x), dtype=torch.bool)


# name → (on ops, in torch): of every number alone
EACH = {
    "abs": (lambda ops, x: ops.abs(x), torch.abs),
    "clamp": (lambda ops, x: ops.clamp(x, -0.5, 2.0), lambda x: x.clamp(-0.5, 2.0)),
    "clamp to one number": (lambda ops, x: ops.clamp(x, 1.5, 1.5), lambda x: x * 0 + 1.5),
    "erf": (lambda ops, x: ops.erf(x), torch.erf),
    "exp": (lambda ops, x: ops.exp(x), torch.exp),
    "fill": (lambda ops, x: ops.fill(x, ~ones(ops, x), 0.5), lambda x: x * 0 + 0.5),
    "gelu": (lambda ops, x: ops.gelu(x), functional.gelu),
    "joined": (lambda ops, x: ops.matmul(*[ops.reshape(x, (-1, 1))] * 2), torch.square),
    "log": (lambda ops, x: ops.log(ops.scale(x, -1.0)), lambda x: (-x).log()),
    "offset": (lambda ops, x: ops.offset(x, ones(ops, x) * 0.5), lambda x: x + 0.5),
    "piecewise": (
        lambda ops, x: ops.piecewise(x, (0.0,), ((2.0,), (0.0, 1.0))),
        lambda x: 0 * x + 2,
    ),
    "polynomial": (
        lambda ops, x: ops.polynomial(x, (1.0, 0.5, 0.25)),
        lambda x: 1 + x / 2 + x * x / 4,
    ),
    "relu": (lambda ops, x: ops.relu(x), torch.relu),
    "rsqrt": (lambda ops, x: ops.rsqrt(ops.square(x)), lambda x: 1 / x.abs()),
    "sign": (lambda ops, x: ops.sign(x), torch.sign),
    "sigmoid": (lambda ops, x: ops.sigmoid(x), torch.sigmoid),
    "square": (lambda ops, x: ops.square(x), torch.square),
    "weigh": (lambda ops, x: ops.weigh(x, ones(ops, x) * 0.5), lambda x: x / 2),
}
# name → on ops, along a dimension
ALONG = {
    "argmax": lambda ops, x, dim: ops.argmax(x, dim=dim),
    "argmax_one_hot": lambda ops, x, dim: ops.argmax_one_hot(x, dim=dim),
    "cumsum": lambda ops, x, dim: ops.cumsum(x, dim=dim),
    "halves": lambda ops, x, dim: ops.halves(x, dim=dim)[0],
    "log_softmax": lambda ops, x, dim: ops.log_softmax(x, dim=dim),
    "max": lambda ops, x, dim: ops.max(x, dim=dim),
    "min": lambda ops, x, dim: ops.min(x, dim=dim),
    "softmax": lambda ops, x, dim: ops.softmax(x, dim=dim),
    "sum": lambda ops, x, dim: ops.sum(x, dim=dim),
    "total": lambda ops, x, dim: ops.total(x, dim=dim),
}
# name → on ops, of rows
ROWS = {
    "attention": lambda ops, x: ops.attention(x, ones(ops, x)),
    "cross_entropy": lambda ops, x: ops.cross_entropy(x, x),
    "layer_norm": lambda ops, x: ops.layer_norm(x, eps=1e-5),
    "norm_rows": lambda ops, x: ops.norm_rows(x, eps=1e-5, length=9.0, centred=True),
    "part": lambda ops, x: ops.part(x, 0),
    "rms_norm": lambda ops, x: ops.rms_norm(x, eps=1e-5),
    "sort": lambda ops, x: ops.sort(x)[0],
    "top": lambda ops, x: ops.top(x, count=1)[0],
}


def planned(protocol, private, shape):
    """Plan a function of a value of a shape."""

    def program(ops):
        x = ops.input("x", owner=ALICE, shape=shape, bound=8.0)
        ops.open(private(ops, x), to=(ALICE,), what="f(x)", why="test")

    return make_plan(program, find_protocol(protocol), ROLES, frac_bits=16)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1, 1)])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_functions_of_one_number_are_right_whatever_its_dimensions(protocol, shape):
    x = torch.full(shape, X, dtype=torch.float64)

    def program(ops):
        secret = ops.input("x", owner=ALICE, shape=shape, bound=8.0)
        found = [private(ops, secret) for private, _ in EACH.values()]
        return [ops.open(one, to=(ALICE,), what="f(x)", why="test") for one in found]

    run = simulate(program, protocol=protocol, inputs={ALICE: {"x": x}})
    assert run.metered == run.plan.cost
    for (name, (_, plain)), got in zip(EACH.items(), run.values[ALICE], strict=True):
        assert got.numel() == 1, name
        assert (got.reshape(shape) - plain(x)).abs() < OFF, name


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3)])
def test_a_value_without_elements_is_refused_by_name(protocol, shape):
    with pytest.raises(InputError, match=r"'x' would be of shape .* holds no values"):
        planned(protocol, lambda ops, x: x, shape)
    with pytest.raises(InputError, match=r"'Take' would be of shape \(0, 2\)"):
        planned(protocol, lambda ops, x: ops.take(x, (), dim=0), (4, 2))


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(("shape", "dim"), [((), 0), ((), -1), ((2,), 1), ((2, 3), -3)])
@pytest.mark.parametrize("name", ALONG)
def test_a_dimension_that_is_not_there_is_refused_by_name(protocol, shape, dim, name):
    with pytest.raises(InputError, match=rf"has no dimension {dim}$"):
        planned(protocol, lambda ops, x: ALONG[name](ops, x, dim), shape)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("name", ROWS)
def test_a_number_is_no_row(protocol, name):
    with pytest.raises(InputError, match="has no dimension"):
        planned(protocol, ROWS[name], ())
