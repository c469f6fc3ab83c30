"""Rotary positions, one- and two-dimensional, in the half-split layout."""

import torch
from torch import Tensor

from tacit.errors import ConfigError
from tacit.llm.architecture import Architecture


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
    architecture: Architecture, *, start: int, count: int, prompt: int = 0
) -> tuple[Tensor, Tensor]:
    """Return cos and sin, each (count, head_dim), for `rotate`."""
    where = places(architecture, start=start, count=count, prompt=prompt)
    dim = architecture.head_dim // len(where)
    slow = architecture.rope_theta ** (torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    angles = where.unsqueeze(-1).double() / slow  # (kinds, count, dim / 2)
    full = torch.cat([angles, angles], -1).movedim(0, 1).reshape(count, -1)
    return full.cos().float(), full.sin().float()


def rotate(architecture: Architecture, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn every head of ``x`` (…, tokens, head_dim) by its token's angles."""
    kinds = 2 if architecture.positions == "rotary2d" else 1
    first, second = x.reshape(*x.shape[:-1], kinds, 2, -1).unbind(-2)
    return x * cos + torch.stack([-second, first], -2).flatten(-3) * sin
