"""One picture model after the other, as fast as a device can: compiled, and its steps recorded.

A process keeps one model and fills it with new first weights for every training, so that it is
compiled once.
"""

import contextlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from split._tasks import Data
from split._train import order_of, shift
from torch import Tensor, nn

from tacit.split import (
    Compression,
    Halves,
    SplitData,
    SplitSpec,
    cut_model,
    make_codec,
    make_model,
)

_WARM_STEPS = 3
_SERVED = 2500
Watch = Callable[[float, Halves], None]
"""Is shown the model after every epoch, with the number of the epoch."""


@dataclass(frozen=True)
class Recipe:
    """How pictures are trained; all compressors alike.

    Attributes:
        epochs: passes over the rows.
        batch: rows of a step.
        rate: the largest learning rate.
        optimiser: "sgd" with momentum 0.9, or "adamw".
        decay: of the weights.
        is_falling: whether the rate falls as a cosine; else it stays.
        is_shifted: whether pictures are moved and mirrored.
        at_once: steps in a recording.
    """

    epochs: int = 20
    batch: int = 128
    rate: float = 0.05
    optimiser: str = "sgd"
    decay: float = 5e-4
    is_falling: bool = True
    is_shifted: bool = False
    at_once: int = 5

    def rates(self, steps: int) -> Tensor:
        """Return the rate of every step; the first two hundredths rise to the largest."""
        share = torch.arange(steps) / steps
        falling = 0.5 + 0.5 * torch.cos(math.pi * share) if self.is_falling else 1.0
        return self.rate * falling * (share / 0.02 + 1 / steps).clamp(max=1)


class Trainer:
    """Trains models of one kind and width, one at a time."""

    def __init__(self, data: Data, *, kind: str, width: int, recipe: Recipe, is_fast: bool) -> None:
        self._data, self._kind, self._width, self._recipe = data, kind, width, recipe
        self._device = data.train_x.device
        self._is_cuda, self.is_fast = data.train_x.is_cuda, is_fast and data.train_x.is_cuda
        self._whole = self._fresh(seed=0)
        self._start: Callable[[Tensor], Tensor] = self._forward
        if self.is_fast:
            self._whole.bottom.to(memory_format=torch.channels_last)
            self._start = torch.compile(self._forward)

    def train(
        self, compression: Compression, seed: int, rows: Tensor, watch: Watch, *, until: float
    ) -> Halves:
        """Train one model on the rows named, from first weights that depend on the seed alone.

        Nothing new is begun after `until`, by the monotonic clock.
        """
        halves = self._reset(compression, seed)
        per_epoch = len(rows) // self._recipe.batch
        steps = self._recipe.epochs * per_epoch
        order = rows[order_of(len(rows), self._recipe.batch, steps, seed).long().to(rows.device)]
        stepper = _Stepper(self._data, halves, self._start, self._recipe, order, seed)
        advance, done = self._recorded(stepper)
        looked = 0
        while done + self._recipe.at_once <= steps and time.monotonic() < until:
            advance()
            done += self._recipe.at_once
            if done // per_epoch > looked or done + self._recipe.at_once > steps:
                looked = done // per_epoch
                watch(done / per_epoch, halves)
                halves.bottom.train()
                halves.top.train()
        return halves

    def share_right(self, halves: Halves, x: Tensor, y: Tensor) -> float:
        """Return the share of rows that are right, served as while training."""
        halves.bottom.eval()
        halves.top.eval()
        right = torch.zeros((), device=x.device)
        with torch.no_grad():
            for rows, wanted in zip(x.split(_SERVED), y.split(_SERVED), strict=True):
                sent = halves.codec.apply(self._forward(rows), is_training=False)
                right += (halves.top(sent).argmax(1) == wanted).sum()
        return float(right) / len(x)

    def _forward(self, x: Tensor) -> Tensor:
        if not self._is_cuda:
            return self._whole.bottom(x)
        x = x.contiguous(memory_format=torch.channels_last)
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            return self._whole.bottom(x).float()

    def _fresh(self, seed: int) -> Halves:
        rows, classes = self._data.train_x, self._data.classes
        task = SplitSpec(data=SplitData(features=("owner",), labels="labels", classes=classes))
        torch.manual_seed(seed)
        row = rows.shape[1:]
        model = make_model(self._kind, shape=row, classes=classes, width=self._width)
        return cut_model(model.to(rows.device), task, rows[:2])

    def _reset(self, compression: Compression, seed: int) -> Halves:
        new = self._fresh(seed)
        with torch.no_grad():
            for part in ("bottom", "top"):
                mine, theirs = getattr(self._whole, part), getattr(new, part)
                for name, tensor in mine.state_dict().items():
                    tensor.copy_(theirs.state_dict()[name])
                mine.zero_grad(set_to_none=True)
                mine.train()
        codec = make_codec(compression, self._width)
        return Halves(bottom=self._whole.bottom, top=self._whole.top, codec=codec)

    def _recorded(self, stepper: "_Stepper") -> tuple[Callable[[], None], int]:
        """Return what takes the next few steps, and how many were taken."""
        at_once = self._recipe.at_once

        def plain() -> None:
            for _ in range(at_once):
                stepper.step()

        if not self._is_cuda:
            return plain, 0
        torch.cuda.synchronize()
        stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        with torch.cuda.stream(stream):
            for _ in range(_WARM_STEPS):
                stepper.step()
            stepper.forget()
            stream.synchronize()
            graph.register_generator_state(stepper.generator)
            graph.capture_begin(capture_error_mode="thread_local")
            plain()
            graph.capture_end()
        torch.cuda.synchronize()
        return graph.replay, _WARM_STEPS


