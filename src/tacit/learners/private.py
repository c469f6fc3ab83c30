"""Softmax regression on shares that tells nothing: full-batch gradient descent with DP noise."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from tacit.dp import Ledger, Repeated, Second, Target, Unaccountable, confirm, epsilon, least_noise
from tacit.dp.check import at_least_one, budget, delta_among, target_delta
from tacit.errors import ConfigError, DataError
from tacit.learners.arithmetic import fixed
from tacit.learners.clipping import clip_errors, clipped_sum, sensitivity, shorten_rows
from tacit.learners.engine import Engine, Values, Walker
from tacit.learners.makers import NoisePlan, draw_noise, largest_multiplier, share_noise
from tacit.learners.parties import Connected, Parties
from tacit.learners.tables import features_of, labels_of
from tacit.mpc import find_protocol
from tacit.result import Claim, Cost, Forecast, Leak

FRAC_BITS = 16
"""Precision of the training, and the lattice of its noise: σ may be up to 2^9."""
LARGEST_WEIGHT = 64.0
"""Where weights saturate, so that whatever the noise does, errors stay in their range."""
SMALLEST_CLIP, LARGEST_CLIP = 2.0**-6, 2.0
FOLLOWS = "every party follows the protocol, and no two of them put together what they know"


@dataclass(frozen=True, kw_only=True)
class Privacy:
    """What a training may tell about one record.

    Attributes:
        epsilon: of the whole training.
        delta: at which it holds; below one over the number of rows.
        clip: how long the gradient of a record may be, with rows of norm 1.
        steps: how often all rows are used.
    """

    epsilon: float
    delta: float
    clip: float = 1.0
    steps: int = 50

    def __post_init__(self) -> None:
        budget("epsilon", self.epsilon)
        target_delta(self.delta)
        at_least_one("steps", self.steps)
        if not SMALLEST_CLIP <= self.clip <= LARGEST_CLIP:
            raise ConfigError(
                f"clip must be from {SMALLEST_CLIP} to {LARGEST_CLIP}: rows have norm 1 and errors "
                f"at most √2, got {self.clip}"
            )


@dataclass(frozen=True, kw_only=True)
class Descent:
    """How to go down: the rate of the mean gradient, momentum, and whether there is a constant."""

    rate: float = 4.0
    momentum: float = 0.9
    fit_intercept: bool = True

    def __post_init__(self) -> None:
        if not (0 < self.rate <= 1024 and 0 <= self.momentum <= 0.99):
            raise ConfigError(
                "the rate must be above 0 and at most 1024, and momentum from 0 to 0.99, got "
                f"{self.rate} and {self.momentum}"
            )


@dataclass(frozen=True, kw_only=True, eq=False)
class PrivatelyTrained:
    """What a party has in the end.

    Attributes:
        weights: (columns, classes), for those they were opened to; the constant is the last row.
        descent: how it was trained.
        claim: ε, δ, relation and accountant, and what they rest on.
        second: ε by a second conversion of the same divergences; None without a guarantee.
        events: what was done to every record.
        noise: who made how much noise.
        leaks: what was shown to whom.
        forecast: what the plan said this would cost.
        cost: what was metered.
    """

    weights: Tensor | None
    descent: Descent
    claim: Claim
    second: Second | None
    events: Ledger
    noise: NoisePlan
    leaks: tuple[Leak, ...]
    forecast: Forecast
    cost: Cost

    def scores(self, x: Any) -> Tensor:
        """Score rows of one's own with the opened weights, as they were trained."""
        if self.weights is None:
            raise DataError("the weights were not opened to this party")
        has_intercept = self.descent.fit_intercept
        rows = shorten_rows(
            features_of("these", x), frac_bits=FRAC_BITS, has_intercept=has_intercept
        )
        return rows @ self.weights.double()


def plan_noise(
    privacy: Privacy, *, makers: tuple[str, ...], shape: tuple[int, int]
) -> tuple[NoisePlan, Ledger]:
    """Find the least noise that meets a budget, from public sizes alone, and what it does."""
    stated = sensitivity(clip=privacy.clip, columns=shape[0], classes=shape[1], frac_bits=FRAC_BITS)

    def noise(multiplier: float) -> NoisePlan:
        return share_noise(
            makers,
            multiplier=multiplier,
            l2_sensitivity=stated,
            frac_bits=FRAC_BITS,
            shape=shape,
        )

    target = Target(epsilon=privacy.epsilon, delta=privacy.delta)

    def event(multiplier: float) -> Repeated:
        return Repeated(event=noise(multiplier).event, count=privacy.steps)

    most = largest_multiplier(makers, l2_sensitivity=stated, frac_bits=FRAC_BITS)
    found = least_noise(lambda multiplier: [event(multiplier)], target, low=0.05, high=most)
    ledger = Ledger()
    ledger.record(event(found), note="steps of the training")
    return noise(found), ledger


