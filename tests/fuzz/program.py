"""A program of `ops`: inputs, steps, what is shown to whom; run privately, and in plain maths."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from fuzz.known import Known
from fuzz.table import VERBS
from fuzz.verb import Shape
from support.mpc import ALICE, ALONE, ROLES
from tacit.errors import InputError
from tacit.mpc import MpcProtocol, OpeningCache, Plan, Roles, find_protocol, make_plan

FRAC_BITS = 16  # what stated errors of curves are for


@dataclass(frozen=True)
class Given:
    """An input: whose, of what bound and type, and its numbers; kept if it is opened for good."""

    owner: str
    bound: float
    numbers: Any  # nested lists, as deep as the shape
    shape: Shape
    dtype: str = "float64"
    is_kept: bool = False

    def tensor(self, run: int = 0) -> Tensor:
        """Return the numbers as their owner hands them in; a later run has others."""
        made = torch.tensor(self.numbers, dtype=torch.float64).reshape(self.shape)
        if run and not self.is_kept:
            made = made.flatten().roll(run).flip(0).reshape(self.shape)
        return made.to(getattr(torch, self.dtype))


@dataclass(frozen=True)
class Step:
    """A verb, which values it is applied to (inputs first, then steps) and what is public."""

    verb: str
    of: tuple[int, ...]
    public: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Program:
    """Inputs, steps, who receives what nothing else is made of, the precision, and how often."""

    inputs: tuple[Given, ...]
    steps: tuple[Step, ...]
    to: tuple[str, ...] = (ALICE,)
    frac_bits: int = FRAC_BITS
    runs: int = 1
    """In one session; kept inputs are opened in the first, and served from a cache later."""
    again: int = 1
    """How often the last step is done in a run: openings that are noted must serve each time."""

    @property
    def shown(self) -> list[int]:
        """List the steps that no other step needs."""
        used = {i for step in self.steps for i in step.of}
        count = len(self.inputs)
        return [count + at for at in range(len(self.steps)) if count + at not in used]

    def private(self, ops: Any) -> list[Tensor | None]:
        """Compute it on ops, and open what comes last."""
        values = self.values(ops)
        shown = [values[at] for at in self.shown]
        shown += [_apply(ops, self.steps[-1], values) for _ in range(1, self.again)]
        return [ops.open(one, to=self.to, what="result", why="fuzz") for one in shown]

    def values(self, ops: Any) -> list[Any]:
        """Give all inputs and steps on ops."""
        values = []
        for at, one in enumerate(self.inputs):
            values.append(ops.input(f"x{at}", owner=one.owner, shape=one.shape, bound=one.bound))
            if one.is_kept:
                ops.cache_openings(values[-1])
        for step in self.steps:
            values.append(_apply(ops, step, values))
        return values

    def plain(self, bounds: Sequence[float], run: int = 0) -> list[Known]:
        """Compute it in double precision, with what a private result may be off by."""
        ulp = 2.0**-self.frac_bits
        values = []
        for one, bound in zip(self.inputs, bounds, strict=False):
            x = one.tensor(run).double()
            values.append(Known((x / ulp).round() * ulp, torch.zeros_like(x), bound))
        for one, bound in zip(self.steps, bounds[len(self.inputs) :], strict=True):
            operands = [values[i] for i in one.of]
            found = VERBS[one.verb].plain(*operands, ulp=ulp, **one.public)
            values.append(replace(found, bound=bound))
        return values

    def plan(self, protocol: str, cache: OpeningCache | None = None) -> Plan:
        """Plan one run of it."""
        found, roles = found_with_roles(protocol)
        return make_plan(self.private, found, roles, frac_bits=self.frac_bits, cache=cache)

    def bounds(self, protocol: str) -> list[float]:
        """Return how large the plan says that every value can be."""
        noted: list[float] = []
        found, roles = found_with_roles(protocol)
        make_plan(
            lambda ops: noted.extend(bound_of(ops, one) for one in self.values(ops)),
            found,
            roles,
            frac_bits=self.frac_bits,
        )
        return noted

    def reached(self, *ends: int) -> "Program":
        """Leave out what these values do not need."""
        count, wanted, todo = len(self.inputs), set(ends), list(ends)
        while todo:
            one = todo.pop()
            if one >= count:
                fresh = set(self.steps[one - count].of) - wanted
                wanted |= fresh
                todo += fresh
        order = sorted(wanted)
        place = {old: new for new, old in enumerate(order)}
        steps = [self.steps[i - count] for i in order if i >= count]
        return replace(
            self,
            inputs=tuple(self.inputs[i] for i in order if i < count),
            steps=tuple(replace(one, of=tuple(place[j] for j in one.of)) for one in steps),
        )


def _apply(ops: Any, step: Step, values: Sequence[Any]) -> Any:
    return VERBS[step.verb].private(ops, *(values[i] for i in step.of), **step.public)


def found_with_roles(protocol: str) -> tuple[MpcProtocol, Roles]:
    """Return a protocol, and who is who under it."""
    found = find_protocol(protocol)
    return found, ROLES if found.has_dealer else ALONE


def bound_of(ops: Any, value: Any) -> float:
    """Return how large a value can be; one of a bit, which can only be opened."""
    try:
        return float(ops.bound(value))
    except (AttributeError, TypeError, InputError):
        return 1.0
