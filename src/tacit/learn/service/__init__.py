"""Prediction services: two servers with a half of a model each answer many clients."""

from tacit.learn.service.ahead import ServicePlans, plan_service
from tacit.learn.service.client import PredictionClient, connected
from tacit.learn.service.columns import answer_columns, claim_of_columns, plan_columns
from tacit.learn.service.once import answer_once, plan_once
from tacit.learn.service.reception import Reception
from tacit.learn.service.server import PredictionServer, Tally, deal_predictions
from tacit.learn.service.task import SIZES, ServiceTask, load_half

__all__ = [
    "SIZES",
    "PredictionClient",
    "PredictionServer",
    "Reception",
    "ServicePlans",
    "ServiceTask",
    "Tally",
    "answer_columns",
    "answer_once",
    "claim_of_columns",
    "connected",
    "deal_predictions",
    "load_half",
    "plan_columns",
    "plan_once",
    "plan_service",
]
