"""Writing a proof down: a case split of its own, step by step, for `check_proof` to follow."""

import numpy as np

from tacit.errors import ConfigError
from tacit.verify.box import box_intervals, condition
from tacit.verify.kernels.layout.reach import Reach, reach
from tacit.verify.kernels.search.problem import Problem, make_load, make_problem, whole_box
from tacit.verify.kernels.search.proof_step import Closing, ProofSpace, close_node, make_proof_space
from tacit.verify.models.ensemble import Ensemble
from tacit.verify.objectives import make_objectives
from tacit.verify.proof.proof import Proof, Side, Step
from tacit.verify.verdict import Robust

LONGEST_PROOF = 1_000_000


def prove(ensemble: Ensemble, verdict: Robust, *, longest: int = LONGEST_PROOF) -> Proof:
    """Write the certificate of a robust verdict: a proof that `check_proof` follows on its own.

    Args:
        ensemble: the model that was verified.
        verdict: what `verify` returned.
        longest: give up when the proof has more steps than this.
    """
    ensemble = condition(ensemble, verdict.box)
    index = ensemble.index
    prediction = ensemble.predict(verdict.box.center[None])[0]
    objectives = make_objectives(ensemble, prediction, verdict.rho)
    r = reach(index.trees, *box_intervals(ensemble, verdict.box))
    load = make_load(index.trees, index.base_fixed, r)
    written = []
    for k in range(objectives.plus.size):
        steps = _write_side(ensemble, r, make_problem(r, load, objectives, k), longest)
        written.append(Side(int(objectives.plus[k]), int(objectives.minus[k]), tuple(steps)))
    return Proof(verdict.box, verdict.prediction, verdict.rho, tuple(written))


def _write_side(ensemble: Ensemble, r: Reach, task: Problem, longest: int) -> list[Step]:
    n_features, work = r.feature_id.size, make_proof_space(r, task)
    stack, steps = [whole_box(r)], list[Step]()
    while stack:
        row = stack.pop()
        work.low[:], work.high[:] = row[:n_features], row[n_features:]
        kind, f, s = close_node(r, task, work)
        steps.append(_step(ensemble, r, work, kind, f, s))
        if kind == Closing.SPLIT:
            left, right = row.copy(), row.copy()
            left[n_features + f], right[f] = s, s + 1
            stack += [right, left]
        if len(steps) > longest:
            raise ConfigError(f"the proof has more than {longest} steps; raise `longest`")
    return steps


def _step(ensemble: Ensemble, r: Reach, work: ProofSpace, kind: Closing, f: int, s: int) -> Step:
    if kind == Closing.SPLIT:
        feature, index = int(r.feature_id[f]), ensemble.index
        interval = r.rank_high[r.rank_start[f] + s]
        return ("split", feature, float(index.cuts[index.cut_start[feature] + interval]))
    if kind == Closing.SHARE:
        owners = np.unique(work.owner[work.owner >= 0])
        trees = [[int(r.tree_id[t]) for t in np.flatnonzero(work.owner == o)] for o in owners]
        groups = zip((int(r.feature_id[o]) for o in owners), trees, strict=True)
        return ("share", *([feature, members] for feature, members in groups))
    return ("bound",) if kind == Closing.BOUND else ("point",)
