"""Optimisers as functions of ops: how gradients change weights, under any protocol."""

from collections.abc import Mapping
from decimal import Context, Decimal
from functools import reduce
from math import prod, sqrt
from types import MappingProxyType
from typing import Literal, TypeVar

from tacit.errors import ConfigError, check_word
from tacit.mpc.ops import ProtocolOps
from tacit.training.ops import StepOps, scale_unnormalised

V = TypeVar("V")
State = dict[str, V]

# Momentum as Polyak's heavy ball; Adam as Kingma and Ba (2015), algorithm 1.
AMPLIFY = 256.0
"""Adam's moments are kept this much larger, because fixed point has an absolute precision."""

LARGEST_MOMENT = 128.0
"""Where Adam's amplified gradients saturate, so that their squares stay in range."""

LARGEST_VELOCITY = 32768.0
"""No velocity may be larger."""

MANY_WEIGHTS = 1 << 16
"""From so many weights on, bytes cost more than a round."""

LEAD_BITS = 8
"""So many bits of a step's change are below the last place of a weight."""

LARGEST_NORM = 2.0**14
"""No gradient is so many times longer than what it is clipped to, unless bounds are the worst."""

ROOT_RANGE = 2.0**16
"""So far reaches the inverse root of a squared norm."""

CORRECTION = "adam/correction"
"""The public number by which a step of Adam makes up for moments that began at zero."""

OptimiserName = Literal["sgd", "momentum", "adam"]
OPTIMISERS: Mapping[str, tuple[str, ...]] = {
    "sgd": (),
    "momentum": ("velocity",),
    "adam": ("mean", "spread"),
}
"""Optimisers, and what they remember of every weight."""


