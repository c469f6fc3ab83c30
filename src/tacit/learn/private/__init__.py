"""Prediction and training on secret-shared data."""

from tacit.learn.private.models import (
    load_logistic,
    logistic_of,
    save_logistic,
    scaled_features,
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
from tacit.learn.private.secure import Answer, Crew, Secured, secure
from tacit.learn.private.summary import claims_of, merge_results, summarise

__all__ = [
    "Answer",
    "Crew",
    "PredictTask",
    "Prediction",
    "Secured",
    "Sizes",
    "claims_of",
    "load_logistic",
    "logistic_of",
    "merge_results",
    "plan_prediction",
    "predict",
    "predict_plain",
    "save_logistic",
    "scaled_features",
    "secure",
    "summarise",
    "train_logistic",
]
