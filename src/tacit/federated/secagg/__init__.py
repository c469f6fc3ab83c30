"""Secure aggregation (SecAgg): the server learns the sum of the vectors, and of each nothing."""

from tacit.federated.secagg.client import SecAggClient
from tacit.federated.secagg.graph import (
    Neighbourhood,
    Server,
    plan_neighbourhood,
    secrecy_bits,
)
from tacit.federated.secagg.messages import read_open
from tacit.federated.secagg.plan import (
    LARGEST_WEIGHT,
    SecAggPlan,
    dequantise,
    plan_secagg,
    quantise,
)
from tacit.federated.secagg.server import STAGES, SecAggServer

__all__ = [
    "LARGEST_WEIGHT",
    "STAGES",
    "Neighbourhood",
    "SecAggClient",
    "SecAggPlan",
    "SecAggServer",
    "Server",
    "dequantise",
    "plan_neighbourhood",
    "plan_secagg",
    "quantise",
    "read_open",
    "secrecy_bits",
]
