"""Steps as functions of ops: what they ask of an interpreter, and optimisers, under any protocol.

Interpreters that train in the clear, or that count what saturates, are here too.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from decimal import Context, Decimal
from functools import reduce
from math import ceil, frexp, log2, prod, sqrt
from types import MappingProxyType
from typing import Generic, Literal, Protocol, TypeVar, cast

import torch
from torch import Tensor
from torch.nn import functional

from tacit.errors import ConfigError, check_word
from tacit.mpc.ops import ProtocolOps
from tacit.nn import TorchOps
from tacit.nn.ops import TrainableOps

T = TypeVar("T")
_FACTOR_BITS = 12
"""A public factor gets so many significant bits where there is room for them."""
_FEWEST_BITS = 9
"""With fewer the factor is off by more than 2^-9 of itself: then the value is truncated first."""
_ROOM_BITS = 58
"""Of the 62 bits that a word may use: four are left for sums."""


class StepOps(TrainableOps[T], Protocol[T]):
    """The verbs of a training step: those of models, and those that mind precision and bounds."""

    def normalise_scale(self, value: T) -> T:
        """Bring a value to the usual precision."""
        ...

    def rsqrt_below(self, x: T) -> T:
        """Give a number just below 1 / √x, never above it."""
        ...

    def family(self, name: str) -> AbstractContextManager[None]:
        """Compute functions by the protocol of a family, such as "softmax"."""
        ...

    def tune(self, x: T, name: str, *, bound: float) -> T:
        """Multiply by a public number of at most ``bound`` that the schedule gives, by name."""
        ...

    def keep_rows(self, x: T, name: str) -> T:
        """Make rows zero that do not count, by zeros and ones that whoever computes has by name."""
        ...

    def cross_entropy(self, logits: T, labels: T) -> T:
        """Give the mean of -Σ labels·log softmax(logits) over rows."""
        ...

    def binary_cross_entropy(self, logits: T, labels: T) -> T:
        """Give the mean of log(1 + exp(x)) - x·y over all elements."""
        ...


def scale_unnormalised(ops: StepOps[T], x: T, factor: float, *, beside: T) -> T:
    """Multiply by a public number without bringing the value to the usual precision first.

    A product that is to be scaled and then added to something would otherwise be truncated twice,
    and gradients are as large as all weights. The factor is written as k·2^-s, which costs
    nothing, with as many bits of k as fit into the word.

    Args:
        ops: the interpreter.
        x: the value.
        factor: the public number; off by less than 2^-9 of itself.
        beside: what the result will be added to.
    """
    if not isinstance(ops, ProtocolOps):
        return ops.scale(x, factor)
    private: ProtocolOps[T] = ops
    spec = private.number(x, "scaling")
    half, exponent = frexp(factor)
    room = _ROOM_BITS - spec.largest.bit_length()
    # What it is added to is brought to the same precision, and must fit, too.
    size = max(0, ceil(log2(private.number(beside, "adding").bound)))
    above = _ROOM_BITS - spec.frac_bits + exponent - size
    bits = min(_FACTOR_BITS, room, above)
    if bits < _FEWEST_BITS or abs(half) == 0.5:
        return private.scale(x, factor)
    whole = round(half * (1 << bits))
    return private.scale(private.scale(x, float(whole)), 2.0 ** (exponent - bits))


class PlainStepOps(TorchOps):
    """Train in the clear, with the same programs: the curve to compare a private one with.

    Args:
        dials: the public numbers of this step, by name.
    """

    def __init__(self, dials: Mapping[str, float] | None = None) -> None:
        self._dials = dials or {}

    def family(self, name: str) -> AbstractContextManager[None]:
        """Do nothing: in the clear all functions are computed alike."""
        return nullcontext()

    def tune(self, x: Tensor, name: str, *, bound: float) -> Tensor:
        """Multiply by a public number that the schedule gives."""
        return x * self._dials[name]

    def keep_rows(self, x: Tensor, name: str) -> Tensor:
        """Give all rows: in the clear there are none that do not count."""
        return x

    def normalise_scale(self, value: Tensor) -> Tensor:
        """Give the value as it is: floats have no fixed precision."""
        return value

    def rsqrt(self, x: Tensor) -> Tensor:
        """Give 1 / √x, with the floor that a private run has."""
        return torch.rsqrt(x.clamp(min=2.0**-8))

    def rsqrt_below(self, x: Tensor) -> Tensor:
        """Give a number just below 1 / √x."""
        return self.rsqrt(x) * (1 - 2.0**-8) - 2.0**-12

    def cross_entropy(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Give the mean of -Σ labels·log softmax(logits) over rows."""
        return -(labels * torch.log_softmax(logits, dim=-1)).sum(dim=-1).mean()

    def binary_cross_entropy(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Give the mean of log(1 + exp(x)) - x·y over all elements."""
        return functional.binary_cross_entropy_with_logits(logits, labels)


class LatticeStepOps(PlainStepOps):
    """Train in the clear on the lattice of the noise: what noise is added to lies on it."""

    def __init__(self, dials: Mapping[str, float], frac_bits: int) -> None:
        super().__init__(dials)
        self._units = 2.0**frac_bits

    def normalise_scale(self, value: Tensor) -> Tensor:
        """Drop the digits below the last one."""
        return torch.trunc(value * self._units) / self._units


class Counting(Generic[T]):
    """Runs another interpreter, and counts the elements that `cap` cuts off.

    A cap keeps numbers within the ring. What it cuts off changes the training without any error.

    Cost: two comparisons more for each element that could be beyond a cap.
    """

    def __init__(self, ops: ProtocolOps[T]) -> None:
        self._ops = ops
        self._found: list[T] = []
        self.elements = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._ops, name)

    def cap(self, x: T, *, bound: float) -> T:
        """Saturate at ±bound, and count where that changes something."""
        ops = self._ops
        if ops.reaches(x, bound=bound):
            x = ops.normalise_scale(x)
            flat = ops.reshape(x, (-1,))
            # Whole units in the last place: what is at the bound itself stays as it is.
            edge = -bound - 2.0**-ops.frac_bits
            for side in (flat, ops.scale(flat, -1.0)):
                self._found.append(ops.sum(ops.indicate(ops.shift(side, edge)), dim=0))
            self.elements += prod(ops.shape(x))
        return ops.cap(x, bound=bound)

    def steps(self) -> StepOps[T]:
        """Return this as what a training step asks for."""
        return cast(StepOps[T], self)

    def total(self) -> T | None:
        """Return how many elements were cut off, in all; None where none could be."""
        if not self._found:
            return None
        return self._ops.reshape(reduce(self._ops.add, self._found), (1,))


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
