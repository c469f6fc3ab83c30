"""The least noise with which a training keeps its promise, and the claim that follows."""

from dataclasses import replace
from math import prod, sqrt

from tacit.dp import (
    ADD_REMOVE_RECORD,
    DiscreteGaussian,
    Ledger,
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
from tacit.learn.training.clipping import sensitivity
from tacit.learn.training.makers import NoisePlan, largest_multiplier, share_noise
from tacit.learn.training.privacy import Measures, Privacy, PrivacyPlan
from tacit.result import Claim

FOLLOWS = "every party follows the protocol, and no two of them put together what they know"
SUBJECT = "each record's data, towards every single party and whoever gets the weights"


def event_of(noise: NoisePlan) -> DiscreteGaussian:
    """Return what happens to a record when a sum is shown with such noise."""
    return DiscreteGaussian(
        sigma2=noise.each,
        l2_sensitivity=noise.l2_sensitivity * 2**noise.frac_bits,
        dimension=prod(noise.shape),
        parts=len(noise.makers) - 1,
        relation=ADD_REMOVE_RECORD,
    )


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
        return share_noise(
            facts.makers,
            multiplier=multiplier,
            l2_sensitivity=stated,
            frac_bits=facts.frac_bits,
            shape=(facts.weights,),
        )

    looks, choice = _look_noise(privacy, facts), _choice_noise(privacy, facts)

    def events(multiplier: float) -> dict[str, Repeated]:
        step = event_of(noise(multiplier))
        # Alone an owner draws all of the noise; its records are in no other's model.
        alone = replace(step, sigma2=noise(multiplier).alone, parts=1)
        found = {"steps": Repeated(event=step, count=facts.steps)}
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
    ledger = Ledger()
    for note, event in events(found).items():
        ledger.record(event, note=note)
    claim, second = _claim(ledger, privacy, facts, warning)
    return PrivacyPlan(
        steps=noise(found),
        looks=looks,
        choice=choice,
        events=ledger_to_record(ledger),
        claim=claim,
        second=None if second is None else second.epsilon,
    )


def _look_noise(privacy: Privacy, facts: Measures) -> NoisePlan | None:
    """Return the noise of a look: a record more or less moves right answers by its own."""
    if privacy.looks != "noisy" or not facts.looks:
        return None
    return share_noise(
        facts.makers,
        multiplier=privacy.look_noise,
        l2_sensitivity=float(facts.answers),
        frac_bits=facts.frac_bits,
        shape=(1,),
    )


def _choice_noise(privacy: Privacy, facts: Measures) -> NoisePlan | None:
    """Return the noise of a choice: a record moves the answers of every candidate by its own."""
    if privacy.start != "best":
        return None
    candidates = facts.owners + 1
    return share_noise(
        facts.makers,
        multiplier=privacy.look_noise,
        l2_sensitivity=facts.answers * sqrt(candidates),
        frac_bits=facts.frac_bits,
        shape=(candidates,),
    )


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
        FOLLOWS,
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