class Optimiser:
    """How gradients change weights, of settings that have these fields.

    Attributes:
        optimiser: how weights follow gradients.
        momentum: how much of the velocity (or of Adam's mean) stays.
        decay: how much of Adam's mean square stays.
        clip: the largest Euclidean norm of a batch's mean gradient; not clipped if not given.
        weight_decay: how much of every weight a step takes away, before the rate.
    """

    optimiser: OptimiserName
    momentum: float
    decay: float
    clip: float | None
    weight_decay: float

    def check_optimiser(self) -> None:
        """Refuse what no optimiser takes.

        Raises:
            ConfigError: a word that is not known, or a number out of range.
        """
        check_word("optimiser", self.optimiser, OptimiserName)
        if not (0 <= self.momentum < 1 and 0 <= self.decay < 1):
            raise ConfigError(
                f"momentum and decay must be at least 0 and below 1, got {self.momentum} and "
                f"{self.decay}"
            )
        if self.clip is not None and not 0 < self.clip < 1e6:
            raise ConfigError(f"a gradient is clipped to a norm above 0, got {self.clip}")

    def slots(self) -> Mapping[str, float]:
        """Name what is remembered of every weight, and say how large it can be."""
        bounds = {
            "velocity": LARGEST_VELOCITY,
            "mean": 1.01 * LARGEST_MOMENT / (1 - self.momentum),
            "spread": 1.01 * LARGEST_MOMENT**2 / (1 - self.decay),
        }
        return {slot: bounds[slot] for slot in OPTIMISERS[self.optimiser]}

    def dials(self, step: int) -> dict[str, float]:
        """Return the public numbers that a step needs besides the rate; steps count from 1.

        They are computed in decimal arithmetic, which is alike to the digit on every machine: the
        parties multiply their shares by the same word or the result is noise.
        """
        if self.optimiser != "adam":
            return {}
        exact = Context(prec=40)
        first, second = Decimal(repr(self.momentum)), Decimal(repr(self.decay))
        spread = exact.sqrt(1 - exact.power(second, step))
        return {CORRECTION: float(exact.divide(spread, 1 - exact.power(first, step)))}

    def dial_bounds(self) -> dict[str, float]:
        """Say how large the public numbers of a step can be."""
        if self.optimiser != "adam":
            return {}
        # √(1 - d^t) / (1 - m^t) is largest at the first step, or tends to 1.
        return {CORRECTION: 1.01 * max(1.0, self.dials(1)[CORRECTION])}

    def lead(self, *, rate: float, batch: int, weights: int) -> float:
        """Return a factor for the error at the end of the model, so that weights need less.

        A change of many weights is cheaper the fewer bits are dropped from it, and the error is
        small: where a step is linear, the rate can be applied to the error, but for 2^-8, which
        drops bits that no weight has. That takes a round, so few weights are left alone.
        """
        if self.optimiser != "sgd" or self.clip is not None or weights < MANY_WEIGHTS:
            return 1.0
        return rate * (1 / batch) * 2.0**LEAD_BITS

    def step(
        self,
        ops: StepOps[V],
        weights: Mapping[str, V],
        gradients: Mapping[str, V],
        state: Mapping[str, V],
        *,
        rate: float,
        batch: int,
        lead: float = 1.0,
        scales: Mapping[str, float] = MappingProxyType({}),
    ) -> tuple[State[V], State[V]]:
        """Return the weights after a step, and what is remembered.

        Args:
            ops: the interpreter.
            weights: by name.
            gradients: of the sum of losses over the batch, by name.
            state: what is remembered, by "slot/name".
            rate: the learning rate.
            batch: the number of rows the gradients add up.
            lead: what the gradients were multiplied by already; see `lead`.
            scales: what some weights were multiplied by before; steps are those without.
        """
        # The mean is taken as late as possible: small numbers lose digits in fixed point.
        grown = {
            name: ops.scale(value, scales[name]) if name in scales else value
            for name, value in gradients.items()
        }
        portion = 1 / batch
        if self.clip is not None:
            grown, portion = _clip(ops, grown, self.clip, portion), 1.0
        changed: State[V] = {}
        kept: State[V] = {}
        for name, weight in weights.items():
            if self.weight_decay:
                weight = ops.scale(weight, 1 - rate * self.weight_decay)
            if lead == 1.0:
                change, mine = self._change(ops, name, weight, grown[name], state, rate, portion)
                kept.update(mine)
            else:
                change = ops.scale(grown[name], 2.0**-LEAD_BITS)
            if name in scales:
                change = ops.scale(change, scales[name])
            changed[name] = ops.normalise_scale(ops.sub(weight, change))
        return changed, kept

    def _change(
        self,
        ops: StepOps[V],
        name: str,
        weight: V,
        gradient: V,
        state: Mapping[str, V],
        rate: float,
        portion: float,
    ) -> tuple[V, State[V]]:
        """Return what is taken off a weight, and what is remembered of it."""
        if self.optimiser == "sgd":
            return scale_unnormalised(ops, gradient, rate * portion, beside=weight), {}
        if self.optimiser == "momentum":
            key = f"velocity/{name}"
            grown = scale_unnormalised(ops, gradient, portion, beside=state[key])
            velocity = ops.add(ops.scale(state[key], self.momentum), grown)
            velocity = ops.normalise_scale(velocity)
            return ops.scale(velocity, rate), {key: velocity}
        large = ops.cap(
            ops.normalise_scale(ops.scale(gradient, AMPLIFY * portion)), bound=LARGEST_MOMENT
        )
        # Sums, not means, are kept: they are larger, and fixed point has an absolute precision.
        mean = ops.add(ops.scale(state[f"mean/{name}"], self.momentum), large)
        spread = ops.add(
            ops.scale(state[f"spread/{name}"], self.decay), ops.normalise_scale(ops.square(large))
        )
        mean, spread = ops.normalise_scale(mean), ops.normalise_scale(spread)
        # Below 2^-8 the inverse root stays where it is, which is what Adam's epsilon is for.
        ratio = ops.normalise_scale(ops.mul(mean, ops.rsqrt(spread)))
        rest = 1 - self.momentum**2 / self.decay if self.decay else 0.0
        if rest > 0:
            # Cauchy and Schwarz bound Σ m^k g_k by √(Σ d^k g_k²)·√(1 / (1 - m²/d)) where m² < d.
            # The inverse root is a little off, in parts of it and of a sum.
            slack = 2.0**-12 * self.slots()["mean"]
            ratio = ops.restate(ratio, bound=1.01 / sqrt(rest) + slack)
        factor = rate * (1 - self.momentum) / sqrt(1 - self.decay)
        change = ops.tune(ratio, CORRECTION, bound=self.dial_bounds()[CORRECTION])
        kept = {f"mean/{name}": mean, f"spread/{name}": spread}
        return ops.scale(ops.normalise_scale(change), factor), kept


def _clip(ops: StepOps[V], gradients: State[V], norm: float, portion: float) -> State[V]:
    """Shorten the mean gradient to a norm; it is never left longer than that.

    One beyond 2^8 times the norm, which only a private run could meet, counts for nothing.
    """
    scaled = {
        name: ops.normalise_scale(ops.scale(value, portion / norm))
        for name, value in gradients.items()
    }
    # By the worst case squares of many weights do not fit; what saturates is absurdly large.
    limit = LARGEST_NORM / sqrt(sum(prod(ops.shape(value)) for value in scaled.values()))
    if isinstance(ops, ProtocolOps):
        scaled = {
            name: ops.cap(value, bound=limit) if ops.reaches(value, bound=limit) else value
            for name, value in scaled.items()
        }
    squares = [
        ops.sum(ops.reshape(ops.normalise_scale(ops.square(value)), (-1,)), dim=0)
        for value in scaled.values()
    ]
    total = ops.reshape(reduce(ops.add, squares), (1,))
    fits = None
    if isinstance(ops, ProtocolOps) and ops.reaches(total, bound=ROOT_RANGE):
        fits = ops.indicate(ops.shift(ops.scale(ops.normalise_scale(total), -1.0), ROOT_RANGE))
        total = ops.restate(ops.normalise_scale(ops.gate(fits, total)), bound=ROOT_RANGE)
    factor = ops.normalise_scale(ops.clamp(ops.rsqrt_below(total), 0.0, 1.0))
    if fits is not None:
        factor = ops.normalise_scale(ops.gate(fits, factor))
    return {name: ops.scale(ops.mul(value, factor), norm) for name, value in scaled.items()}