def train_private(
    parties: Parties,
    parts: Mapping[str, tuple[Any, Any]],
    *,
    classes: Sequence[Any],
    privacy: Privacy,
    descent: Descent | None = None,
    to: tuple[str, ...] | None = None,
) -> PrivatelyTrained:
    """Train softmax regression on rows that nobody shows, and open weights that tell little.

    Args:
        parties: owners, two of whom compute, and a dealer; everyone makes noise.
        parts: rows and labels by owner; where this process is one party, only its own.
        classes: all labels that there can be: public, as those of the data would tell.
        privacy: ε and δ of the training, the clip and the steps.
        descent: how to go down.
        to: who gets the weights; all owners if not given.

    Guarantee: under ``sealed``, (ε, δ)-DP for adding or removing the contribution of one record,
    towards every single party and whoever gets the weights, for this one training: ε of several
    trainings on the same rows add up, and nobody counts them. Nothing is opened before the weights:
    a training that was killed has told nothing, and begins anew with fresh noise.
    Cost: rows are opened under their masks once; see ``forecast``.
    """
    descent = descent or Descent()
    wanted = parties.owners if not isinstance(parties, Connected) else (parties.me,)
    strangers = [one for one in parts if one not in wanted]
    if strangers or parties.frac_bits != FRAC_BITS:
        raise ConfigError(
            f"{strangers[0]!r} is no owner here; the owners are {', '.join(parties.owners)}"
            if strangers
            else f"private training wants parties of frac_bits={FRAC_BITS}: its noise lies there"
        )
    pairs = {owner: _checked(owner, part, classes) for owner, part in parts.items()}
    holders = parties.owners if isinstance(parties, Connected) else tuple(pairs)
    sizes = parties.do(lambda engine: _exchange_sizes(engine, holders, pairs))
    rows, columns = sum(one[1] for one in sizes), sizes[0][2] + descent.fit_intercept
    warning = delta_among(privacy.delta, rows, "record")
    noise, events = plan_noise(privacy, makers=parties.names, shape=(columns, len(classes)))
    job = _Job(parties.name("private"), sizes, rows, noise, privacy, descent)
    receivers = parties.owners if to is None else to
    claim, second = _claim(events, privacy.delta, parties.protocol, warning)

    forecaster = parties.planned().walker
    job.walk(forecaster, {}, receivers)
    found = parties.do(lambda engine: job.walk(engine, pairs, receivers))
    return PrivatelyTrained(
        weights=found.get(job.weights) if found else None,
        descent=descent,
        claim=claim,
        second=second,
        events=events,
        noise=noise,
        leaks=parties.ledger(),
        forecast=forecaster.forecast(),
        cost=parties.cost(),
    )


def _claim(
    events: Ledger, delta: float, protocol: str, warning: str | None
) -> tuple[Claim, Second | None]:
    """Say what holds; under protocols that show permuted values, nothing does."""
    if find_protocol(protocol).shows_values:
        relation = events.entries[0].event.relation
        reason = f"under {protocol} a party sees values of rows in a random order, without noise"
        events.record(Unaccountable(reason=reason, relation=relation))
    subject = "each record's data, towards every single party and whoever gets the weights"
    claim = epsilon(events, delta=delta, subject=subject)
    second = confirm(events, claim)
    known = (
        FOLLOWS,
        "this is one training: another one on the same rows spends an ε of its own, and nobody "
        "here counts them",
        *claim.assumptions,
        "the number of rows of every owner is public: a record that is removed leaves an empty one",
        *((warning,) if warning else ()),
    )
    return replace(claim, assumptions=known), second


@dataclass(frozen=True)
class _Job:
    """What every party does."""

    name: str
    sizes: tuple[tuple[str, int, int], ...]
    rows: int
    noise: NoisePlan
    privacy: Privacy
    descent: Descent

    @property
    def weights(self) -> str:
        """Return the name under which shares of the weights are kept."""
        return f"{self.name}/weights"

    def walk(
        self, walker: Walker, pairs: Mapping[str, tuple[Tensor, Tensor]], to: tuple[str, ...]
    ) -> dict[str, Tensor]:
        """Share the rows, take the steps, and open the weights."""
        me = walker.me if isinstance(walker, Engine) else ""
        walker.run(
            _enter,
            gives=f"{self.name}/",
            inputs=self._inputs(me, pairs),
            name=self.name,
            sizes=self.sizes,
            shape=self.noise.shape,
        )
        uses = {one: f"{self.name}/{one}" for one in ("x", "y", "weights", "velocity")}
        for _ in range(self.privacy.steps):
            # A new part for every step: no word of noise is used twice.
            mine = {f"noise of {me}": draw_noise(self.noise)} if me in self.noise.makers else {}
            walker.run(
                _step,
                uses=uses,
                gives=f"{self.name}/",
                inputs=mine,
                noise=self.noise,
                rows=self.rows,
                descent=self.descent,
                clip=self.privacy.clip,
            )
        opened = walker.open([self.weights], to=to, why="the declared result, with its noise")
        walker.drop(f"{self.name}/")
        return opened

    def _inputs(self, me: str, pairs: Mapping[str, tuple[Tensor, Tensor]]) -> dict[str, Tensor]:
        if me not in pairs:
            return {}
        x, y = pairs[me]
        rows = shorten_rows(x, frac_bits=FRAC_BITS, has_intercept=self.descent.fit_intercept)
        hot = torch.nn.functional.one_hot(y.long(), self.noise.shape[1])
        return {f"{self.name} x of {me}": rows, f"{self.name} y of {me}": hot.double()}


