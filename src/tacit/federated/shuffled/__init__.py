"""The shuffle model: reports that are randomised, sealed, and parted from those who sent them."""

from tacit.federated.shuffled.plan import (
    METHODS,
    ShuffledPlan,
    dummies,
    encode,
    estimate,
    new_session,
)
from tacit.federated.shuffled.roles import (
    COMPLAINED,
    SHUFFLER,
    ShuffledClient,
    ShuffledServer,
    Shuffler,
    read_open,
    session_of,
)
from tacit.federated.spec import Method

__all__ = [
    "COMPLAINED",
    "METHODS",
    "SHUFFLER",
    "Method",
    "ShuffledClient",
    "ShuffledPlan",
    "ShuffledServer",
    "Shuffler",
    "dummies",
    "encode",
    "estimate",
    "new_session",
    "read_open",
    "session_of",
]
