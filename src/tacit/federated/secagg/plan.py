"""What all sides of a round of secure aggregation agree on: whole numbers, and masks on them."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray

from tacit.errors import ConfigError, DataError, RangeError
from tacit.federated.contract import Aggregate, Floats
from tacit.federated.secagg.graph import Neighbourhood
from tacit.ring import Prg

Words = NDArray[Any]  # uint32 or uint64, by the width of the plan

NONCE_BYTES, MODEL_BYTES = 16, 32  # two rounds share a nonce after about 2^64; SHA-256
SESSION_BYTES = NONCE_BYTES + MODEL_BYTES
WEIGHT_BITS = 24  # a client's number of examples: up to 16 million
LARGEST_WEIGHT = 2**WEIGHT_BITS - 1
TAG_BITS = 64  # a server that changes the sum passes with 2^-64 a tag; see `verified`
_CHUNK_BYTES = 1 << 18  # of mask at once: as the generator draws, and small enough for the cache
_BLOCK = 1 << 16  # values quantised at once: the temporaries stay in the cache


@dataclass(frozen=True, kw_only=True)
class SecAggPlan:
    """A sum of vectors by secure aggregation.

    Attributes:
        clients: how many are asked; indices run from 0.
        dimension: numbers in one update.
        bound: largest magnitude of one of them.
        scale: whole units per 1.0; values are rounded to units at random, without bias.
        word_bytes: bytes per value on the wire; the sum is taken modulo 2^(8 · word_bytes).
        neighbourhood: who masks with how many, and the threshold of recovery.
        minimum: fewest clients whose sum may be shown.
        session: fresh for every round, and the digest of what its clients train on and hold to: no
            message of another round, model or job is accepted, as every key, tag and signature is
            bound to it.
        tags: 64-bit tags of the input that are added up beside it; see `verified`.
    """

    clients: int
    dimension: int
    bound: float
    scale: float
    word_bytes: int
    neighbourhood: Neighbourhood
    minimum: int
    session: bytes
    tags: int = 0

    def __post_init__(self) -> None:
        if not 2 <= self.minimum <= self.clients:
            raise ConfigError(
                f"the fewest clients whose sum is shown must be 2 to {self.clients}, "
                f"got {self.minimum}"
            )
        is_named = len(self.session) == SESSION_BYTES
        if self.dimension < 1 or not 1 <= self.word_bytes <= 8 or not is_named:
            raise ConfigError("a masked plan wants a dimension, 1 to 8 bytes a word and a session")

    @property
    def weight_words(self) -> int:
        """How many words the weight of a client takes: digits small enough for their sum."""
        return -(-WEIGHT_BITS // self.digit_bits)

    @property
    def tag_words(self) -> int:
        """How many words one tag takes."""
        return -(-TAG_BITS // self.digit_bits)

    @property
    def length(self) -> int:
        """Words in a masked input."""
        return self.dimension + self.weight_words + self.tags * self.tag_words

    @property
    def upload_bytes(self) -> int:
        """Bytes of one masked input, without its head."""
        return self.length * self.word_bytes

    @property
    def digit_bits(self) -> int:
        """Bits of a number that is written in several words, so that their sums fit."""
        # The sum of n digits of d bits is below 2^(d + ⌈log2 n⌉): it must not wrap.
        return min(WEIGHT_BITS, 8 * self.word_bytes - math.ceil(math.log2(self.clients)))

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type the words are added in."""
        return np.dtype(np.uint32 if self.word_bytes <= 4 else np.uint64)


