"""The lower layers of a language model as a function that can be differentiated.

The plain engine of `tacit.llm` reads ids, remembers and takes no gradients; an attacker starts at
embeddings, runs many texts at once and needs the gradients.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from tacit.errors import ConfigError
from tacit.llm import LanguageModel, rotate, turns
from tacit.llm.model.layer import feed, linear, norm


@dataclass(frozen=True, kw_only=True, eq=False)
class Past:
    """Keys and values of the tokens before, per layer, (texts, heads, tokens, head_dim)."""

    keys: tuple[Tensor, ...] = ()
    values: tuple[Tensor, ...] = ()

    @property
    def length(self) -> int:
        """Return how many tokens there are."""
        return self.keys[0].shape[2] if self.keys else 0


def run_layers(
    model: LanguageModel, x: Tensor, *, first: int, last: int, past: Past | None = None
) -> tuple[Tensor, Past]:
    """Run layers `first` to `last` − 1 on hidden states (texts, tokens, width).

    Layer 0 starts at token embeddings; learned positions are added there.

    Raises:
        ConfigError: the model attends in both directions, or has no such layers.
    """
    a = model.architecture
    if a.family == "chatglm":
        raise ConfigError("ChatGLM looks at the prompt in both directions; inversion needs causal")
    if not 0 <= first <= last <= a.layers:
        raise ConfigError(f"layers lie between 0 and {a.layers}, got {first} to {last}")
    past = past or Past()
    start, count = past.length, x.shape[1]
    if a.positions == "learned" and first == 0:
        x = x + model.weights["positions"][start : start + count]
    keys, values = [], []
    for i in range(first, last):
        before = (past.keys[i - first], past.values[i - first]) if past.keys else None
        x, k, v = _block(model, i, x, start, before)
        keys.append(k)
        values.append(v)
    return x, Past(keys=tuple(keys), values=tuple(values))


def run_head(model: LanguageModel, x: Tensor) -> Tensor:
    """Return the scores of the next tokens from the last hidden states."""
    return functional.linear(norm(model, "norm", x), model.weights["output.weight"])


def move(model: LanguageModel, device: torch.device | str) -> LanguageModel:
    """Return the model with its weights on a device."""
    return replace(model, weights={n: w.to(device) for n, w in model.weights.items()})


def _block(
    model: LanguageModel, layer: int, x: Tensor, start: int, before: tuple[Tensor, Tensor] | None
) -> tuple[Tensor, Tensor, Tensor]:
    name = f"layers.{layer}"
    mixed, k, v = _attend(model, name, norm(model, f"{name}.norm1", x), start, before)
    x = x + mixed
    return x + feed(model, name, norm(model, f"{name}.norm2", x)), k, v


def _attend(
    model: LanguageModel, name: str, x: Tensor, start: int, before: tuple[Tensor, Tensor] | None
) -> tuple[Tensor, Tensor, Tensor]:
    a, count = model.architecture, x.shape[1]
    q, k, v = (_heads(linear(model, f"{name}.{part}", x), a.head_dim) for part in "qkv")
    if a.positions != "learned":
        cos, sin = (one.to(x) for one in turns(a, start=start, count=count))
        q, k = rotate(a, q, cos, sin), rotate(a, k, cos, sin)
    if before is not None:
        k, v = torch.cat([before[0], k], 2), torch.cat([before[1], v], 2)
    allowed = torch.ones(count, start + count, dtype=torch.bool, device=x.device).tril(start)
    mixed = functional.scaled_dot_product_attention(
        q, k, v, attn_mask=allowed, enable_gqa=a.kv_heads != a.heads
    )
    return linear(model, f"{name}.o", mixed.transpose(1, 2).flatten(2)), k, v


def _heads(x: Tensor, head_dim: int) -> Tensor:
    return x.view(*x.shape[:2], -1, head_dim).transpose(1, 2)  # (texts, heads, tokens, head_dim)
