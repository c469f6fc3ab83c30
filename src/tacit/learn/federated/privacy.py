"""The privacy of a federated run, settled before any data is read: how much noise, and the claim.

All claims are about replacing the whole data of one client, so that the words can be compared.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from tacit.dp import (
    REPLACE_CLIENT,
    DiscreteGaussian,
    Event,
    Repeated,
    Shuffled,
    Target,
    epsilon,
    largest_budget,
    least_noise,
    supporting,
)
from tacit.errors import ConfigError
from tacit.learn.federated.shuffled.plan import Method
from tacit.result import Claim

Privacy = Literal["none", "central", "local", "local-adaptive", "shuffle"]
PRIVACIES: tuple[Privacy, ...] = ("none", "central", "local", "local-adaptive", "shuffle")

_LARGEST_STEPS = 2.0**20  # of the grid within the clip
_LARGEST_SIGMA = 2.0**22  # in steps; the exact sampler ends at 2^25
_LIKE_TO_USE = ("pld", "rdp", "fourier", "advanced", "basic")


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Discrete Gaussian noise on a grid: exact sampling, no floating point to leak through.

    Attributes:
        scale: steps per 1.0.
        sigma2: variance, in steps², of one part of the noise.
        l2_sensitivity: in steps, of replacing one client: twice the clip and the rounding.
        parts: how many clients share in the noise; 1 if one adds it alone.
    """

    scale: float
    sigma2: Fraction
    l2_sensitivity: float
    parts: int

    def event(self, dimension: int) -> DiscreteGaussian:
        """Say what one round does."""
        return DiscreteGaussian(
            sigma2=self.sigma2,
            l2_sensitivity=self.l2_sensitivity,
            dimension=dimension,
            relation=REPLACE_CLIENT,
            parts=self.parts,
        )

    @property
    def sigma(self) -> float:
        """Standard deviation of all parts together, in the unit of the updates."""
        return math.sqrt(float(self.sigma2) * self.parts) / self.scale


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What a job asks for.

    Attributes:
        kind: who is trusted with what.
        clip: largest L2 norm of an update; longer ones are shortened to it.
        epsilon: the ε not to exceed at the end; not for "none".
        delta: the δ that goes with it.
        accountant: who computes ε; the first that can, if not given.
        reports: how many reports a client makes in a round, for "shuffle".
        method: how such a report is made.
    """

    kind: Privacy
    clip: float | None = None
    epsilon: float | None = None
    delta: float = 1e-5
    accountant: str | None = None
    reports: int = 8
    method: Method = "direction"

    def __post_init__(self) -> None:
        if self.kind not in PRIVACIES:
            raise ConfigError(f"privacy must be one of {', '.join(PRIVACIES)}, got {self.kind!r}")
        if self.kind != "none" and (self.epsilon is None or self.clip is None):
            raise ConfigError(
                f"privacy {self.kind!r} wants target_epsilon and clip, got {self.epsilon} and "
                f"{self.clip}"
            )
        if self.kind == "none" and self.epsilon is not None:
            raise ConfigError("privacy 'none' has no ε; leave target_epsilon out")
        if self.clip is not None and not 0 < self.clip < math.inf:
            raise ConfigError(f"clip must be positive and finite, got {self.clip}")


@dataclass(frozen=True, kw_only=True)
class Crowd:
    """Who takes part: how many each round, how few suffice, how many of those are not honest."""

    clients: int
    minimum: int
    colluding: int
    rounds: int
    dimension: int

    @property
    def honest(self) -> int:
        """The fewest honest clients in a round that counts."""
        return self.minimum - self.colluding


@dataclass(frozen=True, kw_only=True)
class Promise:
    """What a run will do to each client's data in every round, and the claim at its end."""

    kind: Privacy
    clip: float | None
    event: Event | None
    claim: Claim
    grid: Grid | None = None
    local_epsilon: float | None = None
    reports: int = 0
    method: Method = "direction"


