"""Find room for the numbers of a deep model: where its hidden values saturate, if they must."""

from collections.abc import Callable
from typing import TypeVar

from tacit.errors import RangeError

R = TypeVar("R")
CAPS = (4096.0, 1024.0, 256.0, 64.0)
"""Where hidden values saturate if nobody chose a cap and their bounds do not fit without one."""


def with_room(attempt: Callable[[float | None], R], *, cap: float | None, keyword: str) -> R:
    """Plan with the cap that was chosen; if none was, without one or with the largest that fits.

    Bounds are those of the worst case and grow with every layer, though the values themselves do
    not. The plan follows from public facts, so that all parties find the same cap.

    Args:
        attempt: plans with a cap, or without one.
        cap: what the user chose.
        keyword: where the user can choose one, in the words of what was called.

    Raises:
        RangeError: no cap helps; says what would.
    """
    first: RangeError | None = None
    for one in (None, *CAPS) if cap is None else (cap,):
        try:
            return attempt(one)
        except RangeError as error:
            first = first or error
    tried = f"a cap of {CAPS[-1] if cap is None else cap:g} on hidden values is not enough"
    raise RangeError(f"{first}; {tried}: choose a smaller one with {keyword}") from first


def note_of(cap: float, keyword: str) -> str:
    """Say in a report that hidden values saturate, and where that can be changed."""
    return (
        f"Hidden values saturate at ±{cap:g}: in the worst case they would not fit the ring. "
        f"If yours can be larger, choose fewer fraction bits and a larger cap with {keyword}."
    )
