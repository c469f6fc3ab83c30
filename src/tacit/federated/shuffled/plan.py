"""The mean of vectors in the shuffle model: what a client reports, and how the mean is found.

Two ways to report about a vector of bounded L2 norm:

*direction*: the side of a random hyperplane on which the whole vector lies (Duchi, Jordan and
Wainwright 2013). Less noise; the server draws a random direction per report.

*coordinate*: the vector is rotated at random (random signs, then a Hadamard transform, both
public), so that no coordinate stands out; a coordinate is drawn without looking and reported
through the randomiser R_γ,b on {0, …, b}. Cheap for very large models.

Drawing the hyperplane or the coordinate belongs to the randomiser: the report as a whole is
ε0-private, and the clones bound holds for it with all clients as the crowd. So the crowd need not
be filled up with dummies for every coordinate apart; a client that has nothing to say sends
dummies, so that its silence does not show.
"""

import math
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np
import torch
from numpy.typing import NDArray

from tacit.dp import (
    Bounded,
    DirectionReport,
    Responder,
    estimate_direction_sum,
    estimate_sum,
    respond,
    respond_direction,
)
from tacit.dp import dummies as draw_dummies
from tacit.errors import ConfigError, DataError
from tacit.federated.spec import Method
from tacit.ring import KEY_BYTES, Prg

Floats = NDArray[np.float64]
METHODS: tuple[Method, ...] = get_args(Method)

SESSION_BYTES = 16
# Standard deviations of a rotated coordinate that are kept. It is nearly normal with variance L²/D,
# so 0.3 % lie beyond; they are clipped, which biases the mean a little and leaves ε0 as it is.
_SPREADS = 3.0
_DIRECTION = struct.Struct(f"<{KEY_BYTES}sb")
# As long as the other: a box tells nothing by its length, and sizes do not depend on the method.
_COORDINATE = struct.Struct(f"<IH{KEY_BYTES - 5}x")
PAYLOAD_BYTES = _DIRECTION.size


@dataclass(frozen=True, kw_only=True)
class ShuffledPlan:
    """A private mean of clipped vectors.

    Attributes:
        clients: how many are asked.
        minimum: fewest whose reports may be shuffled; below it the round is void.
        dimension: numbers in one update.
        l2_bound: largest L2 norm of an update.
        method: how a report is made.
        reports: how many reports a client makes.
        steps: b, for coordinates; their reports are whole numbers from 0 to b.
        local_epsilon: ε0 of one report.
        session: fresh for every round; no report of another is accepted.
    """

    clients: int
    minimum: int
    dimension: int
    l2_bound: float
    method: Method
    reports: int
    steps: int
    local_epsilon: float
    session: bytes

    def __post_init__(self) -> None:
        if not 2 <= self.minimum <= self.clients:
            raise ConfigError(
                f"the fewest clients that may be shuffled must be 2 to {self.clients}, "
                f"got {self.minimum}"
            )
        if self.reports < 1 or not 1 <= self.steps < 2**16 or self.dimension < 1:
            raise ConfigError(
                f"wanted reports >= 1, steps of 1 to 65535 and a dimension, got {self.reports}, "
                f"{self.steps} and {self.dimension}"
            )
        if self.method not in METHODS:
            raise ConfigError(f"the method is one of {', '.join(METHODS)}, got {self.method!r}")

    @property
    def padded(self) -> int:
        """The dimension after rotation: the next power of two."""
        return 1 << (self.dimension - 1).bit_length()

    @property
    def coordinate_bound(self) -> float:
        """How far a rotated coordinate is followed."""
        return self.l2_bound * min(1.0, _SPREADS / math.sqrt(self.padded))

    @property
    def responder(self) -> Responder:
        """The randomiser of one coordinate."""
        return Responder(epsilon=self.local_epsilon, b=self.steps)


def new_session() -> bytes:
    """Draw the name of a round."""
    return os.urandom(SESSION_BYTES)


