"""The kernels of every protocol: which one carries out an operation, by its name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from math import log2
from typing import Any

from tacit.mpc.arithmetic import layout, local, public
from tacit.mpc.arithmetic.coded import MultiplyCoded
from tacit.mpc.arithmetic.opening import FromOpening
from tacit.mpc.arithmetic.product import Multiply
from tacit.mpc.arithmetic.truncation import Truncate
from tacit.mpc.contract import Channel, Declaration, Kernel, Roles
from tacit.mpc.functions.curves import curve_of, decay_curve, powers_of_two, smooth
from tacit.mpc.functions.curves_of_pieces import curve_of_pieces
from tacit.mpc.functions.pieces import Pieces
from tacit.mpc.functions.poles import DECLINES, decline_curve
from tacit.mpc.material.randomness import Parts
from tacit.mpc.permuted.view import EachRow, EachValue, PermutedView
from tacit.mpc.protocols.checked.local import Local
from tacit.mpc.protocols.checked.piecewise import PiecewiseTagged
from tacit.mpc.protocols.checked.product import MultiplyTagged
from tacit.mpc.protocols.checked.truncation import TruncateTagged
from tacit.mpc.protocols.sealed.compare import IsPositive
from tacit.mpc.protocols.sealed.counts import CountReaching
from tacit.mpc.protocols.sealed.fused import FusedTruncateCompare
from tacit.mpc.protocols.sealed.largest import Largest
from tacit.mpc.protocols.sealed.piecewise import Curve, Piecewise
from tacit.mpc.protocols.two_party.garbled import Garbled
from tacit.mpc.share import AnyShare, AnySpec, Share


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
ARITHMETIC: Mapping[str, Callable[..., Any]] = {
    "add": local.Add,
    "concatenate": layout.Concatenate,
    "cumsum": local.CumulativeSum,
    "dropout": layout.Dropout,
    "fill": public.Fill,
    "from_opening": FromOpening,
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


# Kernels with curves are made once: their tables are laid out once, on whatever device.
@cache
def _sealed_function(
    name: str, frac_bits: int, bound: float, drop: int = 0, gain: float = 1.0
) -> Piecewise:
    if name in DECLINES:
        return Piecewise(name, (decline_curve(name, frac_bits, bound, gain),), drop)
    return Piecewise(name, (curve_of(name, frac_bits, bound, is_rescaled=drop > 0),), drop)


@cache
def _function_of_many(name: str, frac_bits: int, bound: float) -> Piecewise:
    return Piecewise(name, (curve_of(name, frac_bits, bound, is_many=True),))


@cache
def _decay(frac_bits: int, bound: float, value_bits: int) -> Piecewise:
    return Piecewise("exp", (decay_curve(frac_bits, bound, value_bits),))


@cache
def _flagged(name: str, frac_bits: int, bound: float, drop: int, gain: float) -> Piecewise:
    """Make a function with a pole, and beside it one last place where its argument is too small."""
    curve = decline_curve(name, frac_bits, bound, gain)
    pieces = ((1,), *((0,) * (curve.degree + 1) for _ in curve.breaks))
    flag = Curve(curve.breaks, pieces, curve.frac_bits, 2.0**-curve.frac_bits, curve.slack)
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


def sealed_kernels() -> dict[str, Callable[..., Any]]:
    """Make the kernels of two parties who compute functions on shares, with a dealer."""
    return {
        **ARITHMETIC,
        "elementwise": _sealed_function,
        "elementwise_many": _function_of_many,
        "flagged": _flagged,
        "count_reaching": CountReaching,
        "decay": _decay,
        "exponents": _sealed_exponents,
        "deferred": DeferToReceiver,
        "is_positive": IsPositive,
        "largest": Largest,
        "truncate_compare": _fused,
        "normalised": _sealed_normalised,
        "reached": _reached,
        "saturate": _saturate,
        "pieces": _sealed_pieces,
    }


def checked_kernels() -> dict[str, Callable[..., Any]]:
    """Make the kernels of `sealed` with tags: those that send nothing are wrapped as they are."""
    sealed = {**ARITHMETIC, "deferred": DeferToReceiver}
    del sealed["multiply_coded"], sealed["from_opening"]
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


def garbled_kernels() -> dict[str, Callable[..., Any]]:
    """Make the kernels of two parties without a dealer: comparisons are garbled."""

    def garbled(kernel: Callable[..., Piecewise]) -> Callable[..., Kernel]:
        def make(*public: Any) -> Kernel:
            plain = kernel(*public)
            return Garbled(plain.name, plain.curves, plain.drop)

        return make

    return {
        **ARITHMETIC,
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


def permuted_kernels(through: Callable[[PermutedView], Kernel]) -> dict[str, Callable[..., Any]]:
    """Make the kernels of a protocol in which someone sees permuted values."""
    return {
        "elementwise": lambda name, frac_bits, bound: through(EachValue(name, frac_bits)),
        "is_positive": lambda: through(EachValue("step", 0)),
        "pieces": lambda pieces, frac_bits, bound: through(EachValue(pieces, frac_bits)),
        "rowwise": lambda *public: through(EachRow(*public)),
    }
