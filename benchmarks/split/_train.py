"""Many small trainings side by side: on CUDA each is a recorded step, played on its own stream."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from split._tasks import Data
from torch import Tensor, nn

from tacit.ring import Prg
from tacit.split import (
    Compression,
    CutSpec,
    Defence,
    Halves,
    SplitData,
    SplitSpec,
    cut_model,
    make_model,
)
from tacit.split.defend import defence_loss, hide_labels

MODEL = {
    "mnist": "mlp",
    "fashion": "two-conv",
    "cifar10": "resnet20",
    "cifar10-full": "resnet20",
    "cifar10-half": "two-conv",
    "newsgroups": "textcnn",
    "yoochoose": "gru4rec",
}
_WARM_STEPS = 3
_LOOKS = 10
_STREAMS = 24


@dataclass(frozen=True)
class Recipe:
    """How a task is trained: passes, rows per step, largest learning rate, steps in a recording."""

    epochs: int
    batch: int
    rate: float
    at_once: int = 8


RECIPES = {
    "mnist": Recipe(20, 512, 3e-3),
    "fashion": Recipe(10, 512, 3e-3),
    "cifar10": Recipe(25, 256, 4e-3, at_once=2),
    "cifar10-full": Recipe(16, 512, 4e-3, at_once=2),
    "cifar10-half": Recipe(20, 128, 2e-3),
    "newsgroups": Recipe(20, 256, 4e-3),
    "yoochoose": Recipe(30, 512, 4e-3),
}


@dataclass(frozen=True)
class _Plan:
    """Rows per step, recordings played, steps in each, and the largest learning rate."""

    batch: int
    rounds: int
    at_once: int
    peak: float

    @property
    def total(self) -> int:
        """Return how many steps there are."""
        return _WARM_STEPS + self.rounds * self.at_once


@dataclass(frozen=True)
class Wanted:
    """One model to train; without a kind it is the task's own."""

    width: int
    seed: int
    compression: Compression = field(default_factory=Compression)
    defences: tuple[Defence, ...] = ()
    hidden: int = 0
    kind: str | None = None


Watch = Callable[[int, Halves], None]
"""Is shown every model by its number, several times while it trains."""


