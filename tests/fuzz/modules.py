"""Random torch modules: what `import_module` makes of them beside what torch computes."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fuzz.judge import Verdict
from tacit.errors import InputError
from tacit.nn import TorchOps, import_module

Shape = tuple[int, ...]
SHAPES: tuple[Shape, ...] = ((2, 4), (3, 6), (2, 3, 4), (1, 4), (2, 2, 3, 4), (2, 3, 6, 6))
CLOSE = 1e-8


@dataclass(frozen=True)
class Line:
    """One line of a forward pass: what is called, of which values so far, and how."""

    call: str
    of: tuple[int, ...]
    how: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Layers:
    """A module: the shape of its input, its lines, and the seed of its weights."""

    shape: Shape
    lines: tuple[Line, ...]
    seed: int = 0


class Module(nn.Module):
    """A module that does what lines say."""

    def __init__(self, layers: Layers) -> None:
        super().__init__()
        self.lines = layers.lines
        torch.manual_seed(layers.seed)
        self.parts = nn.ModuleList(PARTS[one.call](one.how) for one in self.lines)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -0.5, 0.5)
        self.double().eval()

    def forward(self, x: Tensor) -> Tensor:
        """Go through the lines."""
        values = [x]
        for line, part in zip(self.lines, self.parts, strict=True):
            values.append(CALLS[line.call][1](part, *(values[i] for i in line.of), **line.how))
        return values[-1]


def nothing(how: dict[str, Any]) -> nn.Module:
    return nn.Identity()


def _dim(rng: random.Random, shape: Shape) -> dict[str, Any]:
    return {"dim": rng.randrange(-len(shape), len(shape)), "keepdim": rng.random() < 0.5}


def _mean_dims(rng: random.Random, shape: Shape) -> dict[str, Any]:
    dims = rng.sample(range(1, len(shape)), rng.randint(1, len(shape) - 1))
    return {"dim": dims, "keepdim": rng.random() < 0.5}


def _window(rng: random.Random, shape: Shape) -> dict[str, Any] | None:
    if len(shape) != 4 or min(shape[2:]) < 3:
        return None
    size = rng.choice([2, 3])
    return {"size": size, "stride": rng.choice([1, 2]), "padding": rng.choice([0, 1])}


def _conv(rng: random.Random, shape: Shape) -> dict[str, Any] | None:
    if len(shape) != 4 or min(shape[2:]) < 3:
        return None
    groups = rng.choice([1, shape[1]])
    return {
        "into": shape[1],
        "out": groups * rng.choice([1, 2]),
        "size": rng.choice([1, 3]),
        "stride": rng.choice([1, 2]),
        "padding": rng.choice([0, 1]),
        "groups": groups,
    }


def _reshape(rng: random.Random, shape: Shape) -> dict[str, Any] | None:
    if len(shape) < 3:
        return None
    return {"shape": rng.choice([[shape[0], -1], [shape[0], *shape[1:-2], -1]])}


def _cut(rng: random.Random, shape: Shape) -> dict[str, Any]:
    dim = rng.randrange(1, len(shape))
    start = rng.randrange(shape[dim])
    return {"dim": dim, "start": start, "stop": rng.randint(start + 1, shape[dim])}


def _pick(rng: random.Random, shape: Shape) -> dict[str, Any] | None:
    if len(shape) < 3:
        return None
    dim = rng.randrange(1, len(shape))
    return {"dim": dim, "at": rng.randrange(-shape[dim], shape[dim])}


def _attention(rng: random.Random, shape: Shape) -> dict[str, Any] | None:
    if len(shape) not in (3, 4):
        return None
    tokens = shape[-2]
    mask = torch.rand(tokens, tokens, generator=torch.Generator().manual_seed(rng.randrange(99)))
    kind = rng.choice(["none", "causal", "bool", "float"])
    kept = (mask > 0.4) | torch.eye(tokens).bool()
    return {"kind": kind, "mask": kept.tolist() if kind == "bool" else mask.tolist()}


def _attend(part: nn.Module, x: Tensor, kind: str, mask: Any) -> Tensor:
    if kind in ("none", "causal"):
        return F.scaled_dot_product_attention(x, x, x, is_causal=kind == "causal")
    made = torch.tensor(mask) if kind == "bool" else torch.tensor(mask, dtype=torch.float64)
    return F.scaled_dot_product_attention(x, x * 0.5, x, attn_mask=made)


def _slice(part: nn.Module, x: Tensor, dim: int, start: int, stop: int) -> Tensor:
    return x[(slice(None),) * dim + (slice(start, stop),)]


def _index(part: nn.Module, x: Tensor, dim: int, at: int) -> Tensor:
    return x[(slice(None),) * dim + (at,)]


def _add_in_place(part: nn.Module, x: Tensor, by: float) -> Tensor:
    y = x * 1.0
    z = y
    z += by
    return y


def _relu_in_place(part: nn.Module, x: Tensor) -> Tensor:
    y = x * 2.0
    F.relu(y, inplace=True)
    return y + x


def plain(rng: random.Random, shape: Shape) -> dict[str, Any]:
    return {}


def deep(rank: int) -> Callable[[random.Random, Shape], dict[str, Any] | None]:
    return lambda rng, shape: {} if len(shape) >= rank else None


def number(rng: random.Random, shape: Shape) -> dict[str, Any]:
    return {"by": rng.choice([2.0, -0.5, 0.25, 3.0])}


Call = tuple[Callable[[random.Random, Shape], dict[str, Any] | None], Callable[..., Tensor], int]
# name → (what it may be called with on this shape, the call, how many values it takes)
CALLS: dict[str, Call] = {
    "linear": (
        lambda rng, shape: {"into": shape[-1], "out": rng.choice([2, 4, 6])},
        lambda part, x, into, out: part(x),
        1,
    ),
    "linear relu": (
        lambda rng, shape: {"into": shape[-1], "out": rng.choice([2, 4])},
        lambda part, x, into, out: part(x),
        1,
    ),
    "conv": (_conv, lambda part, x, **how: part(x), 1),
    "batch norm": (
        lambda rng, shape: {"features": shape[1]} if len(shape) == 4 else None,
        lambda part, x, features: part(x),
        1,
    ),
    "layer norm": (
        lambda rng, shape: {"width": shape[-1]} if shape[-1] > 2 else None,
        lambda part, x, width: part(x),
        1,
    ),
    "norm by shape": (
        lambda rng, shape: {} if shape[-1] > 2 else None,
        lambda part, x: F.layer_norm(x, x.shape[-1:]),
        1,
    ),
    "max pool": (
        _window,
        lambda part, x, size, stride, padding: F.max_pool2d(x, size, stride, padding),
        1,
    ),
    "mean pool": (
        _window,
        lambda part, x, size, stride, padding: F.avg_pool2d(x, size, stride, padding),
        1,
    ),
    "flatten": (deep(3), lambda part, x: torch.flatten(x, 1), 1),
    "reshape": (_reshape, lambda part, x, shape: x.reshape(*shape), 1),
    "view by size": (deep(3), lambda part, x: x.view(x.size(0), -1), 1),
    "transpose": (deep(3), lambda part, x: x.transpose(-1, -2).contiguous(), 1),
    "unsqueeze": (
        lambda rng, shape: {"dim": rng.choice([1, -1])} if len(shape) < 4 else None,
        lambda part, x, dim: x.unsqueeze(dim),
        1,
    ),
    "squeeze": (deep(2), lambda part, x: x.unsqueeze(1).squeeze(1), 1),
    "slice": (_cut, _slice, 1),
    "index": (_pick, _index, 1),
    "chunk": (
        lambda rng, shape: {} if shape[-1] % 2 == 0 else None,
        lambda part, x: x.chunk(2, dim=-1)[0] * x.chunk(2, dim=-1)[1],
        1,
    ),
    "mean": (_mean_dims, lambda part, x, dim, keepdim: x.mean(dim, keepdim=keepdim), 1),
    "sum": (
        lambda rng, shape: _dim(rng, shape) if len(shape) > 2 else None,
        lambda part, x, dim, keepdim: x.sum(dim, keepdim=keepdim),
        1,
    ),
    "amax": (
        lambda rng, shape: {"dim": -1, "keepdim": rng.random() < 0.5} if len(shape) > 2 else None,
        lambda part, x, dim, keepdim: x.amax((dim,), keepdim=keepdim),
        1,
    ),
    "softmax": (plain, lambda part, x: x.softmax(-1), 1),
    "attention": (_attention, _attend, 1),
    "relu": (plain, lambda part, x: part(x), 1),
    "gelu": (plain, lambda part, x: F.gelu(x), 1),
    "tanh": (plain, lambda part, x: torch.tanh(x), 1),
    "sigmoid": (plain, lambda part, x: x.sigmoid(), 1),
    "silu": (plain, lambda part, x: F.silu(x), 1),
    "leaky relu": (plain, lambda part, x: F.leaky_relu(x, 0.1), 1),
    "hard sigmoid": (plain, lambda part, x: F.hardsigmoid(x), 1),
    "clamp": (plain, lambda part, x: x.clamp(-0.5, 0.75), 1),
    "square": (plain, lambda part, x: x**2, 1),
    "times": (number, lambda part, x, by: x * by, 1),
    "plus": (number, lambda part, x, by: by + x, 1),
    "minus": (number, lambda part, x, by: by - x, 1),
    "over": (number, lambda part, x, by: x / by, 1),
    "over width": (plain, lambda part, x: x / math.sqrt(4) / x.size(-1) ** 0.5, 1),
    "add in place": (number, _add_in_place, 1),
    "relu in place": (plain, _relu_in_place, 1),
    "add": (plain, lambda part, x, y: x + y, 2),
    "product": (plain, lambda part, x, y: x * y, 2),
    "cat": (plain, lambda part, x, y: torch.cat((x, y), -1), 2),
    "stack": (
        lambda rng, shape: {} if len(shape) < 4 else None,
        lambda part, x, y: torch.stack((x, y), 1),
        2,
    ),
    "matmul": (deep(2), lambda part, x, y: x @ y.transpose(-1, -2), 2),
}
PARTS: dict[str, Callable[[dict[str, Any]], nn.Module]] = dict.fromkeys(CALLS, nothing)
PARTS |= {
    "linear": lambda how: nn.Linear(how["into"], how["out"]),
    "linear relu": lambda how: nn.Sequential(
        nn.Linear(how["into"], how["out"]), nn.ReLU(inplace=True)
    ),
    "conv": lambda how: nn.Conv2d(
        how["into"],
        how["out"],
        how["size"],
        stride=how["stride"],
        padding=how["padding"],
        groups=how["groups"],
    ),
    "batch norm": lambda how: nn.BatchNorm2d(how["features"]),
    "layer norm": lambda how: nn.LayerNorm(how["width"]),
    "relu": lambda how: nn.ReLU(inplace=True),
}


def draw_module(seed: int) -> Layers:
    """Draw a module; the same seed gives the same one."""
    rng = random.Random(seed)  # noqa: S311 - modules are no secrets
    shape = rng.choice(SHAPES)
    shapes, lines = [shape], []
    for _ in range(rng.choice([1, 2, 4, 6, 10])):
        for _ in range(8):  # until one fits
            name = rng.choice(list(CALLS))
            first = len(shapes) - 1 if rng.random() < 0.8 else rng.randrange(len(shapes))
            how, (draw, _, count) = None, CALLS[name]
            if len(shapes[first]) >= 2:
                how = draw(rng, shapes[first])
            fitting = [i for i, one in enumerate(shapes) if one == shapes[first]]
            if how is None:
                continue
            line = Line(name, (first, *(rng.choice(fitting) for _ in range(count - 1))), how)
            if name == "relu" and first == 0:
                continue  # changes the caller's rows
            found = _shape_of(Layers(shape, (*lines, line), seed))
            if found is not None:
                lines.append(line)
                shapes.append(found)
                break
    return Layers(shape, tuple(lines) or (Line("times", (0,), {"by": 2.0}),), seed)


def _shape_of(layers: Layers) -> Shape | None:
    try:
        with torch.no_grad():
            found = Module(layers)(_rows(layers))
    except (RuntimeError, IndexError, ValueError):
        return None
    is_usual = found.ndim >= 1 and 0 < found.numel() <= 500 and bool(found.isfinite().all())
    return tuple(found.shape) if is_usual else None


def _rows(layers: Layers) -> Tensor:
    draw = torch.Generator().manual_seed(layers.seed)
    return torch.rand(layers.shape, dtype=torch.float64, generator=draw) * 2 - 1


def judge_module(layers: Layers) -> Verdict:
    """Import a module, compute it in the clear by its program, and compare with torch."""
    module, x = Module(layers), _rows(layers)
    with torch.no_grad():
        wanted = module(x.clone())
    try:
        model = import_module(module)
    except InputError as refusal:
        return Verdict("refused", str(refusal))
    except Exception as error:
        return Verdict("wrong", f"importing ended in {type(error).__name__}: {error}")
    try:
        got = model(TorchOps(), model.weights, x)
    except InputError as refusal:
        return Verdict("refused", str(refusal))
    except Exception as error:
        return Verdict("wrong", f"computing ended in {type(error).__name__}: {error}")
    if got.shape != wanted.shape:
        return Verdict("wrong", f"shape {tuple(got.shape)}, wanted {tuple(wanted.shape)}")
    off = float((got - wanted).abs().max())
    return Verdict("right") if off < CLOSE else Verdict("wrong", f"off by {off:.3g}")


def shrink_module(layers: Layers) -> Layers:
    """Cut a wrong module down for as long as it stays wrong."""
    while True:
        for smaller in _smaller(layers):
            if _shape_of(smaller) and judge_module(smaller).outcome == "wrong":
                layers = smaller
                break
        else:
            return layers


def _smaller(layers: Layers) -> Sequence[Layers]:
    lines = layers.lines
    shorter = [replace(layers, lines=lines[:keep]) for keep in range(1, len(lines))]
    for gone in range(len(lines) - 1):  # what takes a line's value takes its first operand's
        into = lines[gone].of[0]
        kept = []
        for at, line in enumerate(lines):
            of = tuple(into if i == gone + 1 else i - (i > gone + 1) for i in line.of)
            kept += [] if at == gone else [replace(line, of=of)]
        shorter.append(replace(layers, lines=tuple(kept)))
    return shorter