class _Stepper:
    """Takes steps; where it stands is on the device, so that a recording can go on from there."""

    def __init__(
        self,
        data: Data,
        halves: Halves,
        start: Callable[[Tensor], Tensor],
        recipe: Recipe,
        order: Tensor,
        seed: int,
    ) -> None:
        device = data.train_x.device
        self._data, self._halves, self._start, self._recipe = data, halves, start, recipe
        self._order, self._rates = order, recipe.rates(len(order)).to(device)
        self._at = torch.zeros(1, dtype=torch.int64, device=device)
        self.generator = torch.Generator(device).manual_seed(seed)
        self._weights = [*halves.bottom.parameters(), *halves.top.parameters()]
        self._speeds = [torch.zeros_like(one) for one in self._weights]
        self._rate = torch.zeros((), device=device)
        self._adam = None
        if recipe.optimiser == "adamw":
            self._adam = torch.optim.AdamW(
                self._weights,
                lr=self._rate,
                weight_decay=recipe.decay,
                capturable=data.train_x.is_cuda,
                fused=data.train_x.is_cuda,
            )

    def step(self) -> None:
        """Take the next batch and move the weights."""
        for one in self._weights:
            one.grad = None
        rows = self._order.index_select(0, self._at)[0]
        self._rate.copy_(self._rates.index_select(0, self._at)[0])
        self._at.add_(1)
        x, y = self._data.train_x[rows], self._data.train_y[rows]
        if self._recipe.is_shifted:
            x = shift(x, self.generator)
        halves = self._halves
        sent = halves.codec.apply(self._start(x), is_training=True, generator=self.generator)
        nn.functional.cross_entropy(halves.top(sent), y).backward()
        if self._adam is not None:
            self._adam.step()
        else:
            self._sgd()

    def forget(self) -> None:
        """Drop the gradients, whose memory a recording must own."""
        for one in self._weights:
            one.grad = None

    def _sgd(self) -> None:
        with torch.no_grad():
            slopes = [one.grad for one in self._weights if one.grad is not None]
            weights = [one for one in self._weights if one.grad is not None]
            speeds = [
                speed
                for one, speed in zip(self._weights, self._speeds, strict=True)
                if one.grad is not None
            ]
            slopes = torch._foreach_add(slopes, weights, alpha=self._recipe.decay)
            torch._foreach_mul_(speeds, 0.9)
            torch._foreach_add_(speeds, slopes)
            torch._foreach_sub_(weights, torch._foreach_mul(speeds, self._rate))


def make_trainer(data: Data, *, kind: str, width: int, recipe: Recipe) -> Trainer:
    """Make a trainer that is compiled where that works, else one that is not."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    if data.train_x.is_cuda:
        with contextlib.suppress(RuntimeError, OSError):
            trainer = Trainer(data, kind=kind, width=width, recipe=recipe, is_fast=True)
            trainer._start(data.train_x[: recipe.batch]).sum().backward()
            return trainer
    return Trainer(data, kind=kind, width=width, recipe=recipe, is_fast=False)
