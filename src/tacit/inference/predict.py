"""Private prediction: one party's rows, another party's model, and only the answers come out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import torch
from torch import Tensor

from tacit.errors import ConfigError, DisagreementError
from tacit.inference.answers import PrivateAnswer, claim_of_answers, result_of
from tacit.inference.facts import LARGEST_ELEMENTS
from tacit.mpc import Roles, find_protocol
from tacit.mpc.ops import ProtocolOps
from tacit.mpc.walker import Walker
from tacit.nn import TorchOps, logistic_class, logistic_score
from tacit.party import Fact, Session, Usage
from tacit.result import Claim, Leak

V = TypeVar("V")
Reveal = Literal["class", "score"]
MODELS = {"class": logistic_class, "score": logistic_score}
DATA = Fact(tag="data-size", count=2, what="the number of rows and features")
MODEL = Fact(tag="model-size", count=1, what="the number of features the model takes")


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What every party may know about the data and the model."""

    rows: int
    features: int

    def __post_init__(self) -> None:
        if self.rows < 1 or self.features < 1:
            raise ConfigError(f"wanted at least one row and one feature, got {self}")
        if self.rows * self.features > LARGEST_ELEMENTS:
            raise ConfigError(
                f"{self.rows} rows of {self.features} features are more than "
                f"{LARGEST_ELEMENTS} values; predict in several jobs"
            )


@dataclass(frozen=True, kw_only=True)
class PredictTask:
    """Who owns what, how it is protected and what is revealed to whom."""

    data_owner: str
    model_owner: str
    protocol: str
    roles: Roles
    reveal: Reveal
    frac_bits: int
    feature_bound: float
    weight_bound: float

    def __post_init__(self) -> None:
        find_protocol(self.protocol)
        if self.data_owner == self.model_owner:
            raise ConfigError(
                f"{self.data_owner!r} owns both the data and the model; nothing is to be hidden"
            )
        for owner in (self.data_owner, self.model_owner):
            if owner == self.roles.dealer:
                raise ConfigError(f"the dealer {owner!r} must not own an input: it knows the masks")


def plan_prediction(task: PredictTask, sizes: Sizes) -> Walker:
    """Return the walk of a prediction, from public facts alone."""
    walker = Walker(task.roles, protocol=task.protocol, frac_bits=task.frac_bits)
    program = _program(task, sizes)
    walker.execute(walker.plan(program), program)
    return walker


def told_in_prediction(task: PredictTask, parties: Sequence[str]) -> tuple[Leak, ...]:
    """Return what both owners tell all parties before the first row."""
    return (*DATA.leaks(task.data_owner, parties), *MODEL.leaks(task.model_owner, parties))


def predict(
    session: Session,
    task: PredictTask,
    *,
    features: Tensor | None = None,
    weights: Mapping[str, Tensor] | None = None,
) -> PrivateAnswer:
    """Take part in a prediction, as whatever party the session says I am.

    Args:
        session: my end of the job.
        task: the same for everyone.
        features: (rows, features), already scaled; only the data owner has them.
        weights: ``weight`` (features, 1) and ``bias`` (1,); only the model owner has them.

    Guarantee: as stated by the protocol's claims; the answers go to the data owner alone.
    """
    usage = Usage()
    walker = Walker(task.roles, protocol=task.protocol, frac_bits=task.frac_bits, session=session)
    with session.progress.stage("plan"):
        program = _program(task, _announce(session, task, features, weights))
        plan = walker.plan(program)
    inputs = {"features": features} if features is not None else {}
    _, opened = walker.execute(plan, program, inputs=inputs | dict(weights or {}))
    roles = {
        task.roles.dealer: "dealer",
        task.data_owner: "data owner",
        task.model_owner: "model owner",
    }
    result = result_of(
        session,
        usage,
        name="prediction",
        protocol=task.protocol,
        role=roles.get(session.me, "computes"),
        forecast=walker.forecast(),
        claims=claims_of(task),
    )
    return PrivateAnswer(values=opened[0][:, 0] if opened else None, plan=plan, result=result)


def predict_plain(features: Tensor, weights: Mapping[str, Tensor], *, reveal: Reveal) -> Tensor:
    """Give the same answers in the clear, for one who may see both sides."""
    return MODELS[reveal](TorchOps(), weights, features)[:, 0]


def claims_of(task: PredictTask) -> tuple[Claim, ...]:
    """Return what a prediction promises: what its protocol does, and what nothing can."""
    if task.reveal == "score":
        reason = (
            f"a score is a linear function of a row, so {task.data_owner} can solve for the whole "
            "model once it has more scores than features; reveal classes to give away less"
        )
    else:
        reason = (
            "whoever may ask about many rows of its choice can imitate the model; "
            f"{task.model_owner} should limit the number of questions"
        )
    return (*find_protocol(task.protocol).claims, claim_of_answers(task.data_owner, reason))


def _program(task: PredictTask, sizes: Sizes) -> Callable[[ProtocolOps[V]], Tensor | None]:
    def program(ops: ProtocolOps[V]) -> Tensor | None:
        x = ops.input(
            "features",
            owner=task.data_owner,
            shape=(sizes.rows, sizes.features),
            bound=task.feature_bound,
        )
        weights = {
            name: ops.input(name, owner=task.model_owner, shape=shape, bound=task.weight_bound)
            for name, shape in (("weight", (sizes.features, 1)), ("bias", (1,)))
        }
        answer = MODELS[task.reveal](ops, weights, x)
        return ops.open(
            answer,
            to=(task.data_owner,),
            what={"class": "predicted classes", "score": "scores"}[task.reveal],
            why="the declared result of the job",
        )

    return program


def _announce(
    session: Session,
    task: PredictTask,
    features: Tensor | None,
    weights: Mapping[str, Tensor] | None,
) -> Sizes:
    """Tell and learn the public sizes, and check that data and model fit each other."""
    if features is not None and session.me == task.data_owner:
        rows, wide = features.shape
        session.publish(DATA, (rows, wide))
    else:
        rows, wide = session.learn(task.data_owner, DATA)
    if weights is not None and session.me == task.model_owner:
        wanted = len(weights["weight"])
        session.publish(MODEL, (wanted,))
    else:
        (wanted,) = session.learn(task.model_owner, MODEL)
    if wanted != wide:
        raise DisagreementError(
            task.data_owner,
            f"its data has {wide} features, the model of {task.model_owner!r} wants {wanted}",
        )
    try:
        return Sizes(rows=rows, features=wide)
    except ConfigError as error:
        raise DisagreementError(task.data_owner, f"announced impossible sizes: {error}") from error


def as_weights(weight: Tensor, bias: Tensor) -> dict[str, Tensor]:
    """Bring a linear model into the shapes that `predict` wants."""
    return {
        "weight": weight.reshape(-1, 1).to(torch.float64),
        "bias": bias.reshape(1).to(torch.float64),
    }
