"""What is public about the places of a pass's tokens: angles, and which keys are seen."""

import torch
from torch import Tensor

from tacit import ring
from tacit.llm.model.architecture import Architecture
from tacit.llm.model.rotary import turns, visible
from tacit.llm.sealed.bounds import FRAC_BITS
from tacit.llm.sealed.passes import Pass


def told_words(a: Architecture, step: Pass, slots: Tensor | None = None) -> dict[str, Tensor]:
    """Return the public words of a pass: what its rows turn by, and which keys they see.

    ``slots`` says where in the text the token of each key stands, if some are void (-1).
    """
    words = dict[str, Tensor]()
    _, signs = swap(a)
    held = torch.arange(step.past + step.rows) if slots is None else slots
    rows = step.places() - step.read
    for window, layer in {a.window_of(i): i for i in range(a.layers)}.items():
        seen = sight(a, step, layer)[rows][:, held.clamp(min=0)] & (held >= 0)
        shown = torch.zeros(step.rows, step.room, dtype=torch.int64)
        shown[:, : seen.shape[1]] = seen
        words[f"seen.{window}"] = shown.repeat(a.heads // a.kv_heads, 1)
        if a.positions == "learned":
            continue
        where = {"start": step.read, "count": step.rows - step.pads, "prompt": step.prompt}
        cos, sin = (one[rows] for one in turns(a, **where, window=window))
        words[f"cos.{window}"] = ring.encode(cos.double(), frac_bits=FRAC_BITS)
        words[f"sin.{window}"] = ring.encode(sin.double() * signs, frac_bits=FRAC_BITS)
    return words


def sight(a: Architecture, step: Pass, layer: int) -> Tensor:
    """Return which tokens each new one that counts may see in a layer, (new, read + new)."""
    window, count = a.window_of(layer), step.rows - step.pads
    return visible(a, start=step.read, count=count, prompt=step.prompt, window=window)


def swap(a: Architecture) -> tuple[list[int], Tensor]:
    """Return where the partner of each feature of a head is, and the sign of its sine."""
    kinds = 2 if a.positions == "rotary2d" else 1
    pairs = torch.arange(a.head_dim).view(kinds, 2, -1)
    signs = torch.tensor([-1.0, 1.0], dtype=torch.float64).view(1, 2, 1).expand(pairs.shape)
    return pairs.flip(1).flatten().tolist(), signs.flatten()
