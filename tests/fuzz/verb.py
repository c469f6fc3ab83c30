"""What a verb is: the shapes and public numbers it takes, its call on ops, and plain maths."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fuzz.known import Known

Shape = tuple[int, ...]
Draw = Callable[[random.Random, Sequence[Shape]], dict[str, Any] | None]


@dataclass(frozen=True)
class Verb:
    """One verb of `ops`.

    Args:
        shapes: given the first operand's shape, shapes of all operands; None: it takes no such.
        private: the call, of ops, operands and parameters.
        plain: the same in double precision, with its error; ``ulp`` is that of the program.
        draw: public parameters for operands of these shapes; None: there are none that fit.
        is_curve: whether its error is stated for 16 fraction bits only.
        is_last: whether the result can only be opened.
        posts: whether it posts several messages, of whose rounds a plan may count one too many.
    """

    shapes: Callable[[random.Random, Shape], tuple[Shape, ...] | None]
    private: Callable[..., Any]
    plain: Callable[..., Known]
    draw: Draw = lambda rng, shapes: {}
    is_curve: bool = False
    is_last: bool = False
    posts: bool = False


def any_shape(rng: random.Random, shape: Shape) -> tuple[Shape, ...]:
    return (shape,)


def full(rng: random.Random, shape: Shape) -> tuple[Shape, ...] | None:
    return (shape,) if all(shape) else None


def some_rows(rng: random.Random, shape: Shape) -> tuple[Shape, ...] | None:
    return (shape,) if shape and all(shape) and 1 < shape[-1] <= 20 else None


def twins(rng: random.Random, shape: Shape) -> tuple[Shape, ...] | None:
    return (shape, shape) if all(shape) else None


def alike(rng: random.Random, shape: Shape) -> tuple[Shape, ...]:
    """A second operand that broadcasts with the first."""
    how = rng.randrange(4)
    if how == 0:
        return shape, tuple(1 if rng.random() < 0.5 else n for n in shape)
    if how == 1:
        return shape, shape[rng.randint(0, len(shape)) :]
    if how == 2 and len(shape) < 4:
        return shape, (rng.randint(1, 3), *shape)
    return shape, shape


def matrices(rng: random.Random, shape: Shape) -> tuple[Shape, ...] | None:
    if len(shape) < 2:
        return None
    other = (shape[-1], rng.choice([1, 2, 5]))
    return shape, (*shape[:-2], *other) if rng.random() < 0.5 else other


def a_dim(rng: random.Random, shapes: Sequence[Shape]) -> dict[str, Any] | None:
    rank = len(shapes[0])
    return {"dim": rng.randrange(-rank, rank)} if rank else None


def a_full_dim(rng: random.Random, shapes: Sequence[Shape]) -> dict[str, Any] | None:
    found = a_dim(rng, shapes)
    return found if found and all(shapes[0]) else None


def a_number(rng: random.Random, shapes: Sequence[Shape]) -> dict[str, Any]:
    kinds = [0.0, 1.0, -1.0, 2.0, -3.0, 0.5, 0.3, -0.07, 1e-5, 17.25, rng.uniform(-4, 4)]
    return {"by": rng.choice(kinds)}


def public(rng: random.Random, shape: Shape, spread: float = 2.0) -> Tensor:
    """Draw a public tensor: whole numbers, or any."""
    values = [rng.uniform(-spread, spread) for _ in range(math.prod(shape))]
    x = torch.tensor(values, dtype=torch.float64).reshape(shape)
    return x.round() if rng.random() < 0.3 else x


def a_tensor(rng: random.Random, shapes: Sequence[Shape]) -> dict[str, Any]:
    shape = shapes[0][rng.randint(0, len(shapes[0])) :]
    return {"by": public(rng, shape).tolist()}


def a_mask(rng: random.Random, shapes: Sequence[Shape]) -> dict[str, Any] | None:
    """Of every row something is kept."""
    if not shapes[0] or not all(shapes[0]):
        return None
    shape = shapes[0][rng.randint(0, len(shapes[0]) - 1) :]
    kept = torch.tensor([rng.random() < 0.6 for _ in range(math.prod(shape))]).reshape(shape)
    kept[..., rng.randrange(shape[-1])] = True
    return {"kept": kept.tolist()}


def as_tensor(by: Any) -> Tensor:
    return torch.tensor(by, dtype=torch.float64)
