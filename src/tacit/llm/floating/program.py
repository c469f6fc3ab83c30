"""A pass through a model in floating-point shares, written once for whoever walks it.

A masked value x is m + r: the owner holds m, the user and the dealer hold r. What is linear and
public, such as a rotation, every party does to what it holds.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from tacit.llm.model.architecture import Architecture
from tacit.llm.model.rotary import rotate, turns
from tacit.llm.sealed.passes import Pass
from tacit.llm.sealed.told import sight

Equation = Literal["qk", "av"]
"""Products of two masked values: queries with keys, or weights with values."""

Function = Callable[[Tensor], Tensor]
"""What the user computes in the clear: (rows, parts, width) to (rows, width), places kept."""


@dataclass(frozen=True, eq=False)
class MaskedValue:
    """What a party holds of a value, and how wide the user's noise on it is."""

    share: Tensor
    spread: float

    def plus(self, other: "MaskedValue") -> "MaskedValue":
        """Add two masked values."""
        spread = (self.spread**2 + other.spread**2) ** 0.5
        return MaskedValue(self.share + other.share, spread)


@dataclass(eq=False)
class Rows:
    """A party's keys and values of one conversation, (tokens, groups, dim), by layer."""

    keys: dict[int, MaskedValue] = field(default_factory=dict)
    values: dict[int, MaskedValue] = field(default_factory=dict)


class Interpreter(Protocol):
    """One party's way through a pass."""

    def linear(self, name: str, x: MaskedValue) -> MaskedValue:
        """Multiply rows by the owner's matrix, and add its bias."""
        ...

    def product(
        self, label: str, equation: Equation, x: MaskedValue, y: MaskedValue
    ) -> MaskedValue:
        """Multiply two masked values."""
        ...

    def look(
        self, label: str, x: MaskedValue, function: Function, valid: Tensor | None = None
    ) -> MaskedValue:
        """Have the user compute on permuted (rows, parts, width); gives (rows, width).

        With ``valid`` (rows, places), a row is heads of places each, and the existing ones come
        first in every head.
        """
        ...

    def show(self, label: str, x: MaskedValue) -> Tensor | None:
        """Show rows to the user in secret permutations; it alone gets them."""
        ...


def run_pass(
    party: Interpreter, a: Architecture, step: Pass, x: MaskedValue, rows: Rows
) -> Tensor | None:
    """Take a stream (rows, width) through all layers, and show the scores of the last row."""
    for i in range(a.layers):
        h = party.look(f"{i}.norm1", _one_part(x), _normalise(a))
        skip = party.linear(f"{i}.skip1", h) if a.skips_from_norm else x
        x = skip.plus(_post_norm(party, a, f"{i}.post1", _attend(party, a, step, i, h, rows)))
        h = party.look(f"{i}.norm2", _one_part(x), _normalise(a))
        skip = party.linear(f"{i}.skip2", h) if a.skips_from_norm else x
        up = party.linear(f"{i}.up", h)
        parts = 2 if a.has_gate else 1
        wide = MaskedValue(up.share.view(step.rows, parts, a.ffn), up.spread)
        active = party.look(f"{i}.act", wide, _activate(a))
        x = skip.plus(_post_norm(party, a, f"{i}.post2", party.linear(f"{i}.down", active)))
    if not step.is_scored:
        return None
    last = MaskedValue(x.share[-1:], x.spread)
    h = party.look("norm", _one_part(last), _normalise(a))
    return party.show("scores", party.linear("output", h))


def _post_norm(party: Interpreter, a: Architecture, name: str, x: MaskedValue) -> MaskedValue:
    """Normalise what is added to the stream, where a model does."""
    if not a.has_post_norm:
        return x
    return party.linear(name, party.look(f"{name}.norm", _one_part(x), _normalise(a)))


def _normed_heads(party: Interpreter, a: Architecture, name: str, x: MaskedValue) -> MaskedValue:
    """Normalise each head of (rows, heads, dim)."""
    heads = MaskedValue(x.share.reshape(-1, 1, a.head_dim), x.spread)
    out = party.linear(name, party.look(f"{name}.look", heads, _normalise(a)))
    return MaskedValue(out.share.view(x.share.shape), out.spread)


