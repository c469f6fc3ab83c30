"""Draw programs from a seed: what has been covered least so far comes first."""

import math
import random
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from fuzz.program import FRAC_BITS, Given, Program, Step, bound_of, found_with_roles
from fuzz.table import VERBS
from fuzz.verb import Shape
from support.mpc import ALICE, BOB, CAROL, PARTIES
from tacit.errors import InputError, RangeError
from tacit.mpc import PlanOps
from tacit.mpc.share import Spec

USUAL: tuple[Shape, ...] = ((), (1,), (12,), (3, 1), (1, 4), (6, 5), (3, 4, 3), (2, 3, 2, 4))
SHAPES = (*USUAL, *USUAL, (9, 17), (520,))  # of more than 512 numbers some paths are others
BOUNDS = (1.0, 8.0, 16.0, 64.0, 1000.0, 2.0**17, 2.0**24)
DTYPES = ("float32", "float16", "bfloat16", "int64", "int32", "uint8", "bool", *["float64"] * 6)
OTHER_BITS = (8, 12, 14, 20)
DEPTHS = (1, 2, 4, 6, 8, 12)
MOST = 700  # numbers in a value
TRIES = 12  # verbs looked at for a step
SIZES = (1.0, 16.0, 64.0, 1024.0, 2.0**16)

Cell = tuple[str, ...]
"""A verb, the type of its first operand, the classes of its shape and bound, and a protocol."""


@dataclass
class Coverage:
    """How often each cell was drawn, and each verb under a protocol; which cells were refused."""

    drawn: Counter[Cell] = field(default_factory=Counter)
    refused: set[Cell] = field(default_factory=set)

    @property
    def cells(self) -> list[Cell]:
        """List the cells that were drawn."""
        return [one for one in self.drawn if len(one) > 2]

    def by_verb(self, protocol: str) -> dict[str, int]:
        """Count how often every verb was drawn under a protocol, least first."""
        counts = {name: self.drawn[name, protocol] for name in VERBS}
        return dict(sorted(counts.items(), key=lambda one: one[1]))


def form(shape: Shape) -> str:
    """Name the class of a shape."""
    size = math.prod(shape)
    return "one" if size == 1 else "many" if size > 512 else f"{len(shape)} dims"


def size(bound: float) -> str:
    """Name the class of a bound."""
    return next((f"up to {most:g}" for most in SIZES if bound <= most), "larger")


def draw(seed: int, protocol: str, coverage: Coverage | None = None) -> Program:
    """Draw a program for a protocol; the same seed and coverage give the same one."""
    return _Drawing(random.Random(seed), protocol, coverage or Coverage()).program()  # noqa: S311 - programs are no secrets


