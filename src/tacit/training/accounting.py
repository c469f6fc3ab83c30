"""The least noise with which a training keeps its promise, and the claim that follows."""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from math import prod, sqrt

from tacit.dp import (
    ADD_REMOVE_RECORD,
    DiscreteGaussian,
    Ledger,
    Poisson,
    Repeated,
    Second,
    Target,
    Unaccountable,
    confirm,
    delta_among,
    epsilon,
    least_noise,
    ledger_to_record,
)
from tacit.result import Claim
from tacit.training.clipping import sensitivity
from tacit.training.joint import DISTANCE
from tacit.training.makers import NoisePlan, largest_multiplier, share_noise
from tacit.training.privacy import Measures, Privacy, PrivacyPlan

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

    def noise(multiplier: float) -> NoisePlan:
        return _shared(privacy, facts, multiplier, stated, (facts.weights,))

    looks, choice = _look_noise(privacy, facts), _choice_noise(privacy, facts)

    def events(multiplier: float, *, is_hidden: bool = True) -> dict[str, Repeated]:
        step = event_of(noise(multiplier), overflow=facts.overflow)
        # Alone an owner draws all of the noise; its records are in no other's model.
        alone = replace(step, sigma2=noise(multiplier).alone, parts=1, distance=0.0)
        drawn: DiscreteGaussian | Poisson = step
        if facts.rate < 1:
            drawn = Poisson(event=step, rate=facts.rate, is_hidden=is_hidden)
        found = {"steps": Repeated(event=drawn, count=facts.steps)}
        if privacy.start_steps:
            found["steps that owners take alone"] = Repeated(event=alone, count=privacy.start_steps)
        if choice is not None:
            found["choice between starts"] = Repeated(event=event_of(choice), count=1)
        if looks is not None:
            found["looks at held-out rows"] = Repeated(event=event_of(looks), count=facts.looks)
        return found

    most = largest_multiplier(facts.makers, l2_sensitivity=stated, frac_bits=facts.frac_bits)
    target = Target(epsilon=privacy.epsilon, delta=privacy.delta)
    found = least_noise(lambda one: events(one).values(), target, low=0.05, high=most)
    ledger = _ledger(events(found))
    claim, second = _claim(ledger, privacy, facts, warning)
    inner = None
    if facts.rate < 1:
        claim = replace(claim, subject=OUTSIDE.format(*facts.computing))
        known, _ = _claim(_ledger(events(found, is_hidden=False)), privacy, facts, warning)
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


def _ledger(events: Mapping[str, Repeated]) -> Ledger:
    ledger = Ledger()
    for note, event in events.items():
        ledger.record(event, note=note)
    return ledger


def _shared(
    privacy: Privacy,
    facts: Measures,
    multiplier: float,
    l2_sensitivity: float,
    shape: tuple[int, ...],
) -> NoisePlan:
    """Cut noise into parts of all makers, or let the two that compute sample it together."""
    is_joint = privacy.noise == "joint"
    return share_noise(
        facts.computing if is_joint else facts.makers,
        multiplier=multiplier,
        l2_sensitivity=l2_sensitivity,
        frac_bits=facts.frac_bits,
        shape=shape,
        is_joint=is_joint,
    )


def _look_noise(privacy: Privacy, facts: Measures) -> NoisePlan | None:
    """Return the noise of a look: a record more or less moves right answers by its own."""
    if privacy.looks != "noisy" or not facts.looks:
        return None
    return _shared(privacy, facts, privacy.look_noise, float(facts.answers), (1,))


def _choice_noise(privacy: Privacy, facts: Measures) -> NoisePlan | None:
    """Return the noise of a choice: a record moves the answers of every candidate by its own."""
    if privacy.start != "best":
        return None
    candidates = facts.owners + 1
    sensitivity_of_all = facts.answers * sqrt(candidates)
    return _shared(privacy, facts, privacy.look_noise, sensitivity_of_all, (candidates,))


def _claim(
    events: Ledger, privacy: Privacy, facts: Measures, warning: str | None
) -> tuple[Claim, Second | None]:
    """Say what holds; under protocols that show permuted values, nothing does."""
    if facts.protocol != "sealed":
        relation = events.entries[0].event.relation
        reason = (
            f"under {facts.protocol} a party sees values of rows in random order, without noise"
        )
        events.record(Unaccountable(reason=reason, relation=relation))
    claim = epsilon(events, delta=privacy.delta, subject=SUBJECT)
    known = (
        JOINT if privacy.noise == "joint" else FOLLOWS,
        "this is one training: another one on the same rows spends an ε of its own",
        *claim.assumptions,
        "the number of rows of every owner is public: a record that is removed leaves a row that "
        "adds nothing",
        *(
            ("nothing is promised about rows that are kept for measuring: they are public here",)
            if privacy.looks == "public"
            else ()
        ),
        *((warning,) if warning else ()),
    )
    return replace(claim, assumptions=known), confirm(events, claim)