def _enter(
    ops: Any,
    values: Values,
    *,
    name: str,
    sizes: tuple[tuple[str, int, int], ...],
    shape: tuple[int, int],
) -> Values:
    """Bring in rows and labels, and start from weights of zero."""
    found = {}
    for kind, width in (("x", shape[0]), ("y", shape[1])):
        shares = [
            ops.input(f"{name} {kind} of {owner}", owner=owner, shape=(rows, width), bound=1.0)
            for owner, rows, _ in sizes
        ]
        found[kind] = shares[0] if len(shares) == 1 else ops.concatenate(shares, dim=0)
    nothing = ops.scale(ops.take(found["x"], [0] * shape[1], dim=0), 0.0)
    zeros = ops.transpose(nothing, 0, 1)
    return {**found, "weights": zeros, "velocity": zeros}


def _step(
    ops: Any, values: Values, *, noise: NoisePlan, rows: int, descent: Descent, clip: float
) -> Values:
    """Go one step: everything after the noise was added concerns no record any more."""
    x, weights = fixed(ops, values["x"]), values["weights"]
    ops.cache_openings(x)
    # Rows have norm 1 at most, hence a score is at most as long as a column of weights.
    limit = LARGEST_WEIGHT * (noise.shape[0] ** 0.5 + 1)
    scores = ops.restate(fixed(ops, ops.matmul(x, weights)), bound=limit)
    errors = ops.sub(ops.softmax(scores, dim=1), fixed(ops, values["y"]))
    total = clipped_sum(ops, x, clip_errors(ops, errors, clip=clip))
    for maker in noise.makers:
        part = ops.input(f"noise of {maker}", owner=maker, shape=noise.shape, bound=noise.bound)
        total = ops.add(total, part)
    longest = ops.number(total, "stepping").bound / (1 - descent.momentum) + 1.0
    before = ops.restate(values["velocity"], bound=longest)
    velocity = fixed(ops, ops.add(fixed(ops, ops.scale(before, descent.momentum)), total))
    velocity = ops.restate(velocity, bound=longest)
    moved = ops.sub(weights, fixed(ops, ops.scale(velocity, descent.rate / rows)))
    return {"weights": ops.cap(fixed(ops, moved), bound=LARGEST_WEIGHT), "velocity": velocity}


def _checked(owner: str, part: tuple[Any, Any], classes: Sequence[Any]) -> tuple[Tensor, Tensor]:
    """Refuse rows that cannot be learned from, before anything is sent."""
    if len(classes) < 2 or len(set(classes)) != len(classes):
        raise ConfigError(f"classes must be two different ones at least, got {len(classes)}")
    x, y = features_of(owner, part[0]), labels_of(owner, part[1], classes)
    if len(x) != len(y):
        raise DataError(f"{owner!r} gave {len(x)} rows and {len(y)} labels")
    return x, y


def _exchange_sizes(
    engine: Engine, holders: tuple[str, ...], pairs: Mapping[str, tuple[Tensor, Tensor]]
) -> tuple[tuple[str, int, int], ...]:
    """Tell everyone how many rows and columns I have, and nothing else about them."""
    session = engine.session
    if session.me in pairs:
        session.publish("sizes", tuple(pairs[session.me][0].shape))
    found = []
    for owner in holders:
        own = owner == session.me
        rows, columns = pairs[owner][0].shape if own else session.learn(owner, "sizes", 2)
        if not (0 < rows < 1 << 24 and 0 < columns < 1 << 16):
            raise DataError(f"{owner!r} says that it has {rows} × {columns} features")
        found.append((owner, int(rows), int(columns)))
    if len({columns for _, _, columns in found}) != 1:
        counts = ", ".join(f"{owner}: {columns}" for owner, _, columns in found)
        raise DataError(f"owners of rows must have the same columns, got {counts}")
    entry = [
        Leak(
            to=party,
            what=f"rows and columns of the part of {owner}",
            why="needed to plan the computation",
            kind="size",
            elements=2,
        )
        for owner in holders
        for party in session.parties
        if party != owner
    ]
    session.ledger.record(*entry)
    return tuple(found)