def promise(wish: Wish, crowd: Crowd, *, is_split: bool) -> Promise:
    """Find the least noise that keeps the wish, before any data is read.

    Args:
        wish: what is asked for.
        crowd: who takes part, and how often.
        is_split: the clients share in the noise of the sum, because the server sees no more than
            that; else whoever adds noise adds all of it.

    Raises:
        ConfigError: no amount of noise keeps it.
    """
    if crowd.honest < 2 and wish.kind in ("central", "shuffle"):
        raise ConfigError(
            f"of {crowd.minimum} clients {crowd.colluding} may collude: nobody is left to hide in"
        )
    if wish.kind == "none":
        return Promise(kind="none", clip=wish.clip, event=None, claim=_nothing())
    return _MAKERS[wish.kind](wish, crowd, is_split)


def make_grid(clip: float, multiplier: float, dimension: int, parts: int) -> Grid:
    """Choose a grid for noise of ``multiplier`` times the sensitivity.

    Rounding to the grid may lengthen a vector by √dimension steps, which counts as sensitivity.
    """
    steps = min(_LARGEST_STEPS, _LARGEST_SIGMA / (2 * multiplier))
    sensitivity = 2 * (steps + math.sqrt(dimension))
    return Grid(
        scale=steps / clip,
        sigma2=Fraction(math.ceil((multiplier * sensitivity) ** 2 / parts)),
        l2_sensitivity=sensitivity,
        parts=parts,
    )


def _by_noise(wish: Wish, crowd: Crowd, parts: int, who: str) -> Promise:
    clip = _clip(wish)

    def plan(multiplier: float) -> list[Event]:
        grid = make_grid(clip, multiplier, crowd.dimension, parts)
        return [Repeated(event=grid.event(crowd.dimension), count=crowd.rounds)]

    target = _target(wish, plan(1.0))
    grid = make_grid(clip, least_noise(plan, target), crowd.dimension, parts)
    event = grid.event(crowd.dimension)
    return Promise(
        kind=wish.kind, clip=clip, event=event, claim=_claim(wish, event, crowd, who), grid=grid
    )


def _central(wish: Wish, crowd: Crowd, is_split: bool) -> Promise:
    if is_split:
        return _by_noise(wish, crowd, crowd.honest, "whoever sees the sums")
    return _by_noise(wish, crowd, 1, "whoever sees the models; the server sees every update")


def _local(wish: Wish, crowd: Crowd, is_split: bool) -> Promise:
    return _by_noise(wish, crowd, 1, "the server")


def _shuffle(wish: Wish, crowd: Crowd, is_split: bool) -> Promise:
    count = wish.reports * crowd.rounds

    def plan(local: float) -> list[Event]:
        return [Repeated(event=Shuffled(local_epsilon=local, clients=crowd.honest), count=count)]

    local = largest_budget(plan, _target(wish, plan(0.1)), low=1e-4, high=12.0)
    shuffled = Shuffled(local_epsilon=local, clients=crowd.honest)
    event = Repeated(event=shuffled, count=wish.reports)
    who = "a server that does not work with the shuffler"
    return Promise(
        kind="shuffle",
        clip=_clip(wish),
        event=event,
        claim=_claim(wish, event, crowd, who),
        local_epsilon=local,
        reports=wish.reports,
        method=wish.method,
    )


def _claim(wish: Wish, event: Event, crowd: Crowd, who: str) -> Claim:
    whole = Repeated(event=event, count=crowd.rounds)
    return epsilon(
        [whole],
        delta=wish.delta,
        accountant=_accountant(wish, [whole]),
        subject=f"each client's data, towards {who}",
    )


def _target(wish: Wish, events: list[Event]) -> Target:
    if wish.epsilon is None:
        raise ConfigError(f"privacy {wish.kind!r} wants target_epsilon")
    return Target(epsilon=wish.epsilon, delta=wish.delta, accountant=_accountant(wish, events))


def _accountant(wish: Wish, events: list[Event]) -> str:
    able = supporting(events)
    if wish.accountant is not None:
        return wish.accountant
    return next(name for name in _LIKE_TO_USE if name in able)


def _clip(wish: Wish) -> float:
    if wish.clip is None:
        raise ConfigError(f"privacy {wish.kind!r} wants a clip")
    return wish.clip


def _nothing() -> Claim:
    return Claim(
        subject="each client's data, towards whoever sees the models",
        guarantee="no guarantee",
        assumptions=("no noise is added: models may remember what they were trained on",),
    )


_MAKERS: dict[str, Callable[[Wish, Crowd, bool], Promise]] = {
    "central": _central,
    "local": _local,
    "local-adaptive": _local,
    "shuffle": _shuffle,
}
