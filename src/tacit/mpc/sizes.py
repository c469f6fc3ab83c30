"""How large messages are, and whether links carry them."""

from math import prod

from tacit.errors import InputError
from tacit.mpc.contract import Declaration
from tacit.mpc.material.randomness import Need
from tacit.mpc.narrow import WORD_BYTES
from tacit.party import LARGEST_MESSAGE_BYTES
from tacit.party.cost import Round


def check_sizes(kernel: object, declared: Declaration) -> None:
    """Refuse now what no link would carry later."""
    rounds = (*declared.rounds, *declared.offline, declared.posted)
    sizes = [message.payload_bytes for round_ in rounds for message in round_]
    _check_size(type(kernel).__name__, max([*sizes, correction_bytes(declared.needs)]))


def check_filled(kernel: object, declared: Declaration) -> None:
    """Refuse what holds no values: there is nothing to compute, and nothing is what comes out."""
    if declared.out is not None and declared.out.elements == 0:
        inner = getattr(kernel, "kernel", kernel)
        what = getattr(inner, "name", "") or type(inner).__name__
        raise InputError(
            f"{what!r} would be of shape {declared.out.shape}, which holds no values; leave it out"
        )


def check_rounds(rounds: tuple[Round, ...]) -> tuple[Round, ...]:
    """Refuse what two parties could not send each other to prepare."""
    sizes = [message.payload_bytes for round_ in rounds for message in round_]
    _check_size("preparing without a dealer", max(sizes, default=0))
    return rounds


def correction_bytes(needs: tuple[Need, ...]) -> int:
    """Return the size of the dealer's message for one step."""
    return WORD_BYTES * sum(prod(shape) for need in needs for shape in need.correction_shapes())


def has_corrections(needs: tuple[Need, ...]) -> bool:
    """Tell whether the dealer sends anything for a step."""
    return any(need.correction_shapes() for need in needs)


def _check_size(what: str, largest: int) -> None:
    """Refuse a message that no link would carry."""
    if largest > LARGEST_MESSAGE_BYTES:
        raise InputError(
            f"{what} would send a message of {largest} bytes, more than the "
            f"{LARGEST_MESSAGE_BYTES} that a link carries; work on fewer rows at a time"
        )
