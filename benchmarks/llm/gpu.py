"""Private inference at the shape of ChatGLM-6B and of an 8B model, all parties on one device.

    python benchmarks/run.py llm/gpu [--shape chatglm-6b] [--device cuda] [--processes] [--quick]
                                 [--out FILE.json]

Weights are random. To fit three versions of them on one card, layers repeat with a period of
``--distinct``; one layer is larger than any cache, so that the time is that of distinct layers.
Matrices, masks, caches and activations are on the device; messages pass through the host. Parties
are threads of one process, or with ``--processes`` three processes that speak TLS on loopback:
then they do not wait for each other's interpreter.

Reported: the owner's products of one token against fp16 products of the same shapes; seconds per
token on a local link and on two shaped ones, at a context of about 64; what a batch costs
offline. Expected on an H200 (ChatGLM-6B): products at most 3 × fp16, at most 0.1 s per token
locally, 2.0 s at 1 Gbps / 10 ms, 4.5 s at 100 Mbps / 20 ms. In threads the prompt is read before
the link becomes slow; the first two tokens, which compile and record, are not counted.
"""

import argparse
import json
import math
import multiprocessing
import socket
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import torch
from llm._shapes import SHAPES
from torch import Tensor

from tacit import ring
from tacit.crypto import load_identity, make_identity
from tacit.llm import Architecture
from tacit.llm.permuted import (
    Ahead,
    Batch,
    Client,
    Conversation,
    DealerMasks,
    MaskedWeights,
    Network,
    OwnerVault,
    Precision,
    offline_cost,
    pass_cost,
    serve_dealer,
    serve_owner,
)
from tacit.llm.permuted.blueprint import Blueprint
from tacit.llm.permuted.weights import Matrix, RingModel, Weights, matrices
from tacit.party import Meeting, Progress, Session, run_threads, session_over
from tacit.ring import Factor
from tacit.transport import Credentials, LinkLimits, Meter, Patience, Peer, ShapedLink, mesh

NETWORKS = {
    "local": None,
    "1 Gbps, 10 ms": Network(rtt_ms=10, mbit_per_s=1000),
    "100 Mbps, 20 ms": Network(rtt_ms=20, mbit_per_s=100),
}
BRIEF = Precision(
    activation=11, weight=12, query=12, rotation=10, attention=11, span=13, reach=13, look=11
)
"""Few enough bits to merge a norm with the activation behind it, or for words of 6 bytes at most
where it cannot be: fewer messages and bytes than at the fitted precision, more error."""
PROMPT_ROWS = 60
KEY = b"benchmark key 16"
LIMITS = LinkLimits(
    max_frame_bytes=1 << 30, queue_bytes=1 << 33, prefetch_bytes=1 << 33, stash_bytes=1 << 34
)

