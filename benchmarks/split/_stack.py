"""Many small models of one task as one stack: a step of all of them is a few large kernels."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from split._tasks import Data
from split._train import MODEL, Wanted, order_of, share_right
from torch import Tensor, nn

from tacit.split import CutSpec, Halves, SplitData, SplitSpec, cut_model, make_model

Weights = dict[str, Tensor]
_WARM_STEPS = 3
_LARGEST_LOOK = 1 << 14  # rows of all models together
HITS = 20
"""Sessions are scored by whether the next item is among so many."""


@dataclass(frozen=True)
class Recipe:
    """How a stack is trained; all of its models alike.

    Attributes:
        batch: rows per step.
        epochs: at most.
        looks: per epoch.
        rate: the largest learning rate of the feature owner's part.
        label_rate: of the label owner's part, if it is not the same.
        is_falling: whether both fall as a cosine; else they stay.
        dropout: share of a session's embedded numbers that a step does not see.
        is_bent: whether logits pass an ELU, as GRU4Rec's often do; then nothing is known of how
            common the items are at the start.
        at_once: steps in a recording.
    """

    batch: int
    epochs: int
    looks: float
    rate: float = 1e-3
    label_rate: float | None = None
    is_falling: bool = False
    dropout: float = 0.0
    is_bent: bool = False
    at_once: int = 4

    def shares(self, steps: int) -> Tensor:
        """Return for every step the share of the largest rate."""
        if not self.is_falling:
            return torch.ones(steps)
        return 0.5 + 0.5 * torch.cos(math.pi * torch.arange(steps) / steps)


RECIPES = {
    "mnist": Recipe(128, 30, 1),
    "fashion": Recipe(128, 30, 1),
    "newsgroups": Recipe(64, 40, 1),
    "yoochoose": Recipe(128, 30, 1),
}


@dataclass(frozen=True)
class Standing:
    """What is known of a stack so far: per model, at the look that was best on held-out rows."""

    epochs: float
    accuracy: list[float]
    held_out: list[float]
    best_epoch: list[float]
    last: list[float]


class Stack:
    """Models of one task, seeds side by side for every compressor.

    Early stopping as in the thesis: of all looks the one counts that is best on a tenth of the
    rows, held out.
    """

    def __init__(
        self, data: Data, wanted: Sequence[Wanted], recipe: Recipe, *, is_recorded: bool
    ) -> None:
        self._data, self._recipe, self._wanted = data, recipe, tuple(wanted)
        self._seeds = list(dict.fromkeys(one.seed for one in wanted))
        if [one.seed for one in wanted] != self._seeds * (len(wanted) // len(self._seeds)):
            raise ValueError("wanted the same seeds in the same order for every compressor")
        device = data.train_x.device
        self.halves = [fresh(data, one) for one in wanted]
        self._bottom = _stacked([one.bottom for one in self.halves], device)
        self._top = _stacked([one.top for one in self.halves], device)
        if recipe.is_bent:
            self._top["top.head.bias"].data.zero_()
        splits = [_split(len(data.train_x), seed) for seed in self._seeds]
        self._out = torch.stack([out for out, _ in splits]).to(device)  # (seeds, held out)
        self._per_epoch = len(splits[0][1]) // recipe.batch
        self._order = torch.stack(
            [
                left[order_of(len(left), recipe.batch, recipe.epochs * self._per_epoch, seed)]
                for (_, left), seed in zip(splits, self._seeds, strict=True)
            ],
            1,
        ).to(device)  # (steps, seeds, batch)
        self._at = torch.zeros(1, dtype=torch.int64, device=device)
        self._generator = torch.Generator(device).manual_seed(self._seeds[0])
        self._shares = recipe.shares(len(self._order)).to(device)
        label_rate = recipe.rate if recipe.label_rate is None else recipe.label_rate
        self._peaks = torch.tensor([recipe.rate, label_rate], device=device)
        self._rates = [one.clone() for one in self._peaks]
        self._optimiser = torch.optim.Adam(
            [
                {"params": list(part.values()), "lr": rate}
                for part, rate in zip((self._bottom, self._top), self._rates, strict=True)
            ],
            capturable=device.type == "cuda",
            fused=True,
        )
        self._is_recorded = is_recorded and device.type == "cuda"
        self._best = torch.full((3, len(wanted)), -1.0, device=device)  # held out, test, epoch

    def train(self, *, seconds: float, watch: Callable[[Standing], None]) -> None:
        """Train until the epochs or the seconds are over, and show where it stands."""
        began, steps = time.monotonic(), self._recipe.epochs * self._per_epoch
        every = max(1, round(self._per_epoch / self._recipe.looks))
        advance, done = self._start()
        while done + self._recipe.at_once <= steps:
            advance()
            done += self._recipe.at_once
            is_over = done + self._recipe.at_once > steps
            if done % every < self._recipe.at_once or is_over:
                watch(self._look(done / self._per_epoch))
                if time.monotonic() - began > seconds:
                    return

    def library_accuracies(self, models: Sequence[int]) -> list[float]:
        """Return what the library's own models and serving path make of the last weights."""
        data, found = self._data, []
        for number in models:
            halves = self.halves[number]
            for part, weights in ((halves.bottom, self._bottom), (halves.top, self._top)):
                part.load_state_dict({name: one[number] for name, one in weights.items()})
                part.to(data.test_x.device)
            found.append(share_right(halves, data.name, data.test_x, data.test_y))
        return found

    def _start(self) -> tuple[Callable[[], None], int]:
        """Take the first steps; return what takes the next few, and how many were taken."""
        if not self._is_recorded:
            return lambda: [self._step() for _ in range(self._recipe.at_once)] and None, 0
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.cuda.synchronize()
        stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        with torch.cuda.stream(stream):
            for _ in range(_WARM_STEPS):
                self._step()
            self._optimiser.zero_grad(set_to_none=True)
            stream.synchronize()
            graph.register_generator_state(self._generator)
            graph.capture_begin(capture_error_mode="thread_local")
            for _ in range(self._recipe.at_once):
                self._step()
            graph.capture_end()
        torch.cuda.synchronize()
        return graph.replay, _WARM_STEPS

    def _step(self) -> None:
        self._optimiser.zero_grad(set_to_none=True)
        rows = self._order.index_select(0, self._at)[0].long()  # (seeds, batch)
        share = self._shares.index_select(0, self._at)[0]
        for rate, peak in zip(self._rates, self._peaks, strict=True):
            rate.copy_(peak * share)
        self._at.add_(1)
        logits = self._logits(self._spread(self._data.train_x[rows]), is_training=True)
        y = self._spread(self._data.train_y[rows])
        losses = nn.functional.cross_entropy(
            logits.flatten(0, 1), y.flatten(), reduction="none"
        ).view(y.shape)
        losses.mean(1).sum().backward()
        self._optimiser.step()

    def _logits(self, x: Tensor, *, is_training: bool) -> Tensor:
        """Return (models, rows, classes) for (models, rows, …)."""
        dropped = self._recipe.dropout if is_training else 0.0
        h = BOTTOMS[self._data.name](self._bottom, x, _Thinner(dropped, self._generator))
        seeds = len(self._seeds)
        sent = [
            self.halves[at].codec.apply(
                h[at : at + seeds], is_training=is_training, generator=self._generator
            )
            for at in range(0, len(h), seeds)
        ]
        logits = _linear(self._top, "top.head", torch.cat(sent))
        return nn.functional.elu(logits) if self._recipe.is_bent else logits

    def _spread(self, x: Tensor) -> Tensor:
        """Repeat what is there for every seed for every compressor."""
        cells = len(self._wanted) // len(self._seeds)
        return x.expand(cells, *x.shape).flatten(0, 1)

    def _look(self, epoch: float) -> Standing:
        data, test = self._data, torch.arange(len(self._data.test_x), device=self._at.device)
        out = self._share_right(data.train_x, data.train_y, self._out)
        last = self._share_right(data.test_x, data.test_y, test.expand(len(self._seeds), -1))
        now = torch.stack([out, last, torch.full_like(out, epoch)])
        self._best = torch.where(out > self._best[0], now, self._best)
        held_out, accuracy, best_epoch = self._best.tolist()
        return Standing(epoch, accuracy, held_out, best_epoch, last.tolist())

    def _share_right(self, x: Tensor, y: Tensor, rows: Tensor) -> Tensor:
        """Return the share of the rows (seeds, n) that every model gets right."""
        right = torch.zeros(len(self._wanted), device=x.device)
        with torch.no_grad():
            for part in rows.split(max(1, _LARGEST_LOOK // len(self._wanted)), dim=1):
                logits = self._logits(self._spread(x[part]), is_training=False)
                right += _hits(self._data.name, logits, self._spread(y[part])).sum(1)
        return right / rows.shape[1]


def fresh(data: Data, wanted: Wanted) -> Halves:
    task = SplitSpec(
        data=SplitData(features=("owner",), labels="labels", classes=data.classes),
        split=CutSpec(compress=wanted.compression),
    )
    torch.manual_seed(wanted.seed)
    example = data.train_x[:2].cpu()
    kind, shape = MODEL[data.name], data.shape or example.shape[1:]
    model = make_model(kind, shape=shape, classes=data.classes, width=wanted.width)
    halves = cut_model(model, task, example)
    if data.name == "yoochoose":
        # Else the recurrent states run to ±1 within fifty steps, to say how common the items are;
        # then all kept values are equal, and nothing is left for few bits to tell apart.
        counts = data.train_y.cpu().bincount(minlength=data.classes) + 0.5
        nn.init.zeros_(halves.top.get_parameter("top.head.bias")).data.add_(counts.log())
    return halves


def _stacked(parts: Sequence[nn.Module], device: torch.device) -> Weights:
    every = [dict(part.named_parameters()) for part in parts]
    return {
        name: torch.stack([one[name].detach() for one in every]).to(device).requires_grad_()
        for name in every[0]
    }


def _split(rows: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return a tenth of the rows, held out, and the others."""
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(seed))
    return order[: rows // 10], order[rows // 10 :]


def _hits(task: str, logits: Tensor, y: Tensor) -> Tensor:
    if task != "yoochoose":
        return logits.argmax(-1) == y
    return (logits.topk(HITS, dim=-1).indices == y[..., None]).any(-1)


@dataclass(frozen=True)
class _Thinner:
    """Drops a share of the numbers, and makes up for them with the others."""

    share: float
    generator: torch.Generator

    def __call__(self, x: Tensor) -> Tensor:
        if not self.share:
            return x
        kept = torch.rand(x.shape, generator=self.generator, device=x.device) >= self.share
        return x * kept / (1 - self.share)


def _mlp(weights: Weights, x: Tensor, thin: _Thinner) -> Tensor:
    first = nn.functional.leaky_relu(_linear(weights, "bottom.first", x.flatten(2)))
    return nn.functional.leaky_relu(_linear(weights, "bottom.second", first))


def _textcnn(weights: Weights, tokens: Tensor, thin: _Thinner) -> Tensor:
    """Take all windows as one of the widest, with zeros where a narrower one sees nothing."""
    sizes, count = (3, 4, 5), tokens.shape[2]
    x = _embed(weights["bottom.embed.weight"], tokens)
    if x.is_cuda:
        x = x.bfloat16()
    wide = nn.functional.pad(x, (0, 0, 0, sizes[-1] - 1)).unfold(2, sizes[-1], 1)
    wide = wide.flatten(3).flatten(1, 2)  # (models, rows * tokens, channels * 5)
    kernels = torch.cat(
        [
            nn.functional.pad(weights[f"bottom.windows.{i}.weight"], (0, sizes[-1] - size))
            for i, size in enumerate(sizes)
        ],
        1,
    ).flatten(2)  # (models, filters, channels * 5)
    biases = torch.cat([weights[f"bottom.windows.{i}.bias"] for i in range(3)], 1)
    answers = torch.bmm(wide, kernels.to(wide.dtype).transpose(1, 2))
    answers = answers.view(*tokens.shape, 3, -1)  # (models, rows, tokens, windows, filters)
    best = [answers[:, :, : count - n + 1, i].max(2).values for i, n in enumerate(sizes)]
    return nn.functional.relu(torch.cat(best, 2).float() + biases[:, None])


def _gru4rec(weights: Weights, items: Tensor, thin: _Thinner) -> Tensor:
    x = thin(_embed(weights["bottom.embed.weight"], items))
    inputs = _affine(x.flatten(1, 2), weights, "bottom.recur", "ih_l0").view(*items.shape, -1)
    h = x.new_zeros(*items.shape[:2], inputs.shape[-1] // 3)
    for at in range(items.shape[2]):
        reset_x, update_x, new_x = inputs[:, :, at].chunk(3, -1)
        reset_h, update_h, new_h = _affine(h, weights, "bottom.recur", "hh_l0").chunk(3, -1)
        new = torch.tanh(new_x + torch.sigmoid(reset_x + reset_h) * new_h)
        h = torch.lerp(new, h, torch.sigmoid(update_x + update_h))
    return h


def _embed(weight: Tensor, tokens: Tensor) -> Tensor:
    """Look tokens (models, …) up; its backward pass is an addition by index, not a sort."""
    models, vocabulary, channels = weight.shape
    shift = torch.arange(models, device=tokens.device) * vocabulary
    places = tokens + shift.view(-1, *[1] * (tokens.dim() - 1))
    flat = weight.flatten(0, 1).index_select(0, places.flatten())
    return flat.view(*tokens.shape, channels) * (tokens != 0).unsqueeze(-1)


def _linear(weights: Weights, name: str, x: Tensor) -> Tensor:
    matrix, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
    return torch.baddbmm(bias[:, None], x, matrix.transpose(1, 2))


def _affine(x: Tensor, weights: Weights, layer: str, kind: str) -> Tensor:
    matrix, bias = weights[f"{layer}.weight_{kind}"], weights[f"{layer}.bias_{kind}"]
    return torch.baddbmm(bias[:, None], x, matrix.transpose(1, 2))


BOTTOMS: dict[str, Callable[[Weights, Tensor, _Thinner], Tensor]] = {
    "mnist": _mlp,
    "newsgroups": _textcnn,
    "yoochoose": _gru4rec,
}
"""Each of them is the library's model of that task, for a stack of weights."""
