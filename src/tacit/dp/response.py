"""Randomised response R_γ,b on {0..b}: the truth, or with probability γ a uniform value.

There are b + 1 values, so γ = (b + 1) / (e^ε + b) and the blanket is uniform on {0..b}; a blanket
on {1..b} with γ = b / (e^ε + b − 1), as the scheme is sometimes printed, is biased.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.dp.check import at_least_one, budget, probability
from tacit.dp.event import Repeated, Response
from tacit.errors import DataError
from tacit.ring import Prg

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
