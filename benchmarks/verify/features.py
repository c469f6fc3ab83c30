"""What a robust feature set costs: processor time per row, on MNIST.

The features of the set stay within ε, all others may take any value in [0, 1]. Rows without a
robust set (the class falls within ε) are counted, but not timed.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from verify._models import Spec, train

from tacit.verify import Budget, Domain, robust_features

SPECS = (
    Spec("mnist", "forest", 100, 8, classes=(2, 6)),
    Spec("mnist", "forest", 50, 8),
    Spec("mnist", "XGBoost", 300, 5, classes=(2, 6)),
)
EPS = (0.01, 0.05)
UNIT = Domain(0.0, 1.0)


def main() -> None:
    """Explain rows of every model, and write the file as it grows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small models, few rows")
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=10.0, help="budget per question")
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    specs = SPECS
    if chosen.quick:
        chosen.rows = 10
        specs = tuple(replace(one, trees=15, depth=6, train_rows=2000) for one in SPECS)
    found = []
    for spec in specs:
        for eps in EPS:
            found.append({"model": spec.title, "eps": eps} | measure(spec, eps, chosen))
            print("  ".join(f"{name} {_show(value)}" for name, value in found[-1].items()))
            if chosen.out is not None:
                chosen.out.write_text(json.dumps(found, indent=1))


def measure(spec: Spec, eps: float, chosen: argparse.Namespace) -> dict[str, Any]:
    """Return shares of rows, sizes of sets, and seconds per row."""
    trained, budget = train(spec), Budget(seconds=chosen.seconds)
    ask = trained.ensemble, trained.rows
    for row in ask[1][: chosen.rows]:  # compiles: a row without a set is no rehearsal
        if robust_features(ask[0], row, eps, domain=UNIT, budget=budget) is not None:
            break
    times, sizes, questions, minimal = [], [], [], []
    for row in ask[1][: chosen.rows]:
        begun = process_time()
        told = robust_features(ask[0], row, eps, domain=UNIT, budget=budget)
        spent = process_time() - begun
        if told is not None:
            times.append(spent)
            sizes.append(len(told.features))
            questions.append(told.questions)
            minimal.append(told.is_minimal)
    counts = {"rows": len(ask[1][: chosen.rows]), "with a set": len(times)}
    if not times:
        return counts
    median, p95, slowest = np.quantile(times, [0.5, 0.95, 1.0]).tolist()
    return counts | {
        "minimal": float(np.mean(minimal)),
        "features": float(np.median(sizes)),
        "questions": float(np.median(questions)),
        "median s": median,
        "p95 s": p95,
        "slowest s": slowest,
    }


def _show(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.3g}"


if __name__ == "__main__":
    main()
