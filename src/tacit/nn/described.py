"""Models to train: torch modules in words, imported as functions of ops."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from math import sqrt
from typing import TypeVar

import torch
from torch import Tensor, nn

from tacit.errors import ConfigError, DataError
from tacit.exclusive import TORCH_LOCK, seeded
from tacit.nn.imported import Imported, import_module
from tacit.nn.ops import Ops
from tacit.nn.running import key_of

T = TypeVar("T")

LARGEST_GROUP = 8
"""So many channels are normalised together, at most."""


class Square(nn.Module):
    """The activation of networks that are evaluated on ciphertexts."""

    def forward(self, x: Tensor) -> Tensor:
        """Multiply every element by itself."""
        return torch.square(x)


class Residual(nn.Module):
    """Add what two convolutions with norms make of images to the images (He et al. 2016).

    Norms are those of groups (Wu and He 2018): they need no statistics of other rows, so a model
    in use does exactly what it did in training. Where the size changes, the images pass a
    convolution of single pixels.
    """

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.first_norm = nn.GroupNorm(groups_of(outputs), outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.second_norm = nn.GroupNorm(groups_of(outputs), outputs)
        self.relu = nn.ReLU()
        is_same = stride == 1 and inputs == outputs
        self.past = nn.Identity() if is_same else nn.Conv2d(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Run the block."""
        inner = self.relu(self.first_norm(self.first(x)))
        return torch.relu(self.second_norm(self.second(inner)) + self.past(x))


