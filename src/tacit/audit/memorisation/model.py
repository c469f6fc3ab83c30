"""A small language model whose training takes seconds, for measuring memorisation."""

import torch
from torch import Tensor, nn


class SmallSpeaker(nn.Module):
    """A causal Transformer that maps ids to (texts, vocab, tokens) scores.

    The scores have the classes second, as cross entropy wants them, so that trainers for
    classifiers train it too; every parameter sits in a layer that has per-record gradients.
    """

    def __init__(self, vocab: int, context: int, *, width: int = 64, layers: int = 2) -> None:
        super().__init__()
        self.context = context
        self.embed = nn.Embedding(vocab, width)
        self.places = nn.Embedding(context, width)
        self.blocks = nn.ModuleList([_Block(width) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, vocab)

    def forward(self, ids: Tensor) -> Tensor:
        """Return (texts, vocab, tokens) scores of each next token."""
        # One row of places per text, so that every record has its own gradient.
        places = torch.arange(ids.shape[1], device=ids.device).expand(ids.shape)
        x = self.embed(ids) + self.places(places)
        for block in self.blocks:
            x = block(x)
        scores: Tensor = self.output(self.norm(x))
        return scores.transpose(1, 2)


class _Block(nn.Module):
    """Attention over what came before, then two dense layers; both around a skip."""

    def __init__(self, width: int, *, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return (texts, tokens, width)."""
        texts, tokens, width = x.shape
        parts = self.mix(self.norm1(x)).view(texts, tokens, 3, self.heads, -1)
        q, k, v = parts.permute(2, 0, 3, 1, 4)  # each (texts, heads, tokens, head_dim)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(texts, tokens, width))
        fed: Tensor = self.down(nn.functional.gelu(self.up(self.norm2(x))))
        return x + fed


def train_speaker(
    model: nn.Module,
    texts: Tensor,
    *,
    epochs: int,
    generator: torch.Generator,
    rate: float = 3e-3,
    batch: int = 64,
) -> None:
    """Train in place by Adam on next-token cross entropy, without any protection.

    Guarantee: no guarantee.
    """
    optimiser = torch.optim.Adam(model.parameters(), lr=rate)
    place = next(model.parameters()).device
    for _ in range(epochs):
        order = torch.empty(len(texts)).uniform_(generator=generator).argsort()
        for rows in torch.split(order, batch):
            ids = texts[rows].to(place)
            optimiser.zero_grad(set_to_none=True)
            loss = nn.functional.cross_entropy(model(ids[:, :-1]), ids[:, 1:])
            torch.autograd.backward(loss)
            optimiser.step()
