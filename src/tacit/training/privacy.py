"""Differential privacy of a training on shares: what is asked for, the noise, what is claimed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod, sqrt
from typing import Literal

from tacit.dp import (
    ADD_REMOVE_RECORD,
    BudgetTarget,
    DiscreteGaussian,
    Ledger,
    Poisson,
    Repeated,
    Second,
    Unaccountable,
    confirm,
    delta_among,
    epsilon,
    least_noise,
    ledger_to_record,
)
from tacit.errors import ConfigError
from tacit.result import Claim
from tacit.training.noise import DISTANCE, NoisePlan, largest_multiplier, share_noise

Looks = Literal["none", "noisy", "public"]
Start = Literal["public", "average", "best"]
Noise = Literal["parts", "joint"]
Sampling = Literal["none", "hidden"]
SMALLEST_CLIP, LARGEST_CLIP = 2.0**-6, 2.0
"""The smallest, squared, is sixteen units of 2^-16: what is rounded up stays small beside it. Rows
have norm 1 at most, so that a larger clip would mostly add noise."""
PRIVATE_BITS = 16
"""The proof of `rsqrt_below` wants so many fraction bits."""
FOLLOWS = "every party follows the protocol, and no two of them put together what they know"
JOINT = (
    "every party follows the protocol, and no two of the three that compute and deal put together "
    "what they know; owners beside them may"
)
SUBJECT = "each record's data, towards every single party and whoever gets the weights"
OUTSIDE = (
    "each record's data, towards whoever gets the weights and every single party but {} and {}, "
    "who draw the rows of every step"
)
INSIDE = "each record's data, towards {} and towards {}, who draw the rows of every step"


@dataclass(frozen=True, kw_only=True)
class Privacy:
    """What a training may tell about one record.

    Attributes:
        epsilon: privacy: of the whole training, looks included: what it may tell about one record,
            towards every single party. Only under "sealed".
        delta: privacy: at which it holds; below one over the number of rows.
        clip: how long the gradient of a record may be, from 2^-6 to 2; owners shorten rows to norm
            1.
        looks: what ``show_to`` sees on the way of rows that are kept for measuring: nothing; the
            number of right answers with noise, which is paid for; or loss and accuracy as they are,
            of rows about which nothing is promised.
        look_noise: the standard deviation of that noise, in rows, from 1 to 256, and of the noise
            of a choice.
        start: what a training begins with: public weights; or models that owners train alone with
            DP, which meet on shares: their average, or the "best" of these and their average by
            right answers with noise. None of it is ever opened, and all of it is in the ledger.
        start_steps: how many steps every owner takes alone.
        noise: where it comes from: all parties draw "parts" of it; or it is "joint", sampled on
            shares by the two that compute: nobody knows more than a small part of it, and less is
            needed in all.
        sampling: privacy: "none" for all rows in every step, whose claim holds towards everyone;
            with "hidden" each row is in a step with probability ``batch`` over rows, drawn by the
            two parties that compute: their claim is the one of steps on all rows, that of everyone
            else is smaller.
    """

    epsilon: float
    delta: float
    clip: float = 1.0
    looks: Looks = "none"
    look_noise: float = 20.0
    start: Start = "public"
    start_steps: int = 0
    noise: Noise = "parts"
    sampling: Sampling = "none"

    def __post_init__(self) -> None:
        if not 0 < self.epsilon <= 200:  # False for NaN as well
            raise ConfigError(f"epsilon must be above 0 and at most 200, got {self.epsilon}")
        if not 0 < self.delta < 1:
            raise ConfigError(f"delta must be above 0 and below 1, got {self.delta}")
        if not SMALLEST_CLIP <= self.clip <= LARGEST_CLIP:
            raise ConfigError(
                f"clip must be from {SMALLEST_CLIP} to {LARGEST_CLIP}: rows have norm 1 at most, "
                f"got {self.clip}"
            )
        if self.looks not in ("none", "noisy", "public"):
            raise ConfigError(f"looks are 'none', 'noisy' or 'public', got {self.looks!r}")
        if not 1 <= self.look_noise <= 256:
            raise ConfigError(f"look_noise must be from 1 to 256 rows, got {self.look_noise}")
        if self.start not in ("public", "average", "best") or (
            (self.start != "public") != (self.start_steps > 0)
        ):
            raise ConfigError(
                "a start is 'public' without start_steps, or 'average' or 'best' with some, got "
                f"{self.start!r} with {self.start_steps}"
            )
        if self.noise not in ("parts", "joint"):
            raise ConfigError(f"noise is 'parts' or 'joint', got {self.noise!r}")
        if self.sampling not in ("none", "hidden"):
            raise ConfigError(f"sampling is 'none' or 'hidden', got {self.sampling!r}")


@dataclass(frozen=True, kw_only=True, eq=False)
class PrivacyPlan:
    """How much noise there is and who makes it, and what is claimed: from public facts alone.

    Attributes:
        steps: the noise of a step.
        looks: the noise of a look; None where none is added.
        choice: the noise of the choice between starts; None where there is none.
        events: what is done to every record; `tacit.dp.ledger_from_record` makes a `Ledger` of it.
        claim: ε, δ, relation and accountant, and what they rest on.
        inner: where rows are sampled, the claim towards the two that draw them; else None.
        second: ε by a second conversion of the same divergences; None without a guarantee.
    """

    steps: NoisePlan
    looks: NoisePlan | None
    choice: NoisePlan | None
    events: Sequence[Mapping[str, object]]
    claim: Claim
    second: float | None
    inner: Claim | None = None

    @property
    def makers(self) -> tuple[str, ...]:
        """Return who makes noise."""
        return self.steps.makers

    def sentence(self) -> str:
        """Say what is promised, in a line."""
        claim = self.claim
        if claim.epsilon is None:
            return "privacy: no guarantee"
        text = (
            f"privacy: ε = {claim.epsilon:.3f} at δ = {claim.delta:g} for {claim.relation}, by "
            f"{claim.accountant}"
        )
        if self.inner is not None and self.inner.epsilon is not None:
            text += f"; ε = {self.inner.epsilon:.3f} towards the two that compute"
        return text


@dataclass(frozen=True, kw_only=True)
class Measures:
    """The public facts of a private training that its noise follows from.

    Attributes:
        makers: who makes noise.
        computing: the two that hold shares.
        roundings: see `sensitivity`.
        weights: how many numbers are trained.
        steps: how many are taken.
        rate: with which probability a row is in a step; 1 for all rows.
        overflow: how likely a step has no room for a row that was drawn.
        looks: how often rows that are kept for measuring are looked at.
        rows: how many there are, in all.
        answers: how many a row has: one, or one per token.
        owners: how many there are, and so many own models.
        frac_bits: of the training.
        protocol: with which it runs.
    """

    makers: tuple[str, ...]
    computing: tuple[str, str]
    roundings: tuple[tuple[float, int], ...]
    weights: int
    steps: int
    looks: int
    rows: int
    answers: int
    owners: int
    frac_bits: int
    protocol: str
    rate: float = 1.0
    overflow: float = 0.0


def sensitivity(
    *, clip: float, roundings: Sequence[tuple[float, int]], weights: int, frac_bits: int
) -> float:
    """Return by how much one record can move the sum of all clipped gradients, in L2.

    Args:
        clip: the norm.
        roundings: of every use, the largest norm² of a record's inputs (with its ``times``) and how
            many numbers of a record come out: each of these is off by less than a unit.
        weights: how many numbers the sum has. It is rescaled once: by less than a unit each, with
            the record and without it.
        frac_bits: a unit is 2^-frac_bits.
    """
    unit = 2.0**-frac_bits
    return clip + unit * (sqrt(sum(size * count for size, count in roundings)) + 2 * sqrt(weights))


def event_of(noise: NoisePlan, *, overflow: float = 0.0) -> DiscreteGaussian:
    """Return what happens to a record when a sum is shown with such noise.

    ``overflow`` is how likely something else happens, beyond what the noise itself is off by.
    """
    count = prod(noise.shape)
    sigma2, parts = noise.each, len(noise.makers) - 1
    if noise.step:  # as one draw: the distance says how far it is from that
        sigma2, parts = min(noise.unknown_to(one) for one in noise.makers), 1
    return DiscreteGaussian(
        sigma2=sigma2,
        l2_sensitivity=noise.l2_sensitivity * 2**noise.frac_bits,
        dimension=count,
        parts=parts,
        relation=ADD_REMOVE_RECORD,
        distance=overflow + (count * DISTANCE if noise.step else 0.0),
    )


@lru_cache(maxsize=8)  # parties that are threads of one process would all search for the same
def plan_privacy(privacy: Privacy, facts: Measures) -> PrivacyPlan:
    """Find the least noise that meets a budget, from public facts alone, and what it does.

    Raises:
        ConfigError: there is none, or δ says nothing about so many rows.
    """
    warning = delta_among(privacy.delta, facts.rows, "record")
    stated = sensitivity(
        clip=privacy.clip,
        roundings=facts.roundings,
        weights=facts.weights,
        frac_bits=facts.frac_bits,
    )

    def noise(multiplier: float, reach: float = stated, count: int = facts.weights) -> NoisePlan:
        """Cut noise into parts of all makers, or let the two that compute sample it together."""
        is_joint = privacy.noise == "joint"
        return share_noise(
            facts.computing if is_joint else facts.makers,
            multiplier=multiplier,
            l2_sensitivity=reach,
            frac_bits=facts.frac_bits,
            shape=(count,),
            is_joint=is_joint,
        )

    looks = choice = None
    if privacy.looks == "noisy" and facts.looks:
        # A record more or less moves right answers by its own: one, or one per token.
        looks = noise(privacy.look_noise, float(facts.answers), 1)
    if privacy.start == "best":
        # It moves those of every candidate at once: of all owners' models and their average.
        among = facts.owners + 1
        choice = noise(privacy.look_noise, facts.answers * sqrt(among), among)

    def events(multiplier: float, *, is_hidden: bool = True) -> dict[str, Repeated]:
        return _events(privacy, facts, noise(multiplier), looks, choice, is_hidden=is_hidden)

    most = largest_multiplier(facts.makers, l2_sensitivity=stated, frac_bits=facts.frac_bits)
    target = BudgetTarget(epsilon=privacy.epsilon, delta=privacy.delta)
    found = least_noise(lambda one: events(one).values(), target, low=0.05, high=most)
    ledger, claim, second = _claim(events(found), privacy, facts, warning)
    inner = None
    if facts.rate < 1:
        # The two that draw the rows gain nothing from their being drawn: a claim of their own.
        claim = replace(claim, subject=OUTSIDE.format(*facts.computing))
        _, known, _ = _claim(events(found, is_hidden=False), privacy, facts, warning)
        inner = replace(known, subject=INSIDE.format(*facts.computing))
    return PrivacyPlan(
        steps=noise(found),
        looks=looks,
        choice=choice,
        events=ledger_to_record(ledger),
        claim=claim,
        second=None if second is None else second.epsilon,
        inner=inner,
    )


def _events(
    privacy: Privacy,
    facts: Measures,
    steps: NoisePlan,
    looks: NoisePlan | None,
    choice: NoisePlan | None,
    *,
    is_hidden: bool,
) -> dict[str, Repeated]:
    """List what is done to a record, by what the ledger calls it."""
    step = event_of(steps, overflow=facts.overflow)
    drawn: DiscreteGaussian | Poisson = step
    if facts.rate < 1:
        drawn = Poisson(event=step, rate=facts.rate, is_hidden=is_hidden)
    found = {"steps": Repeated(event=drawn, count=facts.steps)}
    if privacy.start_steps:
        # Alone an owner draws all of the noise; its records are in no other's model.
        alone = replace(step, sigma2=steps.alone, parts=1, distance=0.0)
        found["steps that owners take alone"] = Repeated(event=alone, count=privacy.start_steps)
    if choice is not None:
        found["choice between starts"] = Repeated(event=event_of(choice), count=1)
    if looks is not None:
        found["looks at held-out rows"] = Repeated(event=event_of(looks), count=facts.looks)
    return found


def _claim(
    events: Mapping[str, Repeated], privacy: Privacy, facts: Measures, warning: str | None
) -> tuple[Ledger, Claim, Second | None]:
    """Say what holds; under protocols that show permuted values, nothing does."""
    ledger = Ledger()
    for note, event in events.items():
        ledger.record(event, note=note)
    if facts.protocol != "sealed":
        reason = (
            f"under {facts.protocol} a party sees values of rows in random order, without noise"
        )
        ledger.record(Unaccountable(reason=reason, relation=ADD_REMOVE_RECORD))
    claim = epsilon(ledger, delta=privacy.delta, subject=SUBJECT)
    public = "nothing is promised about rows that are kept for measuring: they are public here"
    assumptions = (
        JOINT if privacy.noise == "joint" else FOLLOWS,
        "this is one training: another one on the same rows spends an ε of its own",
        *claim.assumptions,
        "the number of rows of every owner is public: a record that is removed leaves a row that "
        "adds nothing",
        *((public,) if privacy.looks == "public" else ()),
        *((warning,) if warning else ()),
    )
    return ledger, replace(claim, assumptions=assumptions), confirm(ledger, claim)
