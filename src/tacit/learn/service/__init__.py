"""Prediction services: two servers with a half of a model each answer many clients."""

from tacit.learn.service.client import PredictionClient, connected
from tacit.learn.service.columns import answer_columns
from tacit.learn.service.once import answer_once
from tacit.learn.service.reception import Reception
from tacit.learn.service.server import PredictionServer, Tally, deal_predictions
from tacit.learn.service.task import SIZES, ServiceTask, load_half

__all__ = [
    "SIZES",
    "PredictionClient",
    "PredictionServer",
    "Reception",
    "ServiceTask",
    "Tally",
    "answer_columns",
    "answer_once",
    "connected",
    "deal_predictions",
    "load_half",
]
