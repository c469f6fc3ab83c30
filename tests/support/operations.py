"""Operations of the contract suite, also those with gradients, and the same in the clear."""

import torch

from support.mpc import ALICE, BOB, simulate
from tacit.mpc.functions.norms import RangeWatch
from tacit.nn import TorchOps

FRAC_BITS = 16
ULP = 2.0**-FRAC_BITS


class PlainOps(TorchOps):
    """What the private ops have beyond the Ops contract, in the clear."""

    relu = staticmethod(torch.relu)
    equal = staticmethod(lambda x, y: (x == y).double())
    select = staticmethod(lambda condition, x, y: torch.where(condition > 0, x, y))
    square = staticmethod(torch.square)


# name → (program of ops and two operands, tolerance in units of the last place per unit of bound)
OPERATIONS = {
    "add": (lambda ops, x, y: ops.add(x, y), 1),
    "sub": (lambda ops, x, y: ops.sub(x, y), 1),
    "mul": (lambda ops, x, y: ops.mul(x, y), 70),
    "product of three": (lambda ops, x, y: ops.mul(ops.scale(ops.mul(x, y), 1 / 64), y), 6000),
    "matmul": (lambda ops, x, y: ops.matmul(x, ops.transpose(y, 0, 1)), 260),
    "scale by an integer": (lambda ops, x, y: ops.scale(x, -3), 2),
    "scale by a fraction": (lambda ops, x, y: ops.scale(x, 0.3), 40),
    "shift": (lambda ops, x, y: ops.shift(y, 1.25), 1),
    "sum": (lambda ops, x, y: ops.sum(ops.add(x, y), dim=1), 5),
    "reshape": (lambda ops, x, y: ops.reshape(x, (2, 6)), 1),
    "transpose": (lambda ops, x, y: ops.transpose(y, 0, 1), 1),
    "sigmoid": (lambda ops, x, y: ops.sigmoid(ops.sub(x, y)), 2),
    "is positive": (lambda ops, x, y: ops.is_positive(ops.sub(x, y)), 0),
    "sign of a product": (lambda ops, x, y: ops.is_positive(ops.mul(x, y)), 0),
    "square": (lambda ops, x, y: ops.square(x), 70),
    "relu": (lambda ops, x, y: ops.relu(ops.sub(x, y)), 1),
    "relu of a product": (lambda ops, x, y: ops.relu(ops.mul(x, y)), 70),
    "equality": (lambda ops, x, y: ops.equal(x, y), 0),
    "selection": (lambda ops, x, y: ops.select(ops.equal(x, y), x, y), 1),
    "computing on a sigmoid": (lambda ops, x, y: ops.mul(ops.sigmoid(x), ops.scale(y, 1 / 64)), 60),
}


# Programs whose gradients are compared with torch's own: in the clear, and under protocols

A, B = (3, 4), (4, 5)
IMAGE = (2, 3, 8, 8)
ONE = (1, 1)
KEPT = torch.tensor([[True, True, False, True]]).expand(3, 4)
HOT = torch.eye(4, dtype=torch.float64)[[2, 0, 2]]


def _positive(ops, x):
    return ops.shift(ops.square(x), 0.5)


def _pool(verb, size, stride, padding):
    return lambda ops, x: getattr(ops, verb)(x, size=size, stride=stride, padding=padding)


