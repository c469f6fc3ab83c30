"""What a proof is: steps that someone who does not trust the search can check.

A proof has one part per side (a rival class, a direction). A part is a list of steps, in the order
of a depth-first walk that starts with the whole box:

- ``split`` feature threshold: first the inputs with key <= threshold, then the others;
- ``bound``: the least reachable leaf of each tree, added up, keeps the prediction;
- ``share`` [feature, trees] …: the same, but the listed trees must agree on the interval of their
  feature; no tree is listed twice;
- ``point``: every tree reaches one leaf only, and these leaves keep the prediction.

What a missing value or a category answers is the same in the whole box, and needs no step.
"""

import json
from dataclasses import dataclass

import numpy as np

from tacit.errors import foreign
from tacit.verify.box import Box
from tacit.verify.kernels.tables import Floats

Step = tuple[object, ...]
"""As its JSON has it; the checker looks at each part before it uses it."""


@dataclass(frozen=True, eq=False)
class Side:
    """One way in which the prediction could change: `plus` loses to `minus` (-1: to a constant)."""

    plus: int
    minus: int
    steps: tuple[Step, ...]


@dataclass(frozen=True, eq=False)
class Proof:
    """A claim about all inputs of a box, and the steps that show it."""

    box: Box
    prediction: float
    rho: float | None
    sides: tuple[Side, ...]


def dump_proof(proof: Proof) -> str:
    """Write a proof as JSON; floats keep all their digits, and a missing value is null."""
    box = proof.box
    return json.dumps(
        {
            "center": _list(box.center),
            "low": _list(box.low),
            "high": _list(box.high),
            "prediction": proof.prediction,
            "rho": proof.rho,
            "sides": [[side.plus, side.minus, side.steps] for side in proof.sides],
        }
    )


def _list(values: Floats) -> list[float | None]:
    return [None if np.isnan(value) else value for value in values.tolist()]


def load_proof(text: str) -> Proof:
    """Read a proof from JSON; whether it proves anything is for `check_proof` to say."""
    with foreign("not a proof"):
        saved = json.loads(text)
        ends = (np.array(saved[name], dtype=np.float64) for name in ("center", "low", "high"))
        sides = tuple(
            Side(int(plus), int(minus), tuple(tuple(step) for step in steps))
            for plus, minus, steps in saved["sides"]
        )
        return Proof(Box(*ends), float(saved["prediction"]), saved["rho"], sides)


def read_split(feature: object, cut: object) -> tuple[int, float]:
    """Read what follows the word of a ``split``."""
    if not (isinstance(feature, int) and isinstance(cut, int | float)):
        raise TypeError(f"want a feature and a threshold, got {feature!r} and {cut!r}")
    return feature, float(cut)


def read_group(group: object) -> tuple[int, list[int]]:
    """Read one entry of a ``share``: a feature and its trees."""
    feature, trees = group if isinstance(group, list) else (None, None)
    if not (isinstance(feature, int) and isinstance(trees, list)):
        raise TypeError(f"want a feature and its trees, got {group!r}")
    return feature, trees
