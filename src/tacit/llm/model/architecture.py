"""The shape of a decoder language model and its weights under one set of names."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from tacit.errors import ConfigError, DataError

Shape = tuple[int, ...]

_LARGEST = {
    "layers": 1 << 12,
    **dict.fromkeys(("width", "heads", "kv_heads", "head_dim", "ffn"), 1 << 20),
    **dict.fromkeys(("vocab", "context"), 1 << 24),
}
"""An architecture may come from a file or a peer, and is planned with before it is believed."""


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """What a model computes, without its weights. Both sides of a private chat know it.

    ``has_bias`` says that q, k, v, o, gate, up and down all have a bias; a reader fills in zeros
    for those that a checkpoint leaves out (Qwen has them on q, k, v only). Layer norms always have
    one, RMS norms never. ``context`` is the longest sequence the positions were made for.

    A block is ``h = x + attention(norm1(x))``, ``y = h + mlp(norm2(h))``, except in ChatGLM,
    where the skip starts *behind* the norm and is scaled: with ``n = norm1(x)``,
    ``h = residual_scale * n + attention(n)``, and the same with norm2 around the mlp. ChatGLM
    also attends in both directions within the prompt, up to the token before ``<sop>``, and its
    ``rotary2d`` turns the first half of each head by the place in the prompt and the second half
    by the place in the answer (see `tacit.llm.turns`, which gives cos and sin for every kind).

    Attributes:
        rotary_dim: how many features of a head turn; 0: all (GLM-4 turns half of them).
        rope_factor: how many times longer texts are than those that the angles were made for; with
            ``rope_context``, of LLaMA 3, only slow angles are slowed down further.
        rope_low: turns within ``rope_context`` up to which an angle is slowed down by the factor.
        rope_high: turns within it from which on an angle stays as it is.
        rope_context: the length of those texts, in LLaMA 3.
        has_qk_norm: each head of queries and keys is normalised before it turns (Qwen3, Gemma 3).
        has_post_norm: what attention and mlp add to the stream is normalised (Gemma 3, GLM-4).
        embed_scale: embeddings are multiplied by it, output scores are not (Gemma 3).
        score_scale: of queries times keys; 0: 1 / √head_dim.
        window: the keys that a row of a local layer sees, its own among them; 0: no layer is local.
        global_every: of so many layers the last is not local.
        local_theta: ``rope_theta`` of local layers, whose angles have no factor.
    """

    family: Literal["llama", "gpt2", "chatglm"]
    layers: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    context: int
    norm: Literal["rms", "layer"]
    norm_eps: float
    activation: Literal["swiglu", "geglu_tanh", "gelu", "gelu_tanh"]
    positions: Literal["rotary", "learned", "rotary2d"]
    rope_theta: float
    tied_output: bool
    has_bias: bool
    rotary_dim: int = 0
    rope_factor: float = 1.0
    rope_low: float = 1.0
    rope_high: float = 4.0
    rope_context: int = 0
    has_qk_norm: bool = False
    has_post_norm: bool = False
    embed_scale: float = 1.0
    score_scale: float = 0.0
    window: int = 0
    global_every: int = 1
    local_theta: float = 10000.0

    def __post_init__(self) -> None:
        for name, most in _LARGEST.items():
            if not 1 <= getattr(self, name) <= most:
                raise ConfigError(f"a model has {name} from 1 to {most}, got {getattr(self, name)}")
        if self.heads % self.kv_heads:
            raise ConfigError(
                f"heads must be a multiple of kv_heads, got {self.heads} and {self.kv_heads}"
            )
        turns = {"rotary": 2, "rotary2d": 4, "learned": 1}[self.positions]
        if self.head_dim % turns:
            raise ConfigError(
                f"{self.positions} positions need head_dim divisible by {turns}, "
                f"got {self.head_dim}"
            )
        self._check_variants()

    def _check_variants(self) -> None:
        """Refuse numbers that no checkpoint has: an architecture may come from a peer."""
        is_sound = (
            0 <= self.rotary_dim <= self.head_dim
            and self.rotary_dim % 2 == 0
            and self.window >= 0
            and self.global_every >= 1
            and self.rope_context >= 0
            and 0 < self.rope_low < self.rope_high < math.inf
            and all(0 < x < math.inf for x in (self.rope_factor, self.embed_scale))
            and all(0 < x < math.inf for x in (self.rope_theta, self.local_theta))
            and 0 <= self.score_scale < math.inf
        )
        if not is_sound:
            raise ConfigError(f"no model has these positions, scales or windows: {self}")
        if (self.has_qk_norm or self.has_post_norm) and self.norm != "rms":
            raise ConfigError("norms of heads and behind attention are RMS norms, as all others")
        if self.has_qk_norm and self.has_bias:
            raise ConfigError("queries and keys with a norm of their own have no bias")

    def window_of(self, layer: int) -> int:
        """Return how many keys a row of a layer sees at most; 0: all."""
        return self.window if self.window and (layer + 1) % self.global_every else 0

    @property
    def query_scale(self) -> float:
        """Return what scores are multiplied with."""
        return self.score_scale or 1 / math.sqrt(self.head_dim)

    @property
    def residual_scale(self) -> float:
        """Return what the skip connection is multiplied with: sqrt(2 layers) in ChatGLM, else 1."""
        return math.sqrt(2 * self.layers) if self.family == "chatglm" else 1.0

    @property
    def skips_from_norm(self) -> bool:
        """Say whether the skip connection starts behind the norm."""
        return self.family == "chatglm"

    @property
    def has_gate(self) -> bool:
        """Say whether the mlp multiplies two branches."""
        return self.activation in ("swiglu", "geglu_tanh")


@dataclass(frozen=True, kw_only=True, eq=False)
class LanguageModel:
    """A model with all its weights, float32, matrices as (out, in).

    The names are those of ``shapes``. Rotary weights are in the half-split layout: feature ``j``
    of a head turns together with feature ``j + head_dim / 2``. ``output.weight`` is always there;
    with a tied output it is the very tensor ``embed``.
    """

    architecture: Architecture
    weights: Mapping[str, Tensor]

    def __post_init__(self) -> None:
        check(self.architecture, {name: tuple(w.shape) for name, w in self.weights.items()})


def shapes(architecture: Architecture) -> dict[str, Shape]:
    """List every tensor of a model with its shape."""
    a = architecture
    out: dict[str, Shape] = {"embed": (a.vocab, a.width), "output.weight": (a.vocab, a.width)}
    if a.positions == "learned":
        out["positions"] = (a.context, a.width)
    for i in range(a.layers):
        for name, (rows, columns) in _matrices(a).items():
            out[f"layers.{i}.{name}.weight"] = (rows, columns)
            if a.has_bias:
                out[f"layers.{i}.{name}.bias"] = (rows,)
        if a.has_qk_norm:
            out |= {f"layers.{i}.{part}_norm.weight": (a.head_dim,) for part in "qk"}
        if a.has_post_norm:
            out |= {f"layers.{i}.post_norm{j}.weight": (a.width,) for j in (1, 2)}
    for norm in [f"layers.{i}.norm{j}" for i in range(a.layers) for j in (1, 2)] + ["norm"]:
        out[f"{norm}.weight"] = (a.width,)
        if a.norm == "layer":
            out[f"{norm}.bias"] = (a.width,)
    return out


def parameters(architecture: Architecture) -> int:
    """Count the numbers that a model holds; a tied output counts once."""
    sizes = shapes(architecture)
    if architecture.tied_output:
        del sizes["output.weight"]
    return sum(math.prod(shape) for shape in sizes.values())


def check(architecture: Architecture, found: Mapping[str, Shape]) -> None:
    """Refuse a set of tensors that is not exactly what the architecture needs.

    Raises:
        DataError: naming the first tensor that is missing, has another shape, or is unknown.
    """
    wanted = shapes(architecture)
    for name, shape in wanted.items():
        if name not in found:
            raise DataError(f"the model has no tensor {name!r} of shape {shape}")
        if found[name] != shape:
            raise DataError(f"tensor {name!r} must have shape {shape}, got {found[name]}")
    for name in found:
        if name not in wanted:
            raise DataError(f"the model has a tensor {name!r} that {architecture.family} has not")


def _matrices(a: Architecture) -> dict[str, tuple[int, int]]:
    inner, kv = a.heads * a.head_dim, a.kv_heads * a.head_dim
    out = {"q": (inner, a.width), "k": (kv, a.width), "v": (kv, a.width), "o": (a.width, inner)}
    if a.has_gate:
        out["gate"] = (a.ffn, a.width)
    return out | {"up": (a.ffn, a.width), "down": (a.width, a.ffn)}
