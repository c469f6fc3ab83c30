"""Inputs are within their bounds, or the run ends: what an owner promises is checked on shares.

A word beyond its bound is an input like any other to tags; but products of it wrap around, and an
output then tells other things than planned.
"""

from dataclasses import dataclass
from typing import Any

from tacit.errors import CheatingError
from tacit.mpc.functions.curve import PiecewiseCurve
from tacit.mpc.protocols.checked.piecewise import PiecewiseTagged
from tacit.mpc.protocols.sealed.compare import Comparison
from tacit.mpc.share import WORD_BITS, Spec
from tacit.party.session import CHEATED

_MOST = 1 << 15
"""So many elements are compared at once: their material fits a message."""


@dataclass(frozen=True)
class Beyond(PiecewiseTagged):
    """Give 0 where an element is within two numbers, and 1 or 2 where it is not.

    Guarantee: that of `PiecewiseTagged`; for every word, as all of its bits are compared. With
    [x >= -n] and [x >= n + 1] as b and c it is 1 - b + c; a difference that wraps around changes b
    to 0, or c to 1, for words beyond alone.
    Cost: that of two comparisons of 64 bits.
    """

    def _comparison(self, x: Spec) -> Comparison:
        return Comparison(x.elements, WORD_BITS, 2)


def beyond(largest: int) -> Beyond:
    """Make the kernel for words of at most that size."""
    pieces = ((1,), (0,), (1,))
    return Beyond(
        "bound", (PiecewiseCurve((-largest, largest + 1), pieces, frac_bits=0, bound=2.0),)
    )


def check_bound(ops: Any, value: Any, *, owner: str, name: str, to: tuple[str, ...]) -> None:
    """Compare an input with its bound on shares; both computing parties learn how many are beyond.

    Raises:
        CheatingError: one is, and its owner has broken its promise.
    """
    spec = ops.number(value, "comparing with a bound")
    flat = ops.reshape(value, (spec.elements,))
    for at in range(0, spec.elements, _MOST):
        part = ops.take(flat, range(at, min(at + _MOST, spec.elements)), dim=0)
        count = ops.sum(ops.apply(beyond(spec.largest), part), dim=0)
        found = ops.open(
            count, to=to, what=f"how many elements of {name!r} are beyond its bound", why="none is"
        )
        if found is not None and bool(found.any()):
            raise CheatingError(
                owner,
                f"{CHEATED}its input {name!r} is beyond the bound of ±{spec.bound:g} that it "
                "promised; nothing else was revealed",
            )