def encode(plan: ShuffledPlan, update: Bounded, prg: Prg) -> list[bytes]:
    """Make the reports about an update.

    Guarantee: every report is ε0-private by itself, whatever the update was; all reports of a
    client together are reports · ε0-private before shuffling.
    Cost: 17 bytes per report, before sealing.

    Raises:
        DataError: an update of another length or bound.
    """
    if update.value.shape != (plan.dimension,) or update.l2_bound != plan.l2_bound:
        raise DataError(
            f"wanted an update of {plan.dimension} numbers within {plan.l2_bound:g}, got "
            f"{tuple(update.value.shape)} within {update.l2_bound:g}"
        )
    if plan.method == "direction":
        found = (
            respond_direction(update, epsilon=plan.local_epsilon, prg=prg)[0]
            for _ in range(plan.reports)
        )
        return [_DIRECTION.pack(report.seed, report.sign) for report in found]
    places = prg.below(plan.padded, plan.reports)
    rotated = rotate(plan, update.value.numpy())[places.numpy()]
    unit = np.clip(rotated / (2 * plan.coordinate_bound) + 0.5, 0.0, 1.0)
    values, _ = respond(torch.from_numpy(unit), plan.responder, prg=prg)
    return _pack_coordinates(places.tolist(), values.tolist())


def dummies(plan: ShuffledPlan, prg: Prg) -> list[bytes]:
    """Draw the reports of a client that has nothing to say."""
    if plan.method == "direction":
        signs = (2 * prg.bits(plan.reports).to(torch.int64) - 1).tolist()
        return [_DIRECTION.pack(prg.bytes(KEY_BYTES), sign) for sign in signs]
    places = prg.below(plan.padded, plan.reports)
    return _pack_coordinates(
        places.tolist(), draw_dummies(plan.reports, plan.steps, prg=prg).tolist()
    )


def estimate(plan: ShuffledPlan, payloads: Sequence[bytes], *, clients: int) -> tuple[Floats, int]:
    """Estimate the mean update of ``clients`` clients from all their reports.

    Unbiased; with coordinates up to the clipping beyond three standard deviations. Reports outside
    the domain are left out and counted: whose they are cannot be known.
    """
    if plan.method == "direction":
        return _estimate_directions(plan, payloads, clients)
    pairs = [_COORDINATE.unpack(payload) for payload in payloads]
    valid = np.array(
        [pair for pair in pairs if pair[0] < plan.padded and pair[1] <= plan.steps], np.int64
    ).reshape(-1, 2)
    counts = np.bincount(valid[:, 0], minlength=plan.padded)
    totals = np.bincount(valid[:, 0], weights=valid[:, 1], minlength=plan.padded).astype(np.float64)
    responder = plan.responder
    # The estimate of a sum is linear in its total and in its number of reports, so two calls say
    # what one unit and one report stand for, at every coordinate.
    slope = float(estimate_sum(torch.tensor(1.0), responder, reports=1))
    offset = float(estimate_sum(torch.tensor(0.0), responder, reports=1))
    unit = (slope - offset) * totals + offset * counts
    # A report is of one coordinate of ± the bound, drawn with probability 1/padded: undo both.
    weight = plan.coordinate_bound * plan.padded / (plan.reports * clients)
    mean = rotate_back(plan, np.asarray((2 * unit - counts) * weight, np.float64))
    return mean, len(pairs) - len(valid)


def _estimate_directions(
    plan: ShuffledPlan, payloads: Sequence[bytes], clients: int
) -> tuple[Floats, int]:
    pairs = [_DIRECTION.unpack(payload) for payload in payloads]
    valid = [DirectionReport(seed, sign) for seed, sign in pairs if sign in (-1, 1)]
    total = estimate_direction_sum(
        valid, dimension=plan.dimension, l2_bound=plan.l2_bound, epsilon=plan.local_epsilon
    )
    mean: Floats = total.numpy() / (plan.reports * clients)
    return mean, len(pairs) - len(valid)


def _pack_coordinates(places: list[int], values: list[int]) -> list[bytes]:
    return [_COORDINATE.pack(place, value) for place, value in zip(places, values, strict=True)]


def rotate(plan: ShuffledPlan, vector: Floats) -> Floats:
    """Rotate a vector, padded with zeros, by the round's public rotation."""
    padded = np.zeros(plan.padded)
    padded[: plan.dimension] = vector
    return _hadamard(padded * _signs(plan))


def rotate_back(plan: ShuffledPlan, vector: Floats) -> Floats:
    """Undo `rotate`."""
    return (_hadamard(vector) * _signs(plan))[: plan.dimension]


def _signs(plan: ShuffledPlan) -> Floats:
    signs: Floats = 1.0 - 2.0 * Prg(plan.session).bits(plan.padded).numpy()
    return signs


def _hadamard(vector: Floats) -> Floats:
    """Apply the orthonormal Walsh-Hadamard transform; it is its own inverse."""
    size, half = vector.size, 1
    result = vector.copy()
    while half < size:
        pairs = result.reshape(-1, 2, half)
        result = np.stack((pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]), 1).reshape(-1)
        half *= 2
    return result / math.sqrt(size)
