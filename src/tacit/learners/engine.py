"""The engine of learners: programs on shares, run one after the other, with values kept between.

A learner is a walk of programs. A program is a function of ops and of kept values that returns
values to keep; what it does depends on public facts alone, so that the same walk can be planned
without data (`Forecaster`) and run by every party (`Engine`).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from tacit.errors import InputError
from tacit.mpc import OpeningCache, Plan, Roles, Share, compute, find_protocol, make_plan, serve
from tacit.mpc.arithmetic.coded import Codes, OpenCoded
from tacit.mpc.boundary import Input
from tacit.mpc.pace import add_computing
from tacit.mpc.share import Spec
from tacit.party import Progress, Session
from tacit.party.cost import cost_in_a_row
from tacit.result import Forecast

# Programs run on ops of specs and of shares, which have no common type.
Values = dict[str, Any]
Program = Callable[..., Values]
Given = Tensor | Codes
"""What an owner brings in: numbers, or codes of zeros and ones."""


class Walker(ABC):
    """Plan programs, remember the public facts about what they keep, and let a party run them."""

    def __init__(self, roles: Roles, *, protocol: str, frac_bits: int) -> None:
        self.roles = roles
        self.protocol = protocol
        self.frac_bits = frac_bits
        self.facts: dict[str, Spec] = {}
        self.cache = OpeningCache()
        self.runs: list[Plan] = []
        self.passed = 0
        """How many runs lie behind: those that were made, and those that an earlier start made."""
        self.watch: Callable[[int], None] = lambda passed: None
        """Called after every run with how many lie behind."""
        self.plans: dict[Hashable, tuple[Plan, dict[str, Spec]]] = {}
        """Plans by what they depend on; a party may take over those that it made beforehand."""
        self._agreed: set[Hashable] = set()

    def run(
        self,
        program: Program,
        *,
        uses: Mapping[str, str] | None = None,
        gives: str = "",
        inputs: Mapping[str, Given] | None = None,
        **public: Hashable,
    ) -> None:
        """Run a program as ``program(ops, values, **public)`` and keep what it returns.

        Args:
            program: a function of the module, of ops and kept values.
            uses: what the program calls a value, and under which name it is kept.
            gives: put before the names under which results are kept.
            inputs: my tensors among those that the program brings in.
            public: parameters that everyone knows.
        """
        self._run(program, dict(uses or {}), gives, dict(inputs or {}), public)

    def open(self, names: Sequence[str], *, to: tuple[str, ...], why: str) -> dict[str, Tensor]:
        """Open kept values to the named parties; empty for everyone else."""
        found = self._run(_open, {name: name for name in names}, "", {}, {"to": to, "why": why})
        return dict(zip(names, found, strict=True)) if found else {}

    def drop(self, prefix: str) -> None:
        """Forget values that are not needed any more."""
        for name in [one for one in self.facts if one.startswith(prefix)]:
            del self.facts[name]

    def forecast(self) -> Forecast:
        """Return what all runs so far cost by their plans."""
        if not self.runs:
            raise InputError("nothing was planned yet; fit a learner first")
        cost = cost_in_a_row(self.runs)
        counts: dict[int, tuple[Plan, int]] = {}
        for plan in self.runs:
            counts[id(plan)] = plan, counts.get(id(plan), (plan, 0))[1] + 1
        forecast = replace(self.runs[0].forecast(), cost=cost)
        return add_computing(forecast, counts.values())

    def _run(
        self,
        program: Program,
        uses: dict[str, str],
        gives: str,
        inputs: dict[str, Given],
        public: Mapping[str, Hashable],
    ) -> tuple[Tensor, ...]:
        missing = [name for name in uses.values() if name not in self.facts]
        if missing:
            raise InputError(f"nothing is kept under {missing[0]!r}; fit before you predict")
        facts = {name: self.facts[name] for name in uses.values()}

        def bound_program(ops: Any) -> Values:
            values = {alias: _resume(ops, name, facts[name]) for alias, name in uses.items()}
            found = program(ops, values, **public)
            return {f"{gives}{name}": _kept(ops, value) for name, value in found.items()}

        opened = tuple(n for n, f in facts.items() if self.cache.find(n, f, None) is not None)
        key = (
            program.__module__,
            program.__qualname__,
            gives,
            tuple(uses.items()),
            tuple(facts.items()),
            opened,
            tuple(sorted(public.items())),
        )
        if key not in self.plans:
            self.plans[key] = self._planned(bound_program)
        plan, kept = self.plans[key]
        self.passed += 1
        shown: tuple[Tensor, ...] = ()
        if not self.is_behind(plan):
            shown = self.execute(plan, bound_program, inputs, is_agreed=key in self._agreed)
            self._agreed.add(key)
            self.runs.append(plan)
        self.facts.update(kept)
        self.watch(self.passed)
        return shown

    def _planned(self, program: Callable[[Any], Values]) -> tuple[Plan, dict[str, Spec]]:
        kept: dict[str, Spec] = {}

        def noted(ops: Any) -> None:
            kept.update({n: s for n, s in program(ops).items() if isinstance(s, Spec)})

        protocol = find_protocol(self.protocol)
        plan = make_plan(noted, protocol, self.roles, frac_bits=self.frac_bits, cache=self.cache)
        return plan, kept

    def is_behind(self, plan: Plan) -> bool:
        """Tell whether an earlier start has made this run, so that its results are there."""
        return False

    @abstractmethod
    def execute(
        self,
        plan: Plan,
        program: Callable[[Any], Values],
        inputs: Mapping[str, Given],
        *,
        is_agreed: bool,
    ) -> tuple[Tensor, ...]:
        """Do my part of a plan and return what was opened to me."""


class Forecaster(Walker):
    """Walk without data and without peers: only plans are made."""

    def execute(
        self,
        plan: Plan,
        program: Callable[[Any], Values],
        inputs: Mapping[str, Given],
        *,
        is_agreed: bool,
    ) -> tuple[Tensor, ...]:
        """Note what would be held; nothing is opened."""
        self.cache.keep(len(self.runs), plan.kept_openings, {}, {})
        return ()


class Engine(Walker):
    """One party's way through the programs."""

    def __init__(self, session: Session, roles: Roles, *, protocol: str, frac_bits: int) -> None:
        super().__init__(roles, protocol=protocol, frac_bits=frac_bits)
        self.session = session
        # Thousands of runs are one stage to whoever watches.
        self._quiet = replace(session, progress=Progress())
        self._shares: dict[str, Share] = {}
        self._entered: set[str] = set()
        self._resumed: tuple[int, Mapping[str, Tensor]] = 0, {}

    def shares(self) -> dict[str, Tensor]:
        """Return my shares of what was computed so far; those of inputs are entered anew."""
        return {n: one.words for n, one in self._shares.items() if n not in self._entered}

    def go_on(self, passed: int, shares: Mapping[str, Tensor]) -> None:
        """Leave out the first runs, of which an earlier start kept these shares.

        Runs that bring inputs in are made again, under fresh masks: no opening outlives a session.
        """
        self._resumed = passed, shares

    def is_behind(self, plan: Plan) -> bool:
        """Leave a run out that was made before; after the last of these, take up my shares."""
        last, kept = self._resumed
        if self.passed <= last:
            return not any(isinstance(step.kernel, Input | OpenCoded) for step in plan.steps)
        for name, words in kept.items():
            if name in self.facts:  # what was dropped since is in the checkpoint, but not here
                self._shares[name] = Share(words, self.facts[name])
        self._resumed = last, {}
        return False

    @property
    def is_planned(self) -> bool:
        """Tell whether somebody has planned what comes, as a job does before it connects."""
        return bool(self.plans) or self._resumed[0] > 0

    @property
    def me(self) -> str:
        """Return my name."""
        return self.session.me

    def drop(self, prefix: str) -> None:
        """Forget values, and my shares of them."""
        super().drop(prefix)
        for name in [one for one in self._shares if one.startswith(prefix)]:
            del self._shares[name]

    def execute(
        self,
        plan: Plan,
        program: Callable[[Any], Values],
        inputs: Mapping[str, Given],
        *,
        is_agreed: bool,
    ) -> tuple[Tensor, ...]:
        """Run a plan as P0 or P1, or attend to it as anyone else."""
        if self.me not in self.roles.computing:
            return serve(self._quiet, plan, inputs=inputs, cache=self.cache, is_agreed=is_agreed)
        opened: list[Tensor] = []
        found = compute(
            self._quiet,
            plan,
            program,
            inputs=inputs,
            kept=self._shares,
            cache=self.cache,
            is_agreed=is_agreed,
        )
        for name, value in found.items():
            if isinstance(value, Share):
                self._shares[name] = value
                if any(isinstance(step.kernel, Input) for step in plan.steps):
                    self._entered.add(name)
            elif isinstance(value, Tensor):
                opened.append(value)
        return tuple(opened)


def _resume(ops: Any, name: str, spec: Spec) -> Any:
    return ops.resume(name, shape=spec.shape, bound=spec.bound, frac_bits=spec.frac_bits)


def _kept(ops: Any, value: Any) -> Any:
    """Keep numbers in the usual precision, and whole numbers as they are; openings pass through."""
    if value is None or isinstance(value, Tensor):
        return value
    (value,) = ops.entered(value)  # an input that is kept as it is needs its tags
    spec = ops.number(value, "keeping")
    return value if spec.frac_bits == 0 and spec.deferred is None else ops.normalise_scale(value)


def _open(ops: Any, values: Values, *, to: tuple[str, ...], why: str) -> Values:
    return {
        f"opened {name}": ops.open(value, to=to, what=name, why=why)
        for name, value in values.items()
    }
