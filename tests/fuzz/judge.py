"""Run a program, compare all that was declared with what came, and cut down what is wrong."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from fuzz.known import Known
from fuzz.program import Given, Program
from fuzz.table import VERBS
from support.mpc import ALICE, MEETING, PARTIES, ROLES
from tacit.errors import InputError, RangeError
from tacit.mpc import OpeningCache, Plan, compute, serve
from tacit.party import Session, merge, merge_costs, run_threads, without_setup
from tacit.party.cost import cost_in_a_row
from tacit.result import Cost, Leak


@dataclass(frozen=True)
class Verdict:
    """What came of a program: right, refused by name, or wrong and how."""

    outcome: str  # "right", "refused" or "wrong"
    how: str = ""


@dataclass
class Seen:
    """What every party had in the end of a session: its plans, values, ledger and meter."""

    plans: dict[str, list[Plan]] = field(default_factory=dict)
    values: dict[str, list[list[Any]]] = field(default_factory=dict)
    leaks: dict[str, tuple[Leak, ...]] = field(default_factory=dict)
    costs: dict[str, Cost] = field(default_factory=dict)


def judge(program: Program, protocol: str) -> Verdict:
    """Run a program under a protocol, and say what came of it."""
    try:
        plan, bounds = program.plan(protocol), program.bounds(protocol)
    except InputError as refusal:
        outcome = "refused" if _is_stated(program, refusal) else "wrong"
        return Verdict(outcome, f"{type(refusal).__name__}: {refusal}")
    except Exception as error:
        return Verdict("wrong", f"planning ended in {type(error).__name__}: {error}")
    try:
        seen = _run(program, protocol, plan)
    except Exception as error:
        return Verdict("wrong", f"the run ended in {type(error).__name__}: {error}")
    known = [program.plain(bounds, run) for run in range(program.runs)]
    return next(_wrong(program, known, seen), Verdict("right"))


def _is_stated(program: Program, refusal: InputError) -> bool:
    """Tell whether what does not fit, holds nothing, or is of a smaller ring is refused."""
    is_empty = any(0 in one.shape for one in program.inputs)
    return isinstance(refusal, RangeError) or is_empty or "truncate it first" in str(refusal)


def _run(program: Program, protocol: str, plan: Plan) -> Seen:
    seen = Seen()

    def party(session: Session) -> None:
        me, cache = session.me, OpeningCache()
        seen.plans[me], seen.values[me] = [], []
        for run in range(program.runs):
            planned = program.plan(protocol, cache) if run else plan
            inputs = {
                f"x{at}": one.tensor(run)
                for at, one in enumerate(program.inputs)
                if one.owner == me
            }
            if me in ROLES.computing:
                work = program.private
                values = compute(session, planned, work, inputs=inputs, cache=cache)
            else:
                values = list(serve(session, planned, inputs=inputs, cache=cache))
            seen.plans[me].append(planned)
            seen.values[me].append(values)
        seen.leaks[me], seen.costs[me] = session.ledger.entries(), session.cost()

    run_threads(dict.fromkeys(PARTIES, party), MEETING)
    return seen


def _wrong(program: Program, known: list[list[Known]], seen: Seen) -> Iterator[Verdict]:
    plans = seen.plans[ALICE]
    metered, declared = (
        without_setup(merge_costs(seen.costs)),
        cost_in_a_row(plan.flow for plan in plans),
    )
    if any(VERBS[one.verb].posts for one in program.steps):
        fewer = min(metered.online_rounds, declared.online_rounds)
        declared = replace(declared, online_rounds=fewer)
    if metered != declared:
        yield Verdict("wrong", f"metered {metered}, declared {declared}")
    planned = set(merge(leak for plan in plans for leak in plan.leaks))
    for party in PARTIES:
        # The two that compute note all that is shown; the third what it is shown itself.
        noted = set(seen.leaks[party])
        if noted != planned if party in ROLES.computing else not noted <= planned:
            yield Verdict("wrong", f"the ledger of {party} is not the plan's")
    for run, numbers in enumerate(known):
        shown = list(program.shown)
        shown += [len(program.inputs) + len(program.steps) - 1] * (program.again - 1)
        for party in program.to:
            for at, value in zip(shown, seen.values[party][run], strict=True):
                yield from _off(value, numbers[at], 2.0**-program.frac_bits, f"{party} got")


def _off(value: Any, known: Known, ulp: float, who: str) -> Iterator[Verdict]:
    got = value.double()
    if got.shape != known.v.shape:
        yield Verdict("wrong", f"shape {tuple(got.shape)}, wanted {tuple(known.v.shape)}")
        return
    off = (got - known.v).abs()
    allowed = known.e + 2 * ulp + 1e-12 * known.v.abs()
    if bool((off > allowed).any() | got.isnan().any()):
        at = int((off - allowed).flatten().argmax())
        got, want = float(got.flatten()[at]), float(known.v.flatten()[at])
        within = float(allowed.flatten()[at])
        yield Verdict("wrong", f"{who} {got!r}, wanted {want!r} within {within:.3g}")
        return
    largest = torch.where(known.e.isfinite(), got.abs(), 0.0)
    if got.numel() and float(largest.max()) > known.bound + 2 * ulp:
        yield Verdict("wrong", f"{who} {float(largest.max())!r}, bound {known.bound!r}")


def shrink(program: Program, is_wrong: Callable[[Program], bool], protocol: str) -> Program:
    """Cut a wrong program down for as long as it stays wrong."""
    while True:
        for smaller in _smaller(program, protocol):
            if is_wrong(smaller):
                program = smaller
                break
        else:
            return program


def _smaller(program: Program, protocol: str) -> Iterator[Program]:
    count = len(program.inputs)
    for at in range(len(program.steps)):  # an earlier step alone, or one of several results
        if (smaller := program.reached(count + at)) != program:
            yield smaller
    for simpler in ({"again": 1}, {"runs": 1}, {"to": (ALICE,)}):
        if (smaller := replace(program, **simpler)) != program:
            yield smaller
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
        moved = tuple(
            replace(
                step,
                of=tuple(count if i == count + at else i + (i >= count) for i in step.of),
            )
            for step in program.steps
        )
        fewer = replace(program, inputs=(*program.inputs, fresh), steps=moved)
        yield fewer.reached(len(fewer.inputs) + len(moved) - 1)
    for at, given in enumerate(program.inputs):
        for simpler in ({"owner": ALICE}, {"dtype": "float64"}, {"is_kept": False}):
            if (changed := replace(given, **simpler)) != given:
                rest = (*program.inputs[:at], changed, *program.inputs[at + 1 :])
                yield replace(program, inputs=rest)
