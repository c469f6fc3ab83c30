"""Private prediction: one party's rows, another party's model, and only the answers come out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar

import torch
from torch import Tensor

from tacit.errors import ConfigError, DisagreementError
from tacit.inference.answers import PrivateAnswer, claim_of_answers, result_of
from tacit.inference.secured import LARGEST_ELEMENTS
from tacit.mpc import find_protocol
from tacit.mpc.ops import ProtocolOps
from tacit.mpc.walker import Walker
from tacit.nn import TorchOps, logistic_class, logistic_score
from tacit.party import Fact, Session, Usage
from tacit.result import Claim, Leak

if TYPE_CHECKING:
    from tacit.inference.spec import InferSpec

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


def plan_prediction(spec: "InferSpec", sizes: Sizes) -> Walker:
    """Return the walk of a prediction, from public facts alone."""
    walker = Walker(spec.roles, protocol=spec.protocol.kind, frac_bits=spec.frac_bits)
    program = _program(spec, sizes)
    walker.execute(walker.plan(program), program)
    return walker


def told_in_prediction(spec: "InferSpec", parties: Sequence[str]) -> tuple[Leak, ...]:
    """Return what both owners tell all parties before the first row."""
    return (*DATA.leaks(spec.data.owner, parties), *MODEL.leaks(spec.crew.server, parties))


def predict(
    session: Session,
    spec: "InferSpec",
    *,
    features: Tensor | None = None,
    weights: Mapping[str, Tensor] | None = None,
) -> PrivateAnswer:
    """Take part in a prediction, as whatever party the session says I am.

    Args:
        session: my end of the job.
        spec: the same for everyone.
        features: (rows, features), already scaled; only the data owner has them.
        weights: ``weight`` (features, 1) and ``bias`` (1,); only the model owner has them.

    Guarantee: as stated by the protocol's claims; the answers go to the data owner alone.
    """
    usage = Usage()
    walker = Walker(
        spec.roles, protocol=spec.protocol.kind, frac_bits=spec.frac_bits, session=session
    )
    with session.progress.stage("plan"):
        program = _program(spec, _announce(session, spec, features, weights))
        plan = walker.plan(program)
    inputs = {"features": features} if features is not None else {}
    _, opened = walker.execute(plan, program, inputs=inputs | dict(weights or {}))
    roles = {
        spec.roles.dealer: "dealer",
        spec.data.owner: "data owner",
        spec.crew.server: "model owner",
    }
    result = result_of(
        session,
        usage,
        name="prediction",
        protocol=spec.protocol.kind,
        role=roles.get(session.me, "computes"),
        forecast=walker.forecast(),
        claims=claims_of(spec),
    )
    return PrivateAnswer(values=opened[0][:, 0] if opened else None, plan=plan, result=result)


def predict_plain(features: Tensor, weights: Mapping[str, Tensor], *, reveal: Reveal) -> Tensor:
    """Give the same answers in the clear, for one who may see both sides."""
    return MODELS[reveal](TorchOps(), weights, features)[:, 0]


def claims_of(spec: "InferSpec") -> tuple[Claim, ...]:
    """Return what a prediction promises: what its protocol does, and what nothing can."""
    if spec.reveal == "score":
        reason = (
            f"a score is a linear function of a row, so {spec.data.owner} can solve for the whole "
            "model once it has more scores than features; reveal classes to give away less"
        )
    else:
        reason = (
            "whoever may ask about many rows of its choice can imitate the model; "
            f"{spec.crew.server} should limit the number of questions"
        )
    return (*find_protocol(spec.protocol.kind).claims, claim_of_answers(spec.data.owner, reason))


def _program(spec: "InferSpec", sizes: Sizes) -> Callable[[ProtocolOps[V]], Tensor | None]:
    def program(ops: ProtocolOps[V]) -> Tensor | None:
        x = ops.input(
            "features",
            owner=spec.data.owner,
            shape=(sizes.rows, sizes.features),
            bound=spec.bound,
        )
        weights = {
            name: ops.input(name, owner=spec.crew.server, shape=shape, bound=spec.weight_bound)
            for name, shape in (("weight", (sizes.features, 1)), ("bias", (1,)))
        }
        answer = MODELS[spec.reveal](ops, weights, x)
        return ops.open(
            answer,
            to=(spec.data.owner,),
            what={"class": "predicted classes", "score": "scores"}[spec.reveal],
            why="the declared result of the job",
        )

    return program


def _announce(
    session: Session,
    spec: "InferSpec",
    features: Tensor | None,
    weights: Mapping[str, Tensor] | None,
) -> Sizes:
    """Tell and learn the public sizes, and check that data and model fit each other."""
    if features is not None and session.me == spec.data.owner:
        rows, wide = features.shape
        session.publish(DATA, (rows, wide))
    else:
        rows, wide = session.learn(spec.data.owner, DATA)
    if weights is not None and session.me == spec.crew.server:
        wanted = len(weights["weight"])
        session.publish(MODEL, (wanted,))
    else:
        (wanted,) = session.learn(spec.crew.server, MODEL)
    if wanted != wide:
        raise DisagreementError(
            spec.data.owner,
            f"its data has {wide} features, the model of {spec.crew.server!r} wants {wanted}",
        )
    try:
        return Sizes(rows=rows, features=wide)
    except ConfigError as error:
        raise DisagreementError(spec.data.owner, f"announced impossible sizes: {error}") from error


def as_weights(weight: Tensor, bias: Tensor) -> dict[str, Tensor]:
    """Bring a linear model into the shapes that `predict` wants."""
    return {
        "weight": weight.reshape(-1, 1).to(torch.float64),
        "bias": bias.reshape(1).to(torch.float64),
    }
