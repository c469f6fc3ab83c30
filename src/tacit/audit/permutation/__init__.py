"""What permutation leaks: watch real runs, correlate and attack what was seen."""

from tacit.audit.permutation.distance import (
    DISTRIBUTIONS,
    WIDTHS,
    distance_correlation,
    independence_p,
    predicted_correlation,
    simulate,
)
from tacit.audit.permutation.lab import (
    Correlation,
    LabSettings,
    Recognition,
    Retrieval,
    Study,
    correlation_curves,
    count_recognised,
    match_repeats,
    nearest,
    rank_candidates,
    study,
)
from tacit.audit.permutation.recording import Glimpse, Run, Seen, watch
from tacit.audit.permutation.subject import (
    Subject,
    first_arguments,
    prediction_subject,
    training_subject,
)
from tacit.audit.permutation.tell import claims, metrics, pictures, sheets

__all__ = [
    "DISTRIBUTIONS",
    "WIDTHS",
    "Correlation",
    "Glimpse",
    "LabSettings",
    "Recognition",
    "Retrieval",
    "Run",
    "Seen",
    "Study",
    "Subject",
    "claims",
    "correlation_curves",
    "count_recognised",
    "distance_correlation",
    "first_arguments",
    "independence_p",
    "match_repeats",
    "metrics",
    "nearest",
    "pictures",
    "predicted_correlation",
    "prediction_subject",
    "rank_candidates",
    "sheets",
    "simulate",
    "study",
    "training_subject",
    "watch",
]
