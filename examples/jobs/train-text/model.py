"""A small decoder as GPT-2 has it: it reads ids, and scores the next one at every token."""

import torch
from torch import Tensor, nn
from torch.nn import functional

VOCABULARY, TOKENS, WIDTH, HEADS = 12, 8, 16, 2


def heads_of(x: Tensor) -> Tensor:
    """Cut the width into heads."""
    return x.unflatten(2, (HEADS, WIDTH // HEADS)).transpose(1, 2)


class Block(nn.Module):
    """Causal attention and a hidden layer, each behind a norm and beside what comes in."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Run the block over (rows, tokens, width)."""
        q, k, v = self.qkv(self.first(x)).chunk(3, dim=-1)
        mixed = functional.scaled_dot_product_attention(
            heads_of(q), heads_of(k), heads_of(v), is_causal=True
        )
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.second(x))))


class Decoder(nn.Module):
    """An embedding with places, a block, and a head over the vocabulary."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Parameter(0.1 * torch.randn(TOKENS, WIDTH))
        self.block, self.norm = Block(), nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids: Tensor) -> Tensor:
        """Give scores (rows, tokens, vocabulary) of the next tokens."""
        out: Tensor = self.head(self.norm(self.block(self.table(ids) + self.places)))
        return out


def make_model() -> nn.Module:
    """Make the model that every party starts from."""
    return Decoder()
