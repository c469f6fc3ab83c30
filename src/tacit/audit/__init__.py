"""Audits: attacks that see what a threat model grants them, and honest estimates of success."""

from tacit.audit.estimators import (
    Ranking,
    advantage,
    auc,
    bootstrap,
    clopper_pearson,
    draw_roc,
    mean_interval,
    measure_ranking,
    proportion,
    roc,
    tpr_at,
)
from tacit.audit.findings import (
    Finding,
    Power,
    Threat,
    Verdict,
    beats_guess,
    best_findings,
    build_result,
    check_verdicts,
)
from tacit.audit.membership import audit_membership
from tacit.audit.membership.audit import membership
from tacit.audit.shadows import Fleet, toss, train_shadows
from tacit.audit.target import (
    Classifier,
    SklearnClassifier,
    SklearnTrainer,
    TorchClassifier,
    TorchTrainer,
    Trainer,
    as_classifier,
)
from tacit.audit.views import Attack, seeded

__all__ = [
    "Attack",
    "Classifier",
    "Finding",
    "Fleet",
    "Power",
    "Ranking",
    "SklearnClassifier",
    "SklearnTrainer",
    "Threat",
    "TorchClassifier",
    "TorchTrainer",
    "Trainer",
    "Verdict",
    "advantage",
    "as_classifier",
    "auc",
    "audit_membership",
    "beats_guess",
    "best_findings",
    "bootstrap",
    "build_result",
    "check_verdicts",
    "clopper_pearson",
    "draw_roc",
    "mean_interval",
    "measure_ranking",
    "membership",
    "proportion",
    "roc",
    "seeded",
    "toss",
    "tpr_at",
    "train_shadows",
]
