"""The memory that a private chat takes: owner, user and dealer as processes, the peak of each.

    python benchmarks/run.py llm/memory [sealed] [permuted] [--layers 22] [--folder /tmp]

Weights are random, of TinyLlama-1.1B's shape, in a checkpoint of bfloat16 that is written tensor by
tensor and opened as an owner opens one. One weight of each matrix is 1, so that, as in real models,
16 bits do not hold the words of the others. A prompt of 8 tokens is read, and 2 are spoken.
"""

import argparse
import json
import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from tacit.cli.memory import keep_small_blocks
from tacit.llm import Sampling, open_checkpoint
from tacit.llm.model.architecture import parameters
from tacit.llm.model.machine import give_back_freed
from tacit.llm.permuted import Client, Conversation, open_vault, serve_dealer, serve_owner
from tacit.llm.sealed import (
    SealedClient,
    SealedMemory,
    open_sealed_vault,
    serve_sealed_dealer,
    serve_sealed_owner,
)
from tacit.party import Meeting, Session, run_processes
from tacit.transport import Patience

Role = Literal["owner", "user", "dealer"]
ROLES: tuple[Role, ...] = ("owner", "user", "dealer")
PROMPT, TOKENS = [1, 450, 4996, 17354, 1701, 29916, 432, 17204], 2
WIDTH, KV, FFN, VOCAB = 2048, 256, 5632, 32000
GIB = 1 << 30


def write_checkpoint(folder: Path, layers: int) -> None:
    """Write config.json and model.safetensors: a header, then one tensor behind the other."""
    config = {
        "model_type": "llama",
        "hidden_size": WIDTH,
        "num_hidden_layers": layers,
        "num_attention_heads": 32,
        "num_key_value_heads": KV * 32 // WIDTH,
        "intermediate_size": FFN,
        "vocab_size": VOCAB,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
    }
    (folder / "config.json").write_text(json.dumps(config))
    shapes, at, header = tensor_shapes(layers), 0, {}
    for name, shape in shapes.items():
        size = 2 * torch.Size(shape).numel()
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    generator = torch.Generator().manual_seed(0)
    with (folder / "model.safetensors").open("wb") as file:
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        file.write(len(text).to_bytes(8, "little") + text)
        for shape in shapes.values():
            values = torch.ones(shape)
            if len(shape) == 2:
                values.normal_(0.0, 0.02, generator=generator)
                values[0, 0] = 1.0
            file.write(values.bfloat16().view(torch.int16).numpy().data.cast("B"))


def tensor_shapes(layers: int) -> dict[str, list[int]]:
    """List the tensors under the names of LLaMA checkpoints."""
    out = {"model.embed_tokens.weight": [VOCAB, WIDTH], "lm_head.weight": [VOCAB, WIDTH]}
    for i in range(layers):
        block = f"model.layers.{i}"
        for part, rows in (("q", WIDTH), ("k", KV), ("v", KV), ("o", WIDTH)):
            out[f"{block}.self_attn.{part}_proj.weight"] = [rows, WIDTH]
        for part, shape in (("gate", [FFN, WIDTH]), ("up", [FFN, WIDTH]), ("down", [WIDTH, FFN])):
            out[f"{block}.mlp.{part}_proj.weight"] = shape
        for part in ("input", "post_attention"):
            out[f"{block}.{part}_layernorm.weight"] = [WIDTH]
    return out | {"model.norm.weight": [WIDTH]}


@dataclass(frozen=True)
class Part:
    """What one party does, in a process of its own; returns its peak memory and seconds."""

    protocol: str
    role: Role
    folder: Path

    def __call__(self, session: Session) -> tuple[int, int, float]:
        """Take part."""
        keep_small_blocks()
        torch.set_num_threads(1)
        began, before = time.monotonic(), peak_bytes()
        (self._sealed if self.protocol == "sealed" else self._permuted)(session)
        return before, peak_bytes(), time.monotonic() - began

    def _sealed(self, session: Session) -> None:
        found = open_checkpoint(self.folder)
        if self.role == "owner":
            vault = open_sealed_vault(found.read())
            give_back_freed()
            serve_sealed_owner(session, vault)
        elif self.role == "dealer":
            serve_sealed_dealer(session, found.architecture)
        else:
            client = SealedClient(session, found.architecture)
            list(client.generate(SealedMemory(), PROMPT, Sampling(), limit=TOKENS))
            client.leave()

    def _permuted(self, session: Session) -> None:
        found = open_checkpoint(self.folder)
        if self.role == "owner":
            owned = open_vault(found.read())
            give_back_freed()
            serve_owner(session, owned)
        elif self.role == "dealer":
            serve_dealer(session, found.architecture)
        else:
            client = Client(session, found.architecture)
            conversation = Conversation(client)
            list(conversation.generate(PROMPT, best, limit=TOKENS))
            conversation.close()
            client.close()


def best(scores: torch.Tensor) -> int:
    """Choose greedily."""
    return int(scores.argmax())


def peak_bytes() -> int:
    """Return the most memory that this process has had so far."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))


def main() -> None:
    """Measure both protocols, or one."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("protocols", nargs="*", default=["sealed", "permuted"])
    parser.add_argument("--layers", type=int, default=22)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    options = parser.parse_args()
    folder = options.folder / f"tacit-llm-memory-{os.getpid()}"
    folder.mkdir()
    try:
        write_checkpoint(folder, options.layers)
        weights = parameters(open_checkpoint(folder).architecture)
        for protocol in options.protocols:
            meeting = Meeting(
                parties=ROLES, job_digest=bytes(32), patience=Patience(stall_s=7200, connect_s=120)
            )
            parts = {role: Part(protocol, role, folder) for role in ROLES}
            found = run_processes(parts, meeting)
            report(protocol, weights, found)
    finally:
        shutil.rmtree(folder)


def report(protocol: str, weights: int, found: dict[str, tuple[int, int, float]]) -> None:
    """Print the peaks of the three."""
    total = sum(peak for _, peak, _ in found.values())
    print(f"{protocol}, {weights / 1e6:.0f} million weights: {total / GIB:.2f} GiB in all")
    for role, (before, peak, seconds) in found.items():
        each = (peak - before) / weights
        print(
            f"  {role}: peak {peak / GIB:.2f} GiB, {before / GIB:.2f} of it before; "
            f"{each:.1f} bytes per weight; {seconds:.0f} s"
        )


if __name__ == "__main__":
    main()
