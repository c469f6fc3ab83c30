"""Exact robustness of tree ensembles, beside Veritas, CP-SAT, HiGHS and Z3.

Every contender gets the same rows and the same boxes and has 10 s per row, on one thread; values
are processor time per row. Ours runs from the input to the verdict, in Python, all rows in one
call. The peers' time leaves out what their scripts do in Python to state the problem; Z3, through
our own formula, is counted whole and asked for the first rows only. Rows are solved once, whatever
the repeats. Unsolved: no verdict within the budget.
"""

import atexit
import json
import shutil
import tempfile
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from time import process_time

import numpy as np
from bench import Case, InlinePeer, NotMeasured, VenvPeer
from peers._verify_problem import summarise
from verify._models import Spec, train, warm_up

from tacit.verify import (
    Budget,
    Counterexample,
    Ensemble,
    Inquiry,
    Robust,
    Unknown,
    verify_each,
    verify_smt,
)

PEERS = Path(__file__).parents[1] / "peers"

REQUIREMENTS = {
    "veritas": ("dtai-veritas==0.3.1", "numpy==2.4.6"),
    "cpsat": ("ortools==9.15.6755",),
    "highs": ("highspy==1.15.1", "numpy==2.4.6"),
}
SECONDS = 10.0
ROWS, Z3_ROWS = 20, 2
P95_GOAL = 0.1
MEANING = {Robust: 1, Counterexample: 0, Unknown: -1}

EPS = {"mnist": (0.01, 0.03, 0.05, 0.1), "tabular": (0.005, 0.01, 0.02, 0.05)}
SPECS = (
    Spec("mnist", "XGBoost", 300, 5, classes=(2, 6)),
    Spec("mnist", "forest", 100, 8, classes=(2, 6)),
    Spec("mnist", "forest", 50, 8),
    Spec("mnist", "XGBoost", 50, 5, train_rows=6000),
    Spec("fashion-mnist", "forest", 50, 8),
    Spec("fashion-mnist", "XGBoost", 50, 5, train_rows=6000),
    Spec("breast-cancer", "XGBoost", 100, 5),
    Spec("breast-cancer", "forest", 100, 8),
    Spec("give-me-some-credit", "XGBoost", 100, 5),
    Spec("give-me-some-credit", "forest", 50, 8),
)


def cases(quick: bool) -> list[Case]:
    """Return median, p95 and unsolved share of every model and radius."""
    found = []
    for spec in SPECS[6:7] if quick else SPECS:
        radii = EPS["mnist" if "mnist" in spec.data else "tabular"]
        for eps in radii[-1:] if quick else radii:
            contest = Contest(spec, eps)
            found += [
                contest.case("median", "ms", 1.0, has_z3=True),
                contest.case("p95", "ms", P95_GOAL),
                contest.case("unsolved", "%", None),
                contest.disagreements(),
            ]
    return found


@cache
def folder() -> Path:
    """Make the folder through which the peers get their problems; it goes when we do."""
    made = Path(tempfile.mkdtemp(prefix="tacit-verify-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


@dataclass(frozen=True)
class Contest:
    """One model and one radius; rows are solved once, then told in several ways."""

    spec: Spec
    eps: float
    memory: dict[str, list[tuple[int, float]]] = field(default_factory=dict, compare=False)

    @property
    def path(self) -> Path:
        """Where the peers find the problem."""
        name = self.spec.title.replace(" ", "_").replace(",", "").replace("×", "x")
        return folder() / f"{name}_{self.eps}.npz"

    def case(self, quantity: str, unit: str, goal: float | None, *, has_z3: bool = False) -> Case:
        """Compare one quantity."""
        peers = [
            VenvPeer(
                name=name,
                requirements=requirements,
                script=PEERS / f"{name}_peer.py",
                arguments=(str(self.path), quantity),
            )
            for name, requirements in REQUIREMENTS.items()
        ]
        z3 = (InlinePeer("z3", lambda: summarise(self.z3(), quantity)),) if has_z3 else ()
        return Case(
            name=f"{self.spec.title}, ε {self.eps:g}",
            metric=quantity,
            unit=unit,
            ours=lambda: summarise(self.ours(), quantity),
            peers=(*peers, *z3),
            goal=goal,
        )

    def disagreements(self) -> Case:
        """Count rows on which a peer's verdict is not ours; read after the peers have answered."""

        def count() -> float:
            ours = [verdict for verdict, _ in self.ours()]
            theirs = [
                [verdict for verdict, _ in json.loads(told.read_text())]
                for told in folder().glob(f"{self.path.stem}.*.json")
            ]
            if not theirs:
                raise NotMeasured("run with --peers")
            return float(
                sum(a != b for one in theirs for a, b in zip(ours, one, strict=True) if b >= 0)
            )

        return Case(
            name=f"{self.spec.title}, ε {self.eps:g}",
            metric="verdicts unlike a peer's",
            unit="",
            ours=count,
            goal=0.0,
        )

    def ours(self) -> list[tuple[int, float]]:
        """Solve our rows, and write the problem for the peers."""
        if "tacit" not in self.memory:
            trained = train(self.spec)
            write_problem(self.path, trained.ensemble, trained.rows[:ROWS], self.eps)
            warm_up(trained.ensemble, trained.rows[0])
            asked = Inquiry(self.eps, budget=Budget(seconds=SECONDS))
            told = verify_each(trained.ensemble, trained.rows[:ROWS], asked)
            self.memory["tacit"] = [(MEANING[type(one.verdict)], one.seconds) for one in told]
        return self.memory["tacit"]

    def z3(self) -> list[tuple[int, float]]:
        """Let Z3 answer for the first rows."""
        if "z3" not in self.memory:
            trained = train(self.spec)
            self.memory["z3"] = [self._ask_z3(row) for row in trained.rows[:Z3_ROWS]]
        return self.memory["z3"]

    def _ask_z3(self, row: np.ndarray) -> tuple[int, float]:
        ensemble = train(self.spec).ensemble
        rivals = max(1, ensemble.n_scores - 1)
        begun = process_time()
        # The budget of verify_smt is per rival.
        verdict = verify_smt(ensemble, row, self.eps, budget=Budget(seconds=SECONDS / rivals))
        return MEANING[type(verdict)], process_time() - begun


def write_problem(path: Path, ensemble: Ensemble, inputs: np.ndarray, eps: float) -> None:
    """Write trees and boxes for the peers."""
    kind = ensemble.input_type
    rows = np.asarray(inputs, dtype=np.float64)
    split = np.nextafter(ensemble.threshold.astype(kind), np.array(np.inf, dtype=kind))
    base = ensemble.base.copy()
    if ensemble.n_scores == 1:
        base = base - ensemble.cutoff * ensemble.divisor
    np.savez(
        path,
        roots=ensemble.roots,
        feature=ensemble.feature,
        split=split.astype(np.float64),
        left=ensemble.left,
        right=ensemble.right,
        value=ensemble.value,
        base=base,
        low=_keys(ensemble, rows - eps),
        high=_keys(ensemble, rows + eps),
        label=ensemble.predict(inputs),
        scores=ensemble.scores(inputs),
        seconds=SECONDS,
    )


def _keys(ensemble: Ensemble, values: np.ndarray) -> np.ndarray:
    return values.astype(ensemble.input_type).astype(np.float64)