def train_all(
    data: Data,
    wanted: Sequence[Wanted],
    *,
    recipe: Recipe | None = None,
    epochs: int | None = None,
    watch: Watch | None = None,
) -> list[Halves]:
    """Train split models of one task; what they send is rounded and masked as on the wire.

    On CUDA they run side by side: one alone is too small to fill the device.
    """
    recipe = recipe or RECIPES[data.name]
    batch = min(recipe.batch, len(data.train_x))
    steps = (epochs or recipe.epochs) * (len(data.train_x) // batch)
    rounds = max(1, steps // recipe.at_once)
    plan = _Plan(batch=batch, rounds=rounds, at_once=recipe.at_once, peak=recipe.rate)
    if data.train_x.is_cuda:
        return _train_side_by_side(data, wanted, plan, watch)
    lanes = [_Lane(data, one, plan) for one in wanted]
    for number, lane in enumerate(lanes):
        for steps in _shares(plan.total, _LOOKS):
            lane.train(steps)
            _show(watch, number, lane)
    return [lane.halves for lane in lanes]


def _shares(total: int, parts: int) -> list[int]:
    """Split a number of steps as evenly as whole numbers allow."""
    ends = [total * (part + 1) // parts for part in range(parts)]
    return [end - start for start, end in zip([0, *ends], ends, strict=False)]


def _train_side_by_side(
    data: Data, wanted: Sequence[Wanted], plan: "_Plan", watch: Watch | None
) -> list[Halves]:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    streams = [torch.cuda.Stream() for _ in range(_STREAMS)]
    found: list[Halves] = []
    torch.cuda.empty_cache()  # what the graphs of the last call held
    looks = {plan.rounds * (look + 1) // _LOOKS for look in range(_LOOKS)}
    for start in range(0, len(wanted), _STREAMS):
        lanes = [_Lane(data, one, plan) for one in wanted[start : start + _STREAMS]]
        torch.cuda.synchronize()
        for lane, stream in zip(lanes, streams, strict=False):
            lane.record(stream)
        for number in range(1, plan.rounds + 1):
            for lane in lanes:
                lane.play()
            if number in looks:
                torch.cuda.synchronize()
                for place, lane in enumerate(lanes, start=start):
                    _show(watch, place, lane)
                torch.cuda.synchronize()
        found += [lane.finish() for lane in lanes]
    return found


def _show(watch: Watch | None, number: int, lane: "_Lane") -> None:
    if watch is not None:
        watch(number, lane.halves)
        lane.halves.bottom.train()
        lane.halves.top.train()


def accuracy(halves: Halves, data: Data) -> float:
    """Return the share of test rows that are right; for sessions, within the first 20."""
    return share_right(halves, data.name, data.test_x, data.test_y)


def share_right(halves: Halves, task: str, x: Tensor, y: Tensor) -> float:
    """Return the share of rows that are right; for sessions, within the first 20."""
    logits = halves.logits(x)
    if task != "yoochoose":
        return float((logits.argmax(1) == y).float().mean())
    return float((logits.topk(20, dim=1).indices == y[:, None]).any(1).float().mean())


class _Lane:
    """One model, its order of rows and its rates, all on the device, read by a counter there."""

    def __init__(self, data: Data, wanted: Wanted, plan: _Plan) -> None:
        device, total = data.train_x.device, plan.total
        self._defences = wanted.defences
        self._data, self._plan, self._is_cuda = data, plan, data.train_x.is_cuda
        spec = SplitSpec(
            data=SplitData(features=("owner",), labels="labels", classes=data.classes),
            split=CutSpec(compress=wanted.compression, also_defend=wanted.defences),
        )
        torch.manual_seed(wanted.seed)
        model = make_model(
            wanted.kind or MODEL[data.name],
            shape=data.shape or data.train_x.shape[1:],
            classes=data.classes,
            width=wanted.width,
            hidden=wanted.hidden,
        )
        self.halves = cut_model(model.to(device), spec, data.train_x[:2])
        prg = Prg(wanted.seed.to_bytes(16, "little"))
        self._targets = hide_labels(wanted.defences, data.train_y, data.classes, prg)
        self._generator = torch.Generator(device).manual_seed(wanted.seed)
        self._order = order_of(len(data.train_x), plan.batch, total, wanted.seed).to(device)
        shares = torch.arange(total, device=device) / total
        self._rates = plan.peak * (0.5 + 0.5 * torch.cos(math.pi * shares))
        self._at = torch.zeros(1, dtype=torch.int64, device=device)
        self._rate = torch.tensor(plan.peak, device=device)
        self._is_fast = data.name.startswith(("fashion", "cifar10", "newsgroups"))
        self._is_shifted = data.name in ("cifar10", "cifar10-full")
        if self._is_cuda:
            self._make_recordable()
        if self._is_fast:
            self.halves.bottom.to(memory_format=torch.channels_last)
        self._optimiser = torch.optim.AdamW(
            [*self.halves.bottom.parameters(), *self.halves.top.parameters()],
            lr=self._rate if self._is_cuda else plan.peak,
            weight_decay=1e-4,
            capturable=self._is_cuda,
            fused=True,
        )
        self.halves.bottom.train()
        self.halves.top.train()

    def train(self, steps: int) -> None:
        """Take the next steps as they are, without recording."""
        for _ in range(steps):
            self._optimiser.param_groups[0]["lr"] = float(self._rates[self._at])
            self._run()

    def record(self, stream: torch.cuda.Stream) -> None:
        """Take the first steps, then record a few."""
        self._stream, self._graph = stream, torch.cuda.CUDAGraph()
        with torch.cuda.stream(stream):
            for _ in range(_WARM_STEPS):
                self._run()
            self._optimiser.zero_grad(set_to_none=True)
            stream.synchronize()
            self._graph.register_generator_state(self._generator)
            # Not `torch.cuda.graph`, which collects all garbage each time.
            self._graph.capture_begin(capture_error_mode="thread_local")
            for _ in range(self._plan.at_once):
                self._run()
            self._graph.capture_end()

    def play(self) -> None:
        """Take the recorded steps."""
        with torch.cuda.stream(self._stream):
            self._graph.replay()

    def finish(self) -> Halves:
        """Return the model without what belongs to the recording."""
        self._optimiser.zero_grad(set_to_none=True)
        return self.halves

    def _make_recordable(self) -> None:
        """Swap what synchronises with the processor for what does not."""
        for name, part in list(self.halves.bottom.named_modules()):
            if isinstance(part, nn.Embedding):
                self.halves.bottom.set_submodule(name, _Lookup(part.weight))

    def _run(self) -> None:
        self._optimiser.zero_grad(set_to_none=True)
        self._rate.copy_(self._rates.index_select(0, self._at)[0])
        rows = self._order.index_select(0, self._at)[0].long()
        self._at.add_(1)
        h, y = self._bottom(self._data.train_x[rows]), self._targets[rows]
        halves = self.halves
        sent = halves.codec.apply(h, is_training=True, generator=self._generator)
        loss = nn.functional.cross_entropy(halves.top(sent), y)
        loss = loss + defence_loss(self._defences, sent, y, 0)
        if halves.codec.l1_weight:
            loss = loss + halves.codec.penalty(h)
        loss.backward()
        self._optimiser.step()

    def _bottom(self, x: Tensor) -> Tensor:
        if self._is_shifted:
            x = shift(x, self._generator)
        if not self._is_fast:
            # cuDNN's recurrent layers cannot be recorded.
            with torch.backends.cudnn.flags(enabled=self._data.name != "yoochoose"):
                return self.halves.bottom(x)
        if x.dim() == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        with torch.autocast(x.device.type, torch.bfloat16, cache_enabled=False):
            return self.halves.bottom(x).float()


class _Lookup(nn.Module):
    """An embedding whose backward pass is an addition by index: it can be recorded."""

    def __init__(self, weight: nn.Parameter) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, tokens: Tensor) -> Tensor:
        flat = self.weight.index_select(0, tokens.reshape(-1))
        return flat.view(*tokens.shape, -1) * (tokens != 0).unsqueeze(-1)


def order_of(rows: int, batch: int, total: int, seed: int) -> Tensor:
    """Return (steps, batch) rows: every epoch a new permutation, what is left over dropped."""
    generator, per_epoch = torch.Generator().manual_seed(seed), rows // batch
    epochs = [
        torch.randperm(rows, generator=generator)[: per_epoch * batch].view(per_epoch, batch)
        for _ in range(-(-total // per_epoch))
    ]
    return torch.cat(epochs)[:total].int()


def shift(x: Tensor, generator: torch.Generator) -> Tensor:
    """Move every picture by up to four pixels and mirror half of them."""
    rows, side = len(x), x.shape[-1]
    moves = torch.randint(-4, 5, (rows, 2), device=x.device, generator=generator) * (2.0 / side)
    coins = torch.randint(0, 2, (rows,), device=x.device, generator=generator)
    theta = torch.zeros(rows, 2, 3, device=x.device)
    theta[:, 0, 0], theta[:, 1, 1], theta[:, :, 2] = coins * 2.0 - 1.0, 1.0, moves
    grid = nn.functional.affine_grid(theta, list(x.shape), align_corners=False)
    return nn.functional.grid_sample(x, grid, mode="nearest", align_corners=False)
