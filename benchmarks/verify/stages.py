"""What every optional stage of `tacit.verify` buys: each is taken out of the source, in turn.

A stage is taken out by changing a line or two of a copy of the package, in which the same rows are
then verified: kernels are compiled for that copy alone. A row's time is that inside the compiled
search, the median of five passes; told is median and p95 over the rows of a cell (a model and a
radius), without the stage divided by with it: 2 means that the stage makes it twice as fast. Before
and after, the same is measured with everything in place. With
--alone presolve is out everywhere, so that every row goes to branch and bound. With
--explain the cells are explanations, timed as a whole, the better of two passes.

    python benchmarks/run.py verify/table --save MODELS --rows 100
    python benchmarks/run.py verify/stages --models MODELS
"""

import argparse
import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from bench import as_program
from verify.robustness import EPS, SPECS
from verify.table import ORDER, load

import tacit
from tacit.verify import Budget, Domain, Inquiry, robust_features, verify_each

PASSES = 5
EXPLAINED = ((1, 0.01), (1, 0.05), (0, 0.05), (2, 0.01))
"""Model and radius of the cells of explanations."""

PRESOLVE, SEARCH = "kernels/presolve/presolve.py", "kernels/search/branch.py"
Patch = tuple[str, str, str]
STAGES: dict[str, tuple[Patch, ...]] = {
    "presolve": (
        (PRESOLVE, "    at = case[i]\n", "    return Outcome.UNDECIDED\n    at = case[i]\n"),
    ),
    "marginal-minimiser probe": (
        (PRESOLVE, "has_minimiser = m.minimiser.shape[0] > 0", "has_minimiser = False"),
        (PRESOLVE, "    if m.minimiser.shape[0] == 0:\n", "    if True:\n"),
    ),
    "attack before bound": (
        (PRESOLVE, "is_wide = 2 * s.undecided[m.entry.size] > m.entry.size", "is_wide = False"),
    ),
    "bisection": ((PRESOLVE, "MOST_PARTS, ONE_PART = 32,", "MOST_PARTS, ONE_PART = 1,"),),
    "least leaf below every node": (
        ("kernels/presolve/workspace.py", "ends=nodes.ends,", "ends=np.zeros(0, np.int64),"),
    ),
    "components": (("robustness.py", "UNDECIDED, FEW_NODES\n", "UNDECIDED, CHUNK_NODES\n"),),
    "two classes at a time": (
        ("robustness.py", "        if index.nodes.group_start.size > 2:\n", "        if False:\n"),
    ),
    "coordinate descent": (
        (
            SEARCH,
            "        is_due = explored % every == DESCENT_EVERY % every\n",
            "        is_due = False\n",
        ),
    ),
    "pseudo-costs": (
        (
            SEARCH,
            "    below, above = EXPECTED",
            "    return float(trees)\n    below, above = EXPECTED",
        ),
    ),
    "messages of the node above": (
        (
            SEARCH,
            "    restore(r, a, origin[top, ORIGIN:])\n",
            "    for k in range(a.min_marginal.size):\n"
            "        a.min_marginal[k] = 0\n"
            "    restore(r, a, a.min_marginal)\n",
        ),
    ),
    "second sweep": (("kernels/search/mplp.py", "MOST_SWEEPS = 15\n", "MOST_SWEEPS = 1\n"),),
}
EXPLAINERS: dict[str, tuple[Patch, ...]] = {
    "incremental verifier": (
        (
            "oracle.py",
            "        if self._verifier.is_empty:\n",
            "        if True:\n"
            "            outcome, _, intervals = self._search_anew(is_free, budget)\n"
            "            return outcome, None, intervals\n"
            "        if self._verifier.is_empty:\n",
        ),
    ),
    "tabu search in nodes": (
        ("kernels/attack/diving.py", "    if is_thorough:\n", "    if False:\n"),
    ),
    "diving": (
        (
            "kernels/search/cover.py",
            "    is_due = visited in (1, TABU_EVERY) or visited % DIVE_EVERY == 0\n",
            "    is_due = False\n",
        ),
    ),
    "neighbours of a near miss": (
        ("oracle.py", "        if near_miss is not None:\n", "        if False:\n"),
    ),
    "hurried rounds": (("explain.py", "HASTE = (5, 40)", "HASTE = ()"),),
    "walk to a near miss": (
        ("kernels/attack/diving.py", "descend_within(r, instance.task, s, STEPS)", "point"),
    ),
    "pseudo-costs": STAGES["pseudo-costs"],
    "second sweep": STAGES["second sweep"],
    "rarer descent": (
        (SEARCH, "DESCENT_EVERY, DESCENT_WIDE = 4, 12\n", "DESCENT_EVERY, DESCENT_WIDE = 4, 4\n"),
    ),
}


