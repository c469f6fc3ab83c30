"""A program of `ops`: drawn from a seed, run under a protocol, judged, and cut down if it fails."""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from fuzz.known import Known
from fuzz.table import VERBS, Shape
from harness import ALICE, ALONE, BOB, CAROL, PARTIES, ROLES, Run, simulate
from tacit.errors import InputError, RangeError
from tacit.mpc import find_protocol, make_plan

SHAPES: tuple[Shape, ...] = (
    (),
    (1,),
    (3,),
    (0,),
    (2, 3),
    (1, 4),
    (3, 1),
    (2, 3, 2),
    (5, 4),
    (2, 0),
)
BOUNDS = (1.0, 8.0, 16.0, 64.0, 1000.0, 2.0**17, 2.0**24)
DTYPES = ("float64", "float32", "int64")
FRAC_BITS = 16  # what stated errors of curves are for
OTHER_BITS = (8, 12, 14, 20)
DEPTH = 12


@dataclass(frozen=True)
class Given:
    """An input: whose, of what bound and type, and its numbers."""

    owner: str
    bound: float
    numbers: Any  # nested lists, as deep as the shape
    shape: Shape
    dtype: str = "float64"

    def tensor(self) -> Tensor:
        """Return the numbers as their owner hands them in."""
        made = torch.tensor(self.numbers, dtype=torch.float64).reshape(self.shape)
        return made.to(getattr(torch, self.dtype))


@dataclass(frozen=True)
class Step:
    """A verb, which values it is applied to (inputs first, then steps) and what is public."""

    verb: str
    of: tuple[int, ...]
    public: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Program:
    """Inputs, steps, who receives the last value, and the precision."""

    inputs: tuple[Given, ...]
    steps: tuple[Step, ...]
    to: tuple[str, ...] = (ALICE,)
    frac_bits: int = FRAC_BITS
    again: int = 1
    """How often the last step is done anew: openings that are cached must serve each time."""

    def private(self, ops: Any) -> Any:
        """Compute it on ops, and open what comes last."""
        values = [
            ops.input(f"x{at}", owner=one.owner, shape=one.shape, bound=one.bound)
            for at, one in enumerate(self.inputs)
        ]
        self._extend(ops, values)
        shown = [values[-1]]
        for _ in range(1, self.again):
            last = self.steps[-1]
            operands = [values[i] for i in last.of]
            shown.append(VERBS[last.verb].private(ops, *operands, **last.public))
        return [ops.open(one, to=self.to, what="result", why="fuzz") for one in shown]

    def _extend(self, ops: Any, values: list[Any]) -> None:
        for one in self.steps:
            operands = [values[i] for i in one.of]
            values.append(VERBS[one.verb].private(ops, *operands, **one.public))

    def plain(self, bounds: Sequence[float]) -> list[Known]:
        """Compute it in double precision, with what a private result may be off by."""
        ulp = 2.0**-self.frac_bits
        values = []
        for one, bound in zip(self.inputs, bounds, strict=False):
            x = one.tensor().double()
            values.append(Known((x / ulp).round() * ulp, torch.zeros_like(x), bound))
        for one, bound in zip(self.steps, bounds[len(self.inputs) :], strict=True):
            operands = [values[i] for i in one.of]
            found = VERBS[one.verb].plain(*operands, ulp=ulp, **one.public)
            values.append(replace(found, bound=bound))
        return values

    def bounds(self, protocol: str) -> list[float]:
        """Plan it, and return how large the plan says that every value can be."""
        noted: list[float] = []

        def noting(ops: Any) -> Any:
            values = [
                ops.input(f"x{at}", owner=one.owner, shape=one.shape, bound=one.bound)
                for at, one in enumerate(self.inputs)
            ]
            self._extend(ops, values)
            noted.extend(_bound(ops, one) for one in values)
            return ops.open(values[-1], to=self.to, what="result", why="fuzz")

        found = find_protocol(protocol)
        roles = ROLES if found.has_dealer else ALONE
        make_plan(noting, found, roles, frac_bits=self.frac_bits)
        return noted

    def cells(self, protocol: str) -> set[tuple[str, str, str, str, str]]:
        """Return what it covers: verb, type, class of shape, class of bound, protocol."""
        kinds = {one.dtype for one in self.inputs}
        kind = kinds.pop() if len(kinds) == 1 else "mixed"
        largest = max(one.bound for one in self.inputs)
        shapes = [one.shape for one in self.inputs]
        form = "empty" if any(0 in one for one in shapes) else f"{max(map(len, shapes))} dims"
        return {(one.verb, kind, form, f"{largest:g}", protocol) for one in self.steps}


