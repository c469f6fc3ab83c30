"""Sealed chat on an accelerator: seconds per token of a shape, by its layers; three processes.

    python benchmarks/run.py llm/sealed_gpu [--shape chatglm-6b] [--layers 2 5] [--device cuda]

Weights are random, and every layer has the same ones. They take the three parties 19 bytes each on
the card, which three processes share well only under NVIDIA's MPS: without it they take turns. Of
shapes that do not fit, the time per token is a line in the layers, which two of them give. Beside
it stands what the network adds by formula: rounds times half the round trip, and bytes over
bandwidth. Tokens must equal those of the processor on a small shape.
"""

import argparse
import json
import os
import re
import time
from dataclasses import dataclass, replace
from statistics import mean, median

import torch
from llm._shapes import SHAPES

from tacit.cli.memory import keep_small_blocks
from tacit.llm import Architecture, LanguageModel, Sampling, shapes
from tacit.llm.sealed import (
    Pass,
    SealedClient,
    SealedMemory,
    bounds,
    open_sealed_vault,
    plan_passes,
    serve_sealed_dealer,
    serve_sealed_owner,
)
from tacit.party import Meeting, Session, run_processes

PROMPT = tuple(range(11, 23))
LINES = {"1 Gbps, 10 ms": (125e6, 0.01), "100 Mbps, 20 ms": (12.5e6, 0.02)}


def make_model(a: Architecture) -> LanguageModel:
    """Draw one layer and use it for all."""
    draw = torch.Generator().manual_seed(1)
    weights: dict[str, torch.Tensor] = {}
    for name, size in shapes(a).items():
        like = re.sub(r"layers\.\d+", "layers.0", name)
        if like in weights:
            weights[name] = weights[like]
            continue
        values = torch.randn(size, generator=draw)
        if len(size) == 1:
            values = (1.0 if name.endswith("weight") else 0.0) + 0.1 * values
        else:
            values *= 0.5 if name == "embed" else size[-1] ** -0.5
        weights[name] = values
    return LanguageModel(architecture=a, weights=weights)


def spectral(matrix: torch.Tensor) -> torch.Tensor:
    """Bound the largest singular value from below its true one by power steps, with some room."""
    x = torch.ones(*matrix.shape[:-2], matrix.shape[-1], 1, dtype=matrix.dtype)
    for _ in range(8):
        x = matrix.transpose(-2, -1) @ (matrix @ x)
        x = x / x.norm(dim=-2, keepdim=True)
    return 1.25 * (matrix @ x).norm(dim=(-2, -1))


@dataclass(frozen=True)
class Part:
    """What one party does, in a process of its own."""

    a: Architecture
    role: str
    tokens: int
    device: str
    threads: int

    def __call__(self, session: Session) -> dict[str, object]:
        """Take part; the user returns tokens and their seconds, the owner what a token costs."""
        keep_small_blocks()  # as the parties of a chat do
        torch.set_num_threads(self.threads)
        out: dict[str, object] = {}
        if self.role == "owner":
            torch.set_num_threads(max(self.threads, os.cpu_count() or 1))
            bounds.spectral_norms = spectral  # an exact one takes minutes for such matrices
            vault = open_sealed_vault(make_model(self.a))
            torch.set_num_threads(self.threads)
            facts = {"conversation": 0, "prompt": 0, "is_scored": True}
            steps = [Pass(past=0, rows=64, **facts), Pass(past=64, rows=1, **facts)]
            cost = plan_passes(vault, steps)[1].cost
            out["rounds"] = cost.online_rounds
            for phase in ("online", "offline"):
                sizes = [one.payload_bytes for one in cost.traffic if one.phase == phase]
                out[f"{phase}_bytes"] = sum(sizes)
            serve_sealed_owner(session, vault, device=self.device)
        elif self.role == "dealer":
            serve_sealed_dealer(session, self.a, device=self.device)
        else:
            client, began = SealedClient(session, self.a, device=self.device), time.monotonic()
            said, times = [], []
            for one in client.generate(SealedMemory(), PROMPT, Sampling(), limit=self.tokens):
                said.append(one)
                times.append(time.monotonic() - began)
                began = time.monotonic()
            client.leave()
            out |= {"tokens": said, "first_s": times[0], "token_s": median(times[1:])}
            # The second pass is recorded, and every one that has room for 16 tokens more.
            out |= {"mean_s": mean(times[2:]), "slowest_s": max(times[2:])}
        if self.device == "cuda":
            out["gpu_gb"] = torch.cuda.max_memory_allocated() / 1e9
        return out


def chat(a: Architecture, *, tokens: int, device: str, threads: int) -> dict[str, object]:
    """Chat between three processes, and put what they found into one record."""
    roles = ("owner", "user", "dealer")
    parts = {role: Part(a, role, tokens, device, threads) for role in roles}
    found = run_processes(parts, Meeting(parties=roles, job_digest=bytes(32)))
    out = {"layers": a.layers, "width": a.width, "vocab": a.vocab, "device": device}
    out |= {f"gpu_gb.{role}": one.pop("gpu_gb") for role, one in found.items() if "gpu_gb" in one}
    return out | found["owner"] | found["user"]


def main() -> None:
    """Measure one shape at two depths, and write each record as soon as it is there."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shape", choices=SHAPES, default="chatglm-6b")
    parser.add_argument("--layers", type=int, nargs="+", default=[2, 5])
    parser.add_argument("--vocab", type=int, default=0, help="fewer tokens than the shape has")
    parser.add_argument("--tokens", type=int, default=22)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--out", default="")
    options = parser.parse_args()
    whole, rows = SHAPES[options.shape], []
    whole = replace(whole, vocab=options.vocab or whole.vocab)
    for layers in options.layers:
        a = replace(whole, layers=layers, context=256)
        row = chat(a, tokens=options.tokens, device=options.device, threads=options.threads)
        rows.append(row)
        print(json.dumps(row), flush=True)
        if options.out:
            with open(options.out, "a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
    if len(rows) > 1:
        first, last = rows[0], rows[-1]
        for name in ("token_s", "rounds", "online_bytes", "offline_bytes"):
            step = (last[name] - first[name]) / (last["layers"] - first["layers"])
            first[f"whole.{name}"] = first[name] + (whole.layers - first["layers"]) * step
        print(f"{options.shape}, {whole.layers} layers: {first['whole.token_s']:.2f} s per token")
        for line, (speed, trip) in LINES.items():
            wait = first["whole.rounds"] * trip / 2 + first["whole.online_bytes"] / speed
            print(f"  {line}: {wait:.1f} s more online")


if __name__ == "__main__":
    main()
