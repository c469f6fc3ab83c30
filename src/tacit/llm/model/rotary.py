"""Rotary positions, in the half-split layout, and which tokens see each other."""

import torch
from torch import Tensor

from tacit.errors import ConfigError
from tacit.llm.model.architecture import Architecture


def places(architecture: Architecture, *, start: int, count: int, prompt: int) -> Tensor:
    """Return where each of ``count`` tokens from ``start`` on stands, as (kinds, count).

    One row for ``rotary``. For ``rotary2d`` two: the place in the prompt, which stays at its last
    token during the answer, and the place in the answer, which is 0 during the prompt.

    Args:
        architecture: the model.
        start: how many tokens came before.
        count: how many tokens.
        prompt: for ``rotary2d``, how many tokens precede ``<sop>``, the first of the answer.
    """
    index = torch.arange(start, start + count)
    if architecture.positions == "rotary":
        return index.unsqueeze(0)
    if architecture.positions == "rotary2d":
        first = torch.where(index < prompt, index, max(prompt - 1, 0))
        return torch.stack([first, (index - prompt + 1).clamp(min=0)])
    raise ConfigError(f"{architecture.family} has {architecture.positions} positions, not rotary")


def turns(
    architecture: Architecture, *, start: int, count: int, prompt: int = 0, window: int = 0
) -> tuple[Tensor, Tensor]:
    """Return cos and sin, each (count, head_dim), for `rotate`; ``window`` is the layer's."""
    where = places(architecture, start=start, count=count, prompt=prompt)
    speeds = _speeds(architecture, architecture.head_dim // len(where), window)
    angles = where.unsqueeze(-1).double() * speeds  # (kinds, count, dim / 2)
    full = torch.cat([angles, angles], -1).movedim(0, 1).reshape(count, -1)
    return full.cos().float(), full.sin().float()


def _speeds(a: Architecture, dim: int, window: int) -> Tensor:
    """Return by how much each pair of features turns from one token to the next."""
    turned = a.rotary_dim or dim
    theta = a.local_theta if window else a.rope_theta
    speeds = theta ** -(torch.arange(0, turned, 2, dtype=torch.float64) / turned)
    if not window:
        speeds = speeds / a.rope_factor if not a.rope_context else _slowed(a, speeds)
    return torch.cat([speeds, speeds.new_zeros((dim - turned) // 2)])


def _slowed(a: Architecture, speeds: Tensor) -> Tensor:
    """Slow angles down that turn a few times at most in the texts they were made for (LLaMA 3)."""
    rounds = a.rope_context * speeds / (2 * torch.pi)
    kept = ((rounds - a.rope_low) / (a.rope_high - a.rope_low)).clamp(0, 1)
    return speeds * (kept + (1 - kept) / a.rope_factor)


def visible(
    architecture: Architecture, *, start: int, count: int, prompt: int = 0, window: int = 0
) -> Tensor:
    """Say which keys each of ``count`` tokens from ``start`` on may see: (count, start + count).

    Every token sees those before it and itself, the last ``window`` of them if that is not 0. In
    ChatGLM the prompt is seen by all.
    """
    allowed = torch.ones(count, start + count, dtype=torch.bool).tril(start)
    if window:
        allowed &= torch.ones_like(allowed).triu(start - window + 1)
    if architecture.family == "chatglm":
        allowed[:, :prompt] = True
    return allowed


def rotate(architecture: Architecture, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn every head of ``x`` (…, tokens, head_dim) by its token's angles."""
    kinds = 2 if architecture.positions == "rotary2d" else 1
    first, second = x.reshape(*x.shape[:-1], kinds, 2, -1).unbind(-2)
    return x * cos + torch.stack([-second, first], -2).flatten(-3) * sin