class _Drawing:
    """A program that grows, on a plan that says how large its values are."""

    def __init__(self, rng: random.Random, protocol: str, coverage: Coverage) -> None:
        self.rng, self.protocol, self.coverage = rng, protocol, coverage
        self.bits = FRAC_BITS if rng.random() < 0.8 else rng.choice(OTHER_BITS)
        found, roles = found_with_roles(protocol)
        self.ops = PlanOps(found, roles, frac_bits=self.bits)
        self.names = [n for n, v in VERBS.items() if self.bits == FRAC_BITS or not v.is_curve]
        self.inputs: list[Given] = []
        self.steps: list[Step] = []
        self.values: dict[int, Any] = {}  # inputs count down from -1, steps up from 0
        self.usual = rng.choice(BOUNDS)
        self.is_over = False

    def program(self) -> Program:
        rng = self.rng
        runs = 2 if rng.random() < 0.15 else 1
        for _ in range(rng.choice(DEPTHS)):
            if not self.is_over:
                self._step()
        if not self.steps:
            self._take("relu", None, rng.choice(SHAPES))
        if runs > 1:
            self.inputs = [
                replace(one, is_kept=one.owner != CAROL and rng.random() < 0.5)
                for one in self.inputs
            ]
        count = len(self.inputs)
        steps = [
            replace(one, of=tuple(-i - 1 if i < 0 else count + i for i in one.of))
            for one in self.steps
        ]
        drawn = Program(
            tuple(self.inputs),
            tuple(steps),
            tuple(rng.sample(PARTIES, rng.randint(1, 3))),
            self.bits,
            runs,
            2 if rng.random() < 0.1 else 1,
        )
        return drawn.reached(*drawn.shown)

    def _step(self) -> None:
        """Add a step: of a few verbs on a few values the one that was drawn least."""
        rng = self.rng
        if self.steps and rng.random() < 0.1 and self._redo(self.steps[-1]):
            return
        tries = []
        for _ in range(TRIES):
            is_old = bool(self.values) and rng.random() < 0.75
            shape = rng.choice(SHAPES)
            at = rng.choice(list(self.values)) if is_old else None
            if at is not None:
                shape = self.ops.shape(self.values[at])
            name = rng.choice(self.names)
            drawn = self.coverage.drawn
            often = drawn[self._cell(name, shape, at)], drawn[name, self.protocol], len(tries)
            tries.append((often, name, at, shape))
        for _, name, at, shape in sorted(tries, key=lambda one: one[0]):
            if self._take(name, at, shape):
                return

    def _redo(self, step: Step) -> bool:
        """Do a step on the same values again, with other public numbers: notes must tell them."""
        shapes = [self.ops.shape(self.values[i]) for i in step.of]
        public = VERBS[step.verb].draw(self.rng, shapes)
        return public is not None and self._apply(Step(step.verb, step.of, public))

    def _take(self, name: str, at: int | None, shape: Shape) -> bool:
        """Add a verb on a value, or on a new input of a shape, if it takes that."""
        rng, verb = self.rng, VERBS[name]
        wanted = verb.shapes(rng, shape)
        public = wanted and verb.draw(rng, wanted)
        if wanted is None or public is None or sum(map(math.prod, wanted)) > 2 * MOST:
            return False
        if wanted[0] != shape and at is not None:
            return False
        of = [self._input(wanted[0]) if at is None else at]
        of += [self._other(one) for one in wanted[1:]]
        return self._apply(Step(name, tuple(of), public))

    def _apply(self, step: Step) -> bool:
        """Add a step, unless it is refused, which is kept now and then."""
        verb, values = VERBS[step.verb], [self.values[i] for i in step.of]
        cell = self._cell(step.verb, self.ops.shape(values[0]), step.of[0])
        self.coverage.drawn.update((cell, (step.verb, self.protocol)))
        try:
            value = verb.private(self.ops, *values, **step.public)
        except InputError as refusal:
            self.coverage.refused.add(cell)
            is_odd = not isinstance(refusal, RangeError)  # for the judge to say
            self.is_over = is_odd or not self.steps or self.rng.random() < 0.05
            self.steps += [step] if self.is_over else []
            return self.is_over
        except Exception:  # the judge will say what it is
            self.steps.append(step)
            self.is_over = True
            return True
        if math.prod(self.ops.shape(value)) > MOST:
            return False
        self.steps.append(step)
        if isinstance(self.ops.spec(value), Spec) and not verb.is_last:
            self.values[len(self.steps) - 1] = value
        return True

    def _other(self, shape: Shape) -> int:
        fitting = [at for at, one in self.values.items() if self.ops.shape(one) == shape]
        is_old = bool(fitting) and self.rng.random() < 0.6
        return self.rng.choice(fitting) if is_old else self._input(shape)

    def _input(self, shape: Shape) -> int:
        rng = self.rng
        bound = self.usual if rng.random() < 0.7 else rng.choice(BOUNDS)
        given = _given(rng, shape, bound, self.bits)
        self.inputs.append(given)
        at = -len(self.inputs)
        self.values[at] = self.ops.input(f"x{-at}", owner=given.owner, shape=shape, bound=bound)
        return at

    def _cell(self, name: str, shape: Shape, at: int | None) -> Cell:
        kind = "new" if at is None else "step" if at >= 0 else self.inputs[-at - 1].dtype
        bound = self.usual if at is None else bound_of(self.ops, self.values[at])
        return name, kind, form(shape), size(bound), self.protocol


def _given(rng: random.Random, shape: Shape, bound: float, bits: int) -> Given:
    """Draw an input: edges, numbers of all sizes, and such as are spread evenly."""
    ulp, kind = 2.0**-bits, rng.choice(DTYPES)
    edges = [0.0, ulp, -ulp, 1.0, -1.0, bound, -bound, bound / 2, bound - ulp, 2.0**-8]
    spread = rng.choice([bound, bound, min(bound, 6.0), min(bound, 2.0)])
    is_positive = rng.random() < 0.3  # functions with a pole want them
    numbers = []
    for _ in range(math.prod(shape)):
        way = rng.random()
        if way < 0.2:
            x = rng.choice(edges)
        elif way < 0.5:
            x = rng.choice([-1, 1]) * bound * 2.0 ** rng.uniform(-bits - math.log2(bound), 0)
        else:
            x = rng.uniform(-spread, spread)
        numbers.append(abs(x) if is_positive else x)
    made = _as_type(torch.tensor(numbers, dtype=torch.float64), kind, bound, ulp)
    owner = rng.choice([ALICE, ALICE, BOB, CAROL])
    return Given(owner, bound, made.reshape(shape).tolist(), shape, kind)


def _as_type(x: torch.Tensor, kind: str, bound: float, ulp: float) -> torch.Tensor:
    """Bring numbers to such as a type has, within their bound."""
    if kind == "bool":
        return (x > 0).double()
    if kind == "uint8":
        x = x.abs().clamp(max=255)
    if kind.startswith(("int", "uint")):
        return x.round().clamp(-bound, bound)
    x = (x / ulp).round() * ulp
    made = x.to(getattr(torch, kind)).double()
    return torch.where(made.abs() > bound, 0.0, made)
