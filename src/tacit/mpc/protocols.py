"""The table of protocols. One that is in it is tested by the contract suite; no other exists."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from math import log2
from typing import Any

from tacit.errors import ConfigError
from tacit.mpc.additive2 import layout, local, public
from tacit.mpc.additive2.coded import MultiplyCoded
from tacit.mpc.additive2.compare import IsPositive
from tacit.mpc.additive2.counts import CountReaching
from tacit.mpc.additive2.curves import curve_of, powers_of_two, smooth
from tacit.mpc.additive2.fused import FusedTruncateCompare
from tacit.mpc.additive2.logspaced import DECLINES, decline_curve
from tacit.mpc.additive2.pieces import curve_of_pieces
from tacit.mpc.additive2.piecewise import Curve, Piecewise
from tacit.mpc.additive2.product import Multiply
from tacit.mpc.additive2.truncation import Truncate
from tacit.mpc.checked.local import Local
from tacit.mpc.checked.piecewise import PiecewiseTagged
from tacit.mpc.checked.product import MultiplyTagged
from tacit.mpc.checked.truncation import TruncateTagged
from tacit.mpc.contract import Channel, Declaration, Kernel, MpcProtocol, Roles
from tacit.mpc.dummies import FlipsAndDummies, read_flips_and_dummies
from tacit.mpc.joint.garbled import Garbled
from tacit.mpc.mixing import NO_DEALER, mix, read_mixture
from tacit.mpc.permuted2.kernel import SeenBySecond
from tacit.mpc.permuted3.kernel import SeenByHelper
from tacit.mpc.pieces import Pieces
from tacit.mpc.randomness import Parts
from tacit.mpc.share import AnyShare, AnySpec, Share
from tacit.mpc.view import EachRow, EachValue, PermutedView
from tacit.result import Claim


@dataclass(frozen=True)
class DeferToReceiver:
    """Leave a strictly increasing function to whoever the value is opened to.

    Guarantee: nothing is sent; the receiver of f(x) could compute x from it, so opening x to it
    reveals the same. If something else is done with the result, it is computed after all.
    Cost: 0 rounds, 0 bytes; exact.
    """

    function: str

    def declare(self, roles: Roles, *operands: AnySpec) -> Declaration:
        """Say what comes out."""
        x = local.numeric(operands[0], self.function)
        return Declaration(out=replace(x, deferred=self.function))

    def run(self, channel: Channel, material: tuple[Parts, ...], *operands: AnyShare) -> AnyShare:
        """Mark the share."""
        x = local.numeric_share(operands[0])
        return Share(x.words, replace(x.spec, deferred=self.function))


# The values are constructors of kernels with different parameters, hence Any.
_ARITHMETIC: Mapping[str, Callable[..., Any]] = {
    "add": local.Add,
    "concatenate": layout.Concatenate,
    "cumsum": local.CumulativeSum,
    "dropout": layout.Dropout,
    "fill": public.Fill,
    "halve": local.Halve,
    "multiply": Multiply,
    "multiply_coded": MultiplyCoded,
    "offset": public.Offset,
    "part": local.Part,
    "truncate": Truncate,
    "project": public.Project,
    "restate": local.Restate,
    "reshape": local.Reshape,
    "scale": local.Scale,
    "shift": local.Shift,
    "sum": local.Sum,
    "take": layout.Take,
    "transpose": local.Transpose,
    "tune": local.Tune,
    "weigh": public.Weigh,
    "windows": layout.Windows,
}

_TWO_SERVERS = (
    "every party follows the protocol (semi-honest); a malicious party can make the result wrong "
    "or learn more than the declared output, without being noticed",
    "the two computing parties do not pool what they see",
    "the dealer does not pool what it knows with a computing party",
    "results are rounded up or down by the computing parties' own random words: one that gets the "
    "same output again and again can work out digits below its last one",
    "AES-128 in counter mode is a pseudo-random generator; the links are private (TLS 1.3)",
)


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

_TWO_ALONE = (
    _TWO_SERVERS[0],
    "there is no third party: the two computing parties make all correlated randomness with each "
    "other, and do not pool what they see",
    _TWO_SERVERS[3],
    "Ring-LWE of degree 8192 and 217 bits is hard (128 bits of security), Diffie–Hellman is hard "
    "on P-256, SHA-256 behaves like a random function and AES-128 like a random permutation; noise "
    "that a ciphertext carries is drowned but for 2^-64 for each word; the links are private "
    "(TLS 1.3)",
)


# Kernels with curves are made once: their tables are laid out once, on whatever device.
@cache
def _sealed_function(
    name: str, frac_bits: int, bound: float, drop: int = 0, gain: float = 1.0
) -> Piecewise:
    if name in DECLINES:
        return Piecewise(name, (decline_curve(name, frac_bits, bound, gain),), drop)
    return Piecewise(name, (curve_of(name, frac_bits, bound),), drop)


@cache
def _function_of_many(name: str, frac_bits: int, bound: float) -> Piecewise:
    return Piecewise(name, (curve_of(name, frac_bits, bound, is_many=True),))


@cache
def _flagged(name: str, frac_bits: int, bound: float, drop: int, gain: float) -> Piecewise:
    """Make a function with a pole, and beside it 1 where its argument is too small for it."""
    curve = decline_curve(name, frac_bits, bound, gain)
    pieces = ((1 << curve.frac_bits,), *((0,) * (curve.degree + 1) for _ in curve.breaks))
    flag = Curve(curve.breaks, pieces, curve.frac_bits, 1.0, curve.slack)
    return Piecewise(name, (curve, flag), drop)


@cache
def _reached() -> Kernel:
    """Tell whole numbers of at least one from zero."""
    return Piecewise("reached", (Curve((1,), ((0,), (1,)), 0, 1.0, (0,)),))


@cache
def _saturate(frac_bits: int, bound: float, step: float, drop: int) -> Piecewise:
    """Keep numbers near ±bound at most, in pieces that hold one step below their breakpoints."""
    edge, slack = round(bound * 2**frac_bits), round(log2(step * 2**frac_bits))
    pieces = ((-edge,), (0, 1), (edge,))
    curve = Curve((-edge, edge), pieces, frac_bits, bound + step, (slack, slack))
    return Piecewise("saturate", (curve,), drop)


def _fused(name: str, frac_bits: int, bound: float, bits: int) -> Kernel:
    return FusedTruncateCompare(name, curve_of(name, frac_bits, bound), bits)


def _sealed_exponents(
    frac_bits: int, bound: float, values: tuple[Callable[[int], float], ...]
) -> Piecewise:
    return Piecewise("exponent", powers_of_two(frac_bits, bound, values))


def _sealed_normalised(name: str, frac_bits: int) -> Piecewise:
    return Piecewise(name, (smooth(name, frac_bits),))


def _sealed_pieces(pieces: Pieces, frac_bits: int, bound: float) -> Piecewise:
    return Piecewise("pieces", (curve_of_pieces(pieces, frac_bits, bound),))


def _checked_kernels() -> dict[str, Callable[..., Any]]:
    """Make the kernels of `sealed` with tags: those that send nothing are wrapped as they are."""
    sealed = {**_ARITHMETIC, "deferred": DeferToReceiver}
    del sealed["multiply_coded"]
    kernels = {name: _tagged(one) for name, one in sealed.items()}

    def piecewise(kernel: Callable[..., Piecewise]) -> Callable[..., Kernel]:
        def make(*public: Any) -> Kernel:
            plain = kernel(*public)
            return PiecewiseTagged(plain.name, plain.curves, plain.drop)

        return make

    return {
        **kernels,
        "multiply": MultiplyTagged,
        "truncate": TruncateTagged,
        "elementwise": piecewise(_sealed_function),
        "exponents": piecewise(_sealed_exponents),
        "is_positive": lambda: PiecewiseTagged("step", (curve_of("step", 0, 1.0),)),
        "normalised": piecewise(_sealed_normalised),
        "pieces": piecewise(_sealed_pieces),
        "saturate": piecewise(_saturate),
    }


def _garbled_kernels() -> dict[str, Callable[..., Any]]:
    """Make the kernels of two parties without a dealer: comparisons are garbled."""

    def garbled(kernel: Callable[..., Piecewise]) -> Callable[..., Kernel]:
        def make(*public: Any) -> Kernel:
            plain = kernel(*public)
            return Garbled(plain.name, plain.curves, plain.drop)

        return make

    return {
        **_ARITHMETIC,
        "deferred": DeferToReceiver,
        "elementwise": garbled(_sealed_function),
        "exponents": garbled(_sealed_exponents),
        "is_positive": lambda: Garbled("step", (curve_of("step", 0, 1.0),)),
        "normalised": garbled(_sealed_normalised),
        "pieces": garbled(_sealed_pieces),
        "saturate": garbled(_saturate),
    }


def _tagged(kernel: Callable[..., Kernel]) -> Callable[..., Kernel]:
    return lambda *public: Local(kernel(*public))


def _permuted(through: Callable[[PermutedView], Kernel]) -> dict[str, Callable[..., Any]]:
    """Make the kernels of a protocol in which someone sees permuted values."""
    return {
        "elementwise": lambda name, frac_bits, bound: through(EachValue(name, frac_bits)),
        "is_positive": lambda: through(EachValue("step", 0)),
        "pieces": lambda pieces, frac_bits, bound: through(EachValue(pieces, frac_bits)),
        "rowwise": lambda *public: through(EachRow(*public)),
    }


def permuted3(hiding: FlipsAndDummies) -> MpcProtocol:
    """Make the protocol whose helper sees values permuted, and hidden as stated."""
    return MpcProtocol(
        name=" ".join(("permuted3", *hiding.spelling())),
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
                    "the helper sees these values in random order, fresh in every call; a value "
                    "that comes again is recognised; what it can infer depends on how many there "
                    "are and on what it knows already",
                    *hiding.assumptions(),
                ),
            ),
        ),
        helper_is_online=True,
        kernels={
            **_ARITHMETIC,
            **_permuted(lambda view: SeenByHelper(view, hiding)),
        },
    )


def permuted2(hiding: FlipsAndDummies) -> MpcProtocol:
    """Make the protocol whose second party sees values permuted, and hidden as stated."""
    return MpcProtocol(
        name=" ".join(("permuted2", *hiding.spelling())),
        claims=(
            Claim(
                subject="inputs and intermediate values, towards P0 (the first computing party)",
                guarantee="it sees only uniformly random words and the declared outputs",
                assumptions=_TWO_SERVERS,
            ),
            Claim(
                subject="the inputs of non-linear functions, towards P1 (the second computing "
                "party)",
                guarantee="no guarantee",
                assumptions=(
                    "P1 sees these values in random order, fresh in every call; a value that "
                    "comes again is recognised; what it can infer depends on how many there are "
                    "and on what it knows already: let the owner of the data be P1, so that what "
                    "is at risk is the model",
                    "the dealer knows the orders; it does not tell P1",
                    "P1 follows the protocol: a malicious one undoes the orders by tagging what it "
                    "hands over, sees every value in its place, and is not noticed",
                    *hiding.assumptions(),
                ),
            ),
        ),
        helper_is_online=False,
        kernels={
            **_ARITHMETIC,
            **_permuted(lambda view: SeenBySecond(view, hiding)),
        },
    )


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
            "elementwise_many": _function_of_many,
            "flagged": _flagged,
            "count_reaching": CountReaching,
            "exponents": _sealed_exponents,
            "deferred": DeferToReceiver,
            "is_positive": IsPositive,
            "truncate_compare": _fused,
            "normalised": _sealed_normalised,
            "reached": _reached,
            "saturate": _saturate,
            "pieces": _sealed_pieces,
        },
    ),
    "checked": MpcProtocol(
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
        helper_is_online=False,
        kernels=_checked_kernels(),
        is_checked=True,
    ),
    "permuted3": permuted3(FlipsAndDummies()),
    "permuted2": permuted2(FlipsAndDummies()),
}

CHECKED_BOUNDS = replace(
    PROTOCOLS["checked"],
    name="checked bounds",
    claims=(
        *PROTOCOLS["checked"].claims,
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
    checks_bounds=True,
)

WITHOUT_DEALER = MpcProtocol(
    name=NO_DEALER,
    claims=(
        Claim(
            subject="inputs and intermediate values",
            guarantee="each party sees only the declared outputs, ciphertexts under the other's "
            "key, and words and labels that look uniform to it",
            assumptions=_TWO_ALONE,
        ),
    ),
    helper_is_online=False,
    kernels=_garbled_kernels(),
    has_dealer=False,
)


def find_protocol(name: str) -> MpcProtocol:
    """Return a protocol by name.

    Args:
        name: one of the table; a permuted protocol may be followed by what is done to the values
            before they are seen, such as ``permuted3 flips dummies=64 reach=4``, ``checked`` by
            ``bounds``, which compares every input with its bound, and each by
            protocols for kinds of functions, such as ``sealed; activations: permuted3``. Two
            parties without a dealer are ``sealed; linear: he; activations: garbled``.
    """
    kind, layers = read_mixture(name)
    if kind == NO_DEALER:
        return WITHOUT_DEALER
    return mix(_find(kind), {family: _find(one) for family, one in layers.items()})


def _find(name: str) -> MpcProtocol:
    base, *options = name.split() or [""]
    if base not in PROTOCOLS:
        raise ConfigError(f"unknown protocol {name!r}; there are {', '.join(sorted(PROTOCOLS))}")
    if not options:
        return PROTOCOLS[base]
    if (base, options) == ("checked", ["bounds"]):
        return CHECKED_BOUNDS
    hidden = {"permuted2": permuted2, "permuted3": permuted3}.get(base)
    if hidden is None:
        known = "takes the option 'bounds' alone" if base == "checked" else "takes no options"
        raise ConfigError(f"{base} {known}, got {' '.join(options)!r}")
    return hidden(read_flips_and_dummies(options))