def _bound(ops: Any, value: Any) -> float:
    try:
        return float(ops.bound(value))
    except (AttributeError, TypeError, InputError):  # a bit, which can only be opened
        return 1.0


def draw(seed: int) -> Program:
    """Draw a program; the same seed gives the same one."""
    rng = random.Random(seed)  # noqa: S311 - programs are no secrets
    bits = FRAC_BITS if rng.random() < 0.7 else rng.choice(OTHER_BITS)
    bound = rng.choice(BOUNDS)
    inputs: list[Given] = []
    shapes: list[Shape] = []
    steps: list[Step] = []
    first = rng.choice(SHAPES)

    # Inputs come before steps in a program: steps refer to inputs by negative numbers until then.
    places: list[tuple[int, Shape]] = []

    def new_input(shape: Shape) -> int:
        of = bound if rng.random() < 0.8 else rng.choice(BOUNDS)
        inputs.append(_given(rng, shape, of, bits))
        shapes.append(shape)
        places.append((-len(inputs), shape))
        return -len(inputs)

    new_input(first)
    made: list[tuple[int, Shape]] = []
    verbs = list(VERBS) if bits == FRAC_BITS else [v for v in VERBS if not VERBS[v].is_curve]
    depth = rng.choice([1, 2, 3, 4, 6, 8, DEPTH])
    for number in range(depth):
        for _ in range(8):  # until one fits
            name = rng.choice(verbs)
            if VERBS[name].is_last and number < depth - 1:
                continue
            at, shape = made[-1] if made and rng.random() < 0.85 else rng.choice([*places, *made])
            wanted = VERBS[name].shapes(rng, shape)
            public = None if wanted is None else VERBS[name].draw(rng, wanted)
            if wanted is None or public is None or sum(map(math.prod, wanted)) > 400:
                continue
            if wanted[0] != shape and made and rng.random() < 0.7:
                continue
            of = [at if wanted[0] == shape else new_input(wanted[0])]
            for other in wanted[1:]:
                fitting = [i for i, one in (*places, *made) if one == other]
                of.append(
                    rng.choice(fitting) if fitting and rng.random() < 0.6 else new_input(other)
                )
            out = _shape_of(name, [_look(places, made, i) for i in of], public)
            if out is None or math.prod(out) > 400:
                continue
            steps.append(Step(name, tuple(of), public))
            made.append((len(steps) - 1, out))
            break
    steps = steps or [Step("relu", (-1,))]
    count = len(inputs)
    numbered = [
        replace(one, of=tuple(-i - 1 if i < 0 else count + i for i in one.of)) for one in steps
    ]
    to = tuple(rng.sample(PARTIES, rng.randint(1, 3)))
    again = 2 if rng.random() < 0.1 else 1
    return _reached(Program(tuple(inputs), tuple(numbered), to, bits, again))


def _look(places: Sequence[tuple[int, Shape]], made: Sequence[tuple[int, Shape]], at: int) -> Shape:
    return dict([*places, *made])[at]


def _shape_of(name: str, shapes: Sequence[Shape], public: dict[str, Any]) -> Shape | None:
    """Try a verb in the clear, to learn the shape of what comes out."""
    zeros = [Known.exact(torch.ones(shape, dtype=torch.float64)) for shape in shapes]
    try:
        return tuple(VERBS[name].plain(*zeros, ulp=1e-5, **public).v.shape)
    except (RuntimeError, IndexError, ValueError):
        return None


def _given(rng: random.Random, shape: Shape, bound: float, bits: int) -> Given:
    ulp, kind = 2.0**-bits, rng.choice([*DTYPES, "float64", "float64"])
    edges = [0.0, ulp, -ulp, 1.0, -1.0, bound, -bound, bound / 2, bound - ulp, 2.0**-8]
    spread = rng.choice([bound, bound, min(bound, 2.0), min(bound, 0.05)])
    numbers = []
    for _ in range(math.prod(shape)):
        x = rng.choice(edges) if rng.random() < 0.25 else rng.uniform(-spread, spread)
        x = round(x) if kind == "int64" else round(x / ulp) * ulp
        if kind == "float32":
            x = float(torch.tensor(x, dtype=torch.float32))
        numbers.append(max(-bound, min(bound, x)))
    nested = torch.tensor(numbers, dtype=torch.float64).reshape(shape).tolist()
    return Given(rng.choice([ALICE, ALICE, BOB, CAROL]), bound, nested, shape, kind)