def _attend(
    party: Interpreter, a: Architecture, step: Pass, i: int, h: MaskedValue, rows: Rows
) -> MaskedValue:
    sees, window = sight(a, step, i), a.window_of(i)
    qkv = party.linear(f"{i}.qkv", h)
    sizes = [a.heads * a.head_dim, a.kv_heads * a.head_dim, a.kv_heads * a.head_dim]
    parts = (part.view(step.rows, -1, a.head_dim) for part in qkv.share.split_with_sizes(sizes, 1))
    query, key, value = (MaskedValue(part, qkv.spread) for part in parts)
    if a.has_qk_norm:
        query = _normed_heads(party, a, f"{i}.q_norm", query)
        key = _normed_heads(party, a, f"{i}.k_norm", key)
    if a.positions != "learned":
        cos, sin = turns(a, start=step.past, count=step.rows, prompt=step.prompt, window=window)
        query, key = (
            MaskedValue(_rotated(a, value.share, cos.double(), sin.double()), value.spread)
            for value in (query, key)
        )
    keys = rows.keys[i] = _behind(rows.keys.get(i), key, step.past)
    values = rows.values[i] = _behind(rows.values.get(i), value, step.past)
    scores = party.product(f"{i}.scores", "qk", query, keys)  # (rows, heads, tokens)
    flat = MaskedValue(scores.share.reshape(step.rows, 1, -1), scores.spread)
    weights = party.look(f"{i}.softmax", flat, _soften(sees), sees)
    weights = MaskedValue(weights.share.view(step.rows, a.heads, -1), weights.spread)
    mixed = party.product(f"{i}.mixed", "av", weights, values)
    return party.linear(f"{i}.o", MaskedValue(mixed.share.flatten(1), mixed.spread))


def multiply(equation: Equation, x: Tensor, y: Tensor) -> Tensor:
    """Multiply queries with keys or weights with values; heads share the keys of their group."""
    shared = y.repeat_interleave(x.shape[1] // y.shape[1], dim=1)  # (tokens, heads, dim)
    if equation == "qk":
        return torch.einsum("rhd,nhd->rhn", x, shared)
    return torch.einsum("rhn,nhd->rhd", x, shared)


def terms(equation: Equation, x: Tensor, y: Tensor) -> int:
    """Return how many products are added up in each result."""
    return x.shape[2] if equation == "qk" else y.shape[0]


def _behind(old: MaskedValue | None, new: MaskedValue, past: int) -> MaskedValue:
    if old is None or not past:
        return new
    return MaskedValue(torch.cat([old.share[:past], new.share]), max(old.spread, new.spread))


def _rotated(a: Architecture, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return rotate(a, x.transpose(0, 1), cos, sin).transpose(0, 1)


def _one_part(x: MaskedValue) -> MaskedValue:
    return MaskedValue(x.share.unsqueeze(1), x.spread)


def _normalise(a: Architecture) -> Function:
    def function(seen: Tensor) -> Tensor:
        x = seen[:, 0]
        if a.norm == "layer":
            x = x - x.mean(1, keepdim=True)
        return x * (x.square().mean(1, keepdim=True) + a.norm_eps).rsqrt()

    return function


def _activate(a: Architecture) -> Function:
    def function(seen: Tensor) -> Tensor:
        match a.activation:
            case "swiglu":
                return functional.silu(seen[:, 0]) * seen[:, 1]
            case "geglu_tanh":
                return functional.gelu(seen[:, 0], approximate="tanh") * seen[:, 1]
            case "gelu":
                return functional.gelu(seen[:, 0])
            case "gelu_tanh":
                return functional.gelu(seen[:, 0], approximate="tanh")

    return function


def _soften(sees: Tensor) -> Function:
    """Return a softmax over the first entries of every head: as many as a row sees keys."""
    rows, places = sees.shape

    def function(seen: Tensor) -> Tensor:
        scores = seen.view(rows, -1, places)
        exists = torch.arange(places) < sees.sum(1, keepdim=True)
        scores = scores.masked_fill(~exists.unsqueeze(1), -torch.inf)
        return scores.softmax(2).view(rows, -1)

    return function
