"""The privacy of a federated run, settled before any data is read: how much noise, and the claim.

All claims but those about records are about replacing the whole data of one client, so that the
words can be compared.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from tacit.dp import (
    REPLACE_CLIENT,
    REPLACE_RECORD,
    BudgetTarget,
    DiscreteLaplace,
    Event,
    Pure,
    Repeated,
    Shuffled,
    Unaccountable,
    choose_accountant,
    epsilon,
    largest_budget,
    least_noise,
    supporting,
    unroll,
)
from tacit.errors import ConfigError
from tacit.federated.adaptive import Selection, contribution_event
from tacit.federated.grid import Grid, check_coins, make_coin_grid, make_grid, make_laplace_grid
from tacit.federated.records import ACCOUNTANT, ASSUMPTIONS, WHO, RecordSteps, plan_records
from tacit.federated.spec import AdaptiveNoise, FederatedSpec, Privacy
from tacit.result import Claim

BIT = 0.1
"""How much of a unit clip the bit takes that says whether an update lies within the clip."""


@dataclass(frozen=True, kw_only=True)
class CalibratedMechanism:
    """What a run will do to each client's data in every round, and the claim at its end.

    Attributes:
        privacy: what was asked for.
        clip: largest norm of what a client puts in: that of an update, or of a unit one and its
            bit where the clip of a round follows a quantile.
        event: of every round.
        claim: about all rounds.
        assumptions: what the claim rests on besides its accountant.
        grid: the noise.
        local_epsilon: of one report, for "shuffle".
        first: what is done once, before the first round.
        downlink_sigma: more noise that the server adds to the mean (NbAFL); not accounted for.
        selection: which entries of an update are sent.
        records: the steps of a client's own training, where they are private.
    """

    privacy: Privacy
    clip: float | None
    event: Event | None
    claim: Claim
    assumptions: tuple[str, ...] = ()
    grid: Grid | None = None
    local_epsilon: float | None = None
    first: Event | None = None
    downlink_sigma: float = 0.0
    selection: Selection | None = None
    records: RecordSteps | None = None

    @property
    def adaptive(self) -> AdaptiveNoise | None:
        """How local noise is shaped, where it is."""
        return self.privacy.adaptive if self.privacy.kind == "local-adaptive" else None

    @property
    def follows(self) -> float | None:
        """The first clip, where it follows a quantile and updates are divided by the round's."""
        return None if self.privacy.quantile is None else self.privacy.clip


@functools.lru_cache(maxsize=8)
def calibrate(spec: FederatedSpec, dimension: int) -> CalibratedMechanism:
    """Find the least noise that keeps the privacy of a spec, before any data is read.

    Args:
        spec: what is asked for, who takes part, and how often.
        dimension: numbers in an update.

    Raises:
        ConfigError: no amount of noise keeps it.
    """
    fed = spec.federated
    # One honest client can add all of the noise of a sum, but no report hides among its own.
    fewest = {"shuffle": 2, "central": 1 if fed.is_split else 0}.get(spec.privacy.kind, 0)
    if fed.honest < fewest:
        raise ConfigError(
            f"of {fed.minimum} clients {fed.lost} may collude, or look at what the others send:"
            f" privacy {spec.privacy.kind!r} wants {fewest} more, got {fed.honest}; raise minimum"
        )
    if spec.privacy.kind == "none":
        claim = Claim(
            subject="each client's data, towards whoever sees the models",
            guarantee="no guarantee",
            assumptions=("no noise is added: models may remember what they were trained on",),
        )
        return CalibratedMechanism(
            privacy=spec.privacy, clip=spec.privacy.clip, event=None, claim=claim
        )
    return _MAKERS[spec.privacy.kind](spec, dimension)


def _by_noise(
    spec: FederatedSpec, dimension: int, parts: int, about: "_About"
) -> CalibratedMechanism:
    """Calibrate noise on a grid; what is done once before the rounds counts against the target."""
    clip, make = _clip(spec), make_grid if spec.privacy.mechanism != "binomial" else make_coin_grid
    if spec.privacy.quantile is not None:
        clip = math.sqrt(1 + BIT**2)
    first = _first(spec, dimension)

    def plan(multiplier: float) -> list[Event]:
        event = make(clip, multiplier, dimension, parts).event(dimension)
        return [Repeated(event=event, count=spec.federated.rounds), *first]

    grid = make(clip, least_noise(plan, _target(spec, plan(1.0))), dimension, parts)
    if grid.noise == "binomial":
        check_coins(grid, dimension)
    made = _settle(spec, dimension, grid.event(dimension), about, first)
    return replace(made, clip=clip, grid=grid)


