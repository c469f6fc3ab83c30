"""The costs that the reference page states are those that a plan declares."""

import math
from pathlib import Path

import pytest

from support.mpc import ALICE, ROLES
from tacit.mpc import PROTOCOLS, PlanOps

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "functions.md"
ROWS, LENGTH, BOUND = 64, 16, 16.0


# name → function of ops and a tensor (64, 16) of numbers up to 16
FUNCTIONS = {
    "relu": lambda ops, x: ops.relu(x),
    "abs": lambda ops, x: ops.abs(x),
    "sign": lambda ops, x: ops.sign(x),
    "clamp": lambda ops, x: ops.clamp(x, -1.0, 1.0),
    "is_positive": lambda ops, x: ops.is_positive(x),
    "equal": lambda ops, x: ops.equal(x, ops.scale(x, 2)),
    "sigmoid": lambda ops, x: ops.shift(ops.sigmoid(x), 0.0),
    "tanh": lambda ops, x: ops.tanh(x),
    "erf": lambda ops, x: ops.erf(x),
    "gelu": lambda ops, x: ops.gelu(x),
    "silu": lambda ops, x: ops.silu(x),
    "softplus": lambda ops, x: ops.softplus(x),
    "exp": lambda ops, x: ops.exp(x),
    "reciprocal": lambda ops, x: ops.reciprocal(x),
    "rsqrt": lambda ops, x: ops.rsqrt(x),
    "log": lambda ops, x: ops.log(x),
    "sqrt": lambda ops, x: ops.sqrt(x),
    "mul": lambda ops, x: ops.mul(x, ops.scale(x, 2)),
    "square": lambda ops, x: ops.square(x),
    "polynomial": lambda ops, x: ops.polynomial(x, (1.0, 0.5, 0.25, 0.125)),
    "piecewise": lambda ops, x: ops.piecewise(x, (-3, 3), ((0,), (0.5, 1 / 6), (1,))),
    "max": lambda ops, x: ops.max(x, dim=-1),
    "min": lambda ops, x: ops.min(x, dim=-1),
    "argmax": lambda ops, x: ops.argmax(x, dim=-1),
    "argmax_one_hot": lambda ops, x: ops.argmax_one_hot(x, dim=-1),
    "one_hot": lambda ops, x: ops.one_hot(x, classes=16),
    "top": lambda ops, x: ops.top(x, count=2)[0],
    "sort": lambda ops, x: ops.sort(x)[0],
    "softmax": lambda ops, x: ops.softmax(x),
    "log_softmax": lambda ops, x: ops.log_softmax(x),
    "layer_norm": lambda ops, x: ops.layer_norm(x),
    "rms_norm": lambda ops, x: ops.rms_norm(x),
    "max_pool2d": lambda ops, x: ops.max_pool2d(
        ops.reshape(x, (1, 4, 16, 16)), size=(2, 2), stride=(2, 2), padding=(0, 0)
    ),
    "avg_pool2d": lambda ops, x: ops.avg_pool2d(
        ops.reshape(x, (1, 4, 16, 16)), size=(2, 2), stride=(2, 2), padding=(0, 0)
    ),
    "dropout": lambda ops, x: ops.dropout(x, 0.5),
    "cross_entropy": lambda ops, x: ops.cross_entropy(x, ops.softmax(x)),
}


def declared(name, protocol):
    """Return rounds and bytes per element (both ways together) of a function and its truncation."""
    ops = PlanOps(PROTOCOLS[protocol], ROLES, frac_bits=16)
    x = ops.input("x", owner=ALICE, shape=(ROWS, LENGTH), bound=BOUND)
    result = FUNCTIONS[name](ops, x)
    if name != "is_positive":
        ops.normalise_scale(result)
    cost = ops.plan().cost
    online = sum(entry.payload_bytes for entry in cost.traffic if entry.phase == "online")
    return cost.online_rounds, online / (ROWS * LENGTH)


def stated():
    """Read the table of the page: name → (sealed, permuted3, permuted2) as written."""
    lines = [line.split("|") for line in PAGE.read_text(encoding="utf-8").splitlines()]
    cells = [[cell.strip() for cell in line[1:-1]] for line in lines if len(line) > 6]
    return {row[0].strip("`"): row[3:6] for row in cells if row[0].startswith("`")}


def test_every_function_is_on_the_page():
    assert sorted(stated()) == sorted(FUNCTIONS)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_plan_declares_no_more_than_the_page_states(name):
    for protocol, cell in zip(("sealed", "permuted3", "permuted2"), stated()[name], strict=True):
        rounds, size = (float(part) for part in cell.split("·"))
        declared_rounds, declared_size = declared(name, protocol)
        assert declared_rounds <= rounds, protocol
        assert declared_size <= size + 0.5 * 10 ** (math.floor(math.log10(size)) - 2), protocol