def groups_of(channels: int) -> int:
    """Return into how many groups channels are cut: as few as there may be."""
    counts = (count for count in range(1, channels + 1) if channels % count == 0)
    return next(count for count in counts if channels // count <= LARGEST_GROUP)


_ACTIVATIONS: Mapping[str, Callable[[], nn.Module]] = {
    "flatten": nn.Flatten,
    "gelu": nn.GELU,
    "relu": nn.ReLU,
    "sigmoid": nn.Sigmoid,
    "silu": nn.SiLU,
    "square": Square,
    "tanh": nn.Tanh,
}
_SIZED = ("avgpool", "block", "conv", "dense", "maxpool", "norm")


@dataclass(frozen=True, kw_only=True, eq=False)
class Model:
    """A model to train: what it computes, and public initial weights.

    ``widest`` is how many numbers its widest layer makes of one row; ``tokens`` is () where a row
    has one answer, and (how many,) where every token of a row has one.
    """

    imported: Imported
    inputs: tuple[int, ...]
    outputs: int
    widest: int
    initial: Mapping[str, Tensor]
    tokens: tuple[int, ...] = ()

    def state(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return trained weights as the module's ``state_dict`` names and shapes them."""
        return self.imported.state(weights)

    def frozen(self) -> "Model":
        """Return the model as it is trained: what stays as it is, is public, and no weight."""
        imported = replace(self.imported, weights=self.initial).frozen()
        return replace(self, imported=imported, initial=dict(imported.weights))

    def capped(self, cap: float | None) -> "Model":
        """Return the model with hidden values that saturate elsewhere."""
        return replace(self, imported=replace(self.imported, cap=cap))

    def scales(self) -> dict[str, float]:
        """Say of weights that have a factor in them how large it is: queries of attention.

        A step of theirs is that of the module's own weights: gradient and change are scaled.
        """
        return {
            key_of(name, f"q_{what}"): 1 / sqrt(layer.head_dim)
            for name, layer in self.imported.layers.items()
            if isinstance(layer, nn.MultiheadAttention)
            for what in ("weight", "bias")
        }

    def __call__(self, ops: Ops[T], weights: Mapping[str, T], x: T) -> T:
        """Run the model over any interpreter."""
        return self.imported(ops, weights, x)


def make_model(module: nn.Module, inputs: tuple[int, ...], *, cap: float | None = None) -> Model:
    """Make a torch module trainable under a protocol.

    Args:
        module: made of supported layers; its weights are where training starts, and public.
        inputs: the shape of one row.
        cap: where hidden values saturate, so that their bounds do not grow with every layer.

    Raises:
        InputError: the module has something that is not supported, or has no gradient.
    """
    model = _made(module, inputs, cap)
    if model.tokens:
        raise ConfigError(
            "wanted a model with one row of scores per input, got one that gives "
            f"{(*model.tokens, model.outputs)} scores; make_token_model takes one per token"
        )
    return model


def make_token_model(
    module: nn.Module, inputs: tuple[int, ...], *, cap: float | None = None
) -> Model:
    """Make a torch module trainable that scores the next token, or a class, at every token.

    Args:
        module: its output is (rows, tokens, classes); labels are one-hot rows of that shape, and
            the loss is the mean cross-entropy of all tokens: its exponential is the perplexity.
        inputs: the shape of one row: (tokens,) of ids for a module that has an `nn.Embedding`,
            (tokens, vocabulary) for one-hot rows, or (tokens, width) for public embeddings that
            owners look up themselves.
        cap: where hidden values saturate, so that their bounds do not grow with every layer.

    Raises:
        InputError: the module has something that is not supported, or has no gradient.
    """
    model = _made(module, inputs, cap)
    if len(model.tokens) != 1:
        raise ConfigError(
            f"wanted a model with scores (rows, tokens, classes), got {len(model.tokens) + 2} "
            "dimensions"
        )
    return model


def make_any_model(
    module: nn.Module, inputs: tuple[int, ...], *, cap: float | None = None
) -> Model:
    """Make a torch module trainable that has a row of scores per input, or per token of it.

    Raises:
        InputError: the module has something that is not supported, or has no gradient.
        DataError: it does not take rows of that shape, such as texts that are too long.
    """
    model = _made(module, inputs, cap)
    if len(model.tokens) > 1:
        raise ConfigError(
            "wanted scores (rows, classes) or (rows, tokens, classes), got "
            f"{len(model.tokens) + 2} dimensions"
        )
    return model


def _made(module: nn.Module, inputs: tuple[int, ...], cap: float | None) -> Model:
    # How large products can be follows from the weights, which will not stay as they are.
    imported = replace(import_module(module), gains={}, cap=cap)
    imported.check_gradients()
    outputs, widest = _sizes(module, inputs)
    if len(outputs) < 2:
        raise ConfigError(f"wanted a model with scores for every row, got {outputs}")
    return Model(
        imported=imported,
        inputs=inputs,
        outputs=outputs[-1],
        tokens=outputs[1:-1],
        widest=widest,
        initial=dict(imported.weights),
    )


def _sizes(module: nn.Module, inputs: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    """Return the shape that two rows come out with, and the most numbers in between per row."""
    precision = next((one.dtype for one in module.parameters()), torch.float32)
    rows = as_input(module, torch.zeros(2, *inputs, dtype=precision))
    widths = [rows.numel() // 2]

    def note(layer: nn.Module, given: object, out: object) -> None:
        if isinstance(out, Tensor):
            widths.append(out.numel() // 2)

    with TORCH_LOCK, torch.no_grad():
        hooks = [layer.register_forward_hook(note) for layer in module.modules()]
        try:
            out = module.eval()(rows)
        except (RuntimeError, IndexError, ValueError) as error:
            first = (str(error).splitlines() or [""])[0]
            raise DataError(
                f"the model does not take rows of shape {inputs}: {first}; are texts longer "
                "than it takes?"
            ) from error
        finally:
            for hook in hooks:
                hook.remove()
    return tuple(out.shape), max(widths)


def as_input(module: nn.Module, rows: Tensor) -> Tensor:
    """Give rows as the module wants them: a model with an embedding reads whole numbers.

    Rows of rows are no ids, but what was looked up before; the embedding is of places then.
    """
    has_table = any(isinstance(layer, nn.Embedding) for layer in module.modules())
    return rows.long() if has_table and rows.dim() == 2 else rows


def parse_layers(layers: Sequence[str], inputs: tuple[int, ...], *, seed: int) -> nn.Sequential:
    """Build a module from words such as "conv 6 5", "relu", "avgpool 2", "flatten", "dense 10".

    Args:
        layers: "dense OUT", "conv OUT SIZE [STRIDE [PADDING]]", "block OUT [STRIDE]" for a
            residual block, "norm" of groups of channels, "avgpool SIZE", "maxpool SIZE", or one
            of the activations and "flatten".
        inputs: the shape of one row.
        seed: of the initial weights, which are public.

    Raises:
        ConfigError: a word is unknown, or sizes do not fit.
    """
    with seeded(seed):
        built: list[nn.Module] = []
        shape = inputs
        for number, words in enumerate(layers, start=1):
            try:
                layer = _build(words.split(), shape)
                shape = tuple(layer(torch.zeros(1, *shape)).shape[1:])
            except (ValueError, RuntimeError, IndexError, KeyError) as error:
                raise ConfigError(
                    f"layer {number}, {words!r}, does not fit rows of shape {shape}: {error}; "
                    "layers are 'dense OUT', 'conv OUT SIZE [STRIDE [PADDING]]', "
                    "'block OUT [STRIDE]', 'norm', 'avgpool SIZE', 'maxpool SIZE', "
                    f"{', '.join(_ACTIVATIONS)}"
                ) from error
            built.append(layer)
    return nn.Sequential(*built)


def _build(words: Sequence[str], shape: tuple[int, ...]) -> nn.Module:
    name, sizes = words[0], [int(word) for word in words[1:]]
    if name not in (*_SIZED, *_ACTIVATIONS):
        near = get_close_matches(name, (*_SIZED, *_ACTIVATIONS), n=1)
        raise ValueError("no such layer" + (f", did you mean {near[0]!r}?" if near else ""))
    if name in _ACTIVATIONS and not sizes:
        return _ACTIVATIONS[name]()
    if name == "dense":
        if len(shape) != 1:
            raise ValueError("a dense layer wants flat rows; put 'flatten' before it")
        (outputs,) = sizes
        return nn.Linear(shape[0], outputs)
    if name == "conv":
        outputs, size, *rest = sizes
        stride, padding = (*rest, *(1, 0)[len(rest) :])
        return nn.Conv2d(shape[0], outputs, size, stride, padding)
    if name == "block":
        outputs, *rest = sizes
        (stride,) = rest or (1,)
        return Residual(shape[0], outputs, stride)
    if name == "norm" and not sizes:
        return nn.GroupNorm(groups_of(shape[0]), shape[0])
    (size,) = sizes
    return {"avgpool": nn.AvgPool2d, "maxpool": nn.MaxPool2d}[name](size)
