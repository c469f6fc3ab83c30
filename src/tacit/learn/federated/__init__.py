"""Federated learning: aggregation that hides the single update, on Flower or in one process."""

from tacit.learn.federated.adaptive import attribute_scale
from tacit.learn.federated.aggregators import (
    AGGREGATORS,
    Aggregator,
    AggregatorName,
    Seat,
    find_aggregator,
)
from tacit.learn.federated.contract import (
    Aggregate,
    ClientSide,
    Meter,
    Offer,
    ServerSide,
    Update,
    run_round,
)
from tacit.learn.federated.course import Carrier, Course, Outcome, RoundReport, run_course
from tacit.learn.federated.engine import Hall
from tacit.learn.federated.models import (
    MODELS,
    ModelName,
    Stack,
    build_model,
    build_stack,
    flatten,
)
from tacit.learn.federated.packing import VoidRound
from tacit.learn.federated.policy import Policy
from tacit.learn.federated.privacy import Crowd, Promise, promise
from tacit.learn.federated.terms import Terms
from tacit.learn.federated.training import Augment, Learner, Recipe
from tacit.learn.federated.wish import PRIVACIES, Adaptive, Mechanism, Privacy, Wish

__all__ = [
    "AGGREGATORS",
    "MODELS",
    "PRIVACIES",
    "Adaptive",
    "Aggregate",
    "Aggregator",
    "AggregatorName",
    "Augment",
    "Carrier",
    "ClientSide",
    "Course",
    "Crowd",
    "Hall",
    "Learner",
    "Mechanism",
    "Meter",
    "ModelName",
    "Offer",
    "Outcome",
    "Policy",
    "Privacy",
    "Promise",
    "Recipe",
    "RoundReport",
    "Seat",
    "ServerSide",
    "Stack",
    "Terms",
    "Update",
    "VoidRound",
    "Wish",
    "attribute_scale",
    "build_model",
    "build_stack",
    "find_aggregator",
    "flatten",
    "promise",
    "run_course",
    "run_round",
]
