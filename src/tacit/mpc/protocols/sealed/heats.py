"""Which heats find the largest most cheaply: all are tried, as their bytes are known before."""

from functools import lru_cache
from math import prod

from tacit.mpc.contract import Roles
from tacit.mpc.functions.curves import curve_of
from tacit.mpc.functions.ordering import Heat
from tacit.mpc.narrow import WORD_BYTES
from tacit.mpc.protocols.sealed.largest import Largest
from tacit.mpc.protocols.sealed.piecewise import Piecewise
from tacit.mpc.share import Spec

ROUND_BYTES = 1 << 18
"""So many bytes are worth a round. In half a round trip the networks that plans are forecast for
carry 125 kB in a data centre, 625 kB in a city and 200 kB on a slow line."""
_WIDEST, _WIDEST_DIRECT = 16, 10
_ROLES = Roles(first="P0", second="P1", dealer="dealer")  # names do not matter to a cost


@lru_cache(maxsize=256)
def heats(
    rows: int, length: int, frac_bits: int, bound: float, *, is_placed: bool
) -> tuple[Heat, ...]:
    """Find the cheapest heats that leave one number of each row.

    Args:
        rows: how many.
        length: of each row.
        frac_bits: of the numbers.
        bound: how large they can be.
        is_placed: whether positions are wanted, which move with the numbers from the second heat.
    """
    known: dict[tuple[int, int], tuple[int, tuple[Heat, ...]]] = {}

    def best(left: int, parts: int) -> tuple[int, tuple[Heat, ...]]:
        if left == 1:
            return 0, ()
        if (left, parts) not in known:
            found = []
            for heat in _options(left, is_placed=is_placed):
                groups = -(-left // heat.size)
                shape = (parts, rows, groups, heat.size)
                price = _price(heat, shape, frac_bits, bound, is_placed=is_placed and parts == 1)
                later, rest = best(groups, 2 if is_placed else 1)
                found.append((price + later, (heat, *rest)))
            known[left, parts] = min(found, key=lambda one: one[0])
        return known[left, parts]

    return best(length, 1)[1]


def _options(left: int, *, is_placed: bool) -> list[Heat]:
    widths = range(2, min(left, _WIDEST) + 1)
    direct = [Heat(size) for size in widths if size <= _WIDEST_DIRECT]
    found = [*direct, *(Heat(size, is_direct=False) for size in widths)]
    return found if is_placed else [*found, Heat(2, by_relu=True)]


def _price(
    heat: Heat, shape: tuple[int, ...], frac_bits: int, bound: float, *, is_placed: bool
) -> int:
    """Count the bytes of a heat, both ways and from the dealer, and its rounds as bytes."""
    kernel: Largest | Piecewise
    if heat.by_relu:
        shape, apart = shape[:-1], 2 * bound
        kernel, most = Piecewise("relu", (curve_of("relu", frac_bits, apart),)), apart
    else:
        kernel, most = Largest(bound, is_placed, heat.is_direct), bound
    declared = kernel.declare(_ROLES, Spec.of(shape=shape, frac_bits=frac_bits, bound=most))
    sent = sum(message.payload_bytes for one in declared.rounds for message in one)
    dealt = sum(prod(shape) for need in declared.needs for shape in need.correction_shapes())
    return ROUND_BYTES * len(declared.rounds) + sent + WORD_BYTES * dealt
