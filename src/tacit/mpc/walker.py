"""One walk through programs on shares: planned, agreed on, run, counted, and taken up again.

A program is a function of ops; what it does depends on public facts alone. So the same walk can be
made without a session, to learn what it will cost, and by every party of one, to make it.
"""

import hashlib
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from tacit.errors import InputError
from tacit.mpc.arithmetic.coded import OpenCoded
from tacit.mpc.boundary import Input
from tacit.mpc.cache import OpeningCache
from tacit.mpc.contract import Roles
from tacit.mpc.pace import sum_forecasts
from tacit.mpc.plan import Plan
from tacit.mpc.plan_ops import make_plan
from tacit.mpc.registry import find_protocol
from tacit.mpc.run import compute, serve
from tacit.mpc.secret_ops import Given
from tacit.mpc.share import AnyShare, Share, Spec
from tacit.party import Session, merge
from tacit.party.cost import Round
from tacit.result import Forecast, Leak

R = TypeVar("R")

# Programs run on ops of specs and of shares, which have no common type.
Values = dict[str, Any]
Program = Callable[..., Values]


class Walker:
    """A party's way through programs; without a session, what they will send, and nothing is sent.

    Every party of a session walks alike. A program is planned when it first comes, and its plan is
    compared by all before its first run, or with all others by `agree`.
    """

    def __init__(
        self,
        roles: Roles,
        *,
        protocol: str,
        frac_bits: int,
        session: Session | None = None,
        device: torch.device | str = "cpu",
        first_run: int = 0,
        is_endless: bool = False,
        cache: OpeningCache | None = None,
    ) -> None:
        """Begin at the first program.

        Args:
            roles: who computes, and who deals.
            protocol: of all programs.
            frac_bits: precision of inputs, factors and outputs.
            session: my end of the job; none for who plans alone.
            device: where my shares live and are computed on; the result does not depend on it.
            first_run: for who plans alone, the number of the first run: masks are found by it.
            is_endless: whether runs of one plan are counted together, wherever they came in the
                walk: then memory does not grow with their number, but rounds are no longer exact.
            cache: of what is open under masks; an empty one if none is given.
        """
        self.roles, self.protocol, self.frac_bits = roles, protocol, frac_bits
        self.cache = cache or OpeningCache()
        self.plans: dict[Hashable, tuple[Plan, dict[str, Spec]]] = {}
        """Plans, and what they keep, by what they depend on; another walk may have made them."""
        self.runs: list[tuple[Plan, int]] = []
        """What was run, and how often in a row."""
        self.facts: dict[str, Spec] = {}
        """What `run` has kept, by name."""
        self.passed = 0
        """How many runs lie behind: those that were made, and those that an earlier start made."""
        self.look: Callable[[int, Plan | None], None] = lambda passed, plan: None
        """Called after every run of `run`: how many lie behind, and its plan if it was made now."""
        self._session, self._device = session, device
        self._number, self._is_endless = first_run, is_endless
        self._agreed: dict[int, Plan] = {}
        self._shares: dict[str, Share] = {}
        self._entered: set[str] = set()
        self._resumed: tuple[int, Mapping[str, Tensor]] = 0, {}

    @property
    def session(self) -> Session:
        """Return my end of the job."""
        if self._session is None:
            raise InputError("this walk is planned alone; nobody else is there to talk to")
        return self._session

    @property
    def me(self) -> str:
        """Return my name; nothing for who plans alone."""
        return "" if self._session is None else self._session.me

    @property
    def is_computing(self) -> bool:
        """Tell whether I hold shares."""
        return self.me in self.roles.computing

    def plan(
        self,
        program: Callable[[Any], object],
        *,
        key: Hashable = None,
        reads: Mapping[str, Spec] | None = None,
    ) -> Plan:
        """Return the plan of a program, made when it first comes.

        Args:
            program: a function of ops.
            key: all that tells it from the others of this walk.
            reads: what it takes up. What was opened under a mask since is not opened again, which
                is another plan.

        Raises:
            RangeError: numbers do not fit.
        """
        return self._planned(program, key, reads or {})[0]

    def agree(self, *others: "Walker") -> None:
        """Compare all plans that there are, with those of other walks, in one message."""
        walks = self, *others
        self.session.agree("plans", hashlib.sha256(b"".join(w.digest() for w in walks)).digest())
        for walk in walks:
            walk._agreed |= {id(plan): plan for plan, _ in walk.plans.values()}

    def digest(self) -> bytes:
        """Return a hash of all plans that there are."""
        plans = (plan for plan, _ in self.plans.values())
        return hashlib.sha256(b"".join(plan.digest() for plan in plans)).digest()

    def execute(
        self,
        plan: Plan,
        program: Callable[[Any], R],
        *,
        inputs: Mapping[str, Given] | None = None,
        kept: Mapping[str, AnyShare] | None = None,
    ) -> tuple[R | None, tuple[Tensor, ...]]:
        """Do my part of a plan.

        Args:
            plan: of the program.
            program: a function of ops.
            inputs: my part of what it brings in.
            kept: my shares of what it takes up.

        Returns:
            What the program returns, for who computes; and what was opened to me, in order.
        """
        found, opened = None, list[Tensor]()
        if self._session is None:
            self.cache.keep(self._number, plan.kept_openings, {}, {})
            self._number += 1
        elif self.is_computing:

            def noted(ops: Any) -> R:
                value = program(ops)
                opened.extend(ops.shown)
                return value

            found = compute(
                self._session,
                plan,
                noted,
                inputs=inputs or {},
                device=self._device,
                kept=kept,
                cache=self.cache,
                is_agreed=id(plan) in self._agreed,
            )
        else:
            opened += serve(
                self._session,
                plan,
                inputs=inputs or {},
                device=self._device,
                cache=self.cache,
                is_agreed=id(plan) in self._agreed,
            )
        self._agreed[id(plan)] = plan
        self._count(plan)
        return found, tuple(opened)

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
            program: a function of a module, of ops and kept values.
            uses: what the program calls a value, and under which name it is kept.
            gives: put before the names under which results are kept.
            inputs: my tensors among those that the program brings in.
            public: parameters that everyone knows.
        """
        self._run(program, dict(uses or {}), gives, inputs or {}, public)

    def open(self, names: Sequence[str], *, to: tuple[str, ...], why: str) -> dict[str, Tensor]:
        """Open kept values to the named parties; empty for everyone else."""
        found = self._run(_open, {name: name for name in names}, "", {}, {"to": to, "why": why})
        return dict(zip(names, found, strict=True)) if found else {}

    def drop(self, prefix: str) -> None:
        """Forget values that are not needed any more, and my shares of them."""
        for name in [one for one in self.facts if one.startswith(prefix)]:
            del self.facts[name]
        for name in [one for one in self._shares if one.startswith(prefix)]:
            del self._shares[name]

    def shares(self) -> dict[str, Tensor]:
        """Return my shares of what was computed so far; those of inputs are entered anew."""
        return {n: one.words for n, one in self._shares.items() if n not in self._entered}

    def go_on(self, passed: int, shares: Mapping[str, Tensor]) -> None:
        """Leave out the first runs, of which an earlier start kept these shares.

        Runs that bring inputs in are made again, under fresh masks: no opening outlives a session.
        """
        self._resumed = passed, shares

    @property
    def is_planned(self) -> bool:
        """Tell whether somebody has planned what comes, as a job does before it connects."""
        return bool(self.plans) or self._resumed[0] > 0

    def forecast(self, *, before: Iterable[Round] = ()) -> Forecast:
        """Return what all runs so far cost by their plans, after what was sent ``before``."""
        if not self.runs:
            raise InputError("nothing was planned or run yet")
        return sum_forecasts(self.runs, before=before)

    def leaks(self) -> tuple[Leak, ...]:
        """Return what all runs so far show to whom, by their plans."""
        return merge(
            replace(leak, elements=times * leak.elements)
            for plan, times in self.runs
            for leak in plan.leaks
        )

    def _planned(
        self, program: Callable[[Any], object], key: Hashable, reads: Mapping[str, Spec]
    ) -> tuple[Plan, dict[str, Spec]]:
        """Return the plan of a program, and the public facts about what it keeps by name."""
        find = self.cache.find
        key = key, tuple(n for n, spec in reads.items() if find(n, spec, None) is not None)
        if key not in self.plans:
            kept: dict[str, Spec] = {}

            def noted(ops: Any) -> None:
                values = program(ops)
                if isinstance(values, dict):
                    kept.update({n: one for n, one in values.items() if isinstance(one, Spec)})

            protocol, frac_bits = find_protocol(self.protocol), self.frac_bits
            plan = make_plan(noted, protocol, self.roles, frac_bits=frac_bits, cache=self.cache)
            self.plans[key] = plan, kept
        return self.plans[key]

    def _run(
        self,
        program: Program,
        uses: dict[str, str],
        gives: str,
        inputs: Mapping[str, Given],
        public: Mapping[str, Hashable],
    ) -> tuple[Tensor, ...]:
        missing = [name for name in uses.values() if name not in self.facts]
        if missing:
            raise InputError(f"nothing is kept under {missing[0]!r}; fit before you predict")
        facts = {name: self.facts[name] for name in uses.values()}
        bound = partial(_bound, program, uses, facts, gives, public)
        named = program.__module__, program.__qualname__, gives
        key = *named, tuple(uses.items()), tuple(facts.items()), tuple(sorted(public.items()))
        plan, kept = self._planned(bound, key, facts)
        self.passed += 1
        opened: tuple[Tensor, ...] = ()
        is_behind = self._is_behind(plan)
        if not is_behind:
            found, opened = self.execute(plan, bound, inputs=inputs, kept=self._shares)
            brings_in = any(isinstance(step.kernel, Input) for step in plan.steps)
            for name, value in (found or {}).items():
                if isinstance(value, Share):
                    self._shares[name] = value
                    self._entered |= {name} if brings_in else set()
        self.facts.update(kept)
        self.look(self.passed, None if is_behind else plan)
        return opened

    def _is_behind(self, plan: Plan) -> bool:
        """Leave a run out that was made before; after the last of these, take up my shares."""
        last, kept = self._resumed
        if self.passed <= last:
            return not any(isinstance(step.kernel, Input | OpenCoded) for step in plan.steps)
        for name, words in kept.items():
            if name in self.facts:  # what was dropped since is in the checkpoint, but not here
                self._shares[name] = Share(words, self.facts[name])
        self._resumed = last, {}
        return False

    def _count(self, plan: Plan) -> None:
        places = range(len(self.runs)) if self._is_endless else range(len(self.runs))[-1:]
        for at in places:
            if self.runs[at][0] is plan:
                self.runs[at] = plan, self.runs[at][1] + 1
                return
        self.runs.append((plan, 1))


def _bound(
    program: Program,
    uses: Mapping[str, str],
    facts: Mapping[str, Spec],
    gives: str,
    public: Mapping[str, Hashable],
    ops: Any,
) -> Values:
    """Run a program on kept values, and name what it returns."""
    values = {}
    for alias, name in uses.items():
        spec = facts[name]
        values[alias] = ops.resume(
            name, shape=spec.shape, bound=spec.bound, frac_bits=spec.frac_bits
        )
    found = program(ops, values, **public)
    return {f"{gives}{name}": _kept(ops, value) for name, value in found.items()}


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
