"""Property inference: what holds of a data set as a whole, from updates or from weights."""

from tacit.audit.property.attacks import (
    ClassifySets,
    Layers,
    ReadUpdates,
    SeenUpdates,
    SeenWeights,
    classify_sorted,
    dense_layers,
    guess_blindly,
    see_updates,
    see_weights,
)
from tacit.audit.property.game import (
    UPDATE_ATTACKS,
    UPDATE_THREAT,
    WEIGHT_ATTACKS,
    WEIGHT_THREAT,
    audit_updates,
    audit_weights,
)

__all__ = [
    "UPDATE_ATTACKS",
    "UPDATE_THREAT",
    "WEIGHT_ATTACKS",
    "WEIGHT_THREAT",
    "ClassifySets",
    "Layers",
    "ReadUpdates",
    "SeenUpdates",
    "SeenWeights",
    "audit_updates",
    "audit_weights",
    "classify_sorted",
    "dense_layers",
    "guess_blindly",
    "see_updates",
    "see_weights",
]
