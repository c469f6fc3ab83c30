"""Sweep a defence: train and attack once per setting, and draw privacy against utility."""

from collections.abc import Callable, Mapping

from tacit.audit.findings import Finding
from tacit.audit.membership.audit import Labelled, audit_membership, join_records
from tacit.audit.membership.threats import Effort
from tacit.audit.shadows import Fleet
from tacit.audit.target import Trainer
from tacit.errors import ConfigError
from tacit.result import Curve, Sheet


def sweep(
    trainers: Mapping[str, Trainer],
    members: Labelled,
    non_members: Labelled,
    *,
    name: str,
    effort: Effort,
    fleet: Fleet,
    report: Callable[[int], None] = lambda done: None,
) -> tuple[Curve, Sheet]:
    """Train a target with every trainer, attack it, and lay out what each setting costs and saves.

    Args:
        trainers: by the words that describe their setting.
        members: rows and labels that every target is trained on.
        non_members: rows and labels that none is.
        name: of the defence.
        effort: what is tried against each.
        fleet: how shadow models are trained and kept.
        report: told how many settings were tried.

    Returns:
        The frontier, accuracy on non-members against the AUC of the best attack, and the table.
    """
    if not trainers:
        raise ConfigError("a sweep needs at least one setting")
    x, y, is_member = join_records(members, non_members)
    points, rows = [], []
    for words, trainer in trainers.items():
        target = trainer(x[is_member], y[is_member], seed=effort.seed)
        found = audit_membership(
            target, members, non_members, trainer=trainer, effort=effort, fleet=fleet
        )
        best = max(found.findings, key=_area)
        accuracy = found.utility[1]
        points.append((accuracy.value or 0.0, _area(best)))
        low, high = best.headline.low or 0.0, best.headline.high or 0.0
        rows.append(
            (
                words,
                f"{accuracy.value:.1%} [{accuracy.low:.1%}, {accuracy.high:.1%}]",
                f"{_area(best):.3f} [{low:.3f}, {high:.3f}]",
                best.attack,
            )
        )
        report(len(rows))
    curve = Curve(
        title="Privacy against utility",
        x_label="accuracy on non-members",
        y_label="AUC of the best attack; ½ is a blind guess",
        name=name,
        points=tuple(sorted(points)),
    )
    heads = (name, "# accuracy on non-members", "# AUC of the best attack", "best attack")
    return curve, Sheet(title="Defence sweep", heads=heads, rows=tuple(rows))


def _area(finding: Finding) -> float:
    return finding.headline.value or 0.0
