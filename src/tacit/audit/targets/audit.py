"""The whole audit of a target: membership, what classes look like, claims, and a swept defence."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tacit.audit.findings import Finding, Verdict, build_result
from tacit.audit.membership.audit import audit_membership
from tacit.audit.membership.frontier import sweep
from tacit.audit.membership.plays import Plan
from tacit.audit.privacy.claims import short_claim
from tacit.audit.shadows import Fleet
from tacit.audit.target import Trainer
from tacit.audit.targets.pictures import show_classes
from tacit.audit.targets.target import Target, no_claim
from tacit.party import Progress
from tacit.result import Claim, Curve, Result, Sheet

_SUBJECT = "each member's presence in the training data"


@dataclass(frozen=True, kw_only=True, eq=False)
class Tested:
    """What became of the claims about ε: attacks, verdicts, and the claims themselves."""

    findings: tuple[Finding, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    claims: tuple[Claim, ...] = ()


def audit_target(
    name: str,
    target: Target,
    *,
    plan: Plan = Plan(),  # noqa: B008  it is frozen
    fleet: Fleet = Fleet(),  # noqa: B008  it is frozen
    tested: Tested = Tested(),  # noqa: B008  it is frozen
    swept: tuple[str, Mapping[str, Trainer]] = ("", {}),
    is_quick: bool = False,
    progress: Progress | None = None,
) -> Result:
    """Attack a target by everything there is, and lay out what was found.

    Args:
        name: of the result.
        target: what is attacked.
        plan: what is tried against membership; without threats, those of the target.
        fleet: how shadow models are trained and kept.
        tested: what became of the claims about ε, if any were put to the test.
        swept: a defence, and trainers with it by the words that describe its strength.
        is_quick: search less.
        progress: is told what is being done.
    """
    steps = progress or Progress()
    with steps.stage("asking who was trained on", plan.shadows) as advance:
        found = audit_membership(
            target.model,
            target.members,
            target.non_members,
            trainer=target.trainer,
            plan=plan if plan.threats else replace(plan, threats=target.threats),
            fleet=replace(fleet, report=lambda done, total: advance(done)),
        )
    with steps.stage("rebuilding what classes look like"):
        shown = show_classes(target, is_quick=is_quick)
    curves, sheets = _sweep(swept, target, plan, fleet, steps)
    words = "; ".join(short_claim(claim) for claim in tested.claims[:1])
    every = (*found.findings, *target.findings, *shown, *tested.findings)
    result = build_result(
        name,
        [replace(one, claimed=words) for one in every],
        verdicts=tested.verdicts,
        utility=found.utility,
        sheets=(*found.sheets, *sheets),
        curves=curves,
        notes=(*target.notes, *found.notes),
    )
    claims = (*tested.claims, *target.claims) or (no_claim(_SUBJECT),)
    return replace(result, claims=claims)


def _sweep(
    swept: tuple[str, Mapping[str, Trainer]],
    target: Target,
    plan: Plan,
    fleet: Fleet,
    steps: Progress,
) -> tuple[tuple[Curve, ...], tuple[Sheet, ...]]:
    setting, trainers = swept
    if not trainers:
        return (), ()
    # The cheapest threat with teeth: shadow models for every setting would take too long.
    cheap = replace(plan, threats=("scores",))
    with steps.stage(f"sweeping {setting}", len(trainers)) as advance:
        curve, sheet = sweep(
            trainers,
            target.members,
            target.non_members,
            name=setting,
            plan=cheap,
            fleet=fleet,
            report=advance,
        )
    return (curve,), (sheet,)
