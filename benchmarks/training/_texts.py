"""A small language model on shares, in the clear, and with a published chapter's approximations.

    python benchmarks/run.py training/_texts texts.txt --steps 100

Characters of a text (the 31 most frequent and one for the rest), 16 tokens, two layers of width 32
as GPT-2 has them with ReLU, the same batches for each pair that is compared. The approximations are
those of a thesis that trains "equivalent models": inputs of ReLU are cut to whole numbers, and
exponentials are e to the whole part times a Taylor polynomial of order five of the rest. Prints
losses on held-out texts in nats.
"""

import argparse
import json
import lzma
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import tacit
from tacit.training import Training, TrainModel, train_plain

VOCABULARY, TOKENS, WIDTH, HEADS, LAYERS, TEXTS = 32, 16, 32, 2, 2, 24_000


class FloorRelu(torch.autograd.Function):
    """ReLU of the whole part; gradients go on as those of a ReLU."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Cut the digits off."""
        whole = x.floor()
        ctx.save_for_backward(whole > 0)
        return whole.clamp(min=0)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        """Let the gradient through where something came out."""
        return gradients[0] * ctx.saved_tensors[0]


def taylor_softmax(x: Tensor) -> Tensor:
    """Softmax by exponentials of a whole part and of a Taylor polynomial of the rest."""
    moved = x - x.amax(dim=-1, keepdim=True)
    whole = moved.detach().floor()
    rest = moved - whole
    term, total = torch.ones_like(rest), torch.ones_like(rest)
    for order in range(1, 6):
        term = term * rest / order
        total = total + term
    exps = total * torch.exp(whole)
    return exps / exps.sum(dim=-1, keepdim=True)


class Block(nn.Module):
    """A block as GPT-2 has it, with ReLU."""

    def __init__(self, approximates: bool) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.approximates = approximates

    def forward(self, x: Tensor) -> Tensor:
        """Run the block."""
        q, k, v = self.qkv(self.first(x)).chunk(3, dim=-1)
        q, k, v = heads_of(q), heads_of(k), heads_of(v)
        if self.approximates:
            scores = q @ k.transpose(-1, -2) / (WIDTH // HEADS) ** 0.5
            ahead = torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(1)
            mixed = taylor_softmax(scores.masked_fill(ahead, -30.0)) @ v
        else:
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        inner = self.up(self.second(x))
        inner = FloorRelu.apply(inner) if self.approximates else torch.relu(inner)
        return x + self.down(inner)


class Speaker(nn.Module):
    """Characters in, scores of the next ones out."""

    def __init__(self, *, approximates: bool = False) -> None:
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Parameter(0.1 * torch.randn(TOKENS, WIDTH))
        self.blocks = nn.ModuleList(Block(approximates) for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)
        nn.init.normal_(self.table.weight, std=0.3)

    def forward(self, ids: Tensor) -> Tensor:
        """Score the next characters."""
        x = self.table(ids) + self.places
        for block in self.blocks:
            x = block(x)
        out: Tensor = self.head(self.norm(x))
        return out


def heads_of(x: Tensor) -> Tensor:
    """Cut the width into heads."""
    return x.unflatten(2, (HEADS, WIDTH // HEADS)).transpose(1, 2)


def main() -> None:
    """Train thrice and compare."""
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--plain-steps", type=int, default=3000)
    parser.add_argument("--rate", type=float, default=0.5)
    parser.add_argument("--rows", type=int, default=1200)
    asked = parser.parse_args()
    ids = _ids(asked.file)
    torch.manual_seed(0)
    model = Speaker()
    found = {
        "perplexity base": "mean cross-entropy of a character, nats, on 120 held-out texts",
        "long, in the clear": _long(ids, asked.plain_steps, asked.rate, approximates=False),
        "long, with the chapter's approximations": _long(
            ids, asked.plain_steps, asked.rate, approximates=True
        ),
    }
    print(json.dumps(found, indent=1), flush=True)
    half = asked.rows // 2
    owners = {
        "north": (ids[:half, :-1], ids[:half, 1:]),
        "south": (ids[half : asked.rows, :-1], ids[half : asked.rows, 1:]),
    }
    batch = (asked.rows - asked.rows // 10) // asked.steps
    how = {"batch": batch, "rate": asked.rate, "look_every": max(1, asked.steps // 4)}
    begun = time.perf_counter()
    trained = tacit.train(
        model, owners, cap=16.0, model=TrainModel(bound=8.0), training=Training(clip=1.0), **how
    )
    seconds = time.perf_counter() - begun
    rows = torch.cat([one[0] for one in owners.values()]).double()
    labels = torch.cat([one[1] for one in owners.values()])
    hot = functional.one_hot(labels, VOCABULARY).double()
    plain = train_plain(trained.plan, rows, hot)
    found |= {
        "steps": trained.plan.steps_per_epoch,
        "on shares": [round(one[1], 4) for one in trained.history],
        "in the clear": [round(one[1], 4) for one in plain],
        "seconds": round(seconds, 1),
        "MB online": round(
            sum(one.payload_bytes for one in trained.cost.traffic if one.phase == "online") / 1e6
        ),
    }
    print(json.dumps(found, indent=1))


def _long(ids: Tensor, steps: int, rate: float, *, approximates: bool) -> float:
    """Train for long in torch, with the same batches; the loss on held-out texts."""
    torch.manual_seed(0)
    model = Speaker(approximates=approximates)
    optimiser = torch.optim.Adam(model.parameters(), lr=2e-3)
    coins = torch.Generator().manual_seed(1)
    held = ids[-120:]
    for _ in range(steps):
        rows = ids[torch.randint(len(ids) - 120, (32,), generator=coins)]
        loss = _loss(model, rows)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
    with torch.no_grad():
        return round(float(_loss(model, held)), 4)


def _loss(model: nn.Module, rows: Tensor) -> Tensor:
    scores = model(rows[:, :-1])
    return functional.cross_entropy(scores.flatten(0, 1), rows[:, 1:].flatten())


def _ids(path: Path) -> Tensor:
    raw = lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
    texts = "".join(
        value
        for line in raw.decode().splitlines()
        for value in (json.loads(line) if line[:1] == "{" else {"text": line}).values()
        if isinstance(value, str)
    )[: TEXTS * TOKENS]
    known = {one: at for at, (one, _) in enumerate(Counter(texts).most_common(VOCABULARY - 1))}
    codes = torch.tensor([known.get(one, VOCABULARY - 1) for one in texts])
    rows = codes[: len(codes) // (TOKENS + 1) * (TOKENS + 1)].reshape(-1, TOKENS + 1)
    return rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(2))]


if __name__ == "__main__":
    main()
