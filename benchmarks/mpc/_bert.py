"""Our side of the rows of ``bert``: the module that a user has, imported as `tacit.secure` does."""

from dataclasses import replace
from functools import lru_cache
from typing import TypeVar

import torch
from mpc._encoder import EPS, HEAD, PARTS
from mpc._rows import Row, make_operands
from torch import Tensor, nn
from torch.nn import functional

from tacit.mpc.ops import ProtocolOps
from tacit.nn import Imported, import_module, quarters_of, size_of

V = TypeVar("V")


class Layer(nn.Module):
    """A layer of BERT, as its users write it."""

    def __init__(self, width: int, ffn: int) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, ffn), nn.Linear(ffn, width)
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=EPS), nn.LayerNorm(width, eps=EPS)

    def forward(self, x: Tensor) -> Tensor:
        """Attend, and apply two affine maps, each with a residual and a norm behind it."""
        rows, tokens, width = x.shape
        q, k, v = (
            part(x).view(rows, tokens, -1, HEAD).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        mixed = functional.scaled_dot_product_attention(q, k, v)
        x = self.norm1(x + self.out(mixed.transpose(1, 2).reshape(rows, tokens, width)))
        found: Tensor = self.norm2(x + self.down(functional.gelu(self.up(x))))
        return found


class Encoder(nn.Module):
    """Layers of BERT."""

    def __init__(self, layers: int, width: int, ffn: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(width, ffn) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        """Apply all of them."""
        for layer in self.layers:
            x = layer(x)
        return x


@lru_cache(maxsize=2)
def _imported(row: Row) -> Imported:
    layers, _, width, ffn = row.sizes
    module = Encoder(layers, width, ffn)
    values = {one.name: torch.from_numpy(one.values) for one in make_operands(row)[1:]}
    module.load_state_dict({name.replace("/", "."): value for name, value in values.items()})
    found = import_module(module.eval())
    gains = {name: size_of(quarters_of(gain)) for name, gain in found.gains.items()}
    return replace(found, gains=gains)


def encoder(ops: ProtocolOps[V], x: V, *weights: V) -> V:
    """Run the encoder of a row; its facts are those of the row's weights."""
    (tokens, width), layers = ops.shape(x), len(weights) // len(PARTS)
    ffn = ops.shape(weights[PARTS.index("up/weight")])[0]
    imported = _imported(Row("bert", (layers, tokens, width, ffn)))
    named = dict(zip(imported.weights, weights, strict=True))
    out = imported(ops, named, ops.reshape(x, (1, tokens, width)))
    return ops.reshape(out, (tokens, width))