def _central(spec: FederatedSpec, dimension: int) -> CalibratedMechanism:
    fed = spec.federated
    if fed.is_split:
        about = _About(
            "whoever sees the sums",
            (
                f"at least {fed.honest} of the clients that stay follow the protocol, add their "
                f"part of the noise and keep it to themselves: {fed.minimum} are needed, and "
                f"{fed.lost} of them may work with the server, or be the one who looks",
                "no single update is seen: see the claim about updates",
            ),
        )
        return _by_noise(spec, dimension, fed.honest, about)
    about = _About(
        "whoever sees the models; the server sees every update",
        ("the server adds the noise, and shows and keeps nothing else",),
    )
    return _by_noise(spec, dimension, 1, about)


def _local(spec: FederatedSpec, dimension: int) -> CalibratedMechanism:
    if spec.privacy.mechanism == "nbafl":
        return _nbafl(spec, dimension)
    if spec.privacy.mechanism == "laplace":
        return _laplace(spec, dimension)
    if spec.privacy.mechanism == "objective":
        return _objective(spec, dimension)
    return _by_noise(spec, dimension, 1, _ALONE)


def _local_adaptive(spec: FederatedSpec, dimension: int) -> CalibratedMechanism:
    if spec.privacy.adaptive.select:
        return _selective(spec, dimension)
    made = _local(spec, dimension)
    if spec.privacy.adaptive.p == 1:
        return made
    reason = (
        f"parameters of small contribution are sent as they are with probability "
        f"{1 - spec.privacy.adaptive.p:g}"
    )
    bare = Unaccountable(reason=reason, relation=REPLACE_CLIENT)
    settled = _settle(spec, dimension, bare, _ALONE, _first(spec, dimension))
    return replace(settled, clip=made.clip, grid=made.grid)


def _laplace(spec: FederatedSpec, dimension: int) -> CalibratedMechanism:
    first = _first(spec, dimension)

    def make(local: float) -> Grid:
        return make_laplace_grid(_clip(spec), local, dimension)

    def plan(local: float) -> list[Event]:
        return [Repeated(event=make(local).event(dimension), count=spec.federated.rounds), *first]

    grid = make(largest_budget(plan, _target(spec, plan(1.0)), low=1e-2, high=50.0))
    made = _settle(spec, dimension, grid.event(dimension), _ALONE, first)
    return replace(made, clip=_clip(spec), grid=grid)


def _nbafl(spec: FederatedSpec, dimension: int) -> CalibratedMechanism:
    """Take the noise of Wei et al. (2020) as it is, and claim what it gives.

    They take 2C/m as the sensitivity, which holds only for an average of m bounded terms of
    records; the event that is claimed does not.
    """
    fed = spec.federated
    clip, target = _clip(spec), spec.privacy.epsilon or 0.0
    rounds, clients, records = fed.rounds, fed.clients, spec.privacy.records
    if records is None:
        raise ConfigError("mechanism 'nbafl' wants records")
    c = math.sqrt(2 * math.log(1.25 / spec.privacy.delta))
    sigma = c * rounds * 2 * clip / (records * target)  # uplink: c·T·2C/(m·ε)
    downlink = 0.0  # their clients' noise suffices for few rounds
    if rounds > math.sqrt(clients):
        downlink = 2 * c * clip * math.sqrt(rounds**2 - clients) / (records * clients * target)
    grid = make_grid(clip, sigma / (2 * clip), dimension, 1)
    note = (
        f"NbAFL sets its noise for ε = {target:g} by a sensitivity of 2C/m, which whole clients do "
        "not have; the ε here is what its noise gives them"
    )
    made = _settle(spec, dimension, grid.event(dimension), _About(_ALONE.who, (note,)))
    return replace(made, clip=clip, grid=grid, downlink_sigma=downlink)


def _objective(spec: FederatedSpec, dimension: int) -> CalibratedMechanism:
    spent = spec.privacy.epsilon or 0.0
    event = Pure(epsilon=spent, relation=REPLACE_RECORD, mechanism="objective perturbation")
    about = _About(
        "the server",
        (
            "every client trains with its own noise and trusts nobody; this is about one record of "
            "a client, not about all of them",
            "the minimisers are computed to a gradient of 1e-9, which a part of ε covers; the "
            "random terms are drawn in floating point",
            _RUNS,
        ),
    )
    # One pure event: adding up is exact, every other accountant would round it up.
    return _settle(_counted_by(spec, "basic"), dimension, event, about)


def _selective(spec: FederatedSpec, dimension: int) -> CalibratedMechanism:
    first, count = _first(spec, dimension), min(spec.privacy.adaptive.select, dimension)

    def select(budget: float) -> Selection:
        bound = _clip(spec) / math.sqrt(count)
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
        return [Repeated(event=event(budget), count=spec.federated.rounds), *first]

    budget = largest_budget(plan, _target(spec, plan(0.1)), low=1e-3, high=100.0)
    made = _settle(spec, dimension, event(budget), _ALONE, first)
    return replace(made, clip=_clip(spec), selection=select(budget))


