"""Prediction services: two servers with a share of a model each answer many clients."""

from tacit.inference.service.acceptor import Acceptor
from tacit.inference.service.ahead import ServicePlans, plan_service
from tacit.inference.service.client import PredictionClient, connected
from tacit.inference.service.columns import answer_columns, claim_of_columns, plan_columns
from tacit.inference.service.once import answer_once, plan_once
from tacit.inference.service.server import PredictionServer, Tally, deal_predictions
from tacit.inference.service.task import SIZES, ServiceTask, load_share

__all__ = [
    "SIZES",
    "Acceptor",
    "PredictionClient",
    "PredictionServer",
    "ServicePlans",
    "ServiceTask",
    "Tally",
    "answer_columns",
    "answer_once",
    "claim_of_columns",
    "connected",
    "deal_predictions",
    "load_share",
    "plan_columns",
    "plan_once",
    "plan_service",
]
