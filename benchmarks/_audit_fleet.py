"""Shadow models side by side on one device: stacked weights, one step for many models."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, stack_module_state, vmap


class Block(nn.Module):
    """Two convolutions and a way past them; group norm, as statistics of batches do not stack."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inside, outside, 3, stride, padding=1, bias=False)
        self.first_norm = nn.GroupNorm(4, outside)
        self.second = nn.Conv2d(outside, outside, 3, padding=1, bias=False)
        self.second_norm = nn.GroupNorm(4, outside)
        self.past = nn.Conv2d(inside, outside, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum of both ways."""
        inner = torch.relu(self.first_norm(self.first(x)))
        return torch.relu(self.second_norm(self.second(inner)) + self.past(x))


def small_resnet(channels: int, classes: int, width: int) -> nn.Module:
    """Build a residual network of eight layers."""
    return nn.Sequential(
        nn.Conv2d(channels, width, 3, padding=1, bias=False),
        nn.GroupNorm(4, width),
        nn.ReLU(),
        Block(width, width, 1),
        Block(width, 2 * width, 2),
        Block(2 * width, 4 * width, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
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


def train_stacked(
    build: Callable[[], nn.Module],
    x: Tensor,
    y: Tensor,
    coins: Tensor,
    recipe: Recipe,
    *,
    seed: int,
    note: Callable[[str], None],
) -> Tensor:
    """Train a model per row of `coins` at once; return (models, rows, classes) answers, in logs."""
    torch.manual_seed(seed)
    models = [build().to(x.device) for _ in range(len(coins))]
    weights, _ = stack_module_state(models)  # type: ignore[arg-type]
    weights = {name: value.detach() for name, value in weights.items()}
    speed = {name: torch.zeros_like(value) for name, value in weights.items()}
    base = models[0].to("meta")

    def loss(parameters: dict[str, Tensor], rows: Tensor, labels: Tensor) -> Tensor:
        logits = functional_call(base, parameters, (rows,))
        return nn.functional.cross_entropy(logits.float(), labels)

    slope = vmap(grad(loss))
    steps = int(coins.sum(1).min()) // recipe.batch
    total, done, begun = steps * recipe.epochs, 0, time.perf_counter()
    kind = torch.bfloat16 if x.is_cuda else torch.float32
    for epoch in range(recipe.epochs):
        orders = torch.stack([_shuffle(coin, steps * recipe.batch) for coin in coins]).to(x.device)
        for at in range(steps):
            rows = orders[:, at * recipe.batch : (at + 1) * recipe.batch]
            rate = recipe.rate * 0.5 * (1 + torch.cos(torch.tensor(torch.pi * done / total)).item())
            with torch.autocast(x.device.type, kind, enabled=x.is_cuda):
                slopes = slope(weights, x[rows], y[rows])
            for name, value in weights.items():
                step = slopes[name] + recipe.weight_decay * value
                speed[name].mul_(recipe.momentum).add_(step)
                value.sub_(speed[name], alpha=rate)
            done += 1
        if epoch % 10 == 9:
            note(f"epoch {epoch + 1}, {time.perf_counter() - begun:.1f} s")
    return _answers(base, weights, x)


def _shuffle(coin: Tensor, count: int) -> Tensor:
    rows = torch.nonzero(coin.cpu()).view(-1)
    return rows[torch.randperm(len(rows))[:count]]


def _answers(base: nn.Module, weights: dict[str, Tensor], x: Tensor) -> Tensor:
    ask = vmap(lambda parameters, rows: functional_call(base, parameters, (rows,)), (0, None))
    with torch.no_grad():
        parts = [ask(weights, rows).float().cpu() for rows in torch.split(x, 500)]
    return torch.log_softmax(torch.cat(parts, dim=1), dim=-1)
