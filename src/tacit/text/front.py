"""Fine-tuning as one call: public texts first, then dialogues, by one of four methods."""

import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from torch import nn

from tacit.dp import Book
from tacit.dp.book import open_book
from tacit.dp.calibrate import BudgetTarget, least_noise
from tacit.dp.codec import ledger_to_record
from tacit.dp.event import (
    ADD_REMOVE_CLIENT_MARKS,
    ADD_REMOVE_MARKS,
    Event,
    Pure,
    Relation,
    Repeated,
)
from tacit.dp.ledger import Ledger, Second, confirm, epsilon
from tacit.dp.private import step_event
from tacit.errors import ConfigError
from tacit.nn import add_adapters, merge_adapters
from tacit.result import Claim
from tacit.ring import Prg
from tacit.text.corpus import Marked, Units
from tacit.text.spec import TextPlan
from tacit.text.tune import silent, tune, tune_private
from tacit.text.vote import Adapter, train_voters

Tell = Callable[[str, int, int], None]
"""Told the stage, and how many of how many steps of it are done."""

UNMARKED = "what the policy does not mark, and how many marks there are, is not protected"
_NO_CLAIM = Claim(
    subject="each text",
    guarantee="no guarantee",
    assumptions=("texts are trained on as they are",),
)
_WRITER_CLAIM = Claim(
    subject="what a policy marks of each owner, in the writer alone",
    guarantee="does not depend on it",
    assumptions=(UNMARKED, "what voters say is paid for from a budget, token by token"),
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Tuned:
    """A model that was tuned, and what is promised of it.

    Attributes:
        module: the model; of a vote, the writer.
        claim: of the training.
        ledger: its events; empty where there is no noise.
        second: its ε, computed by other code; None where there is none.
        voters: adapters of the voters; not to be given away.
    """

    module: nn.Module
    claim: Claim
    ledger: Ledger = field(default_factory=Ledger)
    second: Second | None = None
    voters: tuple[Adapter, ...] = ()


def fine_tune(
    module: nn.Module,
    corpus: Marked,
    plan: TextPlan,
    *,
    prg: Prg | None = None,
    tell: Tell = silent,
) -> Tuned:
    """Tune a model on a marked corpus; `module` is trained in place.

    Guarantee: "none" has none. "all-dp": (ε, δ) for adding or removing a unit. "jft": the second
    phase is (ε, δ) for adding or removing a unit, and the first depends on redacted texts alone, so
    that two contents of the marks of one unit are (2ε, (1 + e^ε) δ)-close; what is not marked is
    not protected. "vote": the writer depends on redacted texts alone; what the voters say is paid
    for by a budget when they say it.
    """
    prg = prg or Prg.from_os()
    if plan.method == "none":
        units = corpus.originals(length=plan.length, by_owner=False)
        tune(module, units, plan.course, prg=prg, note=lambda *at: tell("tune", *at))
        return Tuned(module=module, claim=_NO_CLAIM)
    if plan.method != "all-dp":
        # A model that is released has seen numbers, if false ones; a writer leaves places open.
        stand_ins = prg.fork("stand-ins") if plan.method == "jft" else None
        units = corpus.redactions(length=plan.length, stand_ins=stand_ins)
        spared: tuple[int, ...] = ()
        if plan.method == "vote":  # a writer must not forget the signs that no redacted text holds
            held = {one for unit in units.rows for row in unit for one in row.ids.tolist()}
            spared = tuple({one for sign in corpus.signs for one in sign} - held)
        note = partial(tell, "redacted texts")
        tune(module, units, plan.course, prg=prg, note=note, spared=spared)
    if plan.method == "vote":
        voters = train_voters(
            module,
            corpus,
            plan.private,
            shards=plan.ballot.voters,
            length=plan.length,
            rank=plan.rank,
            layers=plan.layers,
            prg=prg.fork("voters"),
        )
        return Tuned(module=module, claim=_WRITER_CLAIM, voters=tuple(voters))
    units = _private_units(corpus, plan)
    learning = _learning(module, plan)
    private = tune_private(
        learning,
        units,
        plan.private,
        epsilon=plan.epsilon,
        delta=plan.delta or _delta(units),
        clip=plan.clip,
        relation=plan.relation,
        prg=prg.fork("noise"),
        note=lambda *at: tell("private steps", *at),
    )
    return Tuned(
        module=merge_adapters(learning) if plan.rank else learning,
        claim=_stated(private.claim, corpus, plan),
        ledger=private.ledger,
        second=confirm(private.ledger, private.claim),
    )


def planned_claim(module: nn.Module, corpus: Marked, plan: TextPlan) -> tuple[Claim, float]:
    """Return what a training will promise, and noise per clip, before it begins."""
    if plan.method == "none":
        return _NO_CLAIM, 0.0
    if plan.method == "vote":
        return _WRITER_CLAIM, 0.0
    units = _private_units(corpus, plan)
    events = _noisy_events(module, len(units), plan, plan.relation)
    delta = plan.delta or _delta(units)
    noise = least_noise(
        events, BudgetTarget(epsilon=plan.epsilon, delta=delta, accountant="fourier")
    )
    claim = epsilon(events(noise), delta=delta, accountant="fourier", population=len(units))
    return _stated(claim, corpus, plan), noise


def enter_book(
    module: nn.Module,
    corpus: Marked,
    plan: TextPlan,
    book: Book | Path,
    *,
    total: float | None = None,
) -> tuple[int, float]:
    """Enter a training in the book of its texts, before it begins; trainings there, and their ε.

    Every method is counted alike, by what a unit may change: whether the parts with noise, or the
    voters, ever saw it. A vote counts with the whole budget that its folder will have, `total`.

    Guarantee: together, all trainings in the book are (ε, δ)-private for that, at this δ. What
    first phases learn of unmarked parts is not counted, as it is not protected.

    Raises:
        ConfigError: it would be more than the book allows, or has no ε, or protects another unit.
    """
    found, events, delta = _booked(module, corpus, plan, book, total)
    return found.enter(secrets.token_hex(16), events, delta, kind="text")


def foresee_book(
    module: nn.Module,
    corpus: Marked,
    plan: TextPlan,
    book: Book | Path,
    *,
    total: float | None = None,
) -> tuple[int, float]:
    """Return what `enter_book` would, and enter nothing."""
    found, events, delta = _booked(module, corpus, plan, book, total)
    return found.foresee(events, delta)


def _booked(
    module: nn.Module, corpus: Marked, plan: TextPlan, book: Book | Path, total: float | None
) -> tuple[Book, list[dict[str, object]], float]:
    """Return a book, and what a training enters in it: its events, and at which δ."""
    found = open_book(book)
    relation = ADD_REMOVE_CLIENT_MARKS if plan.unit == "owner" else ADD_REMOVE_MARKS
    if plan.method == "none":
        raise ConfigError(f"{found.path}: a training without protection has no ε to be entered")
    units = _private_units(corpus, plan)
    delta = plan.delta or _delta(units)
    if plan.method == "vote":
        if total is None:
            raise ConfigError("a vote is entered with the budget of its folder: wanted a total")
        done: list[Event] = [Pure(epsilon=total, relation=relation, mechanism="votes")]
    else:
        events = _noisy_events(module, len(units), plan, relation)
        target = BudgetTarget(epsilon=plan.epsilon, delta=delta, accountant="fourier")
        done = events(least_noise(events, target))
    ledger = Ledger()
    for event in done:
        ledger.record(event)
    return found, ledger_to_record(ledger), delta


def _noisy_events(
    module: nn.Module, units: int, plan: TextPlan, relation: Relation
) -> Callable[[float], list[Event]]:
    """Return what the training with noise does, for any noise per clip."""
    learning = _learning(module, plan)
    numbers = sum(p.numel() for p in learning.parameters() if p.requires_grad)
    # As `make_private` counts: each step draws every unit with this probability (Poisson).
    rate = min(1.0, min(plan.private.batch, units) / units)
    steps = plan.private.epochs * math.ceil(1 / rate)

    def events(multiplier: float) -> list[Event]:
        event = step_event(
            numbers, multiplier=multiplier, clip=plan.clip, rate=rate, relation=relation
        )
        return [Repeated(event=event, count=steps)]

    return events


def _private_units(corpus: Marked, plan: TextPlan) -> Units:
    return corpus.originals(
        length=plan.length, by_owner=plan.unit == "owner", stresses_marks=plan.method == "jft"
    )


def _learning(module: nn.Module, plan: TextPlan) -> nn.Module:
    """Return what learns under noise: adapters, or everything.

    Noise has a norm that grows with the root of the number of weights, an update does not; so few
    weights learn better under one ε (Yu et al. 2022).
    """
    if not plan.rank:
        return module.requires_grad_(True)
    return add_adapters(module, rank=plan.rank, seed=0, only=plan.layers)


def _delta(units: Units) -> float:
    return 0.1 / len(units)


def _stated(claim: Claim, corpus: Marked, plan: TextPlan) -> Claim:
    """Add what a claim about texts rests on."""
    more = [] if plan.unit == "text" else ["an owner's texts all bear its name"]
    if plan.method == "jft":
        more += [UNMARKED, "the policy marks what is private"]
    # Whether there are any, and how many, is a figure of the texts: no claim tells it.
    more.append(
        "a text that stands under several owners is promised less, ε for each place that holds it"
    )
    return replace(claim, assumptions=(*claim.assumptions, *more))
