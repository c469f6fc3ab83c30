"""Features by a public rule, which each owner cuts out of its own rows before anything else.

A rule, and the file of a public network without its last layer, is the same for everybody; a row
depends on its own picture or text and on nothing else, so that it costs no ε.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional

from tacit.errors import ConfigError, DataError
from tacit.nn.code import OwnModel

Floats = npt.NDArray[np.float64]
_FAINT = 1e-3
"""Added to the norm of a block, so that an empty one stays empty."""


@dataclass(frozen=True, kw_only=True)
class HistogramsOfGradients:
    """Histograms of the directions of edges (Dalal and Triggs 2005), rows of norm 1.

    Attributes:
        cell: the side of a cell in pixels.
        bins: directions, from 0 to 180 degrees.
        block: cells on the side of a block; blocks overlap and are normalised on their own.

    Guarantee: a row depends on its own picture and on nothing else, so that it costs no ε.
    """

    cell: int = 4
    bins: int = 9
    block: int = 2

    def __call__(self, pictures: npt.ArrayLike) -> Floats:
        """Turn pictures (n, height, width) into rows of features."""
        x = np.asarray(pictures, dtype=np.float64)
        if x.ndim != 3 or min(x.shape[1:]) < self.cell * self.block:
            raise DataError(
                f"wanted pictures (n, height, width) of {self.cell * self.block} pixels a side at "
                f"least, got the shape {x.shape}"
            )
        blocks = _blocks(self._cells(x), self.block)
        rows = blocks.reshape(len(x), -1)
        found: Floats = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
        return found

    def _cells(self, x: Floats) -> Floats:
        """Give a histogram per cell: each pixel votes for the two nearest directions."""
        down, across = np.gradient(x, axis=(1, 2))
        size = np.hypot(down, across)
        place = np.mod(np.arctan2(down, across), np.pi) / np.pi * self.bins - 0.5
        first = np.floor(place)
        share = place - first
        high, wide = (side // self.cell for side in x.shape[1:])
        votes = np.zeros((len(x), high, wide, self.bins))
        for offset, weight in ((0, 1 - share), (1, share)):
            at = np.mod(first + offset, self.bins)
            for one in range(self.bins):
                vote = (size * weight * (at == one))[:, : high * self.cell, : wide * self.cell]
                cut = vote.reshape(len(x), high, self.cell, wide, self.cell)
                votes[..., one] += cut.sum(axis=(2, 4))
        return votes


HOG = "hog"
IMAGES, TEXTS = "images:", "texts:"
"""What public networks begin with; their file or folder follows."""


def cut_out(rule: str, rows: Floats) -> Floats:
    """Turn an owner's rows into others by a public rule.

    Rules are "hog", "images:FILE" with the weights of `ImageNetwork`, or file.py:function, which
    makes a callable that takes an array of rows and gives one of as many rows of numbers, such as
    another public network without its last layer; both are run.

    Raises:
        DataError: it gives something else.
    """
    made: Callable[[npt.ArrayLike], object]
    if rule.startswith(IMAGES):
        made = ImageNetwork(Path(rule.removeprefix(IMAGES)))
    else:
        made = HistogramsOfGradients() if rule == HOG else OwnModel.read(Path(rule)).make()
    if not callable(made):
        raise ConfigError(f"data.features: {rule}: wanted a function that makes a callable")
    found: Floats = torch.as_tensor(np.asarray(made(rows))).double().numpy()
    if found.ndim < 2 or len(found) != len(rows) or not np.isfinite(found).all():
        raise DataError(
            f"data.features: {rule}: wanted {len(rows)} rows of finite numbers, got the shape "
            f"{found.shape}"
        )
    return found


def _blocks(cells: Floats, side: int) -> Floats:
    """Lay overlapping blocks of cells side by side, each brought to norm 1."""
    high, wide = (size - side + 1 for size in cells.shape[1:3])
    parts = [cells[:, i : i + high, j : j + wide] for i in range(side) for j in range(side)]
    blocks = np.concatenate(parts, axis=-1)
    found: Floats = blocks / (np.linalg.norm(blocks, axis=-1, keepdims=True) + _FAINT)
    return found


BATCH = 64
# Repeats, stride and expansion of the stages of EfficientNet-Lite0 (Tan and Le 2019).
_STAGES = ((1, 1, 1), (2, 2, 6), (2, 2, 6), (3, 2, 6), (3, 1, 6), (4, 2, 6), (1, 1, 6))


class ImageNetwork:
    """EfficientNet-Lite0 without its last layer: 1,280 features of a picture, rows of norm 1.

    Args:
        file: its weights, by the names of `efficientnet_lite_pytorch`, as safetensors.
        side: to how many pixels pictures are enlarged; 224 is what it was made for.

    Raises:
        DataError: the file cannot be read, or holds another network.
    """

    def __init__(self, file: Path, *, side: int = 96) -> None:
        try:
            found = load_file(file)
        except Exception as error:  # what is wrong with a file is told in many ways
            raise DataError(f"{file}: wanted weights as safetensors: {error}") from error
        if "_conv_head.weight" not in found or "_blocks.15._project_conv.weight" not in found:
            raise DataError(f"{file}: wanted the weights of EfficientNet-Lite0")
        self._weights = {name: value.float() for name, value in found.items()}
        self._side = side

    def __call__(self, pictures: npt.ArrayLike) -> Floats:
        """Turn pictures (n, 3, height, width), red, green and blue from 0 to 1, into features."""
        given = torch.as_tensor(np.asarray(pictures), dtype=torch.float32)
        if given.dim() != 4 or given.shape[1] != 3 or not bool(((given >= 0) & (given <= 1)).all()):
            raise DataError(
                "wanted pictures (n, 3, height, width) with values from 0 to 1, got the shape "
                f"{tuple(given.shape)}; divide pixels by 255 (scale)"
            )
        with torch.no_grad():
            rows = [self._features(255 * part) for part in torch.split(given, BATCH)]
        return _normal(torch.cat(rows))

    def _features(self, pixels: Tensor) -> Tensor:
        x = functional.interpolate((pixels - 127.0) / 128.0, self._side, mode="bilinear")
        x = functional.relu6(self._norm(self._convolve(x, "_conv_stem", 2), "_bn0"))
        at = 0
        for repeats, stride, expansion in _STAGES:
            for repeat in range(repeats):
                x = self._block(x, f"_blocks.{at}", stride if repeat == 0 else 1, expansion)
                at += 1
        x = functional.relu6(self._norm(self._convolve(x, "_conv_head", 1), "_bn1"))
        return x.mean(dim=(2, 3))

    def _block(self, x: Tensor, name: str, stride: int, expansion: int) -> Tensor:
        """Expand, filter every channel, project, and add what came in where it fits."""
        y = x
        if expansion != 1:
            y = self._convolve(y, f"{name}._expand_conv", 1)
            y = functional.relu6(self._norm(y, f"{name}._bn0"))
        y = self._convolve(y, f"{name}._depthwise_conv", stride, groups=y.shape[1])
        y = functional.relu6(self._norm(y, f"{name}._bn1"))
        y = self._norm(self._convolve(y, f"{name}._project_conv", 1), f"{name}._bn2")
        return x + y if x.shape == y.shape else y

    def _convolve(self, x: Tensor, name: str, stride: int, groups: int = 1) -> Tensor:
        """Convolve as TensorFlow pads: more at the end where it is uneven."""
        weight = self._weights[f"{name}.weight"]
        size, pads = weight.shape[-1], []
        for side in (x.shape[3], x.shape[2]):
            total = max((-(-side // stride) - 1) * stride + size - side, 0)
            pads += [total // 2, total - total // 2]
        return functional.conv2d(functional.pad(x, pads), weight, stride=stride, groups=groups)

    def _norm(self, x: Tensor, name: str) -> Tensor:
        """Apply a batch norm as it is in use."""
        mean, spread, gain, bias = (
            self._weights[f"{name}.{what}"]
            for what in ("running_mean", "running_var", "weight", "bias")
        )
        return functional.batch_norm(x, mean, spread, gain, bias, eps=1e-3)


class TextNetwork:
    """A sentence encoder as ONNX: the mean of the last hidden states, rows of norm 1.

    Needs the extra ``networks``.

    Args:
        folder: holds model.onnx (inputs input_ids, attention_mask and token_type_ids) and
            tokenizer.json.
        tokens: how many of a text are read.
    """

    def __init__(self, folder: Path, *, tokens: int = 96) -> None:
        import onnxruntime
        from tokenizers import Tokenizer

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        try:
            self._session = onnxruntime.InferenceSession(folder / "model.onnx", options)
            self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as error:  # what is wrong with a file is told in many ways
            raise DataError(f"{folder}: wanted model.onnx and tokenizer.json: {error}") from error
        self._tokenizer.enable_truncation(tokens)
        self._tokenizer.enable_padding()

    def __call__(self, texts: Sequence[str]) -> Floats:
        """Turn texts into features."""
        parts = [self._means(texts[at : at + BATCH]) for at in range(0, len(texts), BATCH)]
        return _normal(torch.cat(parts))

    def _means(self, texts: Sequence[str]) -> Tensor:
        coded = self._tokenizer.encode_batch(list(texts))
        ids = np.array([one.ids for one in coded], dtype=np.int64)
        mask = np.array([one.attention_mask for one in coded], dtype=np.int64)
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        (hidden,) = self._session.run(None, given)
        kept = mask[:, :, None]
        return torch.from_numpy((hidden * kept).sum(1) / kept.sum(1))


def _normal(rows: Tensor) -> Floats:
    found: Floats = functional.normalize(rows.double(), dim=1).numpy()
    return found
