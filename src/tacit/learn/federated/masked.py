"""What version 0.1 called `tacit.learn.federated.secagg`; it goes with the next release."""

# ruff: noqa: F401 - all of this is here to be imported from here
from tacit.learn.federated.secagg import (
    LARGEST_WEIGHT,
    STAGES,
    Neighbourhood,
    Server,
    dequantise,
    plan_neighbourhood,
    quantise,
    read_open,
)
from tacit.learn.federated.secagg import SecAggClient as MaskedClient
from tacit.learn.federated.secagg import SecAggPlan as MaskedPlan
from tacit.learn.federated.secagg import SecAggServer as MaskedServer
from tacit.learn.federated.secagg import plan_secagg as plan_masked
from tacit.renamed import warn_renamed

warn_renamed(__name__, "tacit.learn.federated.secagg")
