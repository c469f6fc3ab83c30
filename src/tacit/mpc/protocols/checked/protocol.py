"""`checked`: the kernels of `sealed` with tags; those that send nothing are wrapped as they are."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tacit.errors import ConfigError
from tacit.mpc.arithmetic.kernels import ARITHMETIC
from tacit.mpc.arithmetic.local import DeferToReceiver
from tacit.mpc.functions import piecewise
from tacit.mpc.functions.piecewise import compared_by
from tacit.mpc.protocol import MpcProtocol
from tacit.mpc.protocols.checked.boundary import Authenticated
from tacit.mpc.protocols.checked.local import TaggedLocal
from tacit.mpc.protocols.checked.piecewise import PiecewiseTagged
from tacit.mpc.protocols.checked.product import MultiplyTagged
from tacit.mpc.protocols.checked.truncation import TruncateTagged
from tacit.result import Claim

_HONEST_DEALER = (
    "the dealer is honest: it follows the protocol, and does not pool what it knows with anyone; a "
    "dealer that cheats can make the result wrong without being noticed",
    "at most one of the two computing parties cheats; it may do anything, but two that work "
    "together see everything",
    "a party that cheats can break the run off after it has its own output and before another has "
    "any; it can put in any input, also one beyond its bound",
    "results are rounded up or down by the dealer's random words: one that gets the same output "
    "again and again can work out digits below its last one",
    "AES-128 in counter mode is a pseudo-random generator, SHA-256 has no collisions that can be "
    "found; the links are private (TLS 1.3)",
)


def _tagged(kernel: Callable[..., Any]) -> Callable[..., TaggedLocal]:
    return lambda *public: TaggedLocal(kernel(*public))


_ALIKE = {**ARITHMETIC, "deferred": DeferToReceiver}
del _ALIKE["multiply_coded"], _ALIKE["from_opening"]  # made of parts that are dealt without tags


def _with_bounds(options: Sequence[str]) -> MpcProtocol:
    if list(options) != ["bounds"]:
        raise ConfigError(f"checked takes the option 'bounds' alone, got {' '.join(options)!r}")
    return CHECKED_BOUNDS


PROTOCOL = MpcProtocol(
    name="checked",
    claims=(
        Claim(
            subject="the result, if a computing party cheats",
            guarantee="it is right, or there is none: a party that deviates in any message is "
            "caught before anything is revealed, but with a probability of at most 2^-40",
            assumptions=_HONEST_DEALER,
        ),
        Claim(
            subject="inputs and intermediate values, if a computing party cheats",
            guarantee="each party sees only uniformly random words and the declared outputs; "
            "whether a run is broken off depends on no secret",
            assumptions=_HONEST_DEALER,
        ),
    ),
    shows_to=frozenset(),
    helper_is_online=False,
    kernels={
        **{name: _tagged(kernel) for name, kernel in _ALIKE.items()},
        "elementwise": compared_by(PiecewiseTagged, piecewise.elementwise),
        "exponents": compared_by(PiecewiseTagged, piecewise.exponents),
        "is_positive": compared_by(PiecewiseTagged, piecewise.step),
        "multiply": MultiplyTagged,
        "normalised": compared_by(PiecewiseTagged, piecewise.normalised),
        "pieces": compared_by(PiecewiseTagged, piecewise.given),
        "saturate": compared_by(PiecewiseTagged, piecewise.saturate),
        "truncate": TruncateTagged,
    },
    boundary=Authenticated(),
    options=_with_bounds,
)

CHECKED_BOUNDS = replace(
    PROTOCOL,
    name="checked bounds",
    claims=(
        *PROTOCOL.claims,
        Claim(
            subject="inputs, if an owner cheats",
            guarantee="each is within its bound, or the run ends with the owner's name before "
            "anything is computed on it",
            assumptions=(
                _HONEST_DEALER[0],
                "where the assumptions above speak of inputs beyond their bounds, this comes first",
            ),
        ),
    ),
    boundary=Authenticated(checks_bounds=True),
)
