"""Prediction and training on secret-shared data."""

from tacit.learn.private.crew import Answer, Crew
from tacit.learn.private.forest import Forest, agree_on_forest, make_forest
from tacit.learn.private.models import (
    load_logistic,
    logistic_of,
    save_logistic,
    table_of,
    train_logistic,
)
from tacit.learn.private.predict import (
    Prediction,
    PredictTask,
    Sizes,
    plan_prediction,
    predict,
    predict_plain,
)
from tacit.learn.private.secure import DIRECT, secure
from tacit.learn.private.secured import Secured
from tacit.learn.private.summary import claims_of, summarise

__all__ = [
    "DIRECT",
    "Answer",
    "Crew",
    "Forest",
    "PredictTask",
    "Prediction",
    "Secured",
    "Sizes",
    "agree_on_forest",
    "claims_of",
    "load_logistic",
    "logistic_of",
    "make_forest",
    "plan_prediction",
    "predict",
    "predict_plain",
    "save_logistic",
    "secure",
    "summarise",
    "table_of",
    "train_logistic",
]
