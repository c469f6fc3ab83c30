"""The rows of the mpc benchmarks: inputs and exact answers, the same for us and for every peer.

Needs numpy alone, so that it can be imported in a peer's environment too.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from mpc._encoder import draw_encoder, run_encoder
from numpy.typing import NDArray

Array = NDArray[np.float64]

SEED = 20240229
LAYER_NORM_EPS = 1e-5
_SHARED = "shared+"


@dataclass(frozen=True)
class Operand:
    """One secret input. The first of a row belongs to P0, all others to P1.

    ``bound`` is public: no value exceeds it.
    """

    name: str
    values: Array
    bound: float


@dataclass(frozen=True)
class Row:
    """An operation and its sizes, written ``matmul-1-4096-4096`` on a command line.

    After ``shared+`` nobody knows an operand, as if it were the result of earlier work.
    """

    operation: str
    sizes: tuple[int, ...]
    is_shared: bool = False

    @classmethod
    def parse(cls, name: str) -> "Row":
        """Read a row's name."""
        operation, *sizes = name.removeprefix(_SHARED).split("-")
        if operation not in INPUTS:
            raise ValueError(f"no operation {operation!r}; there are {', '.join(sorted(INPUTS))}")
        return cls(operation, tuple(map(int, sizes)), name.startswith(_SHARED))

    @property
    def name(self) -> str:
        """Return the name that `parse` reads."""
        prefix = _SHARED if self.is_shared else ""
        return prefix + "-".join((self.operation, *map(str, self.sizes)))


@lru_cache(maxsize=2)
def make_operands(row: Row) -> tuple[Operand, ...]:
    """Make the inputs; the same ones in every process."""
    return INPUTS[row.operation](np.random.default_rng(SEED), *row.sizes)


@lru_cache(maxsize=2)
def find_answer(row: Row) -> Array:
    """Compute the result in the clear, in double precision."""
    return ANSWERS[row.operation](*(operand.values for operand in make_operands(row)))


def largest_error(row: Row, got: NDArray[np.generic]) -> float:
    """Return the largest absolute difference to the exact answer."""
    return float(np.abs(np.asarray(got, np.float64) - find_answer(row)).max())


def _uniform(
    draw: np.random.Generator, name: str, shape: tuple[int, ...], low: float, high: float
) -> Operand:
    return Operand(name, draw.uniform(low, high, shape), max(abs(low), abs(high)))


def _normal(
    draw: np.random.Generator, name: str, shape: tuple[int, ...], deviation: float
) -> Operand:
    """Draw normal values, cut at six deviations so that the bound holds."""
    bound = 6 * deviation
    return Operand(name, np.clip(draw.normal(0, deviation, shape), -bound, bound), bound)


def _matrices(
    draw: np.random.Generator, rows: int, inner: int, columns: int
) -> tuple[Operand, ...]:
    return (
        _uniform(draw, "x", (rows, inner), -1, 1),
        _uniform(draw, "y", (inner, columns), -1, 1),
    )


def _factors(draw: np.random.Generator, count: int) -> tuple[Operand, ...]:
    return _uniform(draw, "x", (count,), -8, 8), _uniform(draw, "y", (count,), -8, 8)


def _activations(draw: np.random.Generator, *shape: int) -> tuple[Operand, ...]:
    return (_normal(draw, "x", shape, 2.0),)


def _comparable(draw: np.random.Generator, count: int) -> tuple[Operand, ...]:
    """Draw multiples of 2^-12, which every contender encodes exactly, so that no sign is lost."""
    (x,) = _activations(draw, count)
    return (Operand("x", np.round(x.values * 4096) / 4096, x.bound),)


def _positives(draw: np.random.Generator, count: int) -> tuple[Operand, ...]:
    return (Operand("x", np.geomspace(0.05, 100, count), 100.0),)


def _perceptron(draw: np.random.Generator, batch: int, *widths: int) -> tuple[Operand, ...]:
    """Draw pixels and the weights of a network with ReLU between its layers."""
    operands = [_uniform(draw, "x", (batch, widths[0]), 0, 1)]
    for layer, (wide, narrow) in enumerate(pairwise(widths), start=1):
        limit = 1 / math.sqrt(wide)
        operands.append(_uniform(draw, f"w{layer}", (wide, narrow), -limit, limit))
        operands.append(_uniform(draw, f"b{layer}", (narrow,), -limit, limit))
    return tuple(operands)


def _encoder(draw: np.random.Generator, *sizes: int) -> tuple[Operand, ...]:
    found = draw_encoder(draw, *sizes)
    return tuple(Operand(name, one, float(np.abs(one).max())) for name, one in found.items())


INPUTS: dict[str, Callable[..., tuple[Operand, ...]]] = {
    "linear": _matrices,
    "matmul": _matrices,
    "mul": _factors,
    "relu": _activations,
    "is_positive": _comparable,
    "gelu": _activations,
    "softmax": _activations,
    "layer_norm": _activations,
    "rsqrt": _positives,
    "mlp": _perceptron,
    "bert": _encoder,
}


def _gelu(x: Array) -> Array:
    erf = np.vectorize(math.erf, otypes=[np.float64])(x / math.sqrt(2))
    return np.asarray(x * (1 + erf) / 2)


def _softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


def _layer_norm(x: Array) -> Array:
    return np.asarray(
        (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + LAYER_NORM_EPS)
    )


def _run_perceptron(x: Array, *weights: Array) -> Array:
    for layer in range(0, len(weights), 2):
        x = (np.maximum(x, 0) if layer else x) @ weights[layer] + weights[layer + 1]
    return x


ANSWERS: dict[str, Callable[..., Array]] = {
    "linear": np.matmul,
    "matmul": np.matmul,
    "mul": np.multiply,
    "relu": lambda x: np.maximum(x, 0),
    "is_positive": lambda x: (x >= 0).astype(np.float64),
    "gelu": _gelu,
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "mlp": _run_perceptron,
    "bert": run_encoder,
}
