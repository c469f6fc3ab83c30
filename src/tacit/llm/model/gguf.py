"""Checkpoints in one GGUF file: its settings, and tensors dequantised to float32.

Every length in the file is checked before it is believed.
"""

import mmap
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.errors import DataError
from tacit.llm.model.architecture import Architecture
from tacit.llm.model.hf_config import Noted, number, whole
from tacit.llm.model.machine import extra
from tacit.llm.model.tensor_names import (
    GGUF_GPT2,
    GGUF_LLAMA,
    GGUF_QWEN2,
    GGUF_QWEN3,
    Layout,
    Readers,
)

Settings = Mapping[str, Any]  # the key-value part of a file: each value is checked where used
_LAYOUTS = {
    "llama": GGUF_LLAMA,
    "qwen2": GGUF_QWEN2,
    "qwen3": GGUF_QWEN3,
    "gpt2": GGUF_GPT2,
}
# Settings that change no answer: records, and what a scaling was once trained with.
_SILENT = frozenset(
    {"tensor_data_layout", "rope.scaling.finetuned", "rope.scaling.original_context_length"}
)
_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_NUMBERS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
_TEXT, _LIST = 8, 9
_LARGEST_COUNT = 1 << 24
_LARGEST_DEPTH = 4
_ALIGNMENT = 32


@dataclass(frozen=True, eq=False)
class Stored:
    """A tensor in a container, quantised: rows of bytes, and the number that names their kind."""

    name: str
    kind: int
    data: NDArray[np.uint8]


class Packed:
    """An open GGUF file: its settings, and tensors that are views of the mapped file."""

    def __init__(self, path: Path) -> None:
        """Map a GGUF file and read everything but the tensors.

        Raises:
            DataError: it is not a GGUF file, is cut short, or names impossible sizes.
            ConfigError: the library that knows its kinds of numbers is not installed.
        """
        extra("gguf")
        try:
            with path.open("rb") as file:
                view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            self.settings, self._tensors = _Reader(view).contents()
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
        # An empty file cannot be mapped; a cut one ends in the middle of a number.
        except (struct.error, ValueError) as error:
            raise DataError(f"{path}: not a whole GGUF file: {error}") from error

    def describe(self) -> tuple[Architecture, Layout]:
        """Read the architecture.

        Raises:
            DataError: an architecture or a setting that is not known here.
        """
        kind = self.settings.get("general.architecture")
        if not isinstance(kind, str) or kind not in _LAYOUTS:
            raise DataError(
                f"wanted a general.architecture of {', '.join(sorted(_LAYOUTS))}, got {kind!r}"
            )
        return _describe(kind, self.settings, set(self._tensors)), _LAYOUTS[kind]

    def readers(self) -> Readers:
        """List the tensors, without dequantising them."""
        return {name: _reader(tensor) for name, tensor in self._tensors.items()}


def _reader(tensor: Stored) -> Callable[[], Tensor]:
    def read() -> Tensor:
        kind = extra("gguf").GGMLQuantizationType(tensor.kind)
        try:
            values = extra("gguf.quants").dequantize(tensor.data, kind)
        except NotImplementedError as error:
            raise DataError(f"tensor {tensor.name!r}: cannot dequantise: {error}") from error
        return torch.from_numpy(np.array(values, np.float32))

    return read


