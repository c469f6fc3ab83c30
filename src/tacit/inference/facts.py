"""The public facts of a private model run: shapes and sizes, told by their owners to everyone."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from torch import Tensor

from tacit.errors import DataError, DisagreementError
from tacit.nn import quarters_of, size_of
from tacit.party import Fact, Session

LARGEST_RANK = 8
LARGEST_ELEMENTS = 1 << 27
"""A GiB of words: a party must not make the others allocate what it merely announced."""
_LARGEST_QUARTERS = 4 * 48  # 2^48 with 16 fraction bits fills the 64 bits of a word


@dataclass(frozen=True, kw_only=True)
class PublicFacts:
    """What everyone knows when a run is planned.

    Attributes:
        shape: of the input.
        bound: how large the input can be.
        weight_bounds: by weight, how large it can be.
        gains: by weight, how much larger than its input a product with it can be.
    """

    shape: tuple[int, ...]
    bound: float
    weight_bounds: Mapping[str, float]
    gains: Mapping[str, float]


def largest(values: Tensor) -> int:
    """Return the size of a tensor in quarter octaves, rounded up.

    A size is told to everyone, so it is told coarsely: a step is a factor of 2^(1/4), which costs
    every bound at most a quarter of a bit of the ring.
    """
    return quarters_of(float(values.abs().max()) if values.numel() else 0.0)


INPUT = Fact(
    tag="input-facts",
    count=2 + LARGEST_RANK,
    what="the shape and size of the input",
    elements=2,
)


def weight_fact(count: int) -> Fact:
    """Return what the owner of a model tells of so many weights and products."""
    return Fact(
        tag="weight-facts",
        count=count,
        what="how large each weight can be and how much longer it makes a row, to a quarter of an "
        "octave",
    )


def share_input_facts(
    session: Session, owner: str, x: Tensor | None, *, bound: float | None
) -> tuple[tuple[int, ...], float]:
    """Tell or learn the shape of the input, and how large it is unless that was agreed."""
    if x is not None and session.me == owner:
        shape = tuple(x.shape)
        quarters = 0 if bound is not None else largest(x)
        if quarters > _LARGEST_QUARTERS:
            raise DataError(
                f"the input has values beyond ±{size_of(_LARGEST_QUARTERS):.3g}, which no ring of "
                "64 bits holds; divide the columns first"
            )
        padded = shape + (0,) * (LARGEST_RANK - len(shape))
        session.publish(INPUT, (len(shape), quarters, *padded))
    else:
        rank, quarters, *sides = session.learn(owner, INPUT)
        shape = tuple(sides[: max(rank, 0)])
        if not 1 <= rank <= LARGEST_RANK or min(shape) < 1 or prod(shape) > LARGEST_ELEMENTS:
            raise DisagreementError(owner, f"announced an impossible shape: rank {rank}, {shape}")
    _check_sizes(owner, (quarters,))
    return shape, size_of(quarters) if bound is None else bound


def share_weight_facts(
    session: Session,
    owner: str,
    weights: Mapping[str, Tensor],
    gains: Mapping[str, float],
) -> tuple[dict[str, float], dict[str, float]]:
    """Tell or learn how large the weights are; every party knows their names and shapes."""
    fact = weight_fact(len(weights) + len(gains))
    if not fact.count:
        return {}, {}
    if session.me == owner:
        sizes = tuple(largest(value) for value in weights.values())
        sizes += tuple(quarters_of(gain) for gain in gains.values())
        session.publish(fact, sizes)
    else:
        sizes = session.learn(owner, fact)
    _check_sizes(owner, sizes)
    found = [size_of(quarters) for quarters in sizes]
    bounds = dict(zip(weights, found[: len(weights)], strict=True))
    return bounds, dict(zip(gains, found[len(weights) :], strict=True))


def _check_sizes(owner: str, quarters: tuple[int, ...]) -> None:
    if any(abs(one) > _LARGEST_QUARTERS for one in quarters):
        raise DisagreementError(owner, "announced sizes that no ring of 64 bits can hold")