CASES = {
    "add broadcasting": ([A, (4,)], lambda ops, x, y: ops.add(x, y)),
    "sub broadcasting": ([(3, 1), A], lambda ops, x, y: ops.sub(x, y)),
    "mul broadcasting": ([A, (3, 1)], lambda ops, x, y: ops.mul(x, y)),
    "mul with itself": ([A], lambda ops, x: ops.mul(x, x)),
    "square": ([A], lambda ops, x: ops.square(x)),
    "matmul": ([A, B], lambda ops, x, y: ops.matmul(x, y)),
    "matmul in batches": ([(2, *A), B], lambda ops, x, y: ops.matmul(x, y)),
    "scale and shift": ([A], lambda ops, x: ops.shift(ops.scale(x, -2.5), 1.0)),
    "weigh": ([A], lambda ops, x: ops.weigh(x, torch.arange(4.0))),
    "project": ([(2, *A)], lambda ops, x: ops.project(x, torch.linspace(-1, 1, 8).view(4, 2))),
    "offset": ([A], lambda ops, x: ops.offset(x, torch.ones(3, 4))),
    "sum": ([A], lambda ops, x: ops.sum(x, dim=0)),
    "reshape": ([A], lambda ops, x: ops.reshape(x, (2, 6))),
    "transpose": ([(2, 3, 4)], lambda ops, x: ops.transpose(x, 0, 2)),
    "take": ([A], lambda ops, x: ops.take(x, (2, 0, 2, 2), dim=1)),
    "concatenate": ([A, (2, 4)], lambda ops, x, y: ops.concatenate([x, y, x], dim=0)),
    "mix": ([A, B], lambda ops, x, y: ops.mix(ops.softmax(x, dim=-1), y)),
    "hide": ([A], lambda ops, x: ops.softmax(ops.hide(x, KEPT), dim=-1)),
    "relu": ([A], lambda ops, x: ops.relu(x)),
    "abs": ([A], lambda ops, x: ops.abs(x)),
    "sigmoid": ([A], lambda ops, x: ops.sigmoid(x)),
    "tanh": ([A], lambda ops, x: ops.tanh(x)),
    "silu": ([A], lambda ops, x: ops.silu(x)),
    "erf": ([A], lambda ops, x: ops.erf(x)),
    "gelu": ([A], lambda ops, x: ops.gelu(x)),
    "softplus": ([A], lambda ops, x: ops.softplus(x)),
    "piecewise": (
        [A],
        lambda ops, x: ops.piecewise(x, (-1.0, 1.0), ((0.5,), (0.0, 0.25, 0.5), (0.0, 1.0))),
    ),
    "softmax": ([A], lambda ops, x: ops.softmax(x, dim=-1)),
    "softmax of columns": ([A], lambda ops, x: ops.softmax(x, dim=0)),
    "log softmax": ([A], lambda ops, x: ops.log_softmax(x, dim=-1)),
    "rsqrt": ([A], lambda ops, x: ops.rsqrt(_positive(ops, x))),
    "sqrt": ([A], lambda ops, x: ops.sqrt(_positive(ops, x))),
    "log": ([A], lambda ops, x: ops.log(_positive(ops, x))),
    "reciprocal": ([A], lambda ops, x: ops.reciprocal(_positive(ops, x))),
    "div": ([A, A], lambda ops, x, y: ops.div(x, _positive(ops, y))),
    "layer norm": ([A], lambda ops, x: ops.layer_norm(x, eps=1e-5)),
    "rms norm": ([A], lambda ops, x: ops.rms_norm(x, eps=1e-5)),
    "group norm": ([(2, 4, 3, 3)], lambda ops, x: ops.group_norm(x, groups=2, eps=1e-5)),
    "max of an odd row": ([(3, 5)], lambda ops, x: ops.max(x, dim=1)),
    "min of columns": ([(3, 5)], lambda ops, x: ops.min(x, dim=0)),
    "clamp": ([A], lambda ops, x: ops.clamp(x, -0.5, 0.8)),
    "within": ([A], lambda ops, x: ops.within(ops.scale(x, 0.5), x, gain=0.5)),
    "max pool": ([IMAGE], _pool("max_pool2d", (2, 2), (2, 2), (0, 0))),
    "max pool of overlapping windows": ([IMAGE], _pool("max_pool2d", (3, 3), (2, 2), ONE)),
    "max pool that leaves a rim": ([IMAGE], _pool("max_pool2d", (3, 2), (3, 2), (0, 0))),
    "average pool": ([IMAGE], _pool("avg_pool2d", (4, 2), (4, 2), (0, 0))),
    "average pool beyond the edge": ([IMAGE], _pool("avg_pool2d", (3, 3), (2, 1), ONE)),
    "conv of series": (
        [(2, 3, 9), (4, 3, 3)],
        lambda ops, x, w: ops.conv1d(x, w, stride=2, padding=1),
    ),
}
for dilation, groups in (((2, 1), 1), (ONE, 3), ((1, 2), 3)):
    CASES[f"conv dilation {dilation} groups {groups}"] = (
        [IMAGE, (6, 3 // groups, 3, 2)],
        lambda ops, x, w, how=(dilation, groups): ops.conv2d(
            x, w, stride=(2, 1), padding=ONE, dilation=how[0], groups=how[1]
        ),
    )
for stride in (ONE, (2, 2), (3, 2)):
    for padding in ((0, 0), ONE, (2, 1)):
        for size in ((3, 3), (1, 1), (5, 4)):
            CASES[f"conv {size} stride {stride} padding {padding}"] = (
                [IMAGE, (4, 3, *size)],
                lambda ops, x, w, how=(stride, padding): ops.conv2d(
                    x, w, stride=how[0], padding=how[1]
                ),
            )


def values_of(name):
    """Return the values of a case, and the gradient that comes from above."""
    shapes, program = CASES[name]
    generator = torch.Generator().manual_seed(7)
    values = [
        torch.randn(shape, generator=generator, dtype=torch.float64).clamp(-3, 3)
        for shape in shapes
    ]
    return program, values, generator


# Rows that are normalised, and counted where they are out of range


def watched_rows(means, *, is_counted=True, width=16):
    """Normalise rows of these mean squares and count those that are out of range: beyond 1."""

    def program(ops):
        x = ops.input("x", owner=ALICE, shape=(len(means), width), bound=16.0)
        x = ops.mul(x, ops.input("one", owner=BOB, shape=(1, 1), bound=1.0))
        watch = RangeWatch()
        y = ops.norm_within(x, eps=1e-9, largest_mean=1.0, centred=False, watch=watch)
        counts = ops.out_of_range(watch) if is_counted else None
        y = ops.open(y, to=(ALICE,), what="y", why="test")
        return y, ops.open(counts, to=(ALICE,), what="counts", why="test") if is_counted else None

    signs = torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(width // 2)
    x = torch.stack([mean**0.5 * signs for mean in means])
    inputs = {ALICE: {"x": x}, BOB: {"one": torch.ones(1, 1, dtype=torch.float64)}}
    run = simulate(program, inputs=inputs)
    assert run.metered == run.plan.cost
    return run
