"""Membership inference: was this record trained on?"""

from tacit.audit.membership.audit import (
    Membership,
    audit_membership,
    audit_scene,
    join_records,
    most_exposed,
    sweep,
)
from tacit.audit.membership.threats import ATTACKS, GAMES, Effort, Game, Scene
from tacit.audit.membership.views import (
    Push,
    SeenGradients,
    SeenLabels,
    SeenRounds,
    SeenScores,
    SeenShadows,
    see_gradients,
    see_labels,
    see_scores,
    see_shadows,
)

__all__ = [
    "ATTACKS",
    "GAMES",
    "Effort",
    "Game",
    "Membership",
    "Push",
    "Scene",
    "SeenGradients",
    "SeenLabels",
    "SeenRounds",
    "SeenScores",
    "SeenShadows",
    "audit_membership",
    "audit_scene",
    "join_records",
    "most_exposed",
    "see_gradients",
    "see_labels",
    "see_scores",
    "see_shadows",
    "sweep",
]
