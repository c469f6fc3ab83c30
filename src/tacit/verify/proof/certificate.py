"""Writing a proof down: the search once more, step by step, for `check_proof` to follow."""

from typing import Any

import numpy as np

from tacit.errors import ConfigError
from tacit.verify.box import box_cells
from tacit.verify.kernels.layout.reach import reach
from tacit.verify.kernels.search.bounds import make_work, reset
from tacit.verify.kernels.search.problem import first_stack, make_load, make_task
from tacit.verify.kernels.search.proof_step import close_node
from tacit.verify.models.ensemble import Ensemble
from tacit.verify.objectives import make_sides
from tacit.verify.proof.proof import Proof, Side, Step
from tacit.verify.robustness import Certificate

LONGEST_PROOF = 1_000_000
BOUND, SHARE, SPLIT, POINT = 0, 1, 2, 3


def prove(ensemble: Ensemble, certificate: Certificate, *, longest: int = LONGEST_PROOF) -> Proof:
    """Write down why a certificate holds, for `check_proof`.

    Args:
        ensemble: the model that was verified.
        certificate: what `verify` returned.
        longest: give up when the proof has more steps than this.
    """
    index = ensemble.index
    prediction = ensemble.predict(certificate.box.center[None])[0]
    sides = make_sides(ensemble, prediction, certificate.rho)
    r = reach(index.trees, *box_cells(ensemble, certificate.box))
    load = make_load(index.trees, index.base_units, r)
    work = make_work(r, ensemble.n_scores)
    written = []
    for side in range(sides.plus.size):
        task = make_task(r, load, sides, side)
        steps = _write_side(ensemble, r, task, work, longest)
        written.append(Side(int(sides.plus[side]), int(sides.minus[side]), tuple(steps)))
    return Proof(certificate.box, certificate.prediction, certificate.rho, tuple(written))


def _write_side(ensemble: Ensemble, r: Any, task: Any, work: Any, longest: int) -> list[Step]:
    n_features = r.feature_id.size
    stack, steps = [first_stack(r)[0]], []
    while stack:
        row = stack.pop()
        work.low[:], work.high[:] = row[:n_features], row[n_features:]
        reset(work)
        kind, f, s = close_node(r, task, work)
        steps.append(_step(ensemble, r, work, kind, f, s))
        if kind == SPLIT:
            left, right = row.copy(), row.copy()
            left[n_features + f], right[f] = s, s + 1
            stack += [right, left]
        if len(steps) > longest:
            raise ConfigError(f"the proof has more than {longest} steps; raise `longest`")
    return steps


def _step(ensemble: Ensemble, r: Any, work: Any, kind: int, f: int, s: int) -> Step:
    if kind == SPLIT:
        feature, index = int(r.feature_id[f]), ensemble.index
        cell = r.rank_high[r.rank_start[f] + s]
        return ("split", feature, float(index.cuts[index.cut_start[feature] + cell]))
    if kind == SHARE:
        owners = np.unique(work.owner[work.owner >= 0])
        trees = [[int(r.tree_id[t]) for t in np.flatnonzero(work.owner == o)] for o in owners]
        groups = zip((int(r.feature_id[o]) for o in owners), trees, strict=True)
        return ("share", *([feature, members] for feature, members in groups))
    return ("bound",) if kind == BOUND else ("point",)
