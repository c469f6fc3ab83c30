"""A fast loop for many small trainings: on CUDA one step is recorded once and played back."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from _split_tasks import Data
from torch import Tensor, nn

from tacit.learn.split import Compression, Defence, Halves, SplitTask, halve
from tacit.learn.split.defend import defence_loss, hide_labels
from tacit.ring import Prg

MODEL = {
    "mnist": "mlp",
    "fashion": "two-conv",
    "cifar10": "resnet20",
    "newsgroups": "textcnn",
    "yoochoose": "gru4rec",
}


@dataclass(frozen=True)
class Recipe:
    """How a task is trained: passes, rows per step, largest learning rate."""

    epochs: int
    batch: int
    rate: float


RECIPES = {
    "mnist": Recipe(20, 256, 2e-3),
    "fashion": Recipe(20, 256, 2e-3),
    "cifar10": Recipe(60, 128, 3e-3),
    "newsgroups": Recipe(12, 128, 2e-3),
    "yoochoose": Recipe(15, 256, 2e-3),
}


def train(
    data: Data,
    *,
    width: int,
    seed: int,
    compression: Compression | None = None,
    defences: tuple[Defence, ...] = (),
    cut: str = "cut",
    epochs: int | None = None,
) -> Halves:
    """Train one split model; its cut layer is rounded and masked as it would be on the wire."""
    recipe = RECIPES[data.name]
    task = SplitTask(
        feature_owners=("owner",),
        label_owner="labels",
        classes=data.classes,
        cut=cut,
        compression=compression or Compression(),
        defences=defences,
    )
    torch.manual_seed(seed)
    halves = halve(MODEL[data.name], task, data.train_x[:2], width=width, shape=data.shape)
    prg = Prg(seed.to_bytes(16, "little"))
    targets = hide_labels(defences, data.train_y, data.classes, prg)
    batch = min(recipe.batch, len(data.train_x))
    loop = _Loop(task, halves, data, targets, batch, recipe.rate)
    per_epoch = len(data.train_x) // batch
    total = (epochs or recipe.epochs) * per_epoch
    for epoch in range(epochs or recipe.epochs):
        order = torch.randperm(len(data.train_x), device=data.train_x.device)
        for at in range(per_epoch):
            loop.step(order[at * batch : (at + 1) * batch], (epoch * per_epoch + at) / total)
    return halves


class _Loop:
    def __init__(
        self, task: SplitTask, halves: Halves, data: Data, targets: Tensor, batch: int, rate: float
    ) -> None:
        self._task, self._halves, self._data, self._targets = task, halves, data, targets
        self._is_cuda = data.train_x.is_cuda
        self._peak = rate
        weights = [*halves.bottom.parameters(), *halves.top.parameters()]
        # On CUDA the rate is a tensor: a recorded step reads it from memory each time.
        self._rate = torch.tensor(rate, device=data.train_x.device)
        self._optimiser = torch.optim.AdamW(
            weights,
            lr=self._rate if self._is_cuda else rate,
            weight_decay=1e-4,
            capturable=self._is_cuda,
        )
        self._rows = torch.zeros(batch, dtype=torch.int64, device=data.train_x.device)
        self._play: Callable[[], None] = self._run
        halves.bottom.train()
        halves.top.train()
        self._warm = 3 if self._is_cuda else -1
        self._side = torch.cuda.Stream() if self._is_cuda else None

    def step(self, rows: Tensor, share: float) -> None:
        rate = self._peak * (0.5 + 0.5 * math.cos(math.pi * share))
        self._rows.copy_(rows)
        if not self._is_cuda:
            self._optimiser.param_groups[0]["lr"] = rate
            self._run()
            return
        self._rate.fill_(rate)
        if self._warm > 0:
            self._warm -= 1
            self._side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._side):
                self._run()
            torch.cuda.current_stream().wait_stream(self._side)
        elif self._warm == 0:
            self._warm = -1
            self._record()
            self._play()
        else:
            self._play()

    def _record(self) -> None:
        """Record one step; what cannot be recorded is run as it is."""
        graph = torch.cuda.CUDAGraph()
        self._optimiser.zero_grad(set_to_none=True)
        try:
            with torch.cuda.graph(graph):
                self._run()
            self._play = graph.replay
        except RuntimeError as error:
            print(f"{self._data.name}: the step is not recorded: {error}", flush=True)

    def _run(self) -> None:
        self._optimiser.zero_grad(set_to_none=True)
        x, y = self._data.train_x[self._rows], self._targets[self._rows]
        if self._data.name == "cifar10":
            x = _shift(x)
        halves = self._halves
        h = halves.bottom(x)
        sent = halves.codec.apply(h, is_training=True)
        loss = nn.functional.cross_entropy(halves.top(sent), y)
        loss = loss + defence_loss(self._task.defences, sent, y, 0)
        if halves.codec.l1_weight:
            loss = loss + halves.codec.penalty(h)
        loss.backward()
        self._optimiser.step()


def _shift(x: Tensor) -> Tensor:
    """Move every picture by up to four pixels and mirror half of them."""
    rows, side = len(x), x.shape[-1]
    moves = torch.randint(-4, 5, (rows, 2), device=x.device) * (2.0 / side)
    mirror = torch.randint(0, 2, (rows,), device=x.device) * 2.0 - 1.0
    theta = torch.zeros(rows, 2, 3, device=x.device)
    theta[:, 0, 0], theta[:, 1, 1], theta[:, :, 2] = mirror, 1.0, moves
    grid = nn.functional.affine_grid(theta, list(x.shape), align_corners=False)
    return nn.functional.grid_sample(x, grid, mode="nearest", align_corners=False)


def accuracy(halves: Halves, data: Data) -> float:
    """Return the share of test rows that are right; for sessions, within the first 20."""
    logits = halves.logits(data.test_x)
    if data.name != "yoochoose":
        return float((logits.argmax(1) == data.test_y).float().mean())
    return float((logits.topk(20, dim=1).indices == data.test_y[:, None]).any(1).float().mean())
