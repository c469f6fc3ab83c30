"""Masked sums: the server learns the sum of the clients' vectors, and of each alone nothing."""

from tacit.learn.federated.masked.client import MaskedClient
from tacit.learn.federated.masked.graph import Neighbourhood, Server, plan_neighbourhood
from tacit.learn.federated.masked.messages import read_open
from tacit.learn.federated.masked.plan import (
    LARGEST_WEIGHT,
    MaskedPlan,
    dequantise,
    plan_masked,
    quantise,
)
from tacit.learn.federated.masked.server import STAGES, MaskedServer

__all__ = [
    "LARGEST_WEIGHT",
    "STAGES",
    "MaskedClient",
    "MaskedPlan",
    "MaskedServer",
    "Neighbourhood",
    "Server",
    "dequantise",
    "plan_masked",
    "plan_neighbourhood",
    "quantise",
    "read_open",
]