def plan_secagg(
    clients: int,
    dimension: int,
    *,
    bound: float,
    neighbourhood: Neighbourhood,
    minimum: int,
    word_bytes: int = 4,
    scale: float | None = None,
    headroom: float = 0.0,
    model: bytes = bytes(MODEL_BYTES),
) -> SecAggPlan:
    """Choose the finest units whose sum over all clients cannot wrap, or check those given.

    Args:
        clients: how many are asked.
        dimension: numbers in one update.
        bound: largest magnitude of a number in an update.
        neighbourhood: from `plan_neighbourhood`.
        minimum: fewest clients whose sum may be shown.
        word_bytes: bytes per number on the wire.
        scale: units per 1.0; the finest that fit, if not given.
        headroom: how far noise may carry the sum beyond clients · bound, in the unit of the data.
        model: the digest of what the clients train on and hold to.

    Raises:
        ConfigError: the words are too narrow for so many clients.
    """
    if not (math.isfinite(bound) and bound > 0):
        raise ConfigError(f"the bound of an update must be positive and finite, got {bound}")
    # Rounding may add one unit per client; the sign takes one bit.
    units = 2 ** (8 * word_bytes - 1) - 1 - clients
    # Beyond 2^50 steps the updates themselves, doubles, have no more digits to keep.
    finest = min(units / (clients * bound + headroom), 2.0**50 / bound)
    # Below 16 steps the rounding noise is a good part of the update: a mistake, not a choice.
    if finest * bound < 16 or (scale is not None and scale > finest):
        raise ConfigError(
            f"words of {word_bytes} bytes leave {max(finest * bound, 0):.1f} steps for an update "
            f"of each of {clients} clients, wanted {16 if scale is None else scale * bound:.0f} "
            "or more; use wider words"
        )
    return SecAggPlan(
        clients=clients,
        dimension=dimension,
        bound=bound,
        scale=finest if scale is None else scale,
        word_bytes=word_bytes,
        neighbourhood=neighbourhood,
        minimum=minimum,
        session=os.urandom(NONCE_BYTES) + model,
    )


def quantise(
    plan: SecAggPlan,
    update: Floats,
    *,
    weight: int = 1,
    noise: NDArray[np.int64] | None = None,
    prg: Prg,
) -> Words:
    """Write an update and its weight as words: rounded up or down at random, without bias.

    The words hold the update times its share of the largest weight the caller allows: multiply
    before, if clients weigh differently. Noise is given in units and added to the rounded update.

    Guarantee: none by itself; the sum of the words of all clients does not wrap.
    Cost: 0 rounds; 4 bytes of the stream per number.

    Raises:
        DataError: another length, or a value that is not a finite number.
        RangeError: a value beyond the bound, or a weight beyond 2^24 − 1.
    """
    if update.shape != (plan.dimension,):
        raise DataError(f"wanted an update of {plan.dimension} numbers, got {update.shape}")
    if not 0 <= weight <= LARGEST_WEIGHT:
        raise RangeError(f"a weight is 0 to {LARGEST_WEIGHT}, got {weight}")
    words = np.empty(plan.length, plan.dtype)
    for start in range(0, plan.dimension, _BLOCK):
        block = slice(start, min(start + _BLOCK, plan.dimension))
        words[block] = _round(update[block], plan, prg)
    if noise is not None:
        words[: plan.dimension] += noise.astype(plan.dtype)
    at = plan.dimension + plan.weight_words
    words[plan.dimension : at] = to_digits(plan, weight, plan.weight_words)
    words[at:] = 0
    return words


def to_digits(plan: SecAggPlan, number: int, count: int) -> list[int]:
    """Write a number in so many words, the lowest digits first."""
    mask = 2**plan.digit_bits - 1
    return [(number >> (digit * plan.digit_bits)) & mask for digit in range(count)]


def from_digits(plan: SecAggPlan, words: Words) -> int:
    """Read a sum of numbers that `to_digits` wrote."""
    mask = 2 ** (8 * plan.word_bytes) - 1
    digits = [int(word) & mask for word in words]
    return sum(word << (place * plan.digit_bits) for place, word in enumerate(digits))


def centred(plan: SecAggPlan, words: Words) -> NDArray[np.int64]:
    """Return words as whole numbers around zero."""
    # Words of 3 bytes lie in 4: shifted up, the sign comes to the top, and back it is extended.
    spare = 8 * plan.dtype.itemsize - 8 * plan.word_bytes
    signed = np.int32 if plan.dtype == np.uint32 else np.int64
    found: NDArray[np.int64] = (words << plan.dtype.type(spare)).view(signed) >> spare
    return found.astype(np.int64, copy=False)


