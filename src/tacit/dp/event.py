"""Events: what a mechanism did to one neighbour's worth of data, in the terms ε is computed from.

An event is written down when noise is drawn and never carries an ε that somebody computed: the
accountants turn lists of events into claims. Every event names the neighbouring relation it speaks
about; a sensitivity is always the one under that relation.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal, get_args

from tacit.dp.check import at_least_one, budget, positive, probability
from tacit.errors import ConfigError

Neighbours = Literal["add-remove", "replace-one"]
Unit = Literal["record", "client", "label", "marks of a record", "marks of a client"]
UNITS: tuple[Unit, ...] = get_args(Unit)


@dataclass(frozen=True)
class Relation:
    """Which two data sets an observer must not tell apart: the change, and of whose data."""

    neighbours: Neighbours
    unit: Unit

    def __post_init__(self) -> None:
        if self.neighbours not in ("add-remove", "replace-one"):
            raise ConfigError(f"neighbours are add-remove or replace-one, got {self.neighbours!r}")
        if self.unit not in UNITS:
            raise ConfigError(f"the unit is one of {', '.join(UNITS)}, got {self.unit!r}")

    def __str__(self) -> str:
        verb = "adding or removing" if self.neighbours == "add-remove" else "replacing"
        if self.unit.startswith("marks"):
            return f"{verb} what a policy marks of one {self.unit.split()[-1]}"
        return f"{verb} one {self.unit}"


ADD_REMOVE_RECORD = Relation("add-remove", "record")
ADD_REMOVE_CLIENT = Relation("add-remove", "client")
REPLACE_RECORD = Relation("replace-one", "record")
REPLACE_CLIENT = Relation("replace-one", "client")
ADD_REMOVE_MARKS = Relation("add-remove", "marks of a record")
ADD_REMOVE_CLIENT_MARKS = Relation("add-remove", "marks of a client")
REPLACE_CLIENT_MARKS = Relation("replace-one", "marks of a client")
"""Selective privacy: the rest of the texts, and how many marks there are, is taken as known. It is
a weaker promise than one about records, and an ε of the one is never added to an ε of the other."""


@dataclass(frozen=True, kw_only=True)
class Gaussian:
    """Gaussian noise on a vector: standard deviation and L2 sensitivity in the same unit."""

    sigma: float
    l2_sensitivity: float
    relation: Relation

    def __post_init__(self) -> None:
        positive("sigma", self.sigma)
        positive("l2_sensitivity", self.l2_sensitivity)

    @property
    def multiplier(self) -> float:
        """Noise per sensitivity."""
        return self.sigma / self.l2_sensitivity


@dataclass(frozen=True, kw_only=True)
class Laplace:
    """Laplace noise on a vector of `dimension` numbers: scale and L1 sensitivity."""

    scale: float
    l1_sensitivity: float
    dimension: int
    relation: Relation

    def __post_init__(self) -> None:
        positive("scale", self.scale)
        positive("l1_sensitivity", self.l1_sensitivity)
        at_least_one("dimension", self.dimension)

    @property
    def epsilon(self) -> float:
        """The pure ε of one draw."""
        return self.l1_sensitivity / self.scale


@dataclass(frozen=True, kw_only=True)
class DiscreteGaussian:
    """Discrete Gaussian noise added to a vector of integers by `parts` independent draws.

    Args:
        sigma2: the variance parameter of each draw.
        l2_sensitivity: of the integer vector.
        dimension: how many integers.
        parts: how many draws are summed, one for a single curator; the noise of clients that the
            adversary controls, or that dropped out, does not count.
        relation: the neighbouring relation of the sensitivity.
        distance: the statistical distance between what is drawn, the whole vector, and such noise;
            accountants take it out of δ.
    """

    sigma2: Fraction
    l2_sensitivity: float
    dimension: int
    relation: Relation
    parts: int = 1
    distance: float = 0.0

    def __post_init__(self) -> None:
        positive("sigma2", float(self.sigma2))
        positive("l2_sensitivity", self.l2_sensitivity)
        at_least_one("dimension", self.dimension)
        at_least_one("parts", self.parts)
        if not 0 <= self.distance < 1:
            raise ConfigError(f"distance must be at least 0 and below 1, got {self.distance}")
        if self.parts > 1 and self.sigma2 < Fraction(1, 4):
            raise ConfigError(
                f"a sum of discrete Gaussians is accounted for sigma2 of at least 1/4 per part, "
                f"got {float(self.sigma2)}; scale the integers up"
            )

    @property
    def rho(self) -> float:
        """Zero-concentrated privacy of one discrete Gaussian of the whole variance."""
        return self.l2_sensitivity**2 / (2 * float(self.sigma2) * self.parts)


@dataclass(frozen=True, kw_only=True)
class DiscreteLaplace:
    """Discrete Laplace noise on a vector of `dimension` integers."""

    scale: Fraction
    l1_sensitivity: int
    dimension: int
    relation: Relation

    def __post_init__(self) -> None:
        positive("scale", float(self.scale))
        at_least_one("l1_sensitivity", self.l1_sensitivity)
        at_least_one("dimension", self.dimension)

    @property
    def epsilon(self) -> float:
        """The pure ε of one draw."""
        return self.l1_sensitivity / float(self.scale)


@dataclass(frozen=True, kw_only=True)
class Binomial:
    """Centred binomial noise Bin(trials, 1/2) on a vector of integers (cpSGD)."""

    trials: int
    dimension: int
    l1_sensitivity: float
    l2_sensitivity: float
    linf_sensitivity: float
    relation: Relation

    def __post_init__(self) -> None:
        at_least_one("trials", self.trials)
        at_least_one("dimension", self.dimension)
        for name in ("l1_sensitivity", "l2_sensitivity", "linf_sensitivity"):
            positive(name, getattr(self, name))


@dataclass(frozen=True, kw_only=True)
class Response:
    """One report of the randomiser R_γ,b: the truth, or uniform on {0..b}, with local ε."""

    epsilon: float
    levels: int
    relation: Relation = REPLACE_CLIENT

    def __post_init__(self) -> None:
        budget("epsilon", self.epsilon)
        if at_least_one("levels", self.levels) < 2:
            raise ConfigError("a randomised response needs at least 2 levels (b = 1), got 1")


@dataclass(frozen=True, kw_only=True)
class Shuffled:
    """Reports of `clients` clients, each locally ε0-private, seen only as a multiset.

    Args:
        local_epsilon: ε0 of one client's whole message.
        clients: messages of honest clients that were shuffled together.
        is_binary: the randomiser is two-level randomised response, for which a tighter bound holds
            (the general bound of the "stronger" paper does not hold for every randomiser).
        relation: replacing one client's data, as shuffling hides whose message is whose.
    """

    local_epsilon: float
    clients: int
    is_binary: bool = False
    relation: Relation = REPLACE_CLIENT

    def __post_init__(self) -> None:
        budget("local_epsilon", self.local_epsilon)
        at_least_one("clients", self.clients)
        if self.relation.neighbours != "replace-one":
            raise ConfigError("shuffling hides which client sent what: use replace-one neighbours")


@dataclass(frozen=True, kw_only=True)
class Pure:
    """Anything proved to be (ε, 0)-private, e.g. the sparse vector technique."""

    epsilon: float
    relation: Relation
    mechanism: str

    def __post_init__(self) -> None:
        budget("epsilon", self.epsilon)


@dataclass(frozen=True, kw_only=True)
class Approximate:
    """Anything proved to be (ε, δ)-private and no better, e.g. objective perturbation."""

    epsilon: float
    delta: float
    relation: Relation
    mechanism: str

    def __post_init__(self) -> None:
        budget("epsilon", self.epsilon)
        if not 0 <= self.delta < 1:
            raise ConfigError(f"delta must be at least 0 and below 1, got {self.delta}")


@dataclass(frozen=True, kw_only=True)
class Poisson:
    """An event that each record or client joins by an independent coin of probability `rate`.

    Args:
        event: what happens to those who joined; under add-remove neighbours.
        rate: the probability of joining.
        is_hidden: whether the adversary does not see who joined. If it does, nothing is amplified.
    """

    event: "Event"
    rate: float
    is_hidden: bool

    def __post_init__(self) -> None:
        probability("rate", self.rate)
        if self.event.relation.neighbours != "add-remove":
            raise ConfigError(
                "Poisson sampling is accounted for add-remove neighbours, got an event for "
                f"{self.event.relation}; state the sensitivity under add-remove"
            )

    @property
    def relation(self) -> Relation:
        """The relation of what is sampled."""
        return self.event.relation


@dataclass(frozen=True, kw_only=True)
class FixedSample:
    """An event on a uniform subset of fixed size, drawn without replacement."""

    event: Gaussian
    sample: int
    population: int
    is_hidden: bool

    def __post_init__(self) -> None:
        at_least_one("sample", self.sample)
        if at_least_one("population", self.population) < self.sample:
            raise ConfigError(f"cannot draw {self.sample} of {self.population} without replacement")
        if self.event.relation.neighbours != "replace-one":
            raise ConfigError(
                "sampling a fixed number is accounted for replace-one neighbours, got an event for "
                f"{self.event.relation}; state the sensitivity under replace-one"
            )

    @property
    def relation(self) -> Relation:
        """The relation of what is sampled."""
        return self.event.relation


@dataclass(frozen=True, kw_only=True)
class Repeated:
    """An event that happens `count` times with fresh randomness, each choice seeing the past."""

    event: "Event"
    count: int

    def __post_init__(self) -> None:
        at_least_one("count", self.count)

    @property
    def relation(self) -> Relation:
        """The relation of what is repeated."""
        return self.event.relation


@dataclass(frozen=True, kw_only=True)
class Unaccountable:
    """Data was used in a way for which no finite ε holds."""

    reason: str
    relation: Relation


Noise = (
    Gaussian
    | Laplace
    | DiscreteGaussian
    | DiscreteLaplace
    | Binomial
    | Response
    | Shuffled
    | Pure
    | Approximate
)
Event = Noise | Poisson | FixedSample | Repeated | Unaccountable
Step = Noise | Poisson | FixedSample | Unaccountable
"""An event that is not a repetition."""


def unroll(events: Iterable[Event]) -> dict[Step, int]:
    """Count how often each step happens, with sampling that is visible or certain taken away."""
    counts: dict[Step, int] = {}
    for event in events:
        for step, count in _steps(event):
            counts[step] = counts.get(step, 0) + count
    return counts


def _steps(event: Event) -> Iterable[tuple[Step, int]]:
    if isinstance(event, Repeated):
        return [(step, event.count * count) for step, count in _steps(event.event)]
    if isinstance(event, Poisson):
        inner = list(_steps(event.event))
        if not event.is_hidden or event.rate == 1:
            return inner
        return [(replace(event, event=_merge(inner)), 1)]
    if isinstance(event, FixedSample) and (not event.is_hidden or event.sample == event.population):
        return [(event.event, 1)]
    return [(event, 1)]


def _merge(steps: list[tuple[Step, int]]) -> Step:
    """Fold what happens under one sample into one step: k Gaussians are one of σ / √k."""
    (step, count), *others = steps
    if count == 1 and not others:
        return step
    if isinstance(step, Gaussian) and not others:
        return replace(step, sigma=step.sigma / math.sqrt(count))
    raise ConfigError(
        "only Gaussian noise may be repeated under one sample; draw a new sample each time instead"
    )
