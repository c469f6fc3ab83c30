"""Private prediction: one party's rows, another's model or shares of one, and the answers alone."""

from tacit.inference.answers import PrivateAnswer
from tacit.inference.forest import Forest, agree_on_forest, make_forest
from tacit.inference.models import (
    load_logistic,
    logistic_of,
    save_logistic,
    table_of,
    train_logistic,
)
from tacit.inference.predict import (
    Sizes,
    claims_of,
    plan_prediction,
    predict,
    predict_plain,
)
from tacit.inference.secure import secure
from tacit.inference.secured import DIRECT, Crew, Secured

__all__ = [
    "DIRECT",
    "Crew",
    "Forest",
    "PrivateAnswer",
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
    "table_of",
    "train_logistic",
]
