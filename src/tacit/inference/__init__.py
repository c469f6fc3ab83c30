"""Prediction and training on secret-shared data."""

from tacit.inference.crew import Answer, Crew
from tacit.inference.forest import Forest, agree_on_forest, make_forest
from tacit.inference.models import (
    load_logistic,
    logistic_of,
    save_logistic,
    scaled_features,
    train_logistic,
)
from tacit.inference.predict import (
    Prediction,
    PredictTask,
    Sizes,
    plan_prediction,
    predict,
    predict_plain,
)
from tacit.inference.secure import DIRECT, secure
from tacit.inference.secured import Secured
from tacit.inference.summary import claims_of, summarise

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
    "scaled_features",
    "secure",
    "summarise",
    "train_logistic",
]
