"""Names of version 0.1 that have others now; they go with the next release."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from tacit.learn.federated.calibration import CalibratedMechanism, calibrate
from tacit.learn.federated.config import RoundConfig, round_config
from tacit.learn.federated.engine import LocalEngine
from tacit.learn.federated.rounds import Carrier, Judge, OnRound, Outcome, run_rounds
from tacit.learn.federated.spec import AdaptiveNoise, FederatedSpec, LocalTraining, PrivacySpec
from tacit.renamed import warn_renamed


class Policy(FederatedSpec):
    """The old `FederatedSpec`."""

    def __init__(self, *, wish: PrivacySpec | None = None, **given: Any) -> None:
        # What is given is checked by the spec, hence Any.
        super().__init__(**(given if wish is None else {**given, "privacy": wish}))

    @property
    def wish(self) -> PrivacySpec:
        """The privacy asked for."""
        return self.privacy

    def terms(self, dimension: int) -> RoundConfig:
        """Do as `round_config`."""
        return round_config(self, dimension)


@dataclass(frozen=True, kw_only=True)
class Course:
    """The old part of `FederatedSpec` about how a run goes on."""

    rounds: int
    server_rate: float = 1.0
    momentum: float = 0.0
    drop_rate: float = 0.0
    patience: int = 0


def run_course(
    carrier: Carrier,
    weights: Tensor,
    terms: RoundConfig,
    course: Course,
    *,
    judge: Judge,
    on_round: OnRound,
) -> Outcome:
    """Do as `run_rounds`, for a config that was derived before."""
    spec = FederatedSpec(
        clients=terms.clients,
        rounds=course.rounds,
        minimum=terms.minimum,
        server_rate=course.server_rate,
        momentum=course.momentum,
        patience=course.patience,
    )
    return run_rounds(carrier, weights, spec, judge=judge, on_round=on_round, config=terms)


@dataclass(frozen=True, kw_only=True)
class Crowd:
    """The old part of `FederatedSpec` about who takes part."""

    clients: int
    minimum: int
    colluding: int
    rounds: int
    dimension: int


def promise(wish: PrivacySpec, crowd: Crowd, *, is_split: bool) -> CalibratedMechanism:
    """Do as `calibrate`."""
    sums = "masked" if is_split else "plain"
    given: dict[str, Any] = {"aggregator": "shuffled" if wish.kind == "shuffle" else sums}
    spec = FederatedSpec(
        clients=crowd.clients,
        rounds=crowd.rounds,
        privacy=wish,
        minimum=crowd.minimum,
        colluding_share=crowd.colluding / crowd.clients,
        **given,
    )
    return calibrate(spec, crowd.dimension)


_OLD: dict[str, tuple[object, str]] = {
    "Adaptive": (AdaptiveNoise, "AdaptiveNoise"),
    "Course": (Course, "FederatedSpec"),
    "Crowd": (Crowd, "FederatedSpec"),
    "Hall": (LocalEngine, "LocalEngine"),
    "Policy": (Policy, "FederatedSpec"),
    "Promise": (CalibratedMechanism, "CalibratedMechanism"),
    "Recipe": (LocalTraining, "LocalTraining"),
    "Terms": (RoundConfig, "RoundConfig"),
    "Wish": (PrivacySpec, "PrivacySpec"),
    "promise": (promise, "calibrate"),
    "run_course": (run_course, "run_rounds"),
}


def find(name: str) -> object:
    """Return what an old name of the room stands for, and warn.

    Raises:
        AttributeError: it never had such a name.
    """
    if name not in _OLD:
        raise AttributeError(f"module 'tacit.learn.federated' has no attribute {name!r}")
    thing, new = _OLD[name]
    warn_renamed(f"tacit.learn.federated.{name}", f"tacit.learn.federated.{new}", level=4)
    return thing
