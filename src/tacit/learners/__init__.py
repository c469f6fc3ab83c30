"""Learners that statisticians know, on rows or columns that nobody shows.

    with Local("bank", "shop") as parties:
        table = parties.columns({"bank": x_bank, "shop": (x_shop, y)})
        model = LogisticRegression().fit(table, parties)
        model.score(table)

Every party follows the protocol: that is assumed throughout.
"""

from tacit.learners.base import Learner, Shared, cross_validate, divide
from tacit.learners.bayes import CategoricalNB, GaussianNB
from tacit.learners.boosting import GradientBoostingClassifier, GradientBoostingRegressor
from tacit.learners.classify import Classifier
from tacit.learners.clusters import KMeans, KNeighbors
from tacit.learners.exported import to_onnx, to_sklearn, to_xgboost
from tacit.learners.fitting import fit
from tacit.learners.linear import (
    ExtremeLearning,
    Lasso,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    Regressor,
    Ridge,
)
from tacit.learners.parties import Connected, Local, Parties, Planned
from tacit.learners.scaling import PCA, StandardScaler
from tacit.learners.shown import Fitted
from tacit.learners.spec import BlockTable, FitData, FitProtection, FitSpec, LearnerTable, Reveal
from tacit.learners.tables import Table
from tacit.learners.trees import DecisionTreeClassifier, RandomForestClassifier

__all__ = [
    "PCA",
    "BlockTable",
    "CategoricalNB",
    "Classifier",
    "Connected",
    "DecisionTreeClassifier",
    "ExtremeLearning",
    "FitData",
    "FitProtection",
    "FitSpec",
    "Fitted",
    "GaussianNB",
    "GradientBoostingClassifier",
    "GradientBoostingRegressor",
    "KMeans",
    "KNeighbors",
    "Lasso",
    "Learner",
    "LearnerTable",
    "LinearRegression",
    "LinearSVC",
    "Local",
    "LogisticRegression",
    "Parties",
    "Planned",
    "RandomForestClassifier",
    "Regressor",
    "Reveal",
    "Ridge",
    "Shared",
    "StandardScaler",
    "Table",
    "cross_validate",
    "divide",
    "fit",
    "to_onnx",
    "to_sklearn",
    "to_xgboost",
]
