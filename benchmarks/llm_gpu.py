"""Private inference at the shape of ChatGLM-6B and of an 8B model, all parties on one device.

    python benchmarks/llm_gpu.py [--shape chatglm-6b] [--device cuda] [--quick] [--out FILE.json]

Weights are random. To fit three versions of them on one card, layers repeat with a period of
``--distinct``; one layer is larger than any cache, so that the time is that of distinct layers.
Matrices are on the device, everything else is on the host, as in a real chat.

Reported: the owner's products of one token against fp16 products of the same shapes; seconds per
token on a local link and on two shaped ones, at a context of about 64; what an order costs
offline. Expected on an H200 (ChatGLM-6B): products at most 3 × fp16, at most 0.1 s per token
locally, 2.0 s at 1 Gbps / 10 ms, 4.5 s at 100 Mbps / 20 ms.
"""

import argparse
import json
import math
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

from tacit import ring
from tacit.llm import Architecture
from tacit.llm.private import (
    BRIEF,
    Ahead,
    Client,
    Conversation,
    DealerMasks,
    MaskedWeights,
    Network,
    Order,
    OwnerVault,
    offline_cost,
    pass_cost,
    serve_dealer,
    serve_owner,
)
from tacit.llm.private.weights import Matrix, RingModel, Weights, matrices
from tacit.party import Meeting, Session, run_threads
from tacit.ring import Factor
from tacit.transport import Limits, Link, Patience, Shaped

SHAPES = {
    "chatglm-6b": Architecture(
        family="chatglm",
        layers=28,
        width=4096,
        heads=32,
        kv_heads=32,
        head_dim=128,
        ffn=16384,
        vocab=130528,
        context=2048,
        norm="layer",
        norm_eps=1e-5,
        activation="gelu_tanh",
        positions="rotary2d",
        rope_theta=10_000.0,
        tied_output=False,
        has_bias=True,
    ),
    "8b": Architecture(
        family="llama",
        layers=32,
        width=4096,
        heads=32,
        kv_heads=8,
        head_dim=128,
        ffn=14336,
        vocab=128256,
        context=2048,
        norm="rms",
        norm_eps=1e-5,
        activation="swiglu",
        positions="rotary",
        rope_theta=500_000.0,
        tied_output=False,
        has_bias=False,
    ),
    "tiny": Architecture(
        family="chatglm",
        layers=3,
        width=64,
        heads=4,
        kv_heads=4,
        head_dim=16,
        ffn=128,
        vocab=500,
        context=256,
        norm="layer",
        norm_eps=1e-5,
        activation="gelu_tanh",
        positions="rotary2d",
        rope_theta=10_000.0,
        tied_output=False,
        has_bias=True,
    ),
}
NETWORKS = {
    "local": None,
    "1 Gbps, 10 ms": Network(rtt_ms=10, mbit_per_s=1000),
    "100 Mbps, 20 ms": Network(rtt_ms=20, mbit_per_s=100),
}
PROMPT_ROWS = 60
KEY = b"benchmark key 16"
LIMITS = Limits(
    max_frame_bytes=1 << 30, queue_bytes=1 << 33, prefetch_bytes=1 << 33, stash_bytes=1 << 34
)


def random_words(matrix: Matrix, device: torch.device, bound: int | None) -> Tensor:
    """Draw a matrix on the device: small weights, or uniform words. For time, not for secrecy."""
    shape = matrix.shape
    if bound is None:
        return torch.randint(-(2**63), 2**63 - 1, shape, device=device, dtype=torch.int64)
    words = torch.randint(-bound, bound + 1, shape, device=device, dtype=torch.int64)
    words[0, 0] = max(bound, 200)  # real weights have outliers: two digits, not one
    return words


def make(a: Architecture, device: torch.device, distinct: int) -> tuple[Any, ...]:
    """Make W, U and W − U, by name, layers repeating."""
    owned: dict[str, Tensor | Factor] = {}
    masks: dict[str, Tensor | Factor] = {}
    masked: dict[str, Tensor | Factor] = {}
    kinds: dict[str, str] = {}
    for matrix in matrices(a):
        layer, _, part = matrix.name.partition(".")
        kind = f"{int(layer) % distinct}.{part}" if part else matrix.name
        first = kinds.setdefault(kind, matrix.name)
        if first == matrix.name:
            bits = BRIEF.stream if matrix.name == "embed" else BRIEF.weight
            spread = 1.0 if matrix.is_diagonal else math.sqrt(3 / matrix.inputs)
            w = random_words(matrix, device, round(2**bits * spread))
            u = random_words(matrix, device, None)
            whole = (w, u, w - u)
            made = whole if matrix.is_diagonal else tuple(ring.prepare(one) for one in whole)
            if matrix.is_diagonal:
                made = tuple(one.cpu() for one in whole)
            owned[first], masks[first], masked[first] = made
        for one in (owned, masks, masked):
            one[matrix.name] = one[first]
    return tuple(Weights(one, device) for one in (owned, masks, masked))


def seconds_of(work: Callable[[], object], device: torch.device, times: int = 10) -> float:
    """Time something on the device, the median of a few."""
    out = []
    for _ in range(times + 2):
        if device.type == "cuda":
            torch.cuda.synchronize()
        began = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize()
        out.append(time.perf_counter() - began)
    return median(out[2:])


