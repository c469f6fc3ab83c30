"""Attacks on split models: completing them, clustering, gradient norms, reconstruction."""

from tacit.audit.split.attacks import (
    cluster,
    complete_deep_each,
    complete_each,
    even_out,
    fine_tune,
    fine_tune_whitened,
    gradient_norm,
    reconstruct,
    train_from_scratch,
    whiten,
)
from tacit.audit.split.course import BLIND, JOINED, Told, audit_gradients
from tacit.audit.split.game import ATTACKS, Target, audit_inputs, audit_labels
from tacit.audit.split.gradients import (
    find_neighbours,
    group,
    group_and_name,
    has_known_energy,
    join_neighbours,
    look_early,
    sum_epochs,
    take_energy_out,
    whiten_epochs,
)
from tacit.audit.split.report import audit_answers, audit_returned
from tacit.audit.split.score import score_clusters, score_inputs, score_labels, score_ranking
from tacit.audit.split.sweep import CutAudit, audit_whole
from tacit.audit.split.training import SeenTraining, Watch
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
    "BLIND",
    "JOINED",
    "CutAudit",
    "SeenCut",
    "SeenGradients",
    "SeenLayer",
    "SeenRows",
    "SeenTraining",
    "Target",
    "Told",
    "Watch",
    "audit_answers",
    "audit_gradients",
    "audit_inputs",
    "audit_labels",
    "audit_returned",
    "audit_whole",
    "cluster",
    "complete_deep_each",
    "complete_each",
    "even_out",
    "find_neighbours",
    "fine_tune",
    "fine_tune_whitened",
    "gradient_norm",
    "group",
    "group_and_name",
    "has_known_energy",
    "join_neighbours",
    "look_early",
    "pick_leak",
    "reconstruct",
    "score_clusters",
    "score_inputs",
    "score_labels",
    "score_ranking",
    "see_cut",
    "see_layer",
    "sum_epochs",
    "take_energy_out",
    "train_from_scratch",
    "whiten",
    "whiten_epochs",
]
