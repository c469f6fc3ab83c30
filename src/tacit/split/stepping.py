"""The steps of a split training: the rows of each, its optimiser, and the label owner's loss.

The gradient at the cut, which is waited for, comes before all others.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, fx, nn

from tacit.ring import Prg
from tacit.split.defend import Defence, defence_loss
from tacit.split.models import ShapedTop
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


SMALL_WEIGHTS = 1 << 16
"""Dense tops of up to so many weights go back twice, first to the cut and then to the weights: the
second way costs them next to nothing."""


@dataclass(frozen=True, eq=False)
class Scored:
    """What came of a part: logits, and the loss's gradient at every owner's cut layer.

    `finish` adds the gradients of the weights to theirs; it can be called later.
    """

    logits: Tensor
    gradients: Sequence[Tensor]
    finish: Callable[[], None]


Score = Callable[[Sequence[Tensor], int], Scored]
"""Scores the owners' cut layers (rows, width) of a part, at a step."""


class Scorer(Protocol):
    """Works out the cross-entropy of a top, and its gradients."""

    def expect(self, y: Tensor, share: float) -> Score:
        """Prepare for the part of a batch with these classes while it is on its way.

        Args:
            y: a class for every row.
            share: of the batch's rows that are in this part.
        """
        ...


def make_scorer(
    top: nn.Module,
    defences: Sequence[Defence],
    *,
    class_weights: Sequence[float] | None = None,
    sent: int | None = None,
) -> Scorer:
    """Make the fastest scorer there is for a top; all give the same but for rounding.

    Args:
        top: takes the cut layers side by side.
        defences: of the cut layers.
        class_weights: how much an error on each class counts.
        sent: how many cut layers travel, and are defended; all if not given.
    """
    layer = linear_layer(top)
    weights = None if class_weights is None else torch.tensor(class_weights)
    if layer is not None and not defences:
        return _Linear(layer, weights)
    return _Traced(top, defences, weights, sent)


def weighted_loss(logits: Tensor, y: Tensor, weights: Tensor | None) -> Tensor:
    """Return the mean cross entropy of rows, each times the weight of its class.

    The mean is over rows and not over weights: so parts of a batch add up to the whole.
    """
    if weights is None:
        return nn.functional.cross_entropy(logits, y)
    each = nn.functional.cross_entropy(logits, y, reduction="none")
    return (each * weights.to(y.device)[y]).mean()


class _Traced:
    """Any top, by autograd."""

    def __init__(
        self,
        top: nn.Module,
        defences: Sequence[Defence],
        class_weights: Tensor | None,
        sent: int | None,
    ) -> None:
        self._top, self._defences = top, defences
        self._class_weights, self._sent = class_weights, sent
        self._weights = [p for p in top.parameters() if p.requires_grad]
        is_dense = all(p.dim() <= 2 for p in self._weights)
        self._is_small = is_dense and sum(p.numel() for p in self._weights) <= SMALL_WEIGHTS

    def expect(self, y: Tensor, share: float) -> Score:
        """Prepare nothing."""
        return lambda h, step: self._score(h, y, share, step)

    def _score(self, h: Sequence[Tensor], y: Tensor, share: float, step: int) -> Scored:
        """Go back to the cut layers; to the weights on the same way unless the top is small."""
        h = [one.requires_grad_() for one in h]
        logits: Tensor = self._top(h[0] if len(h) == 1 else torch.cat(h, 1))
        loss = weighted_loss(logits, y, self._class_weights)
        for one in h[: self._sent] if self._defences else ():
            loss = loss + defence_loss(self._defences, one, y, step)
        loss = loss if share == 1 else share * loss
        if self._is_small:
            found = torch.autograd.grad(loss, h, retain_graph=True, allow_unused=True)
            return Scored(logits.detach(), _filled(h, found), lambda: self._finish(loss))
        torch.autograd.backward(loss)
        return Scored(logits.detach(), _filled(h, [one.grad for one in h]), lambda: None)

    def _finish(self, loss: Tensor) -> None:
        if self._weights:
            torch.autograd.backward(loss, inputs=self._weights)


class _Linear:
    """A top that is one linear layer: its gradients are two products, without autograd.

    The gradient at the logits is softmax − the ones at the classes, times the weight of the row's
    class, over the number of rows.
    """

    def __init__(self, layer: nn.Linear, class_weights: Tensor | None) -> None:
        self._layer, self._class_weights = layer, class_weights

    def expect(self, y: Tensor, share: float) -> Score:
        """Put the ones in their places."""
        weight = torch.full((len(y), 1), share / len(y), device=y.device)
        if self._class_weights is not None:
            weight = weight * self._class_weights.to(y.device)[y, None]
        ones = torch.zeros(len(y), self._layer.out_features, device=y.device)
        ones.scatter_(1, y[:, None], weight)
        return lambda h, step: self._score(h, ones, weight)

    def _score(self, h: Sequence[Tensor], ones: Tensor, weight: Tensor) -> Scored:
        """Take the gradient at the logits back through the layer."""
        with torch.no_grad():
            joined = h[0] if len(h) == 1 else torch.cat(list(h), 1)
            logits = nn.functional.linear(joined, self._layer.weight, self._layer.bias)
            error = logits.softmax(1).mul_(weight).sub_(ones)
            back = error @ self._layer.weight
            found = [back] if len(h) == 1 else torch.split(back, [one.shape[1] for one in h], 1)
        return Scored(logits, found, lambda: self._finish(error, joined))

    def _finish(self, error: Tensor, joined: Tensor) -> None:
        with torch.no_grad():
            _add(self._layer.weight, error.T @ joined)
            if self._layer.bias is not None:
                _add(self._layer.bias, error.sum(0))


def linear_layer(top: nn.Module) -> nn.Linear | None:
    """Return the layer that a top consists of, if that is one linear layer and nothing else."""
    if isinstance(top, ShapedTop):
        return linear_layer(top.top) if len(top.shape) == 1 else None
    if isinstance(top, fx.GraphModule):
        nodes = [node for node in top.graph.nodes if node.op not in ("placeholder", "output")]
        is_one = len(nodes) == 1 and nodes[0].op == "call_module"
        return linear_layer(top.get_submodule(str(nodes[0].target))) if is_one else None
    has_hooks = top._forward_hooks or top._forward_pre_hooks or top._backward_hooks
    is_plain = type(top) is nn.Linear and top.weight.dtype == torch.float32 and not has_hooks
    return top if isinstance(top, nn.Linear) and is_plain else None


def _filled(h: Sequence[Tensor], found: Sequence[Tensor | None]) -> list[Tensor]:
    """Put zeros where a top made no use of a cut layer."""
    pairs = zip(h, found, strict=True)
    return [torch.zeros_like(one) if gradient is None else gradient for one, gradient in pairs]


def _add(weight: Tensor, gradient: Tensor) -> None:
    if weight.requires_grad:
        weight.grad = gradient if weight.grad is None else weight.grad.add_(gradient)
