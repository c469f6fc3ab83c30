"""The steps of an optimiser, without what torch does around them each time."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class _Lists:
    """What fused Adam works on: weights, both averages, and the counts of steps."""

    weights: list[Tensor]
    first: list[Tensor]
    second: list[Tensor]
    steps: list[Tensor]


class Stepper:
    """Takes the steps of an optimiser; those of fused Adam by its kernel alone.

    For a model of a few small tensors torch takes as long to look everything up as to step. The
    kernel, the state and so the bits are torch's. The first step, other optimisers and steps in
    which a weight has no gradient are left to torch altogether.
    """

    def __init__(self, optimiser: torch.optim.Optimizer) -> None:
        self._optimiser = optimiser
        self._lists: _Lists | None = None

    def step(self) -> None:
        """Change the weights by their gradients."""
        lists, found = self._lists, self._gradients()
        if lists is None or len(found) < len(lists.weights):
            self._optimiser.step()
            self._lists = _lists_of(self._optimiser)
            return
        group = self._optimiser.param_groups[0]
        beta1, beta2 = group["betas"]
        with torch.no_grad():
            torch._foreach_add_(lists.steps, 1)
            torch._fused_adam_(
                lists.weights,
                found,
                lists.first,
                lists.second,
                [],
                lists.steps,
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
        if self._lists is None:
            return []
        weights = self._lists.weights
        if self._optimiser.state[weights[0]].get("exp_avg") is not self._lists.first[0]:
            return []
        return [one.grad for one in weights if one.grad is not None]


def _lists_of(optimiser: torch.optim.Optimizer) -> _Lists | None:
    """Return what the kernel needs, or None where torch shall go on by itself."""
    if type(optimiser) is not torch.optim.Adam or len(optimiser.param_groups) != 1:
        return None
    group = optimiser.param_groups[0]
    weights: list[Tensor] = group["params"]
    states: list[dict[str, Any]] = [optimiser.state.get(one, {}) for one in weights]
    is_alike = len({(one.device, one.dtype) for one in weights}) == 1
    is_plain = group["fused"] and not (group["amsgrad"] or group["maximize"])
    if not (is_alike and is_plain and all("exp_avg" in one for one in states)):
        return None
    return _Lists(
        weights,
        [one["exp_avg"] for one in states],
        [one["exp_avg_sq"] for one in states],
        [one["step"] for one in states],
    )