MEETING = Meeting(
    parties=("owner", "user", "dealer"),
    job_digest=b"g" * 32,
    patience=Patience(stall_s=500),
    limits=LIMITS,
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


def programs(
    a: Architecture,
    parties: tuple[Any, ...],
    name: str,
    steps: int,
    out: dict[str, Any],
    after_prompt: Callable[[], None] = lambda: None,
) -> dict[str, Callable[[Session], None]]:
    """Return what each party does in one chat, with the material of all steps ordered first."""
    owned, masks, masked = parties
    biases = {}
    if a.norm == "layer":
        for matrix in matrices(a):
            if not matrix.is_diagonal and matrix.name != "embed":
                biases[matrix.name] = torch.zeros(matrix.outputs, dtype=torch.int64)
    model = RingModel(architecture=a, precision=BRIEF, words={}, biases=biases)
    vault = OwnerVault(ring=model, key=KEY, weights=owned)
    network = NETWORKS[name]
    known = MaskedWeights(vault.fingerprint(), masked)

    def user(session: Session) -> None:
        ahead = Ahead(block=steps, blocks=2)
        client = Client(session, a, precision=BRIEF, network=network, ahead=ahead, known=known)
        conversation = Conversation(client)
        began, stamps = time.perf_counter(), []
        ids = [7 + number for number in range(PROMPT_ROWS)]
        for _ in conversation.generate(ids, lambda z: int(z.argmax()), limit=steps + 1):
            stamps.append(time.perf_counter() - began)
            if len(stamps) == 1:
                after_prompt()
        out["offline_s"] = offline_seconds(conversation, steps) / steps
        out["stamps"], out["form"] = stamps, conversation.memory.history[-1][0].form
        conversation.close()
        client.close()

    return {
        "owner": lambda session: serve_owner(session, vault),
        "user": user,
        "dealer": lambda session: serve_dealer(
            session, a, precision=BRIEF, known=DealerMasks(KEY, masks)
        ),
    }


def offline_seconds(conversation: Conversation, steps: int) -> float:
    """Time the material of some steps, from the request until the owner has it, with no chat."""
    prefetch = conversation._prefetch
    began = time.perf_counter()
    prefetch.plan(conversation._batches(0, steps))
    prefetch.take(lambda waited: None)
    return time.perf_counter() - began


def shaped(name: str, me: str, link: Any) -> Any:
    """Slow a link between owner and user down to a network."""
    network = NETWORKS[name]
    if network is None or "dealer" in (me, link.peer):
        return link
    return ShapedLink(link, rtt_ms=network.rtt_ms, mbit_per_s=network.mbit_per_s)


def in_threads(a: Architecture, parties: tuple[Any, ...], name: str, steps: int) -> dict[str, Any]:
    """Chat once over one network, all parties in this process; the prompt goes over a fast one."""
    out: dict[str, Any] = {}
    slow: list[ShapedLink] = []
    network = NETWORKS[name]

    def wrap(me: str, link: Any) -> Any:
        if network is None or "dealer" in (me, link.peer):
            return link
        slow.append(ShapedLink(link))
        return slow[-1]

    def after_prompt() -> None:
        for link in slow if network is not None else ():
            link.reshape(rtt_ms=network.rtt_ms, mbit_per_s=network.mbit_per_s)

    run_threads(programs(a, parties, name, steps, out, after_prompt), MEETING, wrap=wrap)
    return out


def party(me: str, job: dict[str, Any], found: Any) -> None:
    """Be one party of all chats, in a process of its own."""
    torch.set_num_threads(job["threads"])
    torch.manual_seed(0)  # all three draw the same weights, and keep their own
    device, a = torch.device(job["device"]), SHAPES[job["shape"]]
    parties = make(a, device, job["distinct"])
    parties = tuple(
        one if me == name else None
        for name, one in zip(("owner", "dealer", "user"), parties, strict=True)
    )
    folder = Path(job["folder"])
    for name, book in job["books"].items():
        out: dict[str, Any] = {}
        peers = {
            peer: Peer(("127.0.0.1", port), key) for peer, (port, key) in book.items() if peer != me
        }
        identity, meter = load_identity(folder, me), Meter(me)
        listener = socket.create_server(("127.0.0.1", book[me][0]))
        links = mesh(
            me,
            peers,
            credentials=Credentials(identity.certificate_file, identity.key_file),
            listener=listener,
            meter=meter,
            patience=MEETING.patience,
            limits=LIMITS,
        )
        slowed = {peer: shaped(name, me, link) for peer, link in links.items()}
        steps = job["steps"] if name == "local" else min(job["steps"], 4)
        with session_over(me, MEETING, links=slowed, meter=meter, progress=Progress()) as session:
            programs(a, parties, name, steps, out)[me](session)
            session.finish()
        if me == "user":
            found.put((name, out))


def in_processes(job: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Chat over every network, with a process for each party."""
    context = multiprocessing.get_context("spawn")
    found = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        keys = {me: make_identity(me, Path(folder)).fingerprint for me in MEETING.parties}
        books = {name: {me: (free_port(), key) for me, key in keys.items()} for name in NETWORKS}
        job = {**job, "folder": folder, "books": books}
        workers = [context.Process(target=party, args=(me, job, found)) for me in MEETING.parties]
        for worker in workers:
            worker.start()
        out = dict(found.get(timeout=1800) for _ in NETWORKS)
        for worker in workers:
            worker.join()
    return out


def free_port() -> int:
    """Find a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def describe(a: Architecture, name: str, steps: int, out: dict[str, Any]) -> dict[str, Any]:
    """Put the times of a chat beside its forecast."""
    network, plan = NETWORKS[name], Blueprint(a, BRIEF)
    steps_s = [after - before for before, after in pairwise(out["stamps"][2:])]
    past = PROMPT_ROWS + steps // 2
    batch = Batch(
        number=0, past=past, rows=1, prompt=PROMPT_ROWS - 1, masked_kv=past, form=out["form"]
    )
    cost, offline = pass_cost(plan, batch), offline_cost(plan, batch)
    return {
        "network": name,
        "form": out["form"],
        "seconds_per_token": median(steps_s),
        "step_s": [round(one, 4) for one in steps_s],
        "prompt_s": out["stamps"][0],
        "offline_s_per_token": out["offline_s"],
        "messages_per_token": cost.messages,
        "online_bytes_per_token": cost.payload_bytes,
        "offline_bytes_per_token": offline.dealer_to_owner_bytes + offline.user_to_owner_bytes,
        "network_formula_s": None if network is None else cost.seconds(network),
    }


def run(
    shape: str,
    device: torch.device,
    *,
    distinct: int,
    steps: int,
    job: dict[str, Any] | None,
    networks: Sequence[str] = tuple(NETWORKS),
) -> dict[str, Any]:
    """Measure one shape; with a job, in processes."""
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
    chats = None
    if job is not None:
        del parties
        if device.type == "cuda":
            torch.cuda.empty_cache()
        chats = in_processes({**job, "shape": shape, "distinct": min(distinct, a.layers)})
    rows = []
    for name in networks:
        count = steps if name == "local" else min(steps, 4)
        out = chats[name] if chats is not None else in_threads(a, parties, name, count)
        row = describe(a, name, count, out)
        rows.append(row)
        print(f"{shape}: {row}", flush=True)
    return {
        "shape": shape,
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "distinct_layers": distinct,
        "parties": "threads" if job is None else "processes",
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
    parser.add_argument("--processes", action="store_true", help="one process for each party")
    parser.add_argument("--quick", action="store_true", help="the tiny shape only")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    shapes = ["tiny"] if options.quick else options.shape or ["chatglm-6b", "8b"]
    device = torch.device(options.device)
    found = []
    for shape in shapes:
        job = {"device": str(device), "steps": options.steps, "threads": options.threads}
        found.append(
            run(
                shape,
                device,
                distinct=options.distinct,
                steps=options.steps,
                job=job if options.processes else None,
            )
        )
        if options.out:
            options.out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
