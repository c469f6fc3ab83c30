"""The inverse root: its time beside CrypTen's and SPU's, and how far below the truth it stays.

    python benchmarks/run.py mpc/_inverse_root times --crypten PYTHON --spu PYTHON
    python benchmarks/run.py mpc/_inverse_root curve --out docs/images/inverse-root.svg

Times are those of `mpc.py` for more sizes, in turns in one run; PYTHON are the environments of the
peers. The curve is of `rsqrt_below`, which clipping uses, and of `rsqrt` without its margin.
"""

import argparse
import json
import statistics
from collections.abc import Callable
from contextlib import ExitStack
from math import log10
from pathlib import Path
from typing import Any

import numpy as np
import torch
from bench import Worker
from mpc._parties import Parties
from mpc._rows import Row

from tacit.mpc import Roles, compute, find_protocol, make_plan, serve
from tacit.party import Meeting, Session, run_threads

PEERS = Path(__file__).parents[1] / "peers"
SIZES = (1, 32, 64, 128)
LOW, HIGH, POINTS, FEW = 0.01, 300.0, 20_000, 500
ROLES = Roles("first", "second", "dealer")
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 640, 340, 56, 34, 40
LEAST, MOST = -0.1, 1.7  # percent, of the picture
COLOURS = {
    "rsqrt_below": "#0b6e99",
    "rsqrt_below of few values": "#b3541e",
    "rsqrt": "#767676",
    "guarantee": "#000000",
}
Curve = tuple[np.ndarray, np.ndarray]


def times(crypten: Path, spu: Path, turns: int) -> dict[str, Any]:
    """Measure ours and theirs in turns, in milliseconds; the first turn is for warming up."""
    found: dict[str, Any] = {}
    for size in SIZES:
        row, seen = f"rsqrt-{size}", dict[str, list[float]]()
        with ExitStack() as stack:
            parties = Parties()
            stack.callback(parties.close)
            commands = {"CrypTen": [str(crypten), str(PEERS / "crypten_peer.py"), row, "time"]}
            for name in ("semi2k", "aby3"):
                commands[name] = [str(spu), str(PEERS / "spu_peer.py"), name, row, "time"]
            workers = {n: stack.enter_context(Worker(one)) for n, one in commands.items()}
            for turn in range(turns + 1):
                run = parties.run(Row.parse(row), "sealed")
                values = {"sealed": run.online_ms, "offline": run.offline_ms}
                values |= {name: worker.measure() for name, worker in workers.items()}
                for name, value in values.items() if turn else ():
                    seen.setdefault(name, []).append(value)
        # On busy cores medians waver; the least is what was disturbed least, of all alike.
        found[row] = {
            name: _compared({who: count(one) for who, one in seen.items()})
            for name, count in (("median", statistics.median), ("least", min))
        }
        print(row, found[row], flush=True)
    return found


def _compared(ms: dict[str, float]) -> dict[str, float]:
    fastest = min(value for name, value in ms.items() if name not in ("sealed", "offline"))
    ratios = {
        "ratio": ms["sealed"] / fastest,
        "ratio with offline": (ms["sealed"] + ms["offline"]) / fastest,
    }
    return {name: round(value, 3) for name, value in (ms | ratios).items()}


def below(verb: str, x: torch.Tensor) -> Curve:
    """Return arguments, and by how many percent of the truth the result on shares is below it."""

    def program(ops: Any) -> Any:
        secret = ops.input("x", owner=ROLES.first, shape=tuple(x.shape), bound=2.0**16)
        result = ops.normalise_scale(getattr(ops, verb)(secret))
        return ops.open(result, to=(ROLES.first,), what="the result", why="the benchmark shows it")

    plan = make_plan(program, find_protocol("sealed"), ROLES, frac_bits=16)

    def party(session: Session) -> Any:
        if session.me == ROLES.dealer:
            return serve(session, plan, inputs={})
        mine = {"x": x} if session.me == ROLES.first else {}
        return compute(session, plan, program, inputs=mine)

    names = (*ROLES.computing, str(ROLES.dealer))
    meeting = Meeting(parties=names, job_digest=b"b" * 32)
    parties: dict[str, Callable[[Session], Any]] = dict.fromkeys(names, party)
    result = run_threads(parties, meeting)[ROLES.first]
    return x.numpy(), (100 * (1 - result * x.sqrt())).numpy()


def curves() -> dict[str, Curve]:
    """Compute all curves; arguments are multiples of 2^-16, which are exact on shares."""
    words = np.unique(np.round(np.geomspace(LOW, HIGH, POINTS) * 2**16))
    x = torch.from_numpy(words * 2.0**-16)
    few = x[:: -(-len(x) // FEW)]
    truth = x.rsqrt()
    return {
        "guarantee": (x.numpy(), (100 * (0.006 + 2.0**-11 / truth)).numpy()),
        "rsqrt": below("rsqrt", x),
        "rsqrt_below": below("rsqrt_below", x),
        "rsqrt_below of few values": below("rsqrt_below", few),
    }


def draw(found: dict[str, Curve]) -> str:
    """Return an SVG: arguments logarithmic, percent below the truth."""

    def place(x: float, y: float) -> tuple[float, float]:
        along = log10(x / LOW) / log10(HIGH / LOW)
        up = (y - LEAST) / (MOST - LEAST)
        return LEFT + along * (WIDTH - LEFT - 20), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)

    title = "1 / √x on shares: percent below the true value"
    parts = [f'<text x="{LEFT}" y="18" font-weight="bold">{title}</text>']
    for x in (0.01, 0.1, 1, 10, 100, 300):
        across, _ = place(x, 0)
        at = f'x="{across:.0f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle"'
        parts.append(f"<text {at}>{x:g}</text>")
    for y in (0.0, 0.4, 0.8, 1.2, 1.6):
        _, up = place(1, y)
        parts.append(f'<text x="{LEFT - 8}" y="{up + 4:.0f}" text-anchor="end">{y:g}</text>')
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - 20}" y1="{up:.1f}" y2="{up:.1f}" '
            f'stroke="{"#000000" if y == 0 else "#dddddd"}"/>'
        )
    for number, (name, (xs, ys)) in enumerate(found.items()):
        every = -(-len(xs) // FEW)
        spots = (place(x, y) for x, y in zip(xs[::every], ys[::every], strict=True))
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
        dashes = ' stroke-dasharray="5 4"' if name == "guarantee" else ""
        colour = COLOURS[name]
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}"{dashes}/>')
        said = "no further below than (guarantee)" if name == "guarantee" else name
        y = TOP + 14 + 16 * number
        parts.append(f'<text x="{LEFT + 12}" y="{y}" fill="{colour}">{said}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-family="sans-serif" font-size="12"><rect width="{WIDTH}" height="{HEIGHT}" '
        f'fill="#ffffff"/>{"".join(parts)}</svg>\n'
    )


def main() -> None:
    """Print times, or draw the curve and print its ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=("times", "curve"))
    parser.add_argument("--crypten", type=Path, help="the Python of CrypTen's environment")
    parser.add_argument("--spu", type=Path, help="the Python of SPU's environment")
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.part == "times":
        print(json.dumps(times(asked.crypten, asked.spu, asked.turns), indent=1))
        return
    found = curves()
    for name, (xs, ys) in found.items():
        ends = {"least %": float(ys.min()), "most %": float(ys.max()), "mean %": float(ys.mean())}
        print(name, len(xs), {what: round(one, 4) for what, one in ends.items()})
    if asked.out is not None:
        asked.out.write_text(draw(found))


if __name__ == "__main__":
    main()