def _reached(program: Program) -> Program:
    """Leave out what the last step does not need."""
    count, last = len(program.inputs), len(program.inputs) + len(program.steps) - 1
    wanted, todo = {last}, [last]
    while todo:
        at = todo.pop()
        if at >= count:
            fresh = set(program.steps[at - count].of) - wanted
            wanted |= fresh
            todo += fresh
    order = sorted(wanted)
    place = {old: new for new, old in enumerate(order)}
    return replace(
        program,
        inputs=tuple(program.inputs[i] for i in order if i < count),
        steps=tuple(
            replace(
                program.steps[i - count], of=tuple(place[j] for j in program.steps[i - count].of)
            )
            for i in order
            if i >= count
        ),
    )


@dataclass(frozen=True)
class Verdict:
    """What came of a program: right, refused by name, or wrong and how."""

    outcome: str  # "right", "refused" or "wrong"
    how: str = ""


def judge(program: Program, protocol: str) -> Verdict:
    """Run a program under a protocol and compare all that was declared with what came."""
    try:
        known = program.plain(program.bounds(protocol))[-1]
    except InputError as refusal:
        return Verdict("refused", f"{type(refusal).__name__}: {refusal}")
    except Exception as error:
        return Verdict("wrong", f"planning ended in {type(error).__name__}: {error}")
    inputs: dict[str, dict[str, Tensor]] = {}
    for at, one in enumerate(program.inputs):
        inputs.setdefault(one.owner, {})[f"x{at}"] = one.tensor()
    try:
        run = simulate(
            program.private, protocol=protocol, inputs=inputs, frac_bits=program.frac_bits
        )
    except RangeError as refusal:
        return Verdict("refused", f"RangeError: {refusal}")
    except Exception as error:
        return Verdict("wrong", f"the run ended in {type(error).__name__}: {error}")
    return next(_wrong(program, known, run), Verdict("right"))


def _wrong(program: Program, known: Known, run: Run) -> Iterator[Verdict]:
    ulp = 2.0**-program.frac_bits
    if run.metered != run.plan.cost:
        yield Verdict("wrong", f"metered {run.metered}, declared {run.plan.cost}")
    for party in PARTIES:
        # The two that compute note all that is shown; the third what it is shown itself.
        noted, planned = run.leaks[party], run.plan.leaks
        if noted != planned if party in ROLES.computing else not {*noted} <= {*planned}:
            yield Verdict("wrong", f"the ledger of {party} is not the plan's")
    for party in program.to:
        for value in run.values[party]:
            got = value.double()
            if got.shape != known.v.shape:
                yield Verdict("wrong", f"shape {tuple(got.shape)}, wanted {tuple(known.v.shape)}")
                continue
            off = (got - known.v).abs()
            allowed = known.e + 2 * ulp + 1e-12 * known.v.abs()
            if bool((off > allowed).any() | got.isnan().any()):
                at = int((off - allowed).flatten().argmax())
                yield Verdict(
                    "wrong",
                    f"{party} got {float(got.flatten()[at])!r}, wanted "
                    f"{float(known.v.flatten()[at])!r} within {float(allowed.flatten()[at]):.3g}",
                )


def shrink(program: Program, protocol: str) -> Program:
    """Cut a wrong program down for as long as it stays wrong."""
    while True:
        for smaller in _smaller(program, protocol):
            if judge(smaller, protocol).outcome == "wrong":
                program = smaller
                break
        else:
            return program


def _smaller(program: Program, protocol: str) -> Iterator[Program]:
    count = len(program.inputs)
    for keep in range(1, len(program.steps)):  # an earlier step alone
        yield _reached(replace(program, steps=program.steps[:keep]))
    if program.again > 1:
        yield replace(program, again=1)
    if program.to != (ALICE,):
        yield replace(program, to=(ALICE,))
    try:
        bounds = program.bounds(protocol)
        values = program.plain(bounds)
    except Exception:
        return
    for at in range(len(program.steps) - 1):  # what a step gives, given instead
        v = values[count + at].v
        bound = max(bounds[count + at], float(v.abs().max()) if v.numel() else 0.0, 1e-3)
        ulp = 2.0**-program.frac_bits
        fresh = Given(ALICE, bound, ((v / ulp).round() * ulp).tolist(), tuple(v.shape))
        moved = [
            replace(
                step,
                of=tuple(count if i == count + at else i + 1 if i >= count else i for i in step.of),
            )
            for step in program.steps
        ]
        yield _reached(replace(program, inputs=(*program.inputs, fresh), steps=tuple(moved)))
    for at, given in enumerate(program.inputs):
        for changed in (replace(given, owner=ALICE), replace(given, dtype="float64")):
            if changed != given:
                rest = (*program.inputs[:at], changed, *program.inputs[at + 1 :])
                yield replace(program, inputs=rest)
