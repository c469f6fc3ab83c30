"""The privacy of a federated run, settled before any data is read: how much noise, and the claim.

All claims are about replacing the whole data of one client, so that the words can be compared.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from tacit.dp import (
    REPLACE_CLIENT,
    REPLACE_RECORD,
    DiscreteLaplace,
    Event,
    Pure,
    Repeated,
    Shuffled,
    Target,
    Unaccountable,
    choose_accountant,
    epsilon,
    largest_budget,
    least_noise,
    supporting,
    unroll,
)
from tacit.errors import ConfigError
from tacit.learn.federated.crowd import Crowd
from tacit.learn.federated.grid import (
    Grid,
    check_coins,
    make_coin_grid,
    make_grid,
    make_laplace_grid,
)
from tacit.learn.federated.shuffled.plan import Method
from tacit.learn.federated.wish import PRIVACIES, Adaptive, Mechanism, Privacy, Wish
from tacit.learn.noise import (
    Selection,
    contribution_event,
    nbafl_downlink_sigma,
    nbafl_uplink_sigma,
)
from tacit.result import Claim

__all__ = [
    "PRIVACIES",
    "Adaptive",
    "Crowd",
    "Grid",
    "Mechanism",
    "Privacy",
    "Promise",
    "Wish",
    "make_grid",
    "promise",
]

BIT = 0.1
"""How much of a unit clip the bit takes that says whether an update lies within the clip."""


@dataclass(frozen=True, kw_only=True)
class Promise:
    """What a run will do to each client's data in every round, and the claim at its end.

    Attributes:
        kind: who is trusted with what.
        clip: largest norm of what a client puts in.
        event: of every round.
        claim: about all rounds.
        assumptions: what the claim rests on besides its accountant.
        grid: the noise.
        local_epsilon: of one report, for "shuffle".
        reports: of a client in a round.
        method: of a report.
        first: what is done once, before the first round.
        downlink_sigma: more noise that the server adds to the mean (NbAFL); not accounted for.
        adaptive: how local noise is shaped.
        selection: which entries of an update are sent.
        quantile: what the clip follows; ``follows`` is where it begins.
        follows: the first clip; with it, updates are divided by the clip of the round.
        objective_epsilon: what a client's own training may spend, where it is private itself.
    """

    kind: Privacy
    clip: float | None
    event: Event | None
    claim: Claim
    assumptions: tuple[str, ...] = ()
    grid: Grid | None = None
    local_epsilon: float | None = None
    reports: int = 0
    method: Method = "direction"
    first: Event | None = None
    downlink_sigma: float = 0.0
    adaptive: Adaptive | None = None
    selection: Selection | None = None
    quantile: float | None = None
    follows: float | None = None
    objective_epsilon: float | None = None


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
    # One honest client can add all of the noise of a sum, but no report hides among its own.
    fewest = {"shuffle": 2, "central": 1 if is_split else 0}.get(wish.kind, 0)
    if crowd.honest < fewest:
        raise ConfigError(
            f"of {crowd.minimum} clients {crowd.lost} may collude, or look at what the others "
            f"send: privacy {wish.kind!r} wants {fewest} more, got {crowd.honest}; raise minimum"
        )
    if wish.kind == "none":
        return Promise(kind="none", clip=wish.clip, event=None, claim=_nothing())
    return _MAKERS[wish.kind](wish, crowd, is_split)


def _by_noise(wish: Wish, crowd: Crowd, parts: int, about: "_About") -> Promise:
    """Calibrate noise on a grid; what is done once before the rounds counts against the target."""
    clip, make = _clip(wish), make_grid if wish.mechanism != "binomial" else make_coin_grid
    if wish.quantile is not None:
        clip = math.sqrt(1 + BIT**2)
    first = _first(wish, crowd)

    def plan(multiplier: float) -> list[Event]:
        event = make(clip, multiplier, crowd.dimension, parts).event(crowd.dimension)
        return [Repeated(event=event, count=crowd.rounds), *first]

    grid = make(clip, least_noise(plan, _target(wish, plan(1.0))), crowd.dimension, parts)
    if grid.noise == "binomial":
        check_coins(grid, crowd.dimension)
    made = _settle(wish, crowd, grid.event(crowd.dimension), about, first)
    if wish.quantile is not None:
        made = replace(made, quantile=wish.quantile, follows=wish.clip)
    return replace(made, clip=clip, grid=grid)


def _central(wish: Wish, crowd: Crowd, is_split: bool) -> Promise:
    if is_split:
        about = _About(
            "whoever sees the sums",
            (
                f"at least {crowd.honest} of the clients that stay follow the protocol, add their "
                f"part of the noise and keep it to themselves: {crowd.minimum} are needed, and "
                f"{crowd.lost} of them may work with the server, or be the one who looks",
                "no single update is seen: see the claim about updates",
            ),
        )
        return _by_noise(wish, crowd, crowd.honest, about)
    about = _About(
        "whoever sees the models; the server sees every update",
        ("the server adds the noise, and shows and keeps nothing else",),
    )
    return _by_noise(wish, crowd, 1, about)


def _local(wish: Wish, crowd: Crowd, is_split: bool) -> Promise:
    if wish.mechanism == "nbafl":
        return _nbafl(wish, crowd)
    if wish.mechanism == "laplace":
        return _laplace(wish, crowd)
    if wish.mechanism == "objective":
        return _objective(wish, crowd)
    return _by_noise(wish, crowd, 1, _ALONE)


def _local_adaptive(wish: Wish, crowd: Crowd, is_split: bool) -> Promise:
    if wish.adaptive.select:
        return _selective(wish, crowd)
    made = replace(_local(wish, crowd, is_split), adaptive=wish.adaptive)
    if wish.adaptive.p == 1:
        return made
    reason = (
        f"parameters of small contribution are sent as they are with probability "
        f"{1 - wish.adaptive.p:g}"
    )
    bare = Unaccountable(reason=reason, relation=REPLACE_CLIENT)
    settled = _settle(wish, crowd, bare, _ALONE, _first(wish, crowd))
    return replace(settled, clip=made.clip, grid=made.grid, adaptive=wish.adaptive)


def _laplace(wish: Wish, crowd: Crowd) -> Promise:
    first = _first(wish, crowd)

    def make(local: float) -> Grid:
        return make_laplace_grid(_clip(wish), local, crowd.dimension)

    def plan(local: float) -> list[Event]:
        return [Repeated(event=make(local).event(crowd.dimension), count=crowd.rounds), *first]

    grid = make(largest_budget(plan, _target(wish, plan(1.0)), low=1e-2, high=50.0))
    made = _settle(wish, crowd, grid.event(crowd.dimension), _ALONE, first)
    return replace(made, clip=_clip(wish), grid=grid)


def _nbafl(wish: Wish, crowd: Crowd) -> Promise:
    """Take the noise of Wei et al. (2020) as it is, and claim what it gives."""
    clip, target = _clip(wish), wish.epsilon or 0.0
    if wish.records is None:
        raise ConfigError("mechanism 'nbafl' wants records")
    sigma = nbafl_uplink_sigma(
        clip=clip, rounds=crowd.rounds, records=wish.records, epsilon=target, delta=wish.delta
    )
    downlink = nbafl_downlink_sigma(
        clip=clip,
        rounds=crowd.rounds,
        clients=crowd.clients,
        records=wish.records,
        epsilon=target,
        delta=wish.delta,
    )
    grid = make_grid(clip, sigma / (2 * clip), crowd.dimension, 1)
    note = (
        f"NbAFL sets its noise for ε = {target:g} by a sensitivity of 2C/m, which whole clients do "
        "not have; the ε here is what its noise gives them"
    )
    made = _settle(wish, crowd, grid.event(crowd.dimension), _About(_ALONE.who, (note,)))
    return replace(made, clip=clip, grid=grid, downlink_sigma=downlink)


def _objective(wish: Wish, crowd: Crowd) -> Promise:
    spent = wish.epsilon or 0.0
    event = Pure(epsilon=spent, relation=REPLACE_RECORD, mechanism="objective perturbation")
    about = _About(
        "the server",
        (
            "every client trains with its own noise and trusts nobody; this is about one record of "
            "a client, not about all of them",
            "the minimisers are computed to a gradient of 1e-9, which a part of ε covers; the "
            "random terms are drawn in floating point",
        ),
    )
    # One pure event: adding up is exact, every other accountant would round it up.
    made = _settle(replace(wish, accountant="basic"), crowd, event, about)
    return replace(made, objective_epsilon=spent)


def _selective(wish: Wish, crowd: Crowd) -> Promise:
    first, count = _first(wish, crowd), min(wish.adaptive.select, crowd.dimension)

    def select(budget: float) -> Selection:
        bound = _clip(wish) / math.sqrt(count)
        return Selection(
            bound=bound,
            threshold=bound / 2,
            answers=count,
            choice_epsilon=budget / 2,
            value_epsilon=budget / 2,
        )

    def event(budget: float) -> Pure:
        name = "sparse vector technique, and Laplace noise on the chosen entries"
        spent = select(budget).epsilon(REPLACE_CLIENT)
        return Pure(epsilon=spent, relation=REPLACE_CLIENT, mechanism=name)

    def plan(budget: float) -> list[Event]:
        return [Repeated(event=event(budget), count=crowd.rounds), *first]

    budget = largest_budget(plan, _target(wish, plan(0.1)), low=1e-3, high=100.0)
    made = _settle(wish, crowd, event(budget), _ALONE, first)
    return replace(made, clip=_clip(wish), adaptive=wish.adaptive, selection=select(budget))


def _shuffle(wish: Wish, crowd: Crowd, is_split: bool) -> Promise:
    count = wish.reports * crowd.rounds

    def plan(local: float) -> list[Event]:
        return [Repeated(event=Shuffled(local_epsilon=local, clients=crowd.honest), count=count)]

    local = largest_budget(plan, _target(wish, plan(0.1)), low=1e-4, high=12.0)
    shuffled = Shuffled(local_epsilon=local, clients=crowd.honest)
    about = _About(
        "a server that does not work with the shuffler",
        (
            f"at least {crowd.honest} clients whose reports nobody else knows report in every "
            "round, and nobody invents clients: whoever carries the messages knows them",
            "the shuffler's key is the one that the job pins"
            if crowd.knows_shuffler
            else "the server passes the shuffler's key on as it is: the job does not pin it, and "
            "a server that puts in its own reads every report",
            f"if server and shuffler do work together, ε = {local:.3g} for each of {count} reports "
            "is what is left",
        ),
    )
    made = _settle(wish, crowd, Repeated(event=shuffled, count=wish.reports), about)
    return replace(
        made, clip=_clip(wish), local_epsilon=local, reports=wish.reports, method=wish.method
    )


@dataclass(frozen=True)
class _About:
    """Towards whom a claim holds, and what it rests on."""

    who: str
    assumptions: tuple[str, ...] = ()


_ALONE = _About("the server", ("every client adds its noise itself and trusts nobody",))


def _settle(
    wish: Wish, crowd: Crowd, event: Event, about: _About, first: "list[Event] | None" = None
) -> Promise:
    """Compute the claim of a whole run."""
    whole = [Repeated(event=event, count=crowd.rounds), *(first or [])]
    claim = epsilon(
        whole,
        delta=wish.delta,
        accountant=_accountant(wish, whole),
        subject=f"each client's data, towards {about.who}",
        population=crowd.clients if event.relation.unit == "client" else None,
    )
    return Promise(
        kind=wish.kind,
        clip=wish.clip,
        event=event,
        claim=replace(claim, assumptions=(*about.assumptions, *claim.assumptions)),
        assumptions=about.assumptions,
        first=first[0] if first else None,
    )


def _first(wish: Wish, crowd: Crowd) -> list[Event]:
    asked = wish.adaptive.relevance_epsilon
    if asked is None:
        return []
    # There are no more layers or attributes than parameters; each adds its rounding.
    event = contribution_event(crowd.dimension, epsilon=asked)
    name = "Laplace noise on contributions"
    return [Pure(epsilon=event.epsilon, relation=REPLACE_CLIENT, mechanism=name)]


def _target(wish: Wish, events: list[Event]) -> Target:
    if wish.epsilon is None:
        raise ConfigError(f"privacy {wish.kind!r} wants target_epsilon")
    return Target(epsilon=wish.epsilon, delta=wish.delta, accountant=_accountant(wish, events))


def _accountant(wish: Wish, events: list[Event]) -> str:
    if wish.accountant is not None:
        return wish.accountant
    # Loss distributions of large pure budgets are long, and calibration computes many of them.
    if all(isinstance(step, Pure | DiscreteLaplace) for step in unroll(events)):
        return next(name for name in ("rdp", "renyi") if name in supporting(events))
    return choose_accountant(events)


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
    "local-adaptive": _local_adaptive,
    "shuffle": _shuffle,
}
