"""Private chat against plain chat: tokens per second, bytes, messages, and the forecast.

    python benchmarks/run.py llm/chat MODEL [MODEL …] [--tokens 32] [--quick] [--out FILE.json]

A MODEL is a checkpoint (a folder or a GGUF file). Owner, user and dealer are threads of this
process. Every network of NETWORKS shapes the link between owner and user; the link to the dealer
is not shaped, and material is ordered ahead. Expected: private loopback at least a tenth of plain;
shaped seconds per token within 15 % of messages · RTT / 2 + bytes / bandwidth + compute, where
compute is what a token takes on loopback.
"""

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median

import torch

from tacit.llm import Cache, LanguageModel, generate, open_checkpoint
from tacit.llm.permuted import (
    Ahead,
    Batch,
    Client,
    Conversation,
    MaskedWeights,
    Network,
    OwnerVault,
    offline_cost,
    open_vault,
    pass_cost,
    serve_dealer,
    serve_owner,
)
from tacit.llm.permuted.setup import DealerMasks
from tacit.llm.permuted.weights import Weights, drawn_masks
from tacit.party import Meeting, Session, run_threads
from tacit.transport import Link, Patience, ShapedLink

NETWORKS = {
    "loopback": None,
    "1 Gbps, 10 ms": Network(rtt_ms=10, mbit_per_s=1000),
    "100 Mbps, 20 ms": Network(rtt_ms=20, mbit_per_s=100),
}
PROMPT = (1, 403, 407, 261, 378, 432, 400, 383)
PARTIES = ("owner", "user", "dealer")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One model on one network.

    Tokens per second are sustained, material included; seconds per token are the median of the
    steps, most of which find their material ready. ``material_s`` is what the user's part of a
    token's material takes on the same link, which the formula does not count.
    """

    model: str
    network: str
    form: str
    tokens: int
    is_exact: bool
    plain_tokens_per_s: float
    private_tokens_per_s: float
    seconds_per_token: float
    formula_s: float | None
    material_s: float | None
    online_bytes_per_token: int
    online_messages_per_token: int
    offline_bytes_per_token: int
    prompt_s: float


@dataclass(frozen=True, eq=False)
class Bench:
    """A model with everything that is made once."""

    name: str
    model: LanguageModel
    vault: OwnerVault
    masks: DealerMasks
    plain: list[int]
    plain_tokens_per_s: float


def set_up(path: Path, tokens: int) -> Bench:
    """Load a model, mask it, and time it in the clear, the best of three."""
    found = open_checkpoint(path)
    model = found.load()
    vault = open_vault(model)
    kept = {name: mask.words() for name, mask in drawn_masks(model.architecture, vault.key).items()}
    masks = DealerMasks(vault.key, Weights(kept))
    times, plain = [], []
    for _ in range(3):
        began, stamps, plain = time.perf_counter(), [], []
        for token in generate(model, PROMPT, choose=best, limit=tokens, cache=Cache()):
            plain.append(token)
            stamps.append(time.perf_counter() - began)
        times.append((len(stamps) - 1) / (stamps[-1] - stamps[0]))
    return Bench(found.name, model, vault, masks, plain, max(times))


def best(scores: torch.Tensor) -> int:
    """Choose greedily."""
    return int(scores.argmax())


def measure(
    bench: Bench, name: str, known: MaskedWeights | None, loopback_s: float | None, tokens: int
) -> tuple[Row, MaskedWeights]:
    """Chat once over one network."""
    network = NETWORKS[name]
    a, out = bench.model.architecture, {}

    def user(session: Session) -> None:
        client = Client(session, a, network=network, known=known)
        out["masked"] = client.masked
        conversation = Conversation(client)
        began, stamps, said = time.perf_counter(), [], []
        for token in conversation.generate(PROMPT, best, limit=tokens):
            said.append(token)
            stamps.append(time.perf_counter() - began)
        conversation.close()
        client.close()
        out["stamps"], out["said"] = stamps, said
        out["forms"] = [batch.form for batch, _ in conversation.memory.history][1:]

    def wrap(me: str, link: Link) -> Link:
        if network is None or "dealer" in (me, link.peer):
            return link
        return ShapedLink(link, rtt_ms=network.rtt_ms, mbit_per_s=network.mbit_per_s)

    run_threads(
        {
            "owner": lambda session: serve_owner(session, bench.vault),
            "user": user,
            "dealer": lambda session: serve_dealer(session, a, known=bench.masks),
        },
        Meeting(parties=PARTIES, job_digest=b"b" * 32, patience=Patience(stall_s=300)),
        wrap=wrap,
    )
    return row(bench, name, out, loopback_s), out["masked"]


def row(bench: Bench, name: str, out: dict, loopback_s: float | None) -> Row:
    """Put together what was measured and what was forecast."""
    stamps, plan = out["stamps"], bench.vault.plan
    seconds = median(after - before for before, after in pairwise(stamps[1:]))
    sustained = (len(stamps) - 1) / (stamps[-1] - stamps[0])
    past = len(PROMPT) + len(stamps) // 2
    batch = Batch(number=0, past=past, rows=1, prompt=0, masked_kv=past, form=out["forms"][-1])
    block = replace(batch, rows=Ahead().block)
    cost, offline = pass_cost(plan, batch), offline_cost(plan, block)
    network = NETWORKS[name]
    formula, material_s = None, None
    if network is not None and loopback_s is not None:
        formula = cost.seconds(network, compute_s=loopback_s)
        material_s = offline.user_to_owner_bytes / block.rows * 8 / (network.mbit_per_s * 1e6)
    return Row(
        model=bench.name,
        network=name,
        form="/".join(dict.fromkeys(out["forms"])),
        tokens=len(stamps),
        is_exact=out["said"] == bench.plain[: len(stamps)],
        plain_tokens_per_s=bench.plain_tokens_per_s,
        private_tokens_per_s=sustained,
        seconds_per_token=seconds,
        formula_s=formula,
        material_s=material_s,
        online_bytes_per_token=cost.payload_bytes,
        online_messages_per_token=cost.messages,
        offline_bytes_per_token=(
            offline.dealer_to_owner_bytes
            + offline.user_to_owner_bytes
            + offline.dealer_to_user_bytes
        )
        // block.rows,
        prompt_s=stamps[0],
    )


def show(one: Row) -> None:
    """Print one line."""
    share = one.private_tokens_per_s / one.plain_tokens_per_s
    text = (
        f"{one.model:<22} {one.network:<16} {one.form:<12} exact {one.is_exact!s:<5} "
        f"{one.private_tokens_per_s:7.2f} tok/s (plain {one.plain_tokens_per_s:.1f}, "
        f"1/{1 / share:.1f}) {one.online_messages_per_token:4d} messages "
        f"{one.online_bytes_per_token / 1e3:8.0f} kB online "
        f"{one.offline_bytes_per_token / 1e3:8.0f} kB offline"
    )
    if one.formula_s is not None:
        off = one.seconds_per_token / one.formula_s - 1
        text += f"  {one.seconds_per_token:.3f} s, formula {one.formula_s:.3f} s ({off:+.0%})"
        text += f", material {one.material_s:.3f} s"
    print(text, flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure every model on every network."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--threads", type=int, default=1, help="torch threads")
    parser.add_argument("--quick", action="store_true", help="10 tokens, loopback and one network")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    tokens = 10 if options.quick else options.tokens
    rows = []
    for path in options.models:
        bench, known, loopback_s = set_up(path, tokens), None, None
        for name in list(NETWORKS)[: 2 if options.quick else None]:
            one, known = measure(bench, name, known, loopback_s, tokens)
            loopback_s = loopback_s or one.seconds_per_token
            rows.append(one)
            show(one)
    if options.out:
        options.out.write_text(json.dumps([asdict(one) for one in rows], indent=1))


if __name__ == "__main__":
    main()
