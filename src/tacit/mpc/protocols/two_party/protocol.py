"""Two parties without a dealer: comparisons are garbled, and randomness is made together."""

from tacit.mpc.arithmetic.kernels import ARITHMETIC
from tacit.mpc.arithmetic.local import DeferToReceiver
from tacit.mpc.functions import piecewise
from tacit.mpc.functions.piecewise import compared_by
from tacit.mpc.protocol import TWO_SERVERS, MpcProtocol
from tacit.mpc.protocols.two_party.garbled import Garbled
from tacit.mpc.protocols.two_party.supply import Together
from tacit.mpc.registry import NO_DEALER
from tacit.result import Claim

_TWO_ALONE = (
    TWO_SERVERS[0],
    "there is no third party: the two computing parties make all correlated randomness with each "
    "other, and do not pool what they see",
    TWO_SERVERS[3],
    "Ring-LWE of degree 8192 and 217 bits is hard (128 bits of security), Diffie–Hellman is hard "
    "on P-256, SHA-256 behaves like a random function and AES-128 like a random permutation; noise "
    "that a ciphertext carries is drowned but for 2^-64 for each word; the links are private "
    "(TLS 1.3)",
)

PROTOCOL = MpcProtocol(
    name=NO_DEALER,
    claims=(
        Claim(
            subject="inputs and intermediate values",
            guarantee="each party sees only the declared outputs, ciphertexts under the other's "
            "key, and words and labels that look uniform to it",
            assumptions=_TWO_ALONE,
        ),
    ),
    shows_to=frozenset(),
    helper_is_online=False,
    kernels={
        **ARITHMETIC,
        "deferred": DeferToReceiver,
        "elementwise": compared_by(Garbled, piecewise.elementwise),
        "exponents": compared_by(Garbled, piecewise.exponents),
        "is_positive": compared_by(Garbled, piecewise.step),
        "normalised": compared_by(Garbled, piecewise.normalised),
        "pieces": compared_by(Garbled, piecewise.given),
        "saturate": compared_by(Garbled, piecewise.saturate),
    },
    preprocessing=Together(),
)
