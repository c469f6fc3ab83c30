"""BERT encoders beside SPU (ABY3 and semi2k, PUMA's functions) and CrypTen, in one run.

    python benchmarks/run.py inference/encoders [--layers 1 2 12] [--repeats 3] [--no-peers]
        [--out FILE.json]

Layers of BERT-base (768 wide, 12 heads, 128 tokens) with random weights, from what the first layer
reads to a shared result; every party is a process on loopback with one thread. Our online time
begins when the dealer's material is there; the peers make theirs on the way, so a run in which
nobody waits, from inputs that nobody has shared yet to the result, is compared as well. Times are
medians; the peers' bytes and rounds are as they count themselves. Expected: online at most 0.2 ×
the fastest of SPU; metered = planned, or a party stops.
"""

import argparse
import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench import VenvPeer
from bench.peers import prepare_environment
from mpc._crew import ONE_THREAD
from mpc._parties import Parties
from mpc._programs import count
from mpc._rows import Row
from mpc.operations import CRYPTEN, PEERS, SPU

from tacit.cli.memory import keep_freed_memory

GOAL = 0.2
SHAPE = {"tokens": 128, "width": 768, "ffn": 3072}


@dataclass(frozen=True, kw_only=True)
class Line:
    """What one system took for one encoder; None for what it does not have or was not counted."""

    system: str
    layers: int
    online_s: float
    offline_s: float | None
    whole_s: float
    processor_s: float
    rounds: int | None
    online_mb: float | None
    offline_mb: float | None
    memory_mb: float
    largest_error: float


def row_of(layers: int, *, tokens: int = 128, width: int = 768, ffn: int = 3072) -> Row:
    """Return the row of an encoder."""
    return Row("bert", (layers, tokens, width, ffn))


def ours(row: Row, repeats: int) -> Line:
    """Run it under `sealed`; the first run is for warming up."""
    parties, counts = Parties(), count(row, "sealed")
    try:
        wholes = [parties.run_whole(row, "sealed") for _ in range(repeats + 1)][1:]
        runs = [parties.run(row, "sealed") for _ in range(repeats + 1)][1:]
    finally:
        parties.close()
    return Line(
        system="tacit sealed",
        layers=row.sizes[0],
        online_s=median(one.online_ms for one in runs) / 1e3,
        offline_s=median(one.offline_ms for one in runs) / 1e3,
        whole_s=median(one.wall_ms for one in wholes) / 1e3,
        processor_s=median(one.processor_ms for one in runs) / 1e3,
        rounds=counts.online_rounds,
        online_mb=counts.online_megabytes,
        offline_mb=counts.offline_megabytes,
        memory_mb=max(one.memory_mb for one in wholes),
        largest_error=max(one.largest_error for one in runs),
    )


def theirs(system: str, python: Path, script: Sequence[str], row: Row, repeats: int) -> Line:
    """Run a peer: a small encoder after one to warm up, and once more to count."""
    is_small = row.sizes[0] <= 2
    times = list(_answers(python, [*script, row.name, "time"], repeats + is_small))[is_small:]
    counts: dict[str, Any] = {}
    if is_small:
        counts = next(_answers(python, [*script, row.name, "megabytes"], 1))
    return Line(
        system=system,
        layers=row.sizes[0],
        online_s=median(one["time"] for one in times) / 1e3,
        offline_s=None,
        whole_s=median(one["time"] for one in times) / 1e3,
        processor_s=median(one["processor"] for one in times) / 1e3,
        rounds=counts.get("rounds"),
        online_mb=counts.get("megabytes"),
        offline_mb=None,
        memory_mb=max(one["memory"] for one in times),
        largest_error=max(one["error"] for one in times),
    )


def _answers(python: Path, script: Sequence[str], asked: int) -> Iterator[dict[str, Any]]:
    done = subprocess.run(
        [str(python), *script],
        input="measure\n" * asked,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={k: v for k, v in os.environ.items() if not k.startswith("PYTHON")} | ONE_THREAD,
        check=True,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return map(json.loads, lines)


def contest(layers: int, repeats: int, *, has_peers: bool) -> Iterator[Line]:
    """Run one encoder in every system."""
    row = row_of(layers)
    yield ours(row, repeats)
    if not has_peers:
        return
    root = Path(__file__).parents[1] / ".peers"
    spu = VenvPeer("spu", SPU, PEERS / "spu_peer.py", ())
    crypten = VenvPeer("crypten", CRYPTEN, PEERS / "crypten_peer.py", (), ("--no-deps",))
    python = prepare_environment(spu, root)
    for protocol in ("aby3", "semi2k"):
        script = (str(spu.script), protocol)
        yield theirs(f"SPU {protocol}", python, script, row, repeats)
    python = prepare_environment(crypten, root)
    yield theirs("CrypTen", python, (str(crypten.script),), row, repeats)


def growth() -> Iterator[dict[str, Any]]:
    """Plan other sizes, one at a time twice as large: counts alone, nothing is run."""
    yield {"what": "2 layers", **asdict(count(row_of(2), "sealed"))}
    for what, sizes in {
        "1 layer": {},
        "tokens 32": {"tokens": 32},
        "tokens 64": {"tokens": 64},
        "tokens 256": {"tokens": 256},
        "width 384": {"width": 384, "ffn": 1536},
        "width 1536": {"width": 1536, "ffn": 6144},
    }.items():
        yield {"what": what, **asdict(count(row_of(1, **sizes), "sealed"))}


def show(lines: Sequence[Line]) -> None:
    """Print one encoder's lines, with ratios to the fastest of SPU."""
    peers = [one.online_s for one in lines if one.system.startswith("SPU")]
    for one in lines:
        text = f"{one.layers:2} layers {one.system:13} online {one.online_s:7.2f} s"
        if one.offline_s is not None:
            text += f", offline {one.offline_s:.2f} s ({one.offline_mb:.0f} MB)"
            text += f", all at once {one.whole_s:.2f} s"
        if one.rounds is not None and one.online_mb is not None:
            text += f", {one.rounds} rounds, {one.online_mb:.0f} MB"
        text += f", processors {one.processor_s:.2f} s, {one.memory_mb:.0f} MB of memory"
        text += f", error {one.largest_error:.2g}"
        if peers:
            text += f"; {one.online_s / min(peers):.3f} and {one.whole_s / min(peers):.3f} of SPU"
        print(text, flush=True)


def main() -> None:
    """Measure, print, and write what was found after every system."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--layers", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    found: dict[str, Any] = {"shape": SHAPE, "goal": GOAL, "lines": [], "growth": list(growth())}
    for one in found["growth"]:
        print(json.dumps(one), flush=True)
    for layers in options.layers:
        lines = []
        for line in contest(layers, options.repeats, has_peers=not options.no_peers):
            lines.append(line)
            found["lines"].append(asdict(line))
            if options.out is not None:
                options.out.write_text(json.dumps(found, indent=1))
        show(lines)


if __name__ == "__main__":
    keep_freed_memory()
    main()
