"""The models of the experiments, and how any model is cut in two at a named layer.

Each of the models has a layer named "cut", its last hidden one.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Annotated, Any

import torch
from annotated_types import Ge, Le
from torch import Tensor, fx, nn

from tacit.errors import ConfigError
from tacit.exclusive import TORCH_LOCK
from tacit.nn.tracing import Tracer
from tacit.spec import Count, refuse, suggest

CUT = "cut"
"""The layer at which the models here are meant to be cut; others can be named too."""

_LARGEST_VOCABULARY = 1 << 24  # whole numbers up to here are exact in float32
_EMBEDDING = 100
"""Numbers to a word or an item."""
Make = Callable[[tuple[int, ...], int, int], nn.Module]
"""Takes the shape of a row, the number of classes and the width of the cut layer."""


@dataclass(frozen=True, kw_only=True)
class NetworkSpec:
    """[model]: which model, and at which layer it is cut.

    Attributes:
        kind: mlp, two-conv, resnet20, resnet20-quarters, vit, textcnn or gru4rec.
        cut: the last layer of the feature owners' part; another than the usual only of a known set.
        width: of the layer named "cut".
        hidden: width of a hidden layer in the label owner's part; 0 for none.
        vocabulary: for "textcnn" and "gru4rec", which read files whose columns are tokens: how many
            different ones there are; 0 stands for none.
    """

    kind: str = "mlp"
    cut: str = CUT
    width: Count = 64
    hidden: Annotated[int, Ge(0)] = 0
    vocabulary: Annotated[int, Ge(2), Le(_LARGEST_VOCABULARY)] | None = None

    def __post_init__(self) -> None:
        if self.kind not in MODELS:
            wanted = f"wanted one of {', '.join(sorted(MODELS))}, got {self.kind!r}"
            refuse("kind", wanted + suggest(self.kind, MODELS))
        if (self.vocabulary is not None) != (self.kind in READS_TOKENS):
            text = f"{self.kind} reads no tokens; drop it"
            if self.vocabulary is None:
                text = f"{self.kind} reads tokens: wanted how many different ones there are"
            refuse("vocabulary", text)

    def __call__(self, shape: Sequence[int], classes: int) -> nn.Module:
        """Build it with fresh weights for rows of a shape."""
        row = (*shape, *(() if self.vocabulary is None else (self.vocabulary,)))
        return make_model(
            self.kind, shape=row, classes=classes, width=self.width, hidden=self.hidden
        )


def make_model(
    kind: str, *, shape: Sequence[int], classes: int, width: int, hidden: int = 0
) -> nn.Module:
    """Build a model of the table with fresh weights.

    Args:
        kind: a name of `MODELS`.
        shape: of one row; for texts and sessions, (tokens, vocabulary).
        classes: how many.
        width: of the cut layer.
        hidden: of `make_head`, which is all that comes after the layer named "cut".
    """
    if kind not in MODELS:
        raise ConfigError(f"model: wanted one of {', '.join(sorted(MODELS))}, got {kind!r}")
    if classes < 2 or width < 1:
        raise ConfigError(f"model: wanted 2 classes and 1 value or more, got {classes}, {width}")
    model = MODELS[kind](tuple(shape), classes, width)
    if hidden:
        model.head = make_head(width, classes, hidden=hidden)
    return model


def make_head(width: int, classes: int, *, hidden: int = 0) -> nn.Module:
    """Build what turns a cut layer into logits: one linear layer, or two with a bend between.

    With one, a class is a convex part of the cut layer, and one member tells where the others are.
    With two, it may lie in many places, which is what a defence needs to spread it.

    Args:
        width: of the cut layer.
        classes: how many.
        hidden: width of a layer between; 0 for none.
    """
    if hidden < 0:
        raise ConfigError(f"hidden: wanted at least 0, got {hidden}")
    if not hidden:
        return nn.Linear(width, classes)
    return nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, classes))


def _mlp(shape: tuple[int, ...], classes: int, width: int) -> nn.Module:
    hidden = 128
    return nn.Sequential(
        OrderedDict(
            flat=nn.Flatten(),
            first=nn.Linear(prod(shape), hidden),
            bend=nn.LeakyReLU(),
            second=nn.Linear(hidden, width),
            cut=nn.LeakyReLU(),
            head=nn.Linear(width, classes),
        )
    )


def _two_conv(shape: tuple[int, ...], classes: int, width: int) -> nn.Module:
    channels, side = _picture(shape, least=12)
    left = ((side - 4) // 2) // 2
    return nn.Sequential(
        OrderedDict(
            picture=_Picture(channels),
            first=nn.Conv2d(channels, 32, 5),
            bend1=nn.LeakyReLU(),
            pool1=nn.MaxPool2d(2),
            second=nn.Conv2d(32, 64, 3, padding=1),
            bend2=nn.LeakyReLU(),
            pool2=nn.MaxPool2d(2),
            flat=nn.Flatten(),
            third=nn.Linear(64 * left * left, width),
            cut=nn.LeakyReLU(),
            head=nn.Linear(width, classes),
        )
    )


def _residual(
    kind: str, shape: tuple[int, ...], classes: int, width: int, *, quarters: int
) -> nn.Module:
    """Build ResNet-20 (He et al. 2016) with as many channels at the end as the cut is wide.

    With ``quarters`` = 2 it averages each quarter of the picture: four times wider a cut for its
    channels, and the label owner does the rest of what ResNet-20's last pooling does.
    """
    channels, _ = _picture(shape, least=8)
    last, rest = divmod(width, quarters**2)
    if rest or last % 4:
        raise ConfigError(
            f"{kind}: the cut layer's width must be a multiple of {4 * quarters**2}, got {width}"
        )
    widths = (last // 4, last // 2, last)

    def stage(inside: int, outside: int, stride: int) -> nn.Sequential:
        sizes = ((inside, stride), (outside, 1), (outside, 1))
        return nn.Sequential(*(ResidualBlock(one, outside, step) for one, step in sizes))

    return nn.Sequential(
        OrderedDict(
            picture=_Picture(channels),
            stem=nn.Conv2d(channels, widths[0], 3, padding=1, bias=False),
            stem_norm=nn.BatchNorm2d(widths[0]),
            bend=nn.ReLU(),
            block1=stage(widths[0], widths[0], 1),
            block2=stage(widths[0], widths[1], 2),
            block3=stage(widths[1], widths[2], 2),
            pool=nn.AdaptiveAvgPool2d(quarters),
            cut=nn.Flatten(),
            head=nn.Linear(width, classes),
        )
    )


class ResidualBlock(nn.Module):
    """Two convolutions and a way past them."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inside, outside, 3, stride, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(outside)
        self.second = nn.Conv2d(outside, outside, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(outside)
        is_straight = inside == outside and stride == 1
        self.past: nn.Module = nn.Identity()
        if not is_straight:
            self.past = nn.Sequential(
                nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)
            )

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum of both ways."""
        inner = torch.relu(self.first_norm(self.first(x)))
        return torch.relu(self.second_norm(self.second(inner)) + self.past(x))


class TextCnn(nn.Module):
    """Convolutions of 3, 4 and 5 words, the strongest answer of each (Kim 2014)."""

    def __init__(self, shape: tuple[int, ...], classes: int, width: int) -> None:
        super().__init__()
        vocabulary = _vocabulary(shape)
        if width % 3:
            raise ConfigError(f"textcnn: the cut layer's width must be a multiple of 3: {width}")
        self.embed = nn.Embedding(vocabulary, _EMBEDDING, padding_idx=0)
        self.windows = nn.ModuleList(nn.Conv1d(_EMBEDDING, width // 3, n) for n in (3, 4, 5))
        self.cut = nn.ReLU()
        self.head = nn.Linear(width, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits of (rows, tokens)."""
        x = self.embed(tokens).transpose(1, 2)
        answers = [window(x).amax(2) for window in self.windows]
        logits: Tensor = self.head(self.cut(torch.cat(answers, 1)))
        return logits


