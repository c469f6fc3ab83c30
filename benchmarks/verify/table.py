"""The table of ``run.py verify/robustness --peers``, cell by cell, written down as it grows.

Every cell is one model and one radius. All contenders get the same rows and 10 s per row, on one
thread; ours is asked twice, between the peers and after them, and all of its times count. Two
times are told per row: *inside* the solver (ours: the compiled call, from the row's floats to the
answer; theirs: without what their scripts do in Python), and *whole*, from the row to the verdict
in Python (for Veritas only: the scripts of the others make their models slowly). A peer begins no
row after its patience; the times it is compared with are then those of the same rows.

With --save, models are trained and written with their rows; with --models they are read, so that
nothing but tacit and the peers is needed. Cells that are in the file already are left alone.
"""

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from bench import as_program
from verify._models import train, warm_up
from verify.robustness import EPS, MEANING, PEERS, REQUIREMENTS, SECONDS, SPECS, write_problem

from tacit.verify import Budget, Ensemble, Inquiry, verify_each
from tacit.verify.models.load import parse_stored, store_ensemble

ENVIRONMENTS = Path(__file__).parents[1] / ".peers"
PATIENCE = {"veritas": 60.0, "cpsat": 12.0, "highs": 9.0}
ORDER = (1, 6, 7, 8, 9, 0, 3, 5, 4, 2)


