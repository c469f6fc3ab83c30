"""The cells of `verify_table.py` beside VoTE, and beside one plain prediction.

Ours is counted inside the compiled call, VoTE around one call of its search from Python, on the
same rows and one thread. VoTE goes once through the rows and begins none after its patience; then
it goes through those again, up to so many passes, while its patience lasts; ours makes as many. Of
each row's times the median counts, so that an interruption is no row's time. The last column is
processor time of one plain prediction: a walk through all trees at the row itself, one after the
other, by their thresholds, in compiled code; the fastest of 20 passes, and of the rows the median.
"""

import argparse
import json
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numba
import numpy as np

from tacit.verify import Budget, Ensemble, Inquiry, verify_each
from tacit.verify.box import to_keys
from tacit.verify.kernels.clock import PROCESSOR, make_hand, read_clock
from tacit.verify.kernels.presolve.scores import sum_scores

sys.path.append(str(Path(__file__).parents[1] / "peers"))
from peers._verify_problem import load as load_problem
from verify._models import warm_up
from verify.robustness import EPS, MEANING, SPECS, write_problem
from verify.table import load
from vote_peer import PREFIX, Vote

PASSES = 20


def main() -> None:
    """Measure the models that were chosen; write and print each cell as it is done."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", type=int, nargs="+", default=list(range(len(SPECS))))
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--row-seconds", type=float, default=1.0, help="VoTE's, per row")
    parser.add_argument("--patience", type=float, default=10.0, help="VoTE's, per cell")
    parser.add_argument("--models", type=Path, help="a folder of saved models")
    parser.add_argument("--quick", action="store_true", help="one model, 5 rows")
    parser.add_argument("--out", type=Path, default=Path("verify_vote.json"))
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.only, chosen.rows = [6], 5
    found: dict[str, Any] = {}
    for number in chosen.only:
        ensemble, rows = load(chosen.models, number)
        rows = rows[: chosen.rows]
        warm_up(ensemble, rows[0])
        floor = 1e3 * time_prediction(ensemble, rows)
        for eps in EPS["mnist" if "mnist" in SPECS[number].data else "tabular"]:
            name = f"{SPECS[number].title}, {eps:g}"
            found[name] = measure(ensemble, rows, eps, chosen) | {"prediction": floor}
            chosen.out.write_text(json.dumps(found, indent=1))
            print(show(name, found[name]), flush=True)


def measure(
    ensemble: Ensemble, rows: np.ndarray, eps: float, chosen: argparse.Namespace
) -> dict[str, Any]:
    """Let both decide the rows of one cell; times in milliseconds."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "problem.npz"
        write_problem(path, ensemble, rows, eps)
        problem = replace(load_problem(path), seconds=chosen.row_seconds)
    theirs = _ask_vote(problem, len(rows), chosen)
    inquiry, asked = Inquiry(eps, budget=Budget(seconds=10.0)), rows[: len(theirs[0])]
    list(verify_each(ensemble, rows[:1], inquiry))  # as VoTE was asked once before, too
    ours = [list(verify_each(ensemble, asked, inquiry)) for _ in theirs]
    verdicts = [MEANING[type(one.verdict)] for one in ours[0]]
    pairs = list(zip(verdicts, [verdict for verdict, _ in theirs[0]], strict=True))
    return {
        "rows": len(asked),
        "passes": len(ours),
        "ours": _quantiles([[one.inside for one in row] for row in ours]),
        "whole": _quantiles([[one.seconds for one in row] for row in ours]),
        "vote": _quantiles([[seconds for _, seconds in row] for row in theirs]),
        "ours, each time": _quantiles([[one.inside for row in ours for one in row]]),
        "vote, each time": _quantiles([[seconds for row in theirs for _, seconds in row]]),
        "vote open": sum(verdict < 0 for _, verdict in pairs),
        "unlike ours": sum(our >= 0 and their >= 0 and our != their for our, their in pairs),
    }


def _ask_vote(
    problem: Any, n_rows: int, chosen: argparse.Namespace
) -> list[list[tuple[int, float]]]:
    """Let VoTE decide the rows, in several passes while its patience lasts."""
    vote = Vote(PREFIX)
    vote.solve(problem, 0)
    begun = time.monotonic()
    first = []
    for row in range(n_rows):
        first.append(vote.solve(problem, row))
        if time.monotonic() - begun > chosen.patience:
            break
    passes = [first]
    took = time.monotonic() - begun
    while len(passes) < chosen.passes and took * (len(passes) + 1) < chosen.patience:
        passes.append([vote.solve(problem, row) for row in range(len(first))])
    return passes


def _quantiles(passes: list[list[float]]) -> list[float]:
    """Take the median of each row over the passes; of those the median, p95 and the greatest."""
    return np.quantile(1e3 * np.median(passes, axis=0), [0.5, 0.95, 1.0]).tolist()


def time_prediction(ensemble: Ensemble, rows: np.ndarray) -> float:
    """Return the seconds of one prediction: the median over rows of each row's fastest."""
    keys = np.ascontiguousarray(to_keys(ensemble, rows.astype(np.float64)))
    index, seconds = ensemble.index, np.full((PASSES + 1, len(keys)), np.inf)
    for one in seconds:
        _predict_each(index.trees, index.rule, keys, np.empty((1, ensemble.n_scores)), one)
    return float(np.median(seconds[1:].min(axis=0)))


@numba.njit
def _predict_each(trees: Any, rule: Any, keys: Any, out: Any, seconds: Any) -> None:
    hand = make_hand()
    then = read_clock(PROCESSOR, hand)
    for row in range(keys.shape[0]):
        sum_scores(trees, rule, keys[row : row + 1], out)
        now = read_clock(PROCESSOR, hand)
        seconds[row] = now - then
        then = now


def show(name: str, cell: dict[str, Any]) -> str:
    """Write a cell as a line of the table."""
    pairs = (f"{cell[who][0]:.2g} / {cell[who][1]:.2g}" for who in ("ours", "vote"))
    count = f"{cell['rows']} × {cell['passes']}"
    told = (name, count, *pairs, str(cell["vote open"]), f"{cell['prediction']:.2g}")
    return f"| {' | '.join(told)} | ratio {cell['ours'][1] / cell['vote'][1]:.3f}"


if __name__ == "__main__":
    main()
