"""Over-fitted residual networks, one after the other, on one device as fast as it goes."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn


class Block(nn.Module):
    """Two convolutions and a way past them."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv2d(inside, outside, 3, stride, padding=1, bias=False),
            *(nn.BatchNorm2d(outside), nn.ReLU()),
            nn.Conv2d(outside, outside, 3, padding=1, bias=False),
            nn.BatchNorm2d(outside),
        )
        self.past = nn.Conv2d(inside, outside, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum of both ways."""
        return torch.relu(self.inner(x) + self.past(x))


def small_resnet(channels: int, classes: int, width: int) -> nn.Module:
    """Build a residual network of eight layers."""
    return nn.Sequential(
        nn.Conv2d(channels, width, 3, padding=1, bias=False),
        *(nn.BatchNorm2d(width), nn.ReLU()),
        Block(width, width, 1),
        Block(width, 2 * width, 2),
        Block(2 * width, 4 * width, 2),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        nn.Linear(4 * width, classes),
    )


@dataclass(frozen=True)
class Recipe:
    """How every model is trained: long, without augmentation, so that it over-fits."""

    epochs: int
    batch: int
    rate: float
    momentum: float = 0.9
    weight_decay: float = 5e-4


class Bench:
    """One model on the device whose step is recorded once and replayed for every shadow model."""

    def __init__(
        self, build: Callable[[], nn.Module], x: Tensor, y: Tensor, recipe: Recipe
    ) -> None:
        self.build, self.recipe, self.y = build, recipe, y
        self.x = x.contiguous(memory_format=torch.channels_last)
        self.model = build().to(x.device).to(memory_format=torch.channels_last)
        self.parameters = list(self.model.parameters())
        self.speed = [torch.zeros_like(p) for p in self.parameters]
        self.rows = torch.zeros(recipe.batch, dtype=torch.long, device=x.device)
        self.rate = torch.zeros((), device=x.device)
        self.replay = self._record() if x.is_cuda else self._step

    def train(self, coin: Tensor, *, seed: int) -> Tensor:
        """Train on the rows of a coin and return (rows, classes) answers on all, in logs."""
        torch.manual_seed(seed)
        self.model.load_state_dict(self.build().state_dict())
        self.model.train()
        for one in self.speed:
            one.zero_()
        for rows, rate in self._batches(coin, seed):
            self.rows.copy_(rows)
            self.rate.fill_(-rate)
            self.replay()
        self.model.eval()
        with torch.no_grad():
            parts = [self.model(rows).float() for rows in torch.split(self.x, 1000)]
        return torch.log_softmax(torch.cat(parts).double(), dim=-1).float().cpu()

    def _batches(self, coin: Tensor, seed: int) -> Iterator[tuple[Tensor, float]]:
        inside = torch.nonzero(coin).view(-1)
        batch, epochs = self.recipe.batch, self.recipe.epochs
        steps = len(inside) // batch
        generator = torch.Generator().manual_seed(seed)
        for epoch in range(epochs):
            order = inside[torch.randperm(len(inside), generator=generator)].to(self.x.device)
            for at in range(steps):
                share = (epoch * steps + at) / (steps * epochs)
                rate = self.recipe.rate * min(1.0, 10 * share + 0.05) * (1 - share)
                yield order[at * batch : (at + 1) * batch], rate

    def _step(self) -> None:
        kind = torch.bfloat16 if self.x.is_cuda else torch.float32
        place = self.x.device.type
        # The cache of cast weights would be frozen into the recording.
        with torch.autocast(place, kind, enabled=self.x.is_cuda, cache_enabled=False):
            logits = self.model(self.x[self.rows])
        loss = nn.functional.cross_entropy(logits.float(), self.y[self.rows])
        slopes = list(torch.autograd.grad(loss, self.parameters))
        with torch.no_grad():
            torch._foreach_add_(slopes, self.parameters, alpha=self.recipe.weight_decay)
            torch._foreach_mul_(self.speed, self.recipe.momentum)
            torch._foreach_add_(self.speed, slopes)
            torch._foreach_add_(self.parameters, torch._foreach_mul(self.speed, self.rate))

    def _record(self) -> Callable[[], None]:
        """Run a few steps at rate 0, then record one; without recording it is only slower."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self._step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                self._step()
        except RuntimeError:
            return self._step
        return graph.replay


def train_fleet(
    bench: Bench, coins: Tensor, *, seconds: float, note: Callable[[str], None]
) -> Iterator[Tensor]:
    """Train a model per row of `coins`, until the time is up; pairs of models are kept whole."""
    begun = time.perf_counter()
    for number, coin in enumerate(coins):
        if number % 2 == 0 and time.perf_counter() - begun > seconds:
            return
        yield bench.train(coin, seed=number)
        if number % 8 == 0:
            note(f"model {number + 1} of {len(coins)}, {time.perf_counter() - begun:.1f} s")
