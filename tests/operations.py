"""Operations of the contract suite, and the same in the clear."""

import torch

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
