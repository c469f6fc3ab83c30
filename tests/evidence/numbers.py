"""Numbers at the edges of what is stated of them: maxima, lengths, norms, curves, panels."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from evidence.experiment import Tried, coins
from support.mpc import ALICE, BOB, CAROL, simulate
from support.operations import watched_rows
from tacit.errors import InputError, RangeError
from tacit.mpc.material.randomness import OpeningMask
from tacit.nn import quarters_of, size_of
from tacit.nn.folding import lengths_of
from tacit.nn.running import NORM, ROWS
from tacit.ring import Prg

ULP = 2.0**-16


def largest(seed: int, count: int) -> Iterator[Tried]:
    """The largest of a row and its first place are exact at any bound and length, or refused."""
    for at in range(count):
        rng = coins("largest", seed, at)
        bound, rows = 2.0 ** rng.randint(-4, 45), rng.choice((1, 2, 63, 64, 65))
        length = rng.randint(2, 16) if rng.random() < 0.6 else rng.randint(17, 130)
        x, owner = _edges(rng, (rows, length), bound), rng.choice((ALICE, BOB, CAROL))
        what = f"{rows} rows of {length}, ±{bound:g}, of {owner}"

        def program(ops: Any, x: Tensor = x, bound: float = bound, owner: str = owner) -> Any:
            secret = ops.input("x", owner=owner, shape=tuple(x.shape), bound=bound)
            found = ops.max(secret, dim=1), ops.argmax(secret, dim=1)
            return [ops.open(one, to=(ALICE,), what="y", why="test") for one in found]

        try:
            run = simulate(program, inputs={owner: {"x": x}})
        except RangeError:
            yield Tried(what, "refused by name")
            continue
        top, place = run.values[ALICE]
        assert torch.equal(top, x.amax(1)), f"{what}: not the largest"
        first = (x == x.amax(1, keepdim=True)).double().argmax(1).double()
        assert torch.equal(place, first), f"{what}: not its first place"
        assert run.metered == run.plan.cost, f"{what}: another cost than was declared"
        yield Tried(what, "rows whose largest and first place are exact", rows)


def _edges(rng: random.Random, shape: tuple[int, int], bound: float) -> Tensor:
    """Draw numbers at ±the bound, beside it, and few others, so that many are equal."""
    some = [bound, -bound, bound - ULP, ULP - bound, 0.0, ULP, -ULP, bound / 2]
    drawn = [rng.choice(some[: rng.choice((1, 2, 4, 8))]) for _ in range(math.prod(shape))]
    return torch.tensor(drawn, dtype=torch.float64).view(shape)


def norms(seed: int, count: int) -> Iterator[Tried]:
    """What is published of a matrix is never below its true norm, rounded the worst way."""
    closest = math.inf
    for at in range(count):
        rng = coins("norms", seed, at)
        matrix, kind = _matrix(rng, at)
        left, _, right = torch.linalg.svd(matrix, full_matrices=False)
        # Half a unit of 2^-10 for every element, in the direction that stretches most.
        worst = matrix + 2.0**-11 * torch.outer(left[:, 0].sign(), right[0].sign())
        true = float(torch.linalg.svdvals(worst)[0]), float(worst.norm(dim=1).max())
        found = lengths_of({"w": matrix})
        for name, most in zip((NORM, ROWS), true, strict=True):
            stated = size_of(quarters_of(found[name.format("w")]))
            assert stated >= most, f"matrix {at}, {kind}: {stated} is stated, {most} is true"
            closest = min(closest, found[name.format("w")] / most)
        yield Tried(f"matrix {at}, {kind}, {tuple(matrix.shape)}", "stated norms are not below")
    yield Tried(f"the closest is {closest:.9f} of the true one", "closest", 1)


def _matrix(rng: random.Random, at: int) -> tuple[Tensor, str]:
    shape = rng.randint(1, 80), rng.randint(1, 80)
    draw = torch.Generator().manual_seed(rng.getrandbits(31))
    size = 10.0 ** rng.uniform(-6, 4)
    match at % 4:
        case 0:
            rows, columns = (torch.randn(one, generator=draw).double() for one in shape)
            return size * torch.outer(rows, columns), "rank one"
        case 1 if at % 8 == 1:
            return torch.zeros(shape, dtype=torch.float64), "zero"
        case 2:
            return size * torch.randn(shape, generator=draw).sign().double(), "signs"
        case _:
            return size * torch.randn(shape, generator=draw).double(), "any"


def rows(seed: int, count: int) -> Iterator[Tried]:
    """Normalised rows, aligned with a matrix, never exceed what is stated or the true largest."""
    for at in range(count):
        rng = coins("rows", seed, at)
        length, few = size_of(rng.randint(-14 * 4, 3 * 4)), rng.choice((64, 64, 64, 600))
        width, centred, eps = (
            rng.choice((16, 24, 64)),
            rng.random() < 0.5,
            rng.choice((1e-5, 1e-12)),
        )
        draw = torch.Generator().manual_seed(rng.getrandbits(31))
        matrix = torch.randn(width, width, generator=draw).double()
        if centred:
            matrix -= matrix.mean(1, keepdim=True)
        shorter = 2.0 ** -torch.linspace(0, 12, few).double()
        shorter[:8] = 1 - ULP * torch.arange(8)
        x = ((length * shorter[:, None] * torch.linalg.svd(matrix).Vh[0]) / ULP).trunc() * ULP
        got, stated = _normalised(x, length, eps, centred)
        what = f"{few} rows of {width}, up to {length:.3g} long, eps {eps:g}"
        assert float(got.abs().max()) <= stated, f"{what}: {got.abs().max()}, stated is {stated}"
        if eps > ULP**2:  # else what is rounded away is made as long as all others
            apart = x - x.mean(1, keepdim=True) if centred else x
            true = float((apart / (apart.square().mean(1, keepdim=True) + eps).sqrt()).abs().max())
            over = float(got.abs().max()) / true
            assert float(got.abs().max()) < 1.003 * true + 2.0**-10, f"{what}: {over}"
            what += f", {over:.4f} of the largest"
        yield Tried(what, "rows within what is stated", few)


def _normalised(x: Tensor, length: float, eps: float, centred: bool) -> tuple[Tensor, float]:
    bounds = list[float]()

    def program(ops: Any) -> Any:
        a = ops.input("x", owner=ALICE, shape=tuple(x.shape), bound=length)
        one = ops.input("one", owner=BOB, shape=(1, 1), bound=1.0)
        y = ops.norm_rows(ops.mul(a, one), eps=eps, length=length, centred=centred)
        bounds.append(ops.bound(y))
        return ops.open(y, to=(ALICE,), what="y", why="test")

    ones = torch.ones(1, 1, dtype=torch.float64)
    run = simulate(program, inputs={ALICE: {"x": x}, BOB: {"one": ones}})
    return run.values[ALICE], bounds[0]


def lengths(seed: int, count: int) -> Iterator[Tried]:
    """A row counts from the largest length on, and every row that does not count is right."""
    wrongest = 0.0
    for at in range(count):
        rng = coins("lengths", seed, at)
        width, percent = rng.choice((16, 24, 32, 60, 64, 100, 126, 200, 256)), rng.randint(-45, 14)
        mean = (1 + percent / 100) ** 2
        y, counts = watched_rows((0.5, mean), width=width).values[ALICE]
        wrong, _ = (float(one) for one in counts)
        assert wrong.is_integer(), f"{wrong} rows are counted"
        if percent > 3:
            assert wrong, f"a row {percent} % too long is not counted at width {width}"
        if percent <= -3:
            assert not wrong, f"a row {-percent} % short of the longest is counted at width {width}"
        if not wrong:
            off = float((y.abs() - 1).abs().max())
            assert off < 1e-2, f"a row that is not counted is {off} off"
            wrongest = max(wrongest, off)
        yield Tried(f"width {width}, {percent} % longer", "counted" if wrong else "right")
    yield Tried(f"what does not count is at most {wrongest:.5f} off", "worst")


def panels(seed: int, count: int) -> Iterator[Tried]:
    """A mask that is drawn in panels of any size is one stream."""
    for at in range(count):
        rng = coins("panels", seed, at)
        shape, nbytes = (rng.randint(1, 400), rng.randint(1, 60)), int(2 ** rng.uniform(0, 25))
        mask, key = OpeningMask(rng.randrange(9), shape, "first"), rng.randbytes(16)
        (whole,) = mask.first(Prg(key))
        parts = list(mask.panels(Prg(key), nbytes))
        assert torch.equal(torch.cat(parts), whole), f"{shape} in panels of {nbytes} bytes"
        yield Tried(f"{shape}, {len(parts)} panels of {nbytes} bytes", "one stream")


def curves(seed: int, count: int) -> Iterator[Tried]:
    """Pieces of degree 0 to 3 are right at, beside and between their breakpoints, or refused."""
    worst = 0.0
    for at in range(count):
        rng = coins("curves", seed, at)
        bound, degree = 2.0 ** rng.randint(0, 6), rng.randint(0, 3)
        inner = {round(rng.uniform(-bound, bound) / ULP) * ULP for _ in range(rng.randint(1, 5))}
        ends = rng.sample([-bound, bound, bound - ULP, ULP - bound], rng.randint(0, 2))
        breaks = sorted(inner | set(ends))
        pieces = [_polynomial(rng, degree) for _ in range(len(breaks) + 1)]
        near = [b + step for b in (*breaks, -bound, bound) for step in (-ULP, 0.0, ULP)]
        x = torch.tensor([one for one in near if abs(one) <= bound], dtype=torch.float64)
        what = f"degree {degree}, {len(breaks)} breakpoints, ±{bound:g}"

        def program(ops: Any, x: Tensor = x, how: Any = (breaks, pieces, bound)) -> Any:
            a = ops.input("x", owner=ALICE, shape=tuple(x.shape), bound=how[2])
            return ops.open(ops.piecewise(a, *how[:2]), to=(ALICE,), what="y", why="test")

        try:
            got = simulate(program, inputs={ALICE: {"x": x}}).values[ALICE]
        except InputError:
            yield Tried(what, "refused by name")
            continue
        which = torch.bucketize(x, torch.tensor(breaks, dtype=torch.float64), right=True)
        wanted = [
            sum(c * v**j for j, c in enumerate(pieces[k]))
            for k, v in zip(which, x.tolist(), strict=True)
        ]
        off = float((got - torch.tensor(wanted, dtype=torch.float64)).abs().max())
        assert off < 2.0**-8, f"{what}: {off} off"  # what could be more is refused
        worst = max(worst, off)
        yield Tried(what, f"right, degree {degree}")
    yield Tried(f"at most {worst:.2e} off", "worst")


def _polynomial(rng: random.Random, degree: int) -> tuple[float, ...]:
    return tuple(
        0.0 if rng.random() < 0.3 else round(rng.uniform(-2, 2), rng.choice((0, 1, 4)))
        for _ in range(degree + 1)
    )
