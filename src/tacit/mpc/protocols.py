"""The table of protocols. One that is in it is tested by the contract suite; no other exists."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tacit.errors import ConfigError
from tacit.mpc.additive2 import local
from tacit.mpc.additive2.compare import IsPositive
from tacit.mpc.additive2.curves import curve_of, powers_of_two, smooth
from tacit.mpc.additive2.piecewise import Piecewise
from tacit.mpc.additive2.product import Multiply, Square
from tacit.mpc.additive2.rescale import Rescale
from tacit.mpc.contract import Channel, Declaration, Kernel, MpcProtocol, Roles
from tacit.mpc.permuted3.elementwise import PermutedFunction
from tacit.mpc.randomness import Parts
from tacit.mpc.share import AnyShare, AnySpec, Share
from tacit.result import Claim


@dataclass(frozen=True)
class FinishAtReceiver:
    """Leave a strictly increasing function to whoever the value is opened to.

    Guarantee: nothing is sent; the receiver of f(x) could compute x from it, so opening x to it
    reveals the same. If something else is done with the result, it is computed after all.
    Cost: 0 rounds, 0 bytes; exact.
    """

    function: str

    def declare(self, roles: Roles, *operands: AnySpec) -> Declaration:
        """Say what comes out."""
        x = local.numeric(operands[0], self.function)
        return Declaration(out=replace(x, finish=self.function))

    def run(self, channel: Channel, material: tuple[Parts, ...], *operands: AnyShare) -> AnyShare:
        """Mark the share."""
        (x,) = operands
        spec = replace(local.numeric(x.spec, self.function), finish=self.function)
        return Share(x.words, spec)


# The values are constructors of kernels with different parameters, hence Any.
_ARITHMETIC: Mapping[str, Callable[..., Any]] = {
    "add": local.Add,
    "halve": local.Halve,
    "multiply": Multiply,
    "part": local.Part,
    "rescale": Rescale,
    "restate": local.Restate,
    "reshape": local.Reshape,
    "scale": local.Scale,
    "shift": local.Shift,
    "square": Square,
    "sum": local.Sum,
    "transpose": local.Transpose,
}

_TWO_SERVERS = (
    "the two computing parties do not pool what they see",
    "the dealer does not pool what it knows with a computing party",
    "every party follows the protocol (honest but curious); a cheating party can make the result "
    "wrong or learn more than the declared output, without being noticed",
    "AES-128 in counter mode is a pseudo-random generator; the links are private (TLS 1.3)",
)


def _sealed_function(name: str, frac_bits: int, bound: float) -> Kernel:
    return Piecewise(name, (curve_of(name, frac_bits, bound),))


def _sealed_exponents(
    frac_bits: int, bound: float, values: tuple[Callable[[int], float], ...]
) -> Kernel:
    return Piecewise("exponent", powers_of_two(frac_bits, bound, values))


def _sealed_normalised(name: str, frac_bits: int) -> Kernel:
    return Piecewise(name, (smooth(name, frac_bits),))


def _permuted_function(name: str, frac_bits: int, bound: float) -> Kernel:
    return PermutedFunction(name, frac_bits)


def _permuted_is_positive() -> Kernel:
    return PermutedFunction("step", 0)


PROTOCOLS: Mapping[str, MpcProtocol] = {
    "sealed": MpcProtocol(
        name="sealed",
        claims=(
            Claim(
                subject="inputs and intermediate values",
                guarantee="each party sees only uniformly random words and the declared outputs",
                assumptions=_TWO_SERVERS,
            ),
        ),
        helper_is_online=False,
        kernels={
            **_ARITHMETIC,
            "elementwise": _sealed_function,
            "exponents": _sealed_exponents,
            "finish": FinishAtReceiver,
            "is_positive": IsPositive,
            "normalised": _sealed_normalised,
        },
    ),
    "permuted3": MpcProtocol(
        name="permuted3",
        claims=(
            Claim(
                subject="inputs and intermediate values, towards the two computing parties",
                guarantee="each sees only uniformly random words and the declared outputs",
                assumptions=_TWO_SERVERS,
            ),
            Claim(
                subject="the inputs of non-linear functions, towards the helper",
                guarantee="no guarantee",
                assumptions=(
                    "the helper sees these values in random order; what it can infer depends on "
                    "how many there are and on what it knows already",
                ),
            ),
        ),
        helper_is_online=True,
        kernels={
            **_ARITHMETIC,
            "elementwise": _permuted_function,
            "is_positive": _permuted_is_positive,
        },
    ),
}


def find_protocol(name: str) -> MpcProtocol:
    """Return a protocol by name."""
    if name not in PROTOCOLS:
        raise ConfigError(f"unknown protocol {name!r}; there are {', '.join(sorted(PROTOCOLS))}")
    return PROTOCOLS[name]
