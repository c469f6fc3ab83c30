"""Checkpoints in one GGUF file: its settings, and tensors dequantised to float32."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit.errors import DataError
from tacit.llm.architecture import Architecture
from tacit.llm.container import Stored, read_container
from tacit.llm.described import number, whole
from tacit.llm.extras import extra
from tacit.llm.layout import GGUF_GPT2, GGUF_LLAMA, GGUF_QWEN2, GGUF_QWEN3, Layout, Readers

Settings = Mapping[str, Any]  # the key-value part of a file: each value is checked where used
_LAYOUTS = {
    "llama": GGUF_LLAMA,
    "qwen2": GGUF_QWEN2,
    "qwen3": GGUF_QWEN3,
    "gpt2": GGUF_GPT2,
}


class Packed:
    """An open GGUF file."""

    def __init__(self, path: Path) -> None:
        self._container = read_container(path)

    @property
    def settings(self) -> Settings:
        """Return the settings of the file."""
        return self._container.settings

    def describe(self) -> tuple[Architecture, Layout]:
        """Read the architecture.

        Raises:
            DataError: an architecture or a setting that is not known here.
        """
        kind = self.settings.get("general.architecture")
        if kind not in _LAYOUTS:
            raise DataError(
                f"wanted a general.architecture of {', '.join(sorted(_LAYOUTS))}, got {kind!r}"
            )
        return _describe(kind, self.settings, set(self._container.tensors)), _LAYOUTS[kind]

    def readers(self) -> Readers:
        """List the tensors, without dequantising them."""
        return {name: _reader(tensor) for name, tensor in self._container.tensors.items()}


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
    own = {
        key.removeprefix(f"{kind}."): value
        for key, value in settings.items()
        if key.startswith(f"{kind}.")
    }
    if own.get("rope.scaling.type", "none") != "none":
        raise DataError(f"rope scaling is not supported, got {own['rope.scaling.type']!r}")
    width, heads = whole(own, "embedding_length"), whole(own, "attention.head_count")
    head_dim = whole(own, "attention.key_length", width // heads)
    if whole(own, "rope.dimension_count", head_dim) != head_dim:
        raise DataError(f"wanted all {head_dim} features of a head to turn, got only some")
    is_gpt2 = kind == "gpt2"
    eps = "attention.layer_norm_epsilon" if is_gpt2 else "attention.layer_norm_rms_epsilon"
    return Architecture(
        family="gpt2" if is_gpt2 else "llama",
        layers=whole(own, "block_count"),
        width=width,
        heads=heads,
        kv_heads=whole(own, "attention.head_count_kv", heads),
        head_dim=head_dim,
        ffn=whole(own, "feed_forward_length"),
        vocab=whole(own, "vocab_size", len(settings.get("tokenizer.ggml.tokens", ()))),
        context=whole(own, "context_length"),
        norm="layer" if is_gpt2 else "rms",
        norm_eps=number(own, eps, 1e-5),
        activation="gelu_tanh" if is_gpt2 else "swiglu",
        positions="learned" if is_gpt2 else "rotary",
        rope_theta=number(own, "rope.freq_base", 10000.0),
        tied_output="output.weight" not in names,
        has_bias=any(name.endswith(".bias") for name in names),
        has_qk_norm=kind == "qwen3",
    )
