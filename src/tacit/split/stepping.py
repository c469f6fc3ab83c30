"""The steps of a split training: the rows of each, and the optimiser that takes it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tacit.ring import Prg
from tacit.split.spec import TrainingPace

_FUSED_ON = ("cpu", "cuda")
"""Where torch steps all weights at once, which saves half a millisecond a step for small models."""


@dataclass(frozen=True)
class TrainingStep:
    """One step of training: its number, its epoch, and the rows of each micro-batch."""

    number: int
    epoch: int
    parts: tuple[Tensor, ...]
    is_pause: bool

    @property
    def rows(self) -> int:
        """Return how many rows the batch has."""
        return sum(len(part) for part in self.parts)


def steps_per_epoch(rows: int, pace: TrainingPace) -> int:
    """Return how many batches the rows make; the last may be smaller."""
    return -(-rows // pace.batch)


def steps(rows: int, pace: TrainingPace, *, order: Prg, start: int = 0) -> Iterator[TrainingStep]:
    """Yield the steps from `start` on; a pause is where pipelines drain and checkpoints are.

    Every party with the same generator gets the same rows in the same order.
    """
    per_epoch = steps_per_epoch(rows, pace)
    every = pace.checkpoint_every or per_epoch
    for epoch in range(start // per_epoch, pace.epochs):
        shuffled = order.fork(f"epoch {epoch}").permutation(rows)
        for at in range(max(start - epoch * per_epoch, 0), per_epoch):
            batch = shuffled[at * pace.batch : (at + 1) * pace.batch]
            number = epoch * per_epoch + at
            is_last = at == per_epoch - 1
            yield TrainingStep(
                number,
                epoch,
                tuple(batch.tensor_split(min(pace.micro_batches, len(batch)))),
                is_last or (number + 1) % every == 0,
            )


def make_optimiser(
    module: nn.Module, pace: TrainingPace, *, rate: float | None = None
) -> torch.optim.Optimizer:
    """Make the optimiser of one side; a side without parameters gets one that does nothing.

    Args:
        module: that side of the model.
        pace: says which optimiser, and how fast.
        rate: of this side, if it is not `pace.rate`.
    """
    rate = pace.rate if rate is None else rate
    weights = [p for p in module.parameters() if p.requires_grad]
    if not weights:
        weights = [nn.Parameter(torch.zeros(()))]
    if pace.optimiser == "adam":
        return torch.optim.Adam(
            weights,
            lr=rate,
            weight_decay=pace.weight_decay,
            fused=all(p.is_floating_point() and p.device.type in _FUSED_ON for p in weights),
        )
    return torch.optim.SGD(weights, lr=rate, momentum=0.9, weight_decay=pace.weight_decay)


class Stepper:
    """Takes the steps of an optimiser; those of fused Adam by its kernel alone.

    For a model of a few small tensors torch takes as long to look everything up as to step. The
    kernel, the state and so the bits are torch's. The first step, other optimisers and steps in
    which a weight has no gradient are left to torch altogether.
    """

    def __init__(self, optimiser: torch.optim.Optimizer) -> None:
        self._optimiser = optimiser
        self._lists: tuple[list[Tensor], ...] = ()  # weights, both averages, counts of steps

    def step(self) -> None:
        """Change the weights by their gradients."""
        found = self._gradients()
        if not found or len(found) < len(self._lists[0]):
            self._optimiser.step()
            self._lists = _lists_of(self._optimiser)
            return
        weights, first, second, steps = self._lists
        group = self._optimiser.param_groups[0]
        beta1, beta2 = group["betas"]
        with torch.no_grad():
            torch._foreach_add_(steps, 1)
            torch._fused_adam_(
                weights,
                found,
                first,
                second,
                [],
                steps,
                lr=group["lr"],
                beta1=beta1,
                beta2=beta2,
                weight_decay=group["weight_decay"],
                eps=group["eps"],
                amsgrad=False,
                maximize=False,
            )

    def _gradients(self) -> list[Tensor]:
        """Return the gradients there are, or none if the state is not the one we know."""
        if not self._lists:
            return []
        weights, first, *_ = self._lists
        if self._optimiser.state[weights[0]].get("exp_avg") is not first[0]:
            return []
        return [one.grad for one in weights if one.grad is not None]


def _lists_of(optimiser: torch.optim.Optimizer) -> tuple[list[Tensor], ...]:
    """Return what the kernel needs, or nothing where torch shall go on by itself."""
    if type(optimiser) is not torch.optim.Adam or len(optimiser.param_groups) != 1:
        return ()
    group = optimiser.param_groups[0]
    weights: list[Tensor] = group["params"]
    states: list[dict[str, Any]] = [optimiser.state.get(one, {}) for one in weights]
    is_alike = len({(one.device, one.dtype) for one in weights}) == 1
    is_plain = group["fused"] and not (group["amsgrad"] or group["maximize"])
    if not (is_alike and is_plain and all("exp_avg" in one for one in states)):
        return ()
    names = ("exp_avg", "exp_avg_sq", "step")
    return (weights, *([one[name] for one in states] for name in names))