def main() -> None:
    """Measure the cells that were chosen and print each."""
    chosen = _read_arguments()
    if chosen.save is not None:
        for number in chosen.only:
            save(chosen.save, number, chosen.rows)
        return
    if chosen.radius is not None:
        print(json.dumps(measure(chosen.only[0], chosen.radius, chosen)))
        return
    found = json.loads(chosen.out.read_text()) if chosen.out.exists() else {}
    end = time.monotonic() + chosen.seconds
    # Compiles meanwhile; the first cells begin with a peer that takes longer.
    compiling = subprocess.Popen(
        _command(chosen, 6, 0.05, rows=2, patience=0.0),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def run(cell: tuple[int, float]) -> None:
        number, eps = cell
        name = f"{SPECS[number].title}, ε {eps:g}"
        left = end - time.monotonic()
        if name not in found and left > 0:
            command = _command(chosen, number, eps, chosen.rows, chosen.patience)
            try:
                done = subprocess.run(
                    command, capture_output=True, text=True, check=True, timeout=left
                )
                found[name] = json.loads(done.stdout.splitlines()[-1])
            except subprocess.TimeoutExpired:
                found[name] = {"missing": "no time was left"}
            except subprocess.CalledProcessError as failed:
                found[name] = {"missing": failed.stderr[-2000:]}
            chosen.out.write_text(json.dumps(found, indent=1))
            print(show(name, found[name]), flush=True)

    with ThreadPoolExecutor(chosen.workers) as pool:
        list(pool.map(run, _cells(chosen)))
    compiling.wait()


def _read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", type=int, nargs="+", default=list(ORDER), help="models")
    parser.add_argument("--radius", type=float, help="one radius of one model; prints JSON")
    parser.add_argument("--quick", action="store_true", help="one radius of one model, 20 rows")
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--workers", type=int, default=1, help="cells at a time")
    parser.add_argument("--patience", type=float, default=1.0, help="times the usual, per peer")
    parser.add_argument("--seconds", type=float, default=86400.0, help="for all cells")
    parser.add_argument("--models", type=Path, help="a folder of saved models")
    parser.add_argument("--save", type=Path, help="train, write the models there, and stop")
    parser.add_argument("--python", type=Path, help="one interpreter for all peers")
    parser.add_argument("--out", type=Path, default=Path("verify_table.json"))
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.only, chosen.rows = [6], 20
    return chosen


def _cells(chosen: argparse.Namespace) -> Iterator[tuple[int, float]]:
    for number in chosen.only:
        radii = EPS["mnist" if "mnist" in SPECS[number].data else "tabular"]
        yield from ((number, eps) for eps in (radii[-1:] if chosen.quick else radii))


def _command(
    chosen: argparse.Namespace, number: int, eps: float, rows: int, patience: float
) -> list[str]:
    told = {"--only": number, "--radius": eps, "--rows": rows, "--patience": patience}
    told |= {"--models": chosen.models, "--python": chosen.python}
    pairs = [str(part) for pair in told.items() if pair[1] is not None for part in pair]
    return as_program("verify/table", *pairs)


def save(folder: Path, number: int, count: int) -> None:
    """Train a model and write it with the first rows that it has not seen."""
    trained = train(SPECS[number])
    model = np.frombuffer(store_ensemble(trained.ensemble), dtype=np.uint8)
    folder.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(folder / f"{number}.npz", model=model, rows=trained.rows[:count])


def load(folder: Path | None, number: int) -> tuple[Ensemble, np.ndarray]:
    """Read a model and its rows, or train it."""
    if folder is None:
        trained = train(SPECS[number])
        return trained.ensemble, trained.rows
    with np.load(folder / f"{number}.npz") as saved:
        return parse_stored(saved["model"].tobytes()), saved["rows"]


def measure(number: int, eps: float, chosen: argparse.Namespace) -> dict[str, Any]:
    """Let everyone solve the rows of one cell."""
    ensemble, rows = load(chosen.models, number)
    rows = rows[: chosen.rows]
    ours, told = [], {}
    with tempfile.TemporaryDirectory() as folder:
        problem = Path(folder) / "problem.npz"
        write_problem(problem, ensemble, rows, eps)
        told["veritas"] = _ask_peer("veritas", problem, chosen)
        warm_up(ensemble, rows[0])
        ours.append(_ask_ours(ensemble, rows, eps))
        for peer in ("cpsat", "highs"):
            told[peer] = _ask_peer(peer, problem, chosen)
        ours.append(_ask_ours(ensemble, rows, eps))
    cell = {"tacit": _summarise(*ours), "rows": len(rows)}
    for peer, answers in told.items():
        cell[peer] = answers if isinstance(answers, dict) else _compare(answers, ours)
    return cell


Told = list[tuple[int, float, float]]


def _ask_ours(ensemble: Ensemble, rows: np.ndarray, eps: float) -> Told:
    told = verify_each(ensemble, rows, Inquiry(eps, budget=Budget(seconds=SECONDS)))
    return [(MEANING[type(one.verdict)], one.inside, one.seconds) for one in told]


def _ask_peer(peer: str, problem: Path, chosen: argparse.Namespace) -> Told | dict[str, str]:
    python = chosen.python or ENVIRONMENTS / peer / "bin" / "python"
    if not python.exists():
        return {"missing": "no environment; run benchmarks/run.py verify/robustness --peers first"}
    patience = chosen.patience * PATIENCE[peer]
    command = [str(python), str(PEERS / f"{peer}_peer.py"), str(problem), "median", str(patience)]
    done = subprocess.run(command, input="measure\n", text=True, capture_output=True)
    if done.returncode:
        return {"missing": done.stderr[-500:]}
    answers = json.loads(problem.with_suffix(f".{peer}.json").read_text())
    whole = json.loads(problem.with_suffix(f".{peer}.whole").read_text())
    return [(*answer, seconds) for answer, seconds in zip(answers, whole, strict=True)]


def _summarise(*told: Told) -> dict[str, Any]:
    """Reduce answers to quantiles in milliseconds and counts."""
    every = [one for answers in told for one in answers]
    verdicts = [verdict for verdict, _, _ in told[0]]
    found: dict[str, Any] = {
        "rows": len(verdicts),
        "robust": sum(verdict == 1 for verdict in verdicts),
        "unsolved": sum(verdict < 0 for verdict in verdicts),
    }
    for at, name in ((1, "inside"), (2, "whole")):
        times = [1e3 * one[at] for one in every]
        found[name] = np.quantile(times, [0.5, 0.95, 1.0]).tolist()
    return found


def _compare(answers: Told, ours: list[Told]) -> dict[str, Any]:
    same = [told[: len(answers)] for told in ours]
    pairs = zip(answers, same[0], strict=True)
    return _summarise(answers) | {
        "unlike ours": sum(a[0] >= 0 and b[0] >= 0 and a[0] != b[0] for a, b in pairs),
        "ours": _summarise(*same),
    }


def show(name: str, cell: dict[str, Any]) -> str:
    """Write a cell as one line: median / p95 inside everyone, and our p95 against the best's."""
    if "missing" in cell:
        return f"{name}: {cell['missing']}"
    peers = {who: cell[who] for who in REQUIREMENTS if "inside" in cell[who]}
    ours = cell["tacit"]
    parts = [
        f"tacit {_pair(ours['inside'])} (whole {_pair(ours['whole'])}, {ours['unsolved']} open)"
    ]
    parts += [
        f"{who} {_pair(one['inside'])} ({one['rows']} rows, {one['unsolved']} open)"
        for who, one in peers.items()
    ]
    ratios = {at: worst_ratio(peers, at) for at in ("inside", "whole")}
    told = ", ".join(f"{at} {ratio:.3f}" for at, ratio in ratios.items())
    odd = sum(one["unlike ours"] for one in peers.values())
    return f"{name}: {'  '.join(parts)}  p95 ratio {told}  unlike {odd}"


def worst_ratio(peers: dict[str, Any], at: str) -> float:
    """Divide our p95 by each peer's on the same rows; return the largest."""
    them = peers if at == "inside" else {who: peers[who] for who in peers if who == "veritas"}
    return max((one["ours"][at][1] / one[at][1] for one in them.values()), default=float("nan"))


def _pair(times: list[float]) -> str:
    return f"{times[0]:.3g}/{times[1]:.3g}"


if __name__ == "__main__":
    main()