def _describe(kind: str, settings: Settings, names: set[str]) -> Architecture:
    own = Noted(
        {
            key.removeprefix(f"{kind}."): value
            for key, value in settings.items()
            if key.startswith(f"{kind}.")
        },
        f"GGUF: {kind}",
        _SILENT,
    )
    if "rope_freqs.weight" in names:
        raise DataError(
            "rope_freqs.weight: positions as LLaMA 3 scales them are read from a Hugging Face "
            "checkpoint (config.json and safetensors), not from GGUF; use that one"
        )
    width, heads = whole(own, "embedding_length"), whole(own, "attention.head_count")
    head_dim = whole(own, "attention.key_length", width // heads)
    if whole(own, "rope.dimension_count", head_dim) != head_dim:
        raise DataError(f"wanted all {head_dim} features of a head to turn, got only some")
    if whole(own, "attention.value_length", head_dim) != head_dim:
        raise DataError(f"wanted values as wide as keys, {head_dim}, got another width")
    tokens = settings.get("tokenizer.ggml.tokens", [])
    if not isinstance(tokens, list):
        raise DataError(f"wanted a list of tokens in the file, got {tokens!r}")
    is_gpt2 = kind == "gpt2"
    eps = "attention.layer_norm_epsilon" if is_gpt2 else "attention.layer_norm_rms_epsilon"
    found = Architecture(
        family="gpt2" if is_gpt2 else "llama",
        layers=whole(own, "block_count"),
        width=width,
        heads=heads,
        kv_heads=whole(own, "attention.head_count_kv", heads),
        head_dim=head_dim,
        ffn=whole(own, "feed_forward_length"),
        vocab=whole(own, "vocab_size", len(tokens)),
        context=whole(own, "context_length"),
        norm="layer" if is_gpt2 else "rms",
        norm_eps=number(own, eps, 1e-5),
        activation="gelu_tanh" if is_gpt2 else "swiglu",
        positions="learned" if is_gpt2 else "rotary",
        rope_theta=number(own, "rope.freq_base", 10000.0),
        tied_output="output.weight" not in names,
        has_bias=any(name.endswith(".bias") for name in names),
        has_qk_norm=kind == "qwen3",
        rope_factor=_slowed(own),
    )
    own.refuse_rest()
    return found


def _slowed(own: Settings) -> float:
    """Read what positions are divided by: a factor without a type is a linear one."""
    factors = [
        number(own, key)
        for key in ("rope.scaling.factor", "rope.scale_linear")
        if own.get(key) not in (0, None)
    ]
    kind = own.get("rope.scaling.type", "linear" if factors else "none")
    if kind == "none":
        return 1.0
    if kind != "linear" or len(set(factors)) != 1:
        raise DataError(f"wanted rope scaling with one linear factor, got {kind!r} and {factors}")
    return factors[0]


class _Reader:
    """A place in a mapped file that moves on."""

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self._at = 0

    def contents(self) -> tuple[dict[str, Any], dict[str, Stored]]:  # settings are checked later
        if bytes(self._view[:4]) != _MAGIC:
            raise ValueError("it does not begin with GGUF")
        self._at = 4
        version = self._number("I")
        if version not in _VERSIONS:
            raise ValueError(f"wanted version {_VERSIONS}, little-endian, got {version}")
        tensors, pairs = self._count(), self._count()
        settings = {self._text(): self._value(self._number("I")) for _ in range(pairs)}
        places = [self._place() for _ in range(tensors)]
        step = settings.get("general.alignment", _ALIGNMENT)
        if not isinstance(step, int) or step < 1:
            raise ValueError(f"impossible alignment {step!r}")
        start = -(-self._at // step) * step
        found = [self._tensor(start, *place) for place in places]
        return settings, {tensor.name: tensor for tensor in found}

    def _number(self, code: str) -> Any:  # int, float or bool by its code
        (value,) = struct.unpack_from(f"<{code}", self._view, self._at)
        self._at += struct.calcsize(f"<{code}")
        return value

    def _count(self) -> int:
        count: int = self._number("Q")
        if count > _LARGEST_COUNT:
            raise ValueError(f"impossible count {count}")
        return count

    def _text(self) -> str:
        return self._take(self._number("Q")).decode("utf-8", errors="replace")

    def _take(self, size: int) -> bytes:
        if size > len(self._view) - self._at:
            raise ValueError("it ends too early")
        self._at += size
        return bytes(self._view[self._at - size : self._at])

    def _value(self, kind: int, depth: int = 0) -> Any:  # whatever the file holds
        if kind == _TEXT:
            return self._text()
        if kind in _NUMBERS:
            return self._number(_NUMBERS[kind])
        if kind != _LIST or depth == _LARGEST_DEPTH:
            raise ValueError(f"impossible kind of value {kind}")
        inner, count = self._number("I"), self._count()
        if inner in _NUMBERS:
            code = f"<{count}{_NUMBERS[inner]}"
            return list(struct.unpack(code, self._take(struct.calcsize(code))))
        return [self._value(inner, depth + 1) for _ in range(count)]

    def _place(self) -> tuple[str, int, tuple[int, ...], int]:
        """Read name, kind, sizes (outermost first) and offset of a tensor."""
        name, axes = self._text(), self._number("I")
        if not 1 <= axes <= 4:
            raise ValueError(f"tensor {name!r} has {axes} axes")
        sizes = tuple(self._number("Q") for _ in range(axes))[::-1]
        return name, self._number("I"), sizes, self._number("Q")

    def _tensor(
        self, start: int, name: str, kind: int, sizes: tuple[int, ...], offset: int
    ) -> Stored:
        library = extra("gguf")
        per_block, block_bytes = library.GGML_QUANT_SIZES[library.GGMLQuantizationType(kind)]
        if sizes[-1] % per_block:
            raise ValueError(f"tensor {name!r} of rows of {sizes[-1]} is not made of whole blocks")
        shape = (*sizes[:-1], sizes[-1] // per_block * block_bytes)
        begin, size = start + offset, prod(shape)
        if not size or begin + size > len(self._view):
            raise ValueError(f"tensor {name!r} lies outside the file")
        data = np.frombuffer(self._view, np.uint8, size, begin).reshape(shape)
        return Stored(name, kind, data)
