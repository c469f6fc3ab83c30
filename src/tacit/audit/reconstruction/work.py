"""What a client does with a model before it answers: one gradient, or several local steps."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad

from tacit.errors import ConfigError

Update = tuple[Tensor, ...]
"""One tensor per trainable parameter, in the model's order."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """The public terms of a round.

    Args:
        steps: gradient steps; 1 is a plain gradient.
        rate: of these steps.
        batch: rows of one step, taken in order and from the start again; None takes all rows.
    """

    steps: int = 1
    rate: float = 0.1
    batch: int | None = None

    def __post_init__(self) -> None:
        if self.steps < 1 or not self.rate > 0 or (self.batch or 1) < 1:
            raise ConfigError(f"steps, rate and batch must be positive, got {self}")


GRADIENT = Work()


def do_work(model: nn.Module, rows: Tensor, labels: Tensor, work: Work) -> Update:
    """Return the mean gradient along the local steps: what moved the model, per step and rate.

    Labels are class numbers or, as rows of probabilities, guesses of them. The update can be
    differentiated by rows and labels, forwards and backwards, as attacks need it.
    """
    now = {n: p.detach() for n, p in model.named_parameters() if p.requires_grad}
    total = [torch.zeros_like(p) for p in now.values()]
    for step in range(work.steps):
        gradients = grad(_loss)(now, model, *_batch(rows, labels, work, step))
        total = [t + g for t, g in zip(total, gradients.values(), strict=True)]
        now = {n: p - work.rate * gradients[n] for n, p in now.items()}
    return tuple(t / work.steps for t in total)


def _loss(weights: dict[str, Tensor], model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return nn.functional.cross_entropy(functional_call(model, weights, (x,)), y)


def _batch(rows: Tensor, labels: Tensor, work: Work, step: int) -> tuple[Tensor, Tensor]:
    if work.batch is None or work.batch >= len(rows):
        return rows, labels
    chosen = (torch.arange(work.batch) + step * work.batch) % len(rows)
    chosen = chosen.to(rows.device)
    return rows[chosen], labels[chosen]
