"""LoRA on a public language model, trained on shares beside the same training in the clear.

    python benchmarks/run.py training/_lora DATA --steps 200 --tokens 32 --batch 2

DATA holds `lm_minimind2_small/` (25.8 million parameters, 8 layers of width 512, Chinese) and
`zh_medical_dialogue/`. Two owners of dialogues look their ids up in the public table, and compute
the loss from their own last hidden states with the public head; adapters of rank 4 on queries and
values of all layers learn on shares. Same batches on both sides. Prints losses on held-out texts
in nats, how much saturated, seconds and bytes.
"""

import argparse
import json
import lzma
import time
from collections import OrderedDict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional

import tacit
from tacit.nn import add_adapters
from tacit.training import TrainData, Training, TrainModel, train_plain

LAYERS, WIDTH, HEADS, GROUPS, SIDE, INNER, EPS, THETA = 8, 512, 8, 2, 64, 1408, 1e-5, 1e6


class Norm(nn.RMSNorm):
    """The norm that LLaMA has."""

    def __init__(self) -> None:
        super().__init__(WIDTH, eps=EPS)


class Attention(nn.Module):
    """Grouped keys and values, turned by their places."""

    def __init__(self, tokens: int) -> None:
        super().__init__()
        self.q_proj = nn.Linear(WIDTH, HEADS * SIDE, bias=False)
        self.k_proj = nn.Linear(WIDTH, GROUPS * SIDE, bias=False)
        self.v_proj = nn.Linear(WIDTH, GROUPS * SIDE, bias=False)
        self.o_proj = nn.Linear(HEADS * SIDE, WIDTH, bias=False)
        turns = 1.0 / (THETA ** (torch.arange(0, SIDE, 2).float() / SIDE))
        angles = torch.outer(torch.arange(tokens).float(), turns).repeat(1, 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def turned(self, x: Tensor) -> Tensor:
        """Turn pairs of numbers by the place of their token."""
        first, second = x.chunk(2, dim=-1)
        return x * self.cos + torch.cat((-second, first), dim=-1) * self.sin

    def forward(self, x: Tensor) -> Tensor:
        """Mix tokens with those before them."""
        q = self.turned(self.q_proj(x).unflatten(2, (HEADS, SIDE)).transpose(1, 2))
        k = self.turned(self.k_proj(x).unflatten(2, (GROUPS, SIDE)).transpose(1, 2))
        v = self.v_proj(x).unflatten(2, (GROUPS, SIDE)).transpose(1, 2)
        k, v = (one.repeat_interleave(HEADS // GROUPS, dim=1) for one in (k, v))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        out: Tensor = self.o_proj(mixed.transpose(1, 2).flatten(2))
        return out


class Block(nn.Module):
    """A layer of LLaMA."""

    def __init__(self, tokens: int) -> None:
        super().__init__()
        self.input_layernorm, self.self_attn = Norm(), Attention(tokens)
        self.post_attention_layernorm = Norm()
        self.gate_proj = nn.Linear(WIDTH, INNER, bias=False)
        self.up_proj = nn.Linear(WIDTH, INNER, bias=False)
        self.down_proj = nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Run the layer."""
        x = x + self.self_attn(self.input_layernorm(x))
        inner = self.post_attention_layernorm(x)
        inner = functional.silu(self.gate_proj(inner)) * self.up_proj(inner)
        out: Tensor = x + self.down_proj(inner)
        return out


class Body(nn.Module):
    """Embeddings in, last hidden states out."""

    def __init__(self, tokens: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block(tokens) for _ in range(layers))
        self.norm = Norm()

    def forward(self, x: Tensor) -> Tensor:
        """Run all layers."""
        for layer in self.layers:
            x = layer(x)
        out: Tensor = self.norm(x)
        return out


def read_body(folder: Path, tokens: int, layers: int) -> tuple[Body, Tensor]:
    """Read the model without its ends, and the table that both of them are."""
    raw = load_file(folder / "model_int8.safetensors")
    state = {
        name: (value.float() - raw[f"{name}.__zero"].float()) * raw[f"{name}.__scale"]
        if f"{name}.__scale" in raw
        else value.float()
        for name, value in raw.items()
        if not name.endswith((".__scale", ".__zero"))
    }
    body = Body(tokens, layers)
    ours = {
        name.removeprefix("model.").replace(".mlp.", "."): value for name, value in state.items()
    }
    wanted = body.state_dict()
    body.load_state_dict({name: ours.get(name, value) for name, value in wanted.items()})
    missing = [name for name in wanted if name not in ours and "cos" not in name]
    if any("sin" not in name for name in missing):
        raise SystemExit(f"the file has no {missing}")
    return body, state["model.embed_tokens.weight"]


def read_ids(folder: Path, tokenizer: Tokenizer, tokens: int, rows: int) -> Tensor:
    """Read dialogues as ids, one row of ``tokens`` + 1 each."""
    raw = lzma.decompress((folder / "dialogue_toyhom.jsonl.xz").read_bytes()).decode()
    found = []
    for line in raw.splitlines():
        one = json.loads(line)
        ids = tokenizer.encode(f"{one['ask']}\n{one['answer']}").ids
        if len(ids) > tokens:
            found.append(ids[: tokens + 1])
        if len(found) == rows:
            break
    return torch.tensor(found)


def main() -> None:
    """Train on shares and in the clear."""
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--layers", type=int, default=LAYERS)
    parser.add_argument("--rate", type=float, default=0.02)
    parser.add_argument("--held", type=int, default=8)
    parser.add_argument("--looks", type=int, default=4)
    parser.add_argument("--protocol", default="sealed")
    parser.add_argument("--cap", type=float)
    parser.add_argument("--full", action="store_true", help="train all weights, without adapters")
    asked = parser.parse_args()
    torch.manual_seed(0)
    body, table = read_body(asked.data / "lm_minimind2_small", asked.tokens, asked.layers)
    tokenizer = Tokenizer.from_file(str(asked.data / "lm_minimind2_small" / "tokenizer.json"))
    count = asked.steps * asked.batch + asked.held
    ids = read_ids(asked.data / "zh_medical_dialogue", tokenizer, asked.tokens, count)
    adapted: nn.Module = body
    if not asked.full:
        adapted = add_adapters(body, rank=4, seed=0, only=("q_proj", "v_proj"))
    half = len(ids) // 2
    owners = {
        name: (table[part[:, :-1]], part[:, 1:])
        for name, part in (("north", ids[:half]), ("south", ids[half:]))
    }
    last = nn.Linear(*table.shape[::-1], bias=False)
    last.weight.data = table
    whole = nn.Sequential(OrderedDict(body=adapted, head=last.requires_grad_(False)))
    begun, worked = time.perf_counter(), time.process_time()
    trained = tacit.train(
        whole,
        owners,
        report=_tell,
        cap=asked.cap,
        data=TrainData(bound=float(table.abs().max()) * 1.01, test_share=asked.held / count),
        model=TrainModel(bound=2.0, head="head"),
        training=Training(
            batch=asked.batch,
            rate=asked.rate,
            look_every=max(1, asked.steps // asked.looks),
            optimiser="adam",
        ),
        protocol=asked.protocol,
    )
    seconds, worked = time.perf_counter() - begun, time.process_time() - worked
    rows = torch.cat([one[0] for one in owners.values()]).double()
    labels = functional.one_hot(torch.cat([one[1] for one in owners.values()]), len(table)).double()
    plain = train_plain(trained.plan, rows, labels)
    steps = trained.plan.steps_per_epoch
    result = {
        "steps": steps,
        "tokens of a step": asked.tokens * sum(trained.plan.portions),
        "on shares": [round(one[1], 4) for one in trained.history],
        "in the clear": [round(one[1], 4) for one in plain],
        "cap": trained.plan.cap,
        "saturated": trained.saturated,
        "seconds": round(seconds, 1),
        "seconds of processor time": round(worked, 1),
        "MB online": _mb(trained.cost, "online"),
        "MB offline": _mb(trained.cost, "offline"),
    }
    print(json.dumps(result, indent=1), flush=True)


def _tell(text: str, done: int, total: int) -> None:
    print(text, done, total, flush=True)


def _mb(cost: Any, phase: str) -> int:
    return round(sum(one.payload_bytes for one in cost.traffic if one.phase == phase) / 1e6)


if __name__ == "__main__":
    main()
