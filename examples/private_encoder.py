"""A sentence embedded in private: the hospital's words, the lab's BERT, and one vector comes out.

You will see how close the private vector is to that of the plain model, what it cost, and that
nothing but the vector was shown. The model is a small BERT with random weights; a trained one has
the same layers, and its state loads into the same module.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

import tacit

VOCAB, CONTEXT, WIDTH, HEADS, FFN, LAYERS = 200, 32, 64, 4, 128, 2


class Layer(nn.Module):
    """Attention to every token and two affine maps, each with a residual and a norm behind it."""

    def __init__(self, width: int, heads: int, ffn: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, ffn), nn.Linear(ffn, width)
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-12), nn.LayerNorm(width, eps=1e-12)

    def forward(self, x: Tensor) -> Tensor:
        """Read (rows, tokens, width)."""
        rows, tokens, width = x.shape
        q, k, v = (
            part(x).view(rows, tokens, self.heads, -1).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        mixed = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2)
        x = self.norm1(x + self.out(mixed.reshape(rows, tokens, width)))
        found: Tensor = self.norm2(x + self.down(functional.gelu(self.up(x))))
        return found


class Bert(nn.Module):
    """BERT as a sentence encoder: the mean of what its last layer says of every token."""

    def __init__(
        self, vocab: int, context: int, width: int, heads: int, ffn: int, layers: int
    ) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(vocab, width), nn.Embedding(context, width)
        self.types, self.norm = nn.Embedding(2, width), nn.LayerNorm(width, eps=1e-12)
        self.layers = nn.ModuleList(Layer(width, heads, ffn) for _ in range(layers))

    def forward(self, ids: Tensor) -> Tensor:
        """Read token ids (rows, tokens) and return (rows, width)."""
        x = self.words(ids) + self.positions.weight[: ids.shape[1]] + self.types.weight[0]
        x = self.norm(x)
        for layer in self.layers:
            x = layer(x)
        return x.mean(1)


def main() -> None:
    """Embed one sentence in private, and compare."""
    torch.manual_seed(0)
    model = Bert(VOCAB, CONTEXT, WIDTH, HEADS, FFN, LAYERS).eval()
    ids = torch.randint(0, VOCAB, (1, 16))
    private = tacit.secure(model, protocol="sealed")
    answer = private(ids)
    with torch.no_grad():
        plain = model(ids).double()
    print(f"cosine {functional.cosine_similarity(answer.values, plain).item():.4f}")
    online = sum(one.payload_bytes for one in answer.cost.traffic if one.phase == "online")
    print(f"online {answer.cost.online_rounds} rounds, {online} bytes")
    forecast = private.forecast(tuple(ids.shape))
    print(f"as-forecast {forecast.cost.online_rounds == answer.cost.online_rounds}")
    shown = [leak for leak in answer.ledger if leak.kind == "output"]
    print(f"shown {shown[0].elements} numbers, to {shown[0].to}")


if __name__ == "__main__":
    main()