def dequantise(plan: SecAggPlan, total: Words) -> tuple[NDArray[np.float64], int]:
    """Read the sum of the updates and the sum of the weights."""
    numbers = centred(plan, total[: plan.dimension])
    at = plan.dimension + plan.weight_words
    weight = from_digits(plan, total[plan.dimension : at])
    return numbers.astype(np.float64) / plan.scale, weight


def mean_of(
    plan: SecAggPlan, total: Words, survivors: tuple[int, ...], *, largest_weight: int
) -> Aggregate:
    """Read the mean of those who stayed off the sum of their words."""
    summed, weight = dequantise(plan, total)
    return Aggregate(summed * (largest_weight / max(weight, 1)), weight, survivors)


def to_wire(plan: SecAggPlan, words: Words) -> bytes | memoryview:
    """Write words in as many bytes as the plan has for each; a view where that is all of them."""
    little = words.astype(words.dtype.newbyteorder("<"), copy=False)
    if plan.word_bytes == plan.dtype.itemsize:
        return little.view(np.uint8).data
    octets = little.view(np.uint8).reshape(-1, plan.dtype.itemsize)
    return octets[:, : plan.word_bytes].tobytes()


def from_wire(plan: SecAggPlan, body: bytes | memoryview) -> Words:
    """Read words that `to_wire` wrote; the length has been checked."""
    if plan.word_bytes == plan.dtype.itemsize:
        return np.frombuffer(body, plan.dtype.newbyteorder("<")).astype(plan.dtype, copy=False)
    octets = np.zeros((plan.length, plan.dtype.itemsize), np.uint8)
    octets[:, : plan.word_bytes] = np.frombuffer(body, np.uint8).reshape(-1, plan.word_bytes)
    return octets.reshape(-1).view(plan.dtype)


def add_masks(words: Words, *, plus: Sequence[bytes] = (), minus: Sequence[bytes] = ()) -> None:
    """Add the streams of some keys to ``words`` and take those of others away, in place.

    Guarantee: with one key that an observer does not know, the result is uniform to that observer
    and independent of what it was, if AES-128 is a pseudo-random permutation.
    Cost: 0 rounds, 0 bits; one pass of AES-CTR and one addition per key.
    """
    streams = [(Prg(key), np.add) for key in plus] + [(Prg(key), np.subtract) for key in minus]
    count = _CHUNK_BYTES // words.itemsize
    buffer = np.empty(min(count, words.size), words.dtype)
    for start in range(0, words.size, count):
        target = words[start : start + count]
        mask = buffer[: target.size]
        octets = torch.from_numpy(mask.view(np.uint8))
        for stream, apply in streams:
            stream.fill(octets)
            apply(target, mask, out=target)


def _round(values: Floats, plan: SecAggPlan, prg: Prg) -> Words:
    scaled = np.multiply(values, plan.scale, dtype=np.float64)
    limit = plan.bound * plan.scale
    # A NaN fails this comparison too.
    if not (-limit <= scaled.min(initial=0.0) and scaled.max(initial=0.0) <= limit):
        _refuse(values, plan)
    # ⌊x + u⌋ with u uniform in [0, 1) is x on average (stochastic rounding): rounding to nearest
    # would bias a sum over clients. Coins of 32 bits leave a bias below 2^-32 units, and the sum
    # x + u, a double, one below 2^-53 of x: 2^-22 units in words of 4 bytes, 2^-14 in those of 5.
    coins = np.empty(scaled.size, np.uint32)
    prg.fill(torch.from_numpy(coins.view(np.uint8)))
    scaled += np.multiply(coins, 2.0**-32, dtype=np.float64)
    return np.floor(scaled, out=scaled).astype(np.int64).astype(plan.dtype)


def _refuse(values: Floats, plan: SecAggPlan) -> NoReturn:
    if not np.isfinite(values).all():
        raise DataError(
            f"the update holds {int((~np.isfinite(values)).sum())} values that are no finite "
            "numbers: the client's training has diverged"
        )
    raise RangeError(
        f"the update goes beyond its bound {plan.bound:g} in "
        f"{int((np.abs(values) > plan.bound).sum())} places; clip it first"
    )