def _shuffle(spec: FederatedSpec, dimension: int) -> CalibratedMechanism:
    fed = spec.federated
    count = spec.privacy.reports * fed.rounds

    def plan(local: float) -> list[Event]:
        return [Repeated(event=Shuffled(local_epsilon=local, clients=fed.honest), count=count)]

    local = largest_budget(plan, _target(spec, plan(0.1)), low=1e-4, high=12.0)
    shuffled = Shuffled(local_epsilon=local, clients=fed.honest)
    about = _About(
        "a server that does not work with the shuffler",
        (
            f"at least {fed.honest} clients whose reports nobody else knows report in every "
            "round, and nobody invents clients: whoever carries the messages knows them",
            "the shuffler's key is the one that the job pins"
            if fed.shuffler is not None
            else "the server passes the shuffler's key on as it is: the job does not pin it, and "
            "a server that puts in its own reads every report",
            f"if server and shuffler do work together, ε = {local:.3g} for each of {count} reports "
            "is what is left",
        ),
    )
    made = _settle(spec, dimension, Repeated(event=shuffled, count=spec.privacy.reports), about)
    return replace(made, local_epsilon=local)


def _record(spec: FederatedSpec, dimension: int) -> CalibratedMechanism:
    steps = plan_records(spec, dimension)
    counted = _counted_by(spec, spec.privacy.accountant or ACCOUNTANT)
    about = _About(WHO, ASSUMPTIONS, "each record")
    made = _settle(counted, dimension, steps.event, about)
    return replace(made, clip=steps.bound, records=steps)


@dataclass(frozen=True)
class _About:
    """Towards whom a claim holds, what it rests on, and whose data it is about."""

    who: str
    assumptions: tuple[str, ...] = ()
    whose: str = "each client's data"


_RUNS = "about one run: a node counts each anew, whoever begins it"
_ALONE = _About("the server", ("every client adds its noise itself and trusts nobody", _RUNS))


def _settle(
    spec: FederatedSpec,
    dimension: int,
    event: Event,
    about: _About,
    first: "list[Event] | None" = None,
) -> CalibratedMechanism:
    """Compute the claim of a whole run."""
    whole = [Repeated(event=event, count=spec.federated.rounds), *(first or [])]
    claim = epsilon(
        whole,
        delta=spec.privacy.delta,
        accountant=_accountant(spec, whole),
        subject=f"{about.whose}, towards {about.who}",
        population=spec.federated.clients
        if event.relation.unit == "client"
        else spec.privacy.records,
    )
    return CalibratedMechanism(
        privacy=spec.privacy,
        clip=spec.privacy.clip,
        event=event,
        claim=replace(claim, assumptions=(*about.assumptions, *claim.assumptions)),
        assumptions=about.assumptions,
        first=first[0] if first else None,
    )


def _first(spec: FederatedSpec, dimension: int) -> list[Event]:
    asked = spec.privacy.adaptive.relevance_epsilon
    if asked is None:
        return []
    # There are no more layers or attributes than parameters; each adds its rounding.
    event = contribution_event(dimension, epsilon=asked)
    name = "Laplace noise on contributions"
    return [Pure(epsilon=event.epsilon, relation=REPLACE_CLIENT, mechanism=name)]


def _target(spec: FederatedSpec, events: list[Event]) -> BudgetTarget:
    if spec.privacy.epsilon is None:
        raise ConfigError(f"privacy {spec.privacy.kind!r} wants epsilon")
    return BudgetTarget(
        epsilon=spec.privacy.epsilon, delta=spec.privacy.delta, accountant=_accountant(spec, events)
    )


def _accountant(spec: FederatedSpec, events: list[Event]) -> str:
    if spec.privacy.accountant is not None:
        return spec.privacy.accountant
    # Loss distributions of large pure budgets are long, and calibration computes many of them.
    if all(isinstance(step, Pure | DiscreteLaplace) for step in unroll(events)):
        return next(name for name in ("rdp", "renyi") if name in supporting(events))
    return choose_accountant(events)


def _counted_by(spec: FederatedSpec, accountant: str) -> FederatedSpec:
    return replace(spec, privacy=replace(spec.privacy, accountant=accountant))


def _clip(spec: FederatedSpec) -> float:
    if spec.privacy.clip is None:
        raise ConfigError(f"privacy {spec.privacy.kind!r} wants a clip")
    return spec.privacy.clip


_MAKERS: dict[str, Callable[[FederatedSpec, int], CalibratedMechanism]] = {
    "central": _central,
    "local": _local,
    "local-adaptive": _local_adaptive,
    "shuffle": _shuffle,
    "record": _record,
}
