"""Computing on secrets: protocols, the plan, the dealer, and ops that run a model on shares."""

from tacit.mpc.arithmetic.public import PublicInput
from tacit.mpc.arithmetic.weights import EncodedInput
from tacit.mpc.cache import OpeningCache
from tacit.mpc.contract import Roles
from tacit.mpc.pace import sum_forecasts
from tacit.mpc.plan import Plan
from tacit.mpc.plan_ops import PlanOps, make_plan
from tacit.mpc.protocol import MpcProtocol
from tacit.mpc.registry import PROTOCOLS, find_protocol
from tacit.mpc.run import attend, compute, deal_ahead, discard, serve
from tacit.mpc.secret_ops import SecretOps
from tacit.mpc.share import BitShare, Share

__all__ = [
    "PROTOCOLS",
    "BitShare",
    "EncodedInput",
    "MpcProtocol",
    "OpeningCache",
    "Plan",
    "PlanOps",
    "PublicInput",
    "Roles",
    "SecretOps",
    "Share",
    "attend",
    "compute",
    "deal_ahead",
    "discard",
    "find_protocol",
    "make_plan",
    "serve",
    "sum_forecasts",
]
