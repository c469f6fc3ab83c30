"""`sealed`: two parties compute functions on shares, with a dealer."""

from tacit.mpc.arithmetic.kernels import ARITHMETIC
from tacit.mpc.arithmetic.local import DeferToReceiver
from tacit.mpc.functions import piecewise
from tacit.mpc.functions.curves import curve_of
from tacit.mpc.functions.piecewise import compared_by
from tacit.mpc.protocol import TWO_SERVERS, MpcProtocol
from tacit.mpc.protocols.sealed.compare import IsPositive
from tacit.mpc.protocols.sealed.counts import CountReaching
from tacit.mpc.protocols.sealed.fused import FusedTruncateCompare
from tacit.mpc.protocols.sealed.largest import Largest, heats
from tacit.mpc.protocols.sealed.piecewise import Piecewise
from tacit.result import Claim


def _fused(name: str, frac_bits: int, bound: float, bits: int) -> FusedTruncateCompare:
    return FusedTruncateCompare(name, curve_of(name, frac_bits, bound), bits)


PROTOCOL = MpcProtocol(
    name="sealed",
    claims=(
        Claim(
            subject="inputs and intermediate values",
            guarantee="each party sees only uniformly random words and the declared outputs",
            assumptions=TWO_SERVERS,
        ),
    ),
    shows_to=frozenset(),
    helper_is_online=False,
    kernels={
        **ARITHMETIC,
        "count_reaching": CountReaching,
        "decay": compared_by(Piecewise, piecewise.decay),
        "deferred": DeferToReceiver,
        "elementwise": compared_by(Piecewise, piecewise.elementwise),
        "elementwise_many": compared_by(Piecewise, piecewise.elementwise_many),
        "exponents": compared_by(Piecewise, piecewise.exponents),
        "flagged": compared_by(Piecewise, piecewise.flagged),
        "heats": heats,
        "is_positive": IsPositive,
        "largest": Largest,
        "normalised": compared_by(Piecewise, piecewise.normalised),
        "pieces": compared_by(Piecewise, piecewise.given),
        "reached": compared_by(Piecewise, piecewise.reached),
        "saturate": compared_by(Piecewise, piecewise.saturate),
        "truncate_compare": _fused,
    },
)
