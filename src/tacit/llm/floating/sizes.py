"""How large weights and values usually are: what noise is measured by."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from tacit.errors import FrameError
from tacit.llm.floating.program import Equation, Function, MaskedValue, Rows, multiply, run_pass
from tacit.llm.model.architecture import Architecture
from tacit.llm.sealed.bounds import weight_shapes
from tacit.llm.sealed.passes import Pass
from tacit.party import Fact, Session

_FURTHEST = 40
_PROBE = 16


class Measuring:
    """Walk a pass in the clear, and note the root mean square of every masked value."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        self._weights = weights
        self.sizes = {name: _size(w) for name, w in weights.items()}

    def linear(self, name: str, x: MaskedValue) -> MaskedValue:
        """Multiply by a matrix, or by a diagonal."""
        return self._note(name, apply(self._weights, name, x.share))

    def product(
        self, label: str, equation: Equation, x: MaskedValue, y: MaskedValue
    ) -> MaskedValue:
        """Multiply two masked values."""
        for side, value in (("x", x), ("y", y)):
            self.sizes[f"{label}.{side}"] = _size(value.share)
        return self._note(label, multiply(equation, x.share, y.share))

    def look(
        self, label: str, x: MaskedValue, function: Function, valid: Tensor | None = None
    ) -> MaskedValue:
        """Compute a function in the clear."""
        self.sizes[f"{label}.in"] = _size(x.share)
        if valid is None:
            return self._note(label, function(x.share))
        permutation = (~valid).to(torch.int64).argsort(dim=1, stable=True)
        rows, places = valid.shape
        permutation = permutation.unsqueeze(1).expand(rows, x.share.shape[2] // places, places)
        wide = x.share.view(permutation.shape)
        softened = function(wide.gather(2, permutation).view(x.share.shape)).view(permutation.shape)
        return self._note(
            label, torch.zeros_like(wide).scatter(2, permutation, softened).flatten(1)
        )

    def show(self, label: str, x: MaskedValue) -> Tensor | None:
        """Give the scores as they are."""
        self.sizes[label] = _size(x.share)
        return x.share

    def _note(self, label: str, x: Tensor) -> MaskedValue:
        self.sizes[label] = _size(x)
        return MaskedValue(x, 0.0)


def apply(weights: Mapping[str, Tensor], name: str, x: Tensor) -> Tensor:
    """Multiply rows by a matrix, or element-wise by a vector, and add the bias if there is one."""
    weight, bias = weights[f"{name}.weight"], weights.get(f"{name}.bias")
    out = x @ weight if weight.dim() == 2 else x * weight
    return out if bias is None else out + bias


def measure(a: Architecture, weights: Mapping[str, Tensor]) -> dict[str, float]:
    """Measure usual sizes on a text that is the same for every model; powers of two."""
    party, count = Measuring(weights), min(_PROBE, a.context)
    prompt = count - 1 if a.family == "chatglm" else 0
    step = Pass(conversation=0, past=0, rows=count, prompt=prompt, is_scored=True)
    x = weights["embed.weight"][torch.arange(count) * 7919 % a.vocab]
    party.sizes["embed"] = _size(x)
    if a.positions == "learned":
        x = x + weights["positions"][:count]
    run_pass(party, a, step, MaskedValue(x, 0.0), Rows())
    return {
        name: 2.0 ** math.ceil(math.log2(max(size, 2.0**-_FURTHEST)))
        for name, size in party.sizes.items()
    }


def size_names(a: Architecture) -> list[str]:
    """List what has a size, as everyone knows it: by walking a model of zeros."""
    zero = torch.zeros((), dtype=torch.float64)
    shapes = {name_of(name): shape for name, shape in weight_shapes(a).items()}
    if a.positions == "learned":
        shapes["positions"] = (a.context, a.width)
    return sorted(measure(a, {name: zero.expand(shape) for name, shape in shapes.items()}))


def name_of(name: str) -> str:
    """Name a tensor of `fold` as the program here does."""
    return "embed.weight" if name == "embed" else name


def sizes_fact(names: Sequence[object]) -> Fact:
    """Return what the owner of a model tells of its sizes."""
    return Fact(
        tag="floating sizes",
        count=len(names),
        what="how large weights and values usually are, as powers of two",
        why="noise is measured by it",
        kind="protocol",
    )


def publish(session: Session, sizes: Mapping[str, float]) -> None:
    """Tell everyone the sizes."""
    powers = tuple(round(math.log2(sizes[name])) for name in sorted(sizes))
    session.publish(sizes_fact(powers), powers)


def learn(session: Session, owner: str, names: list[str]) -> dict[str, float]:
    """Receive the owner's sizes."""
    powers = session.learn(owner, sizes_fact(names))
    if not all(abs(power) <= _FURTHEST for power in powers):
        raise FrameError(owner, f"publishes sizes beyond 2^{_FURTHEST}")
    return {name: 2.0**power for name, power in zip(sorted(names), powers, strict=True)}


def _size(x: Tensor) -> float:
    return float(x.double().square().mean().sqrt())