class Gru4Rec(nn.Module):
    """A recurrent recommender: the state after the last item (Hidasi et al. 2016).

    Sessions are padded with 0 on the left, so that the last item comes last.
    """

    def __init__(self, shape: tuple[int, ...], classes: int, width: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(_vocabulary(shape), _EMBEDDING, padding_idx=0)
        self.recur = nn.GRU(_EMBEDDING, width, batch_first=True)
        self.cut = nn.Identity()
        self.head = nn.Linear(width, classes)

    def forward(self, items: Tensor) -> Tensor:
        """Return the logits of (rows, items)."""
        states, _ = self.recur(self.embed(items))
        logits: Tensor = self.head(self.cut(states[:, -1]))
        return logits


class SmallVit(nn.Module):
    """A vision Transformer: patches, four layers, their mean (Dosovitskiy et al. 2021)."""

    def __init__(self, shape: tuple[int, ...], classes: int, width: int) -> None:
        super().__init__()
        channels, side = _picture(shape, least=8)
        patch = max(side // 8, 1)
        if width % 8 or side % patch:
            raise ConfigError(
                f"vit: wanted a width that 8 divides and a side that {patch} divides, "
                f"got {width} and {side}"
            )
        self.picture = _Picture(channels)
        self.embed = nn.Conv2d(channels, width, patch, patch)
        self.place = nn.Parameter(torch.zeros(1, (side // patch) ** 2, width))
        self.layers = nn.Sequential(
            *(
                nn.TransformerEncoderLayer(
                    width, 8, 2 * width, dropout=0.0, batch_first=True, norm_first=True
                )
                for _ in range(4)
            )
        )
        self.cut = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of pictures."""
        patches = self.embed(self.picture(x)).flatten(2).transpose(1, 2) + self.place
        logits: Tensor = self.head(self.cut(self.layers(patches).mean(1)))
        return logits


class _Picture(nn.Module):
    """Give a picture its channels: (rows, side, side) becomes (rows, 1, side, side)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels = channels

    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(x.shape[0], self.channels, x.shape[-2], x.shape[-1])


def _picture(shape: tuple[int, ...], *, least: int) -> tuple[int, int]:
    if len(shape) not in (2, 3) or shape[-1] != shape[-2] or shape[-1] < least:
        raise ConfigError(
            f"model: wanted square pictures of at least {least} pixels a side, got rows of {shape}"
        )
    return (1 if len(shape) == 2 else shape[0]), shape[-1]


def _vocabulary(shape: tuple[int, ...]) -> int:
    if len(shape) != 2:
        raise ConfigError(f"model: wanted the shape (tokens, vocabulary), got {shape}")
    return shape[1]


MODELS: dict[str, Make] = {
    "gru4rec": Gru4Rec,
    "mlp": _mlp,
    "resnet20": partial(_residual, "resnet20", quarters=1),
    "resnet20-quarters": partial(_residual, "resnet20-quarters", quarters=2),
    "textcnn": TextCnn,
    "two-conv": _two_conv,
    "vit": SmallVit,
}

READS_TOKENS = frozenset({"gru4rec", "textcnn"})
"""The models whose rows are whole numbers: words, or items of a session; 0 stands for none."""


def cut(model: nn.Module, at: str) -> tuple[nn.Module, nn.Module]:
    """Return the bottom, up to and with the layer `at`, and the top, which takes its output.

    Any model that torch.fx can trace is cut, if the output of `at` is the only thing that the
    rest of it needs: then nothing else has to travel. The parts share the model's parameters.

    Args:
        model: takes one tensor and returns one.
        at: the dotted name of the layer, as in `model.named_modules()`.

    Raises:
        ConfigError: no such layer, a layer that runs twice, a model that cannot be traced, or one
            in which something else crosses the cut.
    """
    if at not in dict(model.named_modules()) or not at:
        names = [name for name, _ in model.named_modules() if name]
        shown = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
        raise ConfigError(f"cut: the model has no layer {at!r}; it has {shown}")
    try:
        with TORCH_LOCK:
            traced = fx.GraphModule(model, _LeafTracer(at).trace(model))
    except (fx.proxy.TraceError, TypeError) as error:
        raise ConfigError(
            f"cut: torch.fx cannot trace the model ({error}); give the two parts as modules"
        ) from error
    nodes = list(traced.graph.nodes)
    places = [i for i, node in enumerate(nodes) if node.op == "call_module" and node.target == at]
    if len(places) != 1:
        raise ConfigError(f"cut: layer {at!r} runs {len(places)} times; wanted once")
    below, above = nodes[: places[0] + 1], nodes[places[0] + 1 :]
    # Weights that both parts read are copied to both: only what is computed would have to travel.
    under = {node for node in below[:-1] if node.op != "get_attr"}
    crossing = sorted(
        {str(used) for node in above for used in node.all_input_nodes if used in under}
    )
    if crossing:
        raise ConfigError(
            f"cut: besides the output of {at!r}, the rest of the model needs "
            f"{', '.join(crossing)}; cut where one value crosses"
        )
    bottom, top = fx.Graph(), fx.Graph()
    bottom.output(_copy(bottom, below, {})[below[-1]])
    _copy(top, above, {below[-1]: top.placeholder("h")})
    return _module(traced, bottom), _module(traced, top)


class _LeafTracer(Tracer):
    """Looks only into what surrounds the cut; other layers stay whole, whatever they do inside."""

    def __init__(self, at: str) -> None:
        super().__init__()
        self._at = at

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return not self._at.startswith(f"{module_qualified_name}.")


def _copy(
    graph: fx.Graph, nodes: Sequence[fx.Node], copies: dict[fx.Node, fx.Node]
) -> dict[fx.Node, fx.Node]:
    """Copy nodes into a graph, with the weights that they read, and return what became of each."""
    for node in nodes:
        for used in node.all_input_nodes:
            if used.op == "get_attr" and used not in copies:
                copies[used] = graph.node_copy(used)
        copies[node] = graph.node_copy(node, lambda used: copies[used])
    return copies


def _module(traced: fx.GraphModule, graph: fx.Graph) -> nn.Module:
    part = fx.GraphModule(traced, graph)
    part.delete_all_unused_submodules()
    return part


class Flat(nn.Module):
    """A bottom whose output is laid flat for the wire: (rows, width)."""

    def __init__(self, bottom: nn.Module, *, is_normalised: bool = False) -> None:
        super().__init__()
        self.bottom = bottom
        self.is_normalised = is_normalised

    def forward(self, x: Tensor) -> Tensor:
        """Return the cut layer, normalised if the defence wants it on a sphere."""
        h: Tensor = self.bottom(x).flatten(1)
        return nn.functional.layer_norm(h, h.shape[1:]) if self.is_normalised else h


class ShapedTop(nn.Module):
    """A top whose input comes flat from the wire."""

    def __init__(self, top: nn.Module, shape: Sequence[int]) -> None:
        super().__init__()
        self.top = top
        self.shape = tuple(shape)

    def forward(self, h: Tensor) -> Tensor:
        """Return what the top makes of the cut layer."""
        logits: Tensor = self.top(h.view(-1, *self.shape))
        return logits


def cut_shape(bottom: nn.Module, example: Tensor) -> tuple[int, ...]:
    """Return the shape of one row of the cut layer, by running one row through the bottom."""
    was_training = bottom.training
    bottom.eval()
    with torch.no_grad():
        shape: Any = bottom(example[:1]).shape  # the module may return anything with a shape
    bottom.train(was_training)
    return tuple(shape[1:])
