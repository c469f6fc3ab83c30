"""Federated learning from Python: train with simulated clients, or put privacy into a Flower app.

`fit` trains a torch model on the rows of many clients, of whose updates the server sees a sum
(secure aggregation) under noise that was computed before the first round. `PrivateStrategy` and
`client_mod` are the two lines that change in an app on Flower, which they need.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from tacit.learn.federated import (
    FederatedResult,
    FederatedSpec,
    LocalTraining,
    PrivacySpec,
    fit,
)

if TYPE_CHECKING:
    from tacit.learn.federated.flower import PrivateStrategy, client_mod

__all__ = [
    "FederatedResult",
    "FederatedSpec",
    "LocalTraining",
    "PrivacySpec",
    "PrivateStrategy",
    "client_mod",
    "fit",
]


def __getattr__(name: str) -> object:
    """Load what needs Flower when it is first used."""
    if name not in ("PrivateStrategy", "client_mod"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("tacit.learn.federated.flower"), name)
