"""Models of which the sizes are told, not agreed: a forest, and one linear layer, of one server."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tacit.errors import DisagreementError
from tacit.inference.forest import FOREST, MOST_COLUMNS, Forest, announced_forest
from tacit.inference.predict import MODEL
from tacit.inference.secured import Function
from tacit.inference.service.spec import ServeSpec
from tacit.nn import logistic_score
from tacit.nn.models import linear
from tacit.party import Fact, Session
from tacit.result import Leak

Told = tuple[int, ...]
"""Sizes of a model in the order of its fact; empty where the job states all of them."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SizedModel:
    """What a service computes of a forest or a linear model.

    Attributes:
        run: a function of ops, weights and rows.
        inputs: the shape of a row, as the servers get it.
        outputs: how many scores a row has.
        initial: every weight by name, with nothing in it.
        bounds: how large each may be.
        forest: brings rows to the whole numbers that it compares; none of a linear model.
    """

    run: Function
    inputs: tuple[int, ...]
    outputs: int
    initial: Mapping[str, Tensor]
    bounds: Mapping[str, float]
    forest: Forest | None = None

    def __call__(self, ops: Any, weights: Mapping[str, Any], x: Any) -> Any:
        """Run the model over any interpreter."""
        return self.run(ops, weights, x)


def make_sized(spec: ServeSpec, told: Told) -> SizedModel:
    """Make a model of the sizes that its owner tells, for parties and clients alike.

    Raises:
        DisagreementError: no such model can be computed.
    """
    owner = spec.model.owner or ""  # refused before, where there is none
    if len(told) != count_of_sizes(spec):
        raise DisagreementError(owner, f"announced {len(told)} sizes of its model")
    if spec.model.is_forest:
        forest = announced_forest(owner, told)
        return SizedModel(
            run=forest,
            inputs=(len(forest.weights["select"]),),
            outputs=forest.scores,
            initial=forest.weights,
            bounds=forest.bounds,
            forest=forest,
        )
    (wide,) = told
    if not 1 <= wide <= MOST_COLUMNS:
        raise DisagreementError(owner, f"announced a linear model of {wide} features")
    shapes = {"weight": (wide, 1), "bias": (1,)}
    return SizedModel(
        run=linear if spec.reveal == "class" else logistic_score,
        inputs=(wide,),
        outputs=1,
        initial={name: torch.zeros(shape, dtype=torch.float64) for name, shape in shapes.items()},
        bounds=dict.fromkeys(shapes, spec.weight_bound),
    )


def sizes_of(model: Forest | Mapping[str, Tensor]) -> Told:
    """Return what the owner of a forest or of a linear model tells of it."""
    return model.sizes if isinstance(model, Forest) else (len(model["weight"]),)


def count_of_sizes(spec: ServeSpec) -> int:
    """Return how many sizes of its model the owner tells."""
    return _fact(spec).count


def agree_on_sizes(session: Session, spec: ServeSpec, mine: Told | None) -> Told:
    """Tell the sizes of my model, or learn those of another server's; nothing of a network."""
    if not spec.has_told_sizes:
        return ()
    fact, owner = _fact(spec), spec.model.owner or ""
    if session.me != owner or mine is None:
        return session.learn(owner, fact)
    session.publish(fact, mine)
    return mine


def leaks_of_sizes(spec: ServeSpec, names: Sequence[str]) -> tuple[Leak, ...]:
    """List what parties or clients of these names are told of the model beside its job."""
    return _fact(spec).leaks(spec.model.owner or "", names) if spec.has_told_sizes else ()


def _fact(spec: ServeSpec) -> Fact:
    return FOREST if spec.model.is_forest else MODEL
