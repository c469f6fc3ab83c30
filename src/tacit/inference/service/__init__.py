"""Prediction services: two servers with a share of a model each answer many clients."""

from tacit.inference.service.acceptor import Acceptor
from tacit.inference.service.client import PredictionClient, connected
from tacit.inference.service.once import (
    answer_columns,
    answer_once,
    claim_of_columns,
)
from tacit.inference.service.server import (
    PredictionServer,
    ServiceTally,
    deal_predictions,
    plan_service,
)
from tacit.inference.service.task import ServiceTask, load_share

__all__ = [
    "Acceptor",
    "PredictionClient",
    "PredictionServer",
    "ServiceTally",
    "ServiceTask",
    "answer_columns",
    "answer_once",
    "claim_of_columns",
    "connected",
    "deal_predictions",
    "load_share",
    "plan_service",
]
