"""The whole audit of a target: membership, what classes look like, claims, and a swept defence."""

from dataclasses import replace

from tacit.audit.findings import Verdict, build_result
from tacit.audit.membership.audit import audit_membership, sweep
from tacit.audit.membership.threats import Effort
from tacit.audit.privacy.claims import short_claim
from tacit.audit.shadows import Fleet
from tacit.audit.targets.target import Target, Tested, no_claim, show_classes
from tacit.party import Progress
from tacit.result import Curve, Result, Sheet

_SUBJECT = "each member's presence in the training data"


def audit_target(
    name: str,
    target: Target,
    *,
    effort: Effort = Effort(),  # noqa: B008  it is frozen
    fleet: Fleet = Fleet(),  # noqa: B008  it is frozen
    is_quick: bool = False,
    progress: Progress | None = None,
) -> tuple[Result, tuple[Verdict, ...]]:
    """Attack a target by everything there is; lay out what was found, and what of its claims.

    Args:
        name: of the result.
        target: what is attacked.
        effort: what is tried; without threats, those of the target.
        fleet: how shadow models are trained and kept.
        is_quick: search less.
        progress: is told what is being done.
    """
    steps, tested = progress or Progress(), Tested()
    if target.put_to_the_test is not None:
        with steps.stage("putting the claim to the test"):
            tested = target.put_to_the_test(effort)
    with steps.stage("asking who was trained on", effort.shadows) as advance:
        found = audit_membership(
            target.model,
            target.members,
            target.non_members,
            trainer=target.trainer,
            effort=effort if effort.threats else replace(effort, threats=target.threats),
            fleet=replace(fleet, report=lambda done, total: advance(done)),
        )
    with steps.stage("rebuilding what classes look like"):
        shown = show_classes(target, is_quick=is_quick)
    curves, sheets = _sweep(target, effort, fleet, steps)
    words = "; ".join(short_claim(claim) for claim in tested.claims[:1])
    every = (*found.findings, *target.findings, *shown, *tested.findings)
    result = build_result(
        name,
        [replace(one, claimed=words) for one in every],
        verdicts=tested.verdicts,
        utility=found.utility,
        sheets=(*found.sheets, *sheets),
        curves=curves,
        notes=(*target.notes, *tested.notes, *found.notes),
    )
    claims = (*tested.claims, *target.claims) or (no_claim(_SUBJECT),)
    return replace(result, claims=claims), tested.verdicts


def _sweep(
    target: Target, effort: Effort, fleet: Fleet, steps: Progress
) -> tuple[tuple[Curve, ...], tuple[Sheet, ...]]:
    setting, trainers = target.swept
    if not trainers:
        return (), ()
    # The cheapest threat with teeth: shadow models for every setting would take too long.
    cheap = replace(effort, threats=("scores",))
    with steps.stage(f"sweeping {setting}", len(trainers)) as advance:
        curve, sheet = sweep(
            trainers,
            target.members,
            target.non_members,
            name=setting,
            effort=cheap,
            fleet=fleet,
            report=advance,
        )
    return (curve,), (sheet,)