def main() -> None:
    """Measure with all stages and without each, and write what was found."""
    chosen = _read_arguments()
    if chosen.child:
        measure = explain_cells if chosen.explain else verify_cells
        print(json.dumps(measure(chosen.models, chosen.rows)))
        return
    found = json.loads(chosen.out.read_text()) if chosen.out.exists() else {}
    stages = EXPLAINERS if chosen.explain else STAGES
    for name in chosen.only or stages:
        if name not in found:
            # Between two runs with everything, so that a machine that gets busier is no stage.
            every = STAGES["presolve"] if chosen.alone else ()
            runs = [run_without((*every, *some), chosen) for some in ((), stages[name], ())]
            found[name] = dict(zip(("before", "without", "after"), runs, strict=True))
            chosen.out.write_text(json.dumps(found))
        print(f"{name}: {show(found[name])}", flush=True)


def _read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--models", type=Path, required=True, help="a folder of saved models")
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--explain", action="store_true", help="explanations, not verdicts")
    parser.add_argument("--alone", action="store_true", help="branch and bound without presolve")
    parser.add_argument("--only", nargs="+", default=[], help="stages")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=Path("verify_stages.json"))
    return parser.parse_args()


def run_without(patches: tuple[Patch, ...], chosen: argparse.Namespace) -> dict[str, Any]:
    """Change a copy of the package and measure in it."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(shutil.copytree(Path(tacit.__file__).parent, Path(folder) / "tacit"))
        for file, old, new in patches:
            path = package / "verify" / file
            if old not in path.read_text():
                raise SystemExit(f"{file} has no longer {old!r}")
            path.write_text(path.read_text().replace(old, new))
        options = ["--models", str(chosen.models), "--rows", str(chosen.rows), "--child"]
        options += ["--explain"] if chosen.explain else []
        told = subprocess.run(
            as_program("verify/stages", *options),
            env=os.environ | {"PYTHONPATH": folder},
            capture_output=True,
            text=True,
        )
    if told.returncode:
        raise SystemExit(told.stderr[-2000:])
    found: dict[str, Any] = json.loads(told.stdout.splitlines()[-1])
    return found


def verify_cells(models: Path, count: int) -> dict[str, Any]:
    """Verify the rows of all cells: 40 where all models are there."""
    found = {}
    for number in (one for one in ORDER if (models / f"{one}.npz").exists()):
        ensemble, rows = load(models, number)
        for eps in EPS["mnist" if "mnist" in SPECS[number].data else "tabular"]:
            asked = Inquiry(eps, budget=Budget(seconds=10.0))
            list(verify_each(ensemble, rows[:count], asked))  # compiles
            passes = [list(verify_each(ensemble, rows[:count], asked)) for _ in range(PASSES)]
            times = np.median([[one.inside for one in told] for told in passes], axis=0)
            found[f"{SPECS[number].title}, ε {eps:g}"] = {
                "median": float(np.median(times)),
                "p95": float(np.quantile(times, 0.95)),
                "answers": [int(one.verdict.outcome) for one in passes[0]],
                "nodes": sum(one.verdict.nodes for one in passes[0]),
            }
    return found


def explain_cells(models: Path, count: int) -> dict[str, Any]:
    """Find robust feature sets of rows of MNIST."""
    found = {}
    for number, eps in EXPLAINED:
        ensemble, rows = load(models, number)
        times, sizes = [], []
        for row in rows[:count]:
            spent = []
            for _ in range(2):
                begun = time.thread_time()
                one = robust_features(ensemble, row, eps, domain=Domain(0.0, 1.0))
                spent.append(time.thread_time() - begun)
            if one is not None:
                times.append(min(spent))
                sizes.append(len(one.features) if one.is_minimal else -1)
        found[f"{SPECS[number].title}, ε {eps:g}"] = {
            "median": float(np.median(times)),
            "p95": float(np.quantile(times, 0.95)),
            "answers": sizes,
        }
    return found


def show(found: dict[str, Any]) -> str:
    """Say what a stage buys: the middle factor, and the least and largest, over the cells."""
    before, without, after = found["before"], found["without"], found["after"]
    parts = []
    for quantity in ("median", "p95"):
        ratios = {
            cell: without[cell][quantity] / np.sqrt(one[quantity] * after[cell][quantity])
            for cell, one in before.items()
        }
        most = max(ratios, key=lambda cell: ratios[cell])
        middle, least = np.median([*ratios.values()]), min(ratios.values())
        parts.append(f"{quantity} {middle:.2f} × ({least:.2f} to {ratios[most]:.2f}, {most})")
    other = sum(before[cell]["answers"] != without[cell]["answers"] for cell in before)
    return "; ".join([*parts, f"cells answered otherwise: {other}"])


if __name__ == "__main__":
    main()
