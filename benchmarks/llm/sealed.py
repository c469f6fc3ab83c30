"""Sealed chat beside the plain model: seconds, rounds and bytes per token, and the error of scores.

    python benchmarks/run.py llm/sealed [--shapes SHAPE …] [--tokens 8] [--quick] [--out FILE.json]

Weights are random, of the shapes of known models. Owner, user and dealer are threads of this
process. Expected: metered rounds equal the plan's; scores off by less than a few hundredths for the
small shapes.
"""

import argparse
import json
import time
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import torch

from tacit.llm import Architecture, Cache, LanguageModel, Sampling, next_logits, shapes
from tacit.llm.sealed import (
    Pass,
    SealedClient,
    SealedMemory,
    open_sealed_vault,
    serve_sealed_dealer,
    serve_sealed_owner,
)
from tacit.party import Meeting, Session, run_threads

LLAMA: dict[str, Any] = {
    "family": "llama",
    "norm": "rms",
    "norm_eps": 1e-5,
    "activation": "swiglu",
    "positions": "rotary",
    "rope_theta": 10_000.0,
    "tied_output": False,
    "has_bias": False,
    "context": 512,
}
SHAPES: dict[str, dict[str, int]] = {
    "tiny": {"layers": 2, "width": 32, "heads": 4, "kv_heads": 2, "head_dim": 8},
    "stories": {"layers": 5, "width": 64, "heads": 8, "kv_heads": 4, "head_dim": 8},
    "minimind": {"layers": 8, "width": 512, "heads": 8, "kv_heads": 2, "head_dim": 64},
    "smollm": {"layers": 30, "width": 576, "heads": 9, "kv_heads": 3, "head_dim": 64},
}
REST = {
    "tiny": {"ffn": 48, "vocab": 64},
    "stories": {"ffn": 172, "vocab": 512},
    "minimind": {"ffn": 1408, "vocab": 6400},
    "smollm": {"ffn": 1536, "vocab": 49152},
}
PROMPT = tuple(range(1, 13))


@dataclass(frozen=True, kw_only=True)
class Row:
    """One shape: the first token, and the median of those after it."""

    shape: str
    weights: int
    first_s: float
    token_s: float
    plain_s: float
    rounds: int
    online_bytes: int
    offline_bytes: int
    worst_error: float
    largest_score: float


def make_model(shape: str) -> LanguageModel:
    """Draw a model whose activations are of usual sizes."""
    a = Architecture(**LLAMA, **SHAPES[shape], **REST[shape])
    draw = torch.Generator().manual_seed(1)
    weights = {}
    for name, size in shapes(a).items():
        scale = 1.0 if len(size) == 1 else size[-1] ** -0.5
        weights[name] = scale * torch.randn(size, generator=draw)
        if len(size) == 1:
            weights[name] = 1 + 0.1 * weights[name]
    weights["embed"] = 0.5 * torch.randn(shapes(a)["embed"], generator=draw)
    return LanguageModel(architecture=a, weights=weights)


def measure(shape: str, tokens: int) -> Row:
    """Chat under the sealed protocol, all scores shown, and compare with the plain model."""
    model = make_model(shape)
    vault = open_sealed_vault(model, reveal="scores")
    seen: list[torch.Tensor] = []
    times: list[float] = []

    def user(session: Session) -> tuple[list[int], Any]:
        client = SealedClient(session, model.architecture, reveal="scores")
        original = client._table.compute

        def listening(order: Pass, *more: Any) -> Any:
            outcome = original(order, *more)
            if outcome.shown is not None:
                seen.append(outcome.shown[0])
            return outcome

        client._table.compute = listening  # type: ignore[method-assign]
        said, began = [], time.monotonic()
        for token in client.generate(SealedMemory(), PROMPT, Sampling(), limit=tokens):
            said.append(token)
            times.append(time.monotonic() - began)
            print(f"  {shape}: token {len(said)} after {times[-1]:.1f} s", flush=True)
        past = len(PROMPT) + tokens - 2
        last = Pass(conversation=0, past=past, rows=1, prompt=0, is_scored=True)
        plan = client._table._plan(last, resumes=False)
        client.leave()
        return said, plan.cost

    meeting = Meeting(parties=("owner", "user", "dealer"), job_digest=bytes(32))
    said, cost = run_threads(
        {
            "owner": lambda session: serve_sealed_owner(session, vault),
            "user": user,
            "dealer": lambda session: serve_sealed_dealer(
                session, model.architecture, reveal="scores"
            ),
        },
        meeting,
    )["user"]
    plain = compare(model, said, seen)
    steps = [after - before for before, after in pairwise(times)]
    sizes = dict.fromkeys(("online", "offline", "setup"), 0)
    for one in cost.traffic:
        sizes[one.phase] += one.payload_bytes
    return Row(
        shape=shape,
        weights=sum(w.numel() for w in model.weights.values()),
        first_s=times[0],
        token_s=median(steps),
        rounds=cost.online_rounds,
        online_bytes=sizes["online"],
        offline_bytes=sizes["offline"],
        **plain,
    )


def compare(model: LanguageModel, said: list[int], seen: list[torch.Tensor]) -> dict[str, float]:
    """Return how far scores were off, and how long a plain token takes."""
    cache, fresh, errors, sizes, times = Cache(), list(PROMPT), [], [], []
    for token, scores in zip(said, seen, strict=True):
        began = time.monotonic()
        wanted = next_logits(model, fresh, cache).double()
        times.append(time.monotonic() - began)
        errors.append(float((scores - wanted).abs().max()))
        sizes.append(float(wanted.abs().max()))
        fresh = [token]
    return {
        "plain_s": median(times[1:]),
        "worst_error": max(errors),
        "largest_score": max(sizes),
    }


def main() -> None:
    """Measure, and write what was found after every shape."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=["stories", "minimind"])
    parser.add_argument("--tokens", type=int, default=8)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    names, tokens = (["tiny"], 3) if options.quick else (options.shapes, options.tokens)
    rows = []
    for name in names:
        rows.append(measure(name, tokens))
        print(rows[-1], flush=True)
        if options.out is not None:
            options.out.write_text(json.dumps([asdict(row) for row in rows], indent=1))


if __name__ == "__main__":
    main()
