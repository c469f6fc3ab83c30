"""Randomised response R_γ,b on {0..b}: the truth, or with probability γ a uniform value.

There are b + 1 values, so γ = (b + 1) / (e^ε + b) and the blanket is uniform on {0..b}; a blanket
on {1..b} with γ = b / (e^ε + b − 1), as the scheme is sometimes printed, is biased.

And a whole vector in one bit: the side of a random hyperplane on which it lies, randomised. The L2
mechanism of Duchi, Jordan and Wainwright (2013) with the random direction sent as the seed it grows
from: the message is 16 bytes and a sign, whatever the dimension, and because only the sign depends
on the data no floating-point number is ever released.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tacit.dp.bounded import Bounded
from tacit.dp.check import at_least_one, budget, positive, probability
from tacit.dp.event import Repeated, Response
from tacit.errors import DataError
from tacit.ring import KEY_BYTES, Prg

_COIN = 2**62


@dataclass(frozen=True, kw_only=True)
class Responder:
    """What one number's report looks like.

    Args:
        epsilon: local ε of one report that is really made.
        b: the largest report; numbers in [0, 1] are encoded on {0..b}.
        rate: the probability of really reporting; otherwise the report is a dummy, uniform on
            {0..b}, made by the client or, for an observer behind it, by the shuffler.
    """

    epsilon: float
    b: int
    rate: float = 1.0

    def __post_init__(self) -> None:
        budget("epsilon", self.epsilon)
        at_least_one("b", self.b)
        probability("rate", self.rate)

    @property
    def gamma(self) -> float:
        """The probability of a uniform value, dummies included."""
        gamma = (self.b + 1) / (math.exp(self.epsilon) + self.b)
        return 1 - self.rate * (1 - gamma)

    @property
    def event(self) -> Response:
        """One report: with dummies it is R_γ,b with a larger γ, hence a smaller ε."""
        levels = self.b + 1
        epsilon = math.log1p(levels * (1 - self.gamma) / self.gamma)
        return Response(epsilon=epsilon, levels=levels)

    def variance(self, reports: int) -> float:
        """Bound the variance of an estimated sum of numbers in [0, 1], over the worst inputs."""
        b, gamma = self.b, self.gamma
        blanket = (b + 2) / (12 * b)  # of a uniform value on {0..b} / b
        rounding = (1 - gamma) / (4 * b * b)
        mixing = gamma * (1 - gamma) / 4
        return reports * (gamma * blanket + rounding + mixing) / (1 - gamma) ** 2


def respond(x: Tensor, responder: Responder, *, prg: Prg) -> tuple[Tensor, Repeated]:
    """Encode numbers in [0, 1] on {0..b} by random rounding and randomise each.

    Guarantee: every entry is a report of the event; a vector of them is as many reports. If only
    one entry of the vector is sent, it is one report.
    Cost: 32 bytes of the stream per entry; 0 rounds.
    """
    x = x.detach().to(torch.float64)
    if not bool(((x >= 0) & (x <= 1)).all()):  # False for NaN as well
        raise DataError(
            f"R_γ,b takes numbers in [0, 1]; the input of shape {tuple(x.shape)} has others"
        )
    scaled = x * responder.b
    whole = torch.floor(scaled)
    encoded = whole.to(torch.int64) + _coins(scaled - whole, prg)
    # Rounded up: a little more noise than promised, never less.
    threshold = min(_COIN, math.ceil(responder.gamma * _COIN))
    is_uniform = prg.below(_COIN, tuple(x.shape)) < threshold
    reports = torch.where(is_uniform, dummies(tuple(x.shape), responder.b, prg=prg), encoded)
    return reports, Repeated(event=responder.event, count=max(1, x.numel()))


def dummies(shape: int | tuple[int, ...], b: int, *, prg: Prg) -> Tensor:
    """Draw reports that carry nothing: uniform on {0..b}."""
    return prg.below(at_least_one("b", b) + 1, shape)


def estimate_sum(total: Tensor, responder: Responder, *, reports: int) -> Tensor:
    """Estimate the sum of the numbers in [0, 1] behind `reports` reports that add up to `total`.

    Guarantee: unbiased. The uniform value has mean b/2, so the blanket adds γ/2 per report.
    """
    at_least_one("reports", reports)
    gamma = responder.gamma
    return (total.to(torch.float64) / responder.b - reports * gamma / 2) / (1 - gamma)


def _coins(probabilities: Tensor, prg: Prg) -> Tensor:
    """Toss a coin for each probability, exact to 2^-53."""
    uniform = prg.below(2**53, tuple(probabilities.shape))
    return (uniform < torch.round(probabilities * 2.0**53).to(torch.int64)).to(torch.int64)


@dataclass(frozen=True)
class DirectionReport:
    """A public seed and a noisy sign."""

    seed: bytes
    sign: int

    def __post_init__(self) -> None:
        if len(self.seed) != KEY_BYTES or self.sign not in (-1, 1):
            raise DataError(
                f"a direction report is {KEY_BYTES} bytes and a sign of ±1, got "
                f"{len(self.seed)} bytes and {self.sign!r}"
            )


def respond_direction(
    update: Bounded, *, epsilon: float, prg: Prg
) -> tuple[DirectionReport, Response]:
    """Report the side of a random hyperplane on which a clipped vector lies.

    Guarantee: ε-local privacy for the whole vector: given the seed, the sign is two-level
    randomised response.
    Cost: 17 bytes to send; 4 bytes of the seed's stream per entry.
    """
    budget("epsilon", epsilon)
    event = Response(epsilon=epsilon, levels=2)
    value = update.value.reshape(-1)
    norm = float(torch.linalg.vector_norm(value))
    single = value.to(torch.float32)
    seed = prg.bytes(KEY_BYTES)
    # A short vector is replaced by one of full length, its opposite with the right probability.
    lean = 0.5 * (1 + norm / update.l2_bound)
    side = 1 if norm == 0 or float(_normal(seed, value.numel()) @ single) >= 0 else -1
    sign = side * _sign(lean, prg) * _sign(1 / (1 + math.exp(-epsilon)), prg)
    return DirectionReport(seed, sign), event


def estimate_direction_sum(
    reports: Iterable[DirectionReport], *, dimension: int, l2_bound: float, epsilon: float
) -> Tensor:
    """Estimate the sum of the vectors behind the reports.

    Guarantee: unbiased. One report has variance about π/2 · d · C² · ((e^ε + 1) / (e^ε − 1))².
    Cost: `dimension` normal numbers per report.
    """
    at_least_one("dimension", dimension)
    budget("epsilon", epsilon)
    total = torch.zeros(dimension, dtype=torch.float64)
    for report in reports:
        vector = _normal(report.seed, dimension)
        total.add_(vector, alpha=report.sign / float(torch.linalg.vector_norm(vector)))
    # E|⟨u, e⟩| of a uniform unit vector u, and how far the two answers differ.
    mean = math.exp(math.lgamma(dimension / 2) - math.lgamma((dimension + 1) / 2))
    mean /= math.sqrt(math.pi)
    return total * (positive("l2_bound", l2_bound) / (mean * math.tanh(epsilon / 2)))


def _normal(seed: bytes, dimension: int) -> Tensor:
    """Grow the normal vector of a seed, along which the direction lies.

    In single precision: the direction is public, and where two machines round differently the
    report is about a vector that is as good as the same.
    """
    pairs = -(-dimension // 2)
    words = np.frombuffer(Prg(seed).bytes(8 * pairs), "<u4").astype(np.float32)
    uniform = torch.from_numpy(words).view(2, pairs) * 2.0**-32
    # Kept away from 0 and 1, so that no seed gives a vector that is infinite or has no direction.
    radius = torch.sqrt(-2 * torch.log(uniform[0].clamp(2.0**-33, 1 - 2.0**-24)))
    angle = uniform[1] * (2 * math.pi)
    return torch.cat([radius * torch.cos(angle), radius * torch.sin(angle)])[:dimension]


def _sign(probability: float, prg: Prg) -> int:
    """Draw +1 with a probability, rounded down so that the truth is never likelier."""
    return 1 if int(prg.below(_COIN, 1)[0]) < math.floor(probability * _COIN) else -1
