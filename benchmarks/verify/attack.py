"""Attacks on few features: chosen by local robust feature importance, or at random.

Importance is counted on one half of the rows; the other half is attacked, with k features free
over their whole domain: the k most important ones of the predicted class, k features drawn from
those that the trees use, or the k that the trees ask for most.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
from verify._models import SEED, Spec, train

from tacit.verify import Budget, Domain, Ensemble, attack, importance

COUNTS = (1, 2, 4, 8, 16)
UNIT = Domain(0.0, 1.0)


def main() -> None:
    """Compare the ways to choose features."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a small model, few rows")
    parser.add_argument("--rows", type=int, default=400)
    parser.add_argument("--trees", type=int, default=50)
    parser.add_argument("--depth", type=int, default=8)
    parser.add_argument("--eps", type=float, default=0.01)
    parser.add_argument("--seconds", type=float, default=10.0, help="budget per question")
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    spec = Spec("mnist", "forest", chosen.trees, chosen.depth)
    if chosen.quick:
        chosen.rows, spec = 60, replace(spec, trees=15, depth=6, train_rows=2000)
    trained = train(spec)
    half = chosen.rows // 2
    known, attacked = trained.rows[:half], trained.rows[half : chosen.rows]
    budget = Budget(seconds=chosen.seconds)
    found = importance(trained.ensemble, known, chosen.eps, domain=UNIT, budget=budget)
    print(f"{spec.title}: {found.robust.sum()} of {half} rows had a robust set")
    rows = [
        {"features": k} | hits(trained.ensemble, attacked, np.nan_to_num(found.share), k)
        for k in COUNTS
    ]
    for row in rows:
        print("  ".join(f"{name} {value:.3g}" for name, value in row.items()), f"n {len(attacked)}")
    if chosen.out is not None:
        chosen.out.write_text(json.dumps(rows, indent=1))


def hits(ensemble: Ensemble, rows: np.ndarray, share: np.ndarray, k: int) -> dict[str, float]:
    """Return the share of rows whose class changes, for each way to choose k features."""
    rng = np.random.default_rng(SEED)
    uses = np.bincount(ensemble.feature[ensemble.feature >= 0], minlength=ensemble.n_features)
    used, counts = np.flatnonzero(uses), {"guided": 0, "random": 0, "most used": 0}
    for row, label in zip(rows, ensemble.predict(rows).tolist(), strict=True):
        choices = {
            "guided": np.argsort(-share[label], kind="stable")[:k],
            "random": rng.choice(used, k, replace=False),
            "most used": np.argsort(-uses, kind="stable")[:k],
        }
        for name, features in choices.items():
            found = attack(ensemble, row, np.inf, features=features.tolist(), domain=UNIT)
            counts[name] += found is not None
    return {name: count / len(rows) for name, count in counts.items()}


if __name__ == "__main__":
    main()
