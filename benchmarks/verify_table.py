"""The table of ``tacit bench verify --peers``, cell by cell, written down as it grows.

Every cell is one model and one radius; all contenders get the same 20 rows and 10 s per row, on
one thread, and are timed as in ``verify.py``. A cell that is in the file already is not measured
again; a peer that takes longer than --patience for a cell is left out of it. The peers'
environments are those that ``tacit bench verify --peers`` has made.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parent))
from verify import EPS, PEERS, REQUIREMENTS, SPECS, Contest

ENVIRONMENTS = Path(__file__).parent / ".peers"


def main() -> None:
    """Measure the cells that were chosen and print each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", type=int, nargs="+", default=range(len(SPECS)), help="models")
    parser.add_argument("--quick", action="store_true", help="one radius of one model")
    parser.add_argument("--patience", type=float, default=240.0, help="seconds per peer and cell")
    parser.add_argument("--out", type=Path, required=True, help="the JSON file to add to")
    chosen = parser.parse_args()
    found = json.loads(chosen.out.read_text()) if chosen.out.exists() else {}
    for number in [6] if chosen.quick else chosen.only:
        spec = SPECS[number]
        radii = EPS["mnist" if "mnist" in spec.data else "tabular"]
        for eps in radii[-1:] if chosen.quick else radii:
            name = f"{spec.title}, ε {eps:g}"
            if name not in found:
                found[name] = measure(Contest(spec, eps), chosen.patience)
                chosen.out.write_text(json.dumps(found, indent=1))
            print(show(name, found[name]), flush=True)


def measure(contest: Contest, patience: float) -> dict[str, Any]:
    """Let everyone solve the rows of one cell."""
    told = {"tacit": summarise(contest.ours(), contest.ours())}
    for peer in REQUIREMENTS:
        python = ENVIRONMENTS / peer / "bin" / "python"
        if not python.exists():
            told[peer] = {"missing": "no environment; run tacit bench verify --peers first"}
            continue
        command = [str(python), str(PEERS / f"{peer}_peer.py"), str(contest.path), "median"]
        try:
            subprocess.run(
                command, input="measure\n", text=True, check=True, timeout=patience,
                capture_output=True,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            told[peer] = {"missing": f"took longer than {patience:g} s for the cell"}
            continue
        answers = json.loads(contest.path.with_suffix(f".{peer}.json").read_text())
        told[peer] = summarise(answers, contest.ours())
    return told


def summarise(answers: list[Any], ours: list[Any]) -> dict[str, float]:
    """Reduce the answers about a cell to times in milliseconds and counts."""
    median, p95 = np.quantile([1e3 * seconds for _, seconds in answers], [0.5, 0.95]).tolist()
    pairs = zip(answers, ours, strict=True)
    return {
        "median": median,
        "p95": p95,
        "unsolved": sum(verdict < 0 for verdict, _ in answers),
        "unlike ours": sum(a[0] >= 0 and a[0] != b[0] for a, b in pairs),
    }


def show(name: str, cell: dict[str, Any]) -> str:
    """Write a cell as one line: median / p95 of everyone, and our p95 against the best peer's."""
    peers = {who: one for who, one in cell.items() if who != "tacit" and "p95" in one}
    parts = [
        f"{who} {one['median']:.3g}/{one['p95']:.3g}" for who, one in cell.items() if "p95" in one
    ]
    best = min((one["p95"] for one in peers.values()), default=float("nan"))
    odd = sum(one["unlike ours"] for one in peers.values())
    open_rows = "+".join(str(one["unsolved"]) for one in cell.values() if "p95" in one)
    ratio = cell["tacit"]["p95"] / best
    return f"{name}: {'  '.join(parts)}  ratio {ratio:.3f}  unsolved {open_rows}  unlike {odd}"


if __name__ == "__main__":
    main()