def products(a: Architecture, device: torch.device, owned: Weights, distinct: int) -> list[float]:
    """Time the products of one token: ours, and fp16 of the same shapes."""
    dtype = torch.float16 if device.type == "cuda" else torch.float32
    plain: dict[str, Tensor] = {}
    rows, plain_rows, names = {}, {}, []
    for matrix in matrices(a):
        if matrix.is_diagonal:
            continue
        layer, _, part = matrix.name.partition(".")
        kind = f"{int(layer) % distinct}.{part}" if part else matrix.name
        names.append((matrix.name, kind))
        if kind not in plain and matrix.name != "embed":  # plain looks tokens up
            plain[kind] = torch.zeros(
                (matrix.outputs, matrix.inputs), device=device, dtype=dtype
            ).uniform_(-0.02, 0.02)
        rows[matrix.inputs] = torch.randint(
            -(2**62), 2**62, (1, matrix.inputs), device=device, dtype=torch.int64
        )
        plain_rows[matrix.inputs] = torch.zeros((1, matrix.inputs), device=device, dtype=dtype)
    inputs = {matrix.name: matrix.inputs for matrix in matrices(a)}

    def ours() -> None:
        for name, _ in names:
            ring.matmul(rows[inputs[name]], owned.factor(name))

    def theirs() -> None:
        for name, kind in names:
            if name != "embed":
                torch.nn.functional.linear(plain_rows[inputs[name]], plain[kind])

    return [seconds_of(ours, device), seconds_of(theirs, device)]


def chat(
    a: Architecture, parties: tuple[Any, ...], name: str, steps: int
) -> tuple[dict[str, Any], Any]:
    """Chat once over one network, with the material of all steps ordered first."""
    owned, masks, masked = parties
    biases = {}
    if a.norm == "layer":
        for matrix in matrices(a):
            if not matrix.is_diagonal and matrix.name != "embed":
                biases[matrix.name] = torch.zeros(matrix.outputs, dtype=torch.int64)
    model = RingModel(architecture=a, precision=BRIEF, words={}, biases=biases)
    vault = OwnerVault(ring=model, key=KEY, weights=owned)
    network, out = NETWORKS[name], {}
    known = MaskedWeights(vault.fingerprint(), masked)

    def user(session: Session) -> None:
        ahead = Ahead(block=steps, blocks=2)
        client = Client(session, a, precision=BRIEF, network=network, ahead=ahead, known=known)
        conversation = Conversation(client)
        began, stamps = time.perf_counter(), []
        ids = [7 + number for number in range(PROMPT_ROWS)]
        for _ in conversation.generate(ids, lambda z: int(z.argmax()), limit=steps + 1):
            stamps.append(time.perf_counter() - began)
        out["stamps"], out["form"] = stamps, conversation.memory.history[-1][0].form
        conversation.close()
        client.close()

    def wrap(me: str, link: Link) -> Link:
        if network is None or "dealer" in (me, link.peer):
            return link
        return Shaped(link, rtt_ms=network.rtt_ms, mbit_per_s=network.mbit_per_s)

    run_threads(
        {
            "owner": lambda session: serve_owner(session, vault),
            "user": user,
            "dealer": lambda session: serve_dealer(
                session, a, precision=BRIEF, known=DealerMasks(KEY, masks)
            ),
        },
        Meeting(
            parties=("owner", "user", "dealer"),
            job_digest=b"g" * 32,
            patience=Patience(stall_s=500),
            limits=LIMITS,
        ),
        wrap=wrap,
    )
    steps_s = [after - before for before, after in pairwise(out["stamps"][1:])]
    past = PROMPT_ROWS + steps // 2
    order = Order(
        number=0, past=past, rows=1, prompt=PROMPT_ROWS - 1, posted=past, form=out["form"]
    )
    plan = vault.plan
    cost, offline = pass_cost(plan, order), offline_cost(plan, order)
    return {
        "network": name,
        "form": out["form"],
        "seconds_per_token": median(steps_s),
        "prompt_s": out["stamps"][0],
        "messages_per_token": cost.messages,
        "online_bytes_per_token": cost.payload_bytes,
        "offline_bytes_per_token": offline.dealer_to_owner_bytes + offline.user_to_owner_bytes,
        "network_formula_s": None if network is None else cost.seconds(network),
    }, cost


def run(shape: str, device: torch.device, *, distinct: int, steps: int) -> dict[str, Any]:
    """Measure one shape."""
    a = SHAPES[shape]
    began = time.perf_counter()
    parties = make(a, device, min(distinct, a.layers))
    print(f"{shape}: weights ready after {time.perf_counter() - began:.0f} s", flush=True)
    ours, fp16 = products(a, device, parties[0], min(distinct, a.layers))
    print(
        f"{shape}: products of one token {ours * 1e3:.2f} ms, plain {fp16 * 1e3:.2f} ms "
        f"({ours / fp16:.2f} ×)",
        flush=True,
    )
    rows = []
    for name in NETWORKS:
        row, _ = chat(a, parties, name, steps if name == "local" else min(steps, 4))
        rows.append(row)
        print(f"{shape}: {row}", flush=True)
    return {
        "shape": shape,
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "distinct_layers": distinct,
        "products_s": ours,
        "plain_products_s": fp16,
        "chats": rows,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the shapes that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=SHAPES, action="append")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--distinct", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2, help="torch threads on the host")
    parser.add_argument("--quick", action="store_true", help="the tiny shape only")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    shapes = ["tiny"] if options.quick else options.shape or ["chatglm-6b", "8b"]
    device = torch.device(options.device)
    found = []
    for shape in shapes:
        found.append(run(shape, device, distinct=options.distinct, steps=options.steps))
        if options.out:
            options.out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
