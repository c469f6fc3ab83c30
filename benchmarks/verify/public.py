"""Public ensembles of up to 2,000 trees: every test row at the radii below.

The radii are those of the training configurations published with Chen et al., *Robust decision
trees against adversarial examples* (2019); diabetes is asked for at a smaller one as well.

Wants the folder ``tree_models`` (see --data): XGBoost files under models, rows under testdata.
"""

import argparse
import json
import os
from dataclasses import asdict
from pathlib import Path

import numpy as np
from verify._models import measure

from tacit.verify import load_ensemble

ENSEMBLES = {
    "breast_cancer": ("breast_cancer_rf", (0.3,)),
    "breast_cancer_robust.0008": ("breast_cancer_robust.0008", (0.3,)),
    "diabetes": ("diabetes_rf", (0.05, 0.2)),
    "ori_mnist": ("ori_mnist_rf", (0.3,)),
    "fashion_mnist": ("fashion_mnist_rf", (0.1,)),
}


def main() -> None:
    """Verify the rows of every ensemble."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    default = Path(os.environ.get("TACIT_DATA", "data")) / "tree_models"
    parser.add_argument("--data", type=Path, default=default)
    parser.add_argument("--quick", action="store_true", help="at most 20 rows")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--seconds", type=float, default=10.0, help="budget per row")
    parser.add_argument("--only", nargs="+", default=list(ENSEMBLES), choices=list(ENSEMBLES))
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    count = 20 if chosen.quick else chosen.rows
    found = []
    for name in chosen.only:
        stem, radii = ENSEMBLES[name]
        ensemble = load_ensemble(chosen.data / "models" / f"{stem}.ubj.gz")
        with np.load(chosen.data / "testdata" / f"{name}.npz") as saved:
            rows = saved["x"].astype(np.float64)[:count, : ensemble.n_features]
        for eps in radii:
            one = measure(ensemble, rows, None, eps, seconds=chosen.seconds)
            found.append({"model": name, "trees": ensemble.n_trees, "eps": eps} | asdict(one))
            print(
                f"{name:26} {ensemble.n_trees:5} trees  ε {eps:<5} n {one.rows:4}  "
                f"robust {one.robust:6.1%}  fragile {one.fragile:6.1%}  "
                f"unsolved {one.unsolved:6.1%}  median {one.median_ms:8.2f} ms  "
                f"p95 {one.p95_ms:9.2f}  max {one.slowest_ms:9.2f}",
                flush=True,
            )
            if chosen.out is not None:
                chosen.out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
