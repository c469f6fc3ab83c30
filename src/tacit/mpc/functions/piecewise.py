"""Functions as pieces, whoever compares and selects: what a protocol's kernel is made of."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from math import log2
from typing import Any

from tacit.mpc.arithmetic.local import numeric
from tacit.mpc.functions.curve import PiecewiseCurve
from tacit.mpc.functions.curves import curve_of, decay_curve, powers_of_two, smooth
from tacit.mpc.functions.pieces import Pieces, curve_of_pieces
from tacit.mpc.functions.poles import DECLINES, decline_curve
from tacit.mpc.share import AnySpec, Spec


@dataclass(frozen=True)
class Pieced:
    """A function made of pieces, or several that share their breakpoints, with a name for errors.

    ``drop`` is how many fraction bits its argument has more than the curves.
    """

    name: str
    curves: tuple[PiecewiseCurve, ...]
    drop: int = 0

    def argument(self, spec: AnySpec) -> Spec:
        """Take a number, also one on which this very function is still to be applied."""
        if isinstance(spec, Spec) and spec.deferred == self.name:
            return replace(spec, deferred=None)
        return numeric(spec, self.name, any_ring=True)

    def out(self, x: Spec) -> Spec:
        """Return the facts about the result, or all of them, stacked."""
        shape = x.shape if len(self.curves) == 1 else (len(self.curves), *x.shape)
        bound = max(curve.bound for curve in self.curves)
        return Spec.of(shape=shape, frac_bits=self.curves[0].frac_bits, bound=bound)


def compared_by(
    kernel: Callable[[str, tuple[PiecewiseCurve, ...], int], Any], pieced: Callable[..., Pieced]
) -> Callable[..., Any]:
    """Let a protocol's kernel carry out a function of pieces."""

    def make(*public: Any) -> Any:
        one = pieced(*public)
        return kernel(one.name, one.curves, one.drop)

    return make


# Curves are made once: their tables are laid out once, on whatever device.
@cache
def elementwise(
    name: str, frac_bits: int, bound: float, drop: int = 0, gain: float = 1.0
) -> Pieced:
    """Cut a function of the table `ELEMENTWISE`; one with a pole may come times a gain."""
    if name in DECLINES:
        return Pieced(name, (decline_curve(name, frac_bits, bound, gain),), drop)
    return Pieced(name, (curve_of(name, frac_bits, bound, is_rescaled=drop > 0),), drop)


@cache
def elementwise_many(name: str, frac_bits: int, bound: float) -> Pieced:
    """Cut a function for so many numbers that the dealer's bytes cost more than rounds."""
    return Pieced(name, (curve_of(name, frac_bits, bound, is_many=True),))


@cache
def decay(frac_bits: int, bound: float, value_bits: int) -> Pieced:
    """Cut exp of numbers of at most zero."""
    return Pieced("exp", (decay_curve(frac_bits, bound, value_bits),))


@cache
def flagged(name: str, frac_bits: int, bound: float, drop: int, gain: float) -> Pieced:
    """Cut a function with a pole, and beside it one last place where its argument is too small."""
    curve = decline_curve(name, frac_bits, bound, gain)
    pieces = ((1,), *((0,) * (curve.degree + 1) for _ in curve.breaks))
    flag = PiecewiseCurve(curve.breaks, pieces, curve.frac_bits, 2.0**-curve.frac_bits, curve.slack)
    return Pieced(name, (curve, flag), drop)


@cache
def reached() -> Pieced:
    """Tell whole numbers of at least one from zero."""
    return Pieced("reached", (PiecewiseCurve((1,), ((0,), (1,)), 0, 1.0, (0,)),))


@cache
def saturate(frac_bits: int, bound: float, step: float, drop: int) -> Pieced:
    """Keep numbers near ±bound at most, in pieces that hold one step below their breakpoints."""
    edge, slack = round(bound * 2**frac_bits), round(log2(step * 2**frac_bits))
    pieces = ((-edge,), (0, 1), (edge,))
    curve = PiecewiseCurve((-edge, edge), pieces, frac_bits, bound + step, (slack, slack))
    return Pieced("saturate", (curve,), drop)


def exponents(frac_bits: int, bound: float, values: tuple[Callable[[int], float], ...]) -> Pieced:
    """Cut functions of the binary exponent of a number."""
    return Pieced("exponent", powers_of_two(frac_bits, bound, values))


def normalised(name: str, frac_bits: int) -> Pieced:
    """Cut a function of numbers between 1 and 2."""
    return Pieced(name, (smooth(name, frac_bits),))


def given(pieces: Pieces, frac_bits: int, bound: float) -> Pieced:
    """Bring pieces that a caller gives to ring coefficients."""
    return Pieced("pieces", (curve_of_pieces(pieces, frac_bits, bound),))


def step() -> Pieced:
    """Give 1 where a number is at least zero and 0 elsewhere."""
    return Pieced("step", (curve_of("step", 0, 1.0),))
