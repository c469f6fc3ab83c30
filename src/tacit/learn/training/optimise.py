"""Optimisers as functions of ops: how gradients change weights, under any protocol."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Literal, TypeVar

from tacit.errors import ConfigError
from tacit.learn.training.verbs import StepOps, scale_unsettled

V = TypeVar("V")
State = dict[str, V]

AMPLIFY = 256.0
"""Adam's moments are kept this much larger, because fixed point has an absolute precision."""

LARGEST_MOMENT = 128.0
"""Where Adam's amplified gradients saturate, so that their squares stay in range."""

FIRST_SPREAD = 1.0
"""Where Adam's amplified mean square starts."""

OPTIMISERS: Mapping[str, tuple[str, ...]] = {
    "sgd": (),
    "momentum": ("velocity",),
    "adam": ("mean", "spread"),
}
"""Optimisers, and what they remember of every weight."""


@dataclass(frozen=True, kw_only=True)
class Optimiser:
    """How gradients change weights.

    Attributes:
        kind: one of `OPTIMISERS`.
        momentum: how much of the velocity (or of Adam's mean) stays.
        decay: how much of Adam's mean square stays. It starts at `FIRST_SPREAD` instead of being
            corrected later: a correction would be another public factor at every step.
        clip: the largest Euclidean norm of a batch's mean gradient; None for no clipping.
        weight_decay: how much of every weight a step takes away, before the rate.
    """

    kind: Literal["sgd", "momentum", "adam"] = "sgd"
    momentum: float = 0.9
    decay: float = 0.99
    clip: float | None = None
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        if not (0 <= self.momentum < 1 and 0 <= self.decay < 1):
            raise ConfigError(
                f"momentum and decay must be at least 0 and below 1, got {self.momentum} and "
                f"{self.decay}"
            )
        if self.clip is not None and not 0 < self.clip < 1e6:
            raise ConfigError(f"a gradient is clipped to a norm above 0, got {self.clip}")

    def slots(self) -> tuple[str, ...]:
        """Name what is remembered of every weight."""
        return OPTIMISERS[self.kind]

    def step(
        self,
        ops: StepOps[V],
        weights: Mapping[str, V],
        gradients: Mapping[str, V],
        state: Mapping[str, V],
        *,
        rate: float,
        batch: int,
    ) -> tuple[State[V], State[V]]:
        """Return the weights after a step, and what is remembered.

        Args:
            ops: the interpreter.
            weights: by name.
            gradients: of the sum of losses over the batch, by name.
            state: what is remembered, by "slot/name".
            rate: the learning rate.
            batch: the number of rows the gradients add up.
        """
        # The mean is taken as late as possible: small numbers lose digits in fixed point.
        grown = dict(gradients)
        share = 1 / batch
        if self.clip is not None:
            grown, share = _clip(ops, grown, self.clip, share), 1.0
        changed: State[V] = {}
        kept: State[V] = {}
        for name, weight in weights.items():
            if self.weight_decay:
                weight = ops.scale(weight, 1 - rate * self.weight_decay)
            change, mine = self._change(ops, name, weight, grown[name], state, rate, share)
            changed[name] = ops.settle(ops.sub(weight, change))
            kept.update(mine)
        return changed, kept

    def _change(
        self,
        ops: StepOps[V],
        name: str,
        weight: V,
        gradient: V,
        state: Mapping[str, V],
        rate: float,
        share: float,
    ) -> tuple[V, State[V]]:
        if self.kind == "sgd":
            return scale_unsettled(ops, gradient, rate * share, beside=weight), {}
        if self.kind == "momentum":
            key = f"velocity/{name}"
            grown = scale_unsettled(ops, gradient, share, beside=state[key])
            velocity = ops.add(ops.scale(state[key], self.momentum), grown)
            velocity = ops.settle(velocity)
            return ops.scale(velocity, rate), {key: velocity}
        return self._adam(ops, name, gradient, state, rate, share)

    def _adam(
        self,
        ops: StepOps[V],
        name: str,
        gradient: V,
        state: Mapping[str, V],
        rate: float,
        share: float,
    ) -> tuple[V, State[V]]:
        large = ops.cap(ops.settle(ops.scale(gradient, AMPLIFY * share)), bound=LARGEST_MOMENT)
        mean = ops.add(
            ops.scale(state[f"mean/{name}"], self.momentum), ops.scale(large, 1 - self.momentum)
        )
        spread = ops.add(
            ops.scale(state[f"spread/{name}"], self.decay),
            ops.scale(ops.settle(ops.square(large)), 1 - self.decay),
        )
        mean, spread = ops.settle(mean), ops.settle(spread)
        # Below 2^-8 the inverse root stays where it is, which is what Adam's epsilon is for.
        change = ops.scale(ops.mul(mean, ops.rsqrt(spread)), rate)
        return change, {f"mean/{name}": mean, f"spread/{name}": spread}


def _clip(ops: StepOps[V], gradients: State[V], norm: float, share: float) -> State[V]:
    """Shorten the mean gradient to a norm; it is never left longer than that."""
    scaled = {name: ops.settle(ops.scale(value, share / norm)) for name, value in gradients.items()}
    squares = [
        ops.sum(ops.reshape(ops.settle(ops.square(value)), (-1,)), dim=0)
        for value in scaled.values()
    ]
    total = ops.reshape(reduce(ops.add, squares), (1,))
    factor = ops.settle(ops.clamp(ops.rsqrt_below(total), 0.0, 1.0))
    return {name: ops.scale(ops.mul(value, factor), norm) for name, value in scaled.items()}
