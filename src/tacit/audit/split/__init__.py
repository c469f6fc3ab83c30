"""Attacks on split models: completing them, clustering, gradient norms, reconstruction."""

from tacit.audit.split.complete import complete_deep_each, complete_each, even_out, whiten
from tacit.audit.split.game import ATTACKS, Target, audit_inputs, audit_labels
from tacit.audit.split.inputs import reconstruct
from tacit.audit.split.labels import (
    cluster,
    fine_tune,
    fine_tune_whitened,
    gradient_norm,
    train_from_scratch,
)
from tacit.audit.split.score import score_clusters, score_inputs, score_labels, score_ranking
from tacit.audit.split.views import (
    SeenCut,
    SeenGradients,
    SeenLayer,
    SeenRows,
    pick_leak,
    see_cut,
    see_layer,
)

__all__ = [
    "ATTACKS",
    "SeenCut",
    "SeenGradients",
    "SeenLayer",
    "SeenRows",
    "Target",
    "audit_inputs",
    "audit_labels",
    "cluster",
    "complete_deep_each",
    "complete_each",
    "even_out",
    "fine_tune",
    "fine_tune_whitened",
    "gradient_norm",
    "pick_leak",
    "reconstruct",
    "score_clusters",
    "score_inputs",
    "score_labels",
    "score_ranking",
    "see_cut",
    "see_layer",
    "train_from_scratch",
    "whiten",
]
