"""Compiled: sums of leaves in the library's arithmetic, and the decision they lead to."""

import numpy as np

from tacit.jit import bare, compiled
from tacit.verify.kernels.tables import BINARY, REGRESS, Floats, Ints, Longs, Outcome, Rule, Trees


@compiled
def sum_scores(trees: Trees, rule: Rule, keys: Floats, out: Floats) -> None:
    """Write the scores of each row of keys into `out`; NaN follows the missing direction."""
    reached = np.empty(trees.roots.size, np.int32)
    for row in range(keys.shape[0]):
        for tree in range(trees.roots.size):
            node = trees.roots[tree]
            while trees.feature[node] >= 0:
                key = keys[row, trees.feature[node]]
                if np.isnan(key):
                    goes_left = trees.missing_left[node]
                else:
                    goes_left = key <= trees.threshold[node]
                node = trees.left[node] if goes_left else trees.right[node]
            reached[tree] = node
        add_leaves(trees, rule, reached, out[row])


@bare
def add_leaves(trees: Trees, rule: Rule, reached: Ints, out: Floats) -> None:
    """Sum the values of one leaf per tree, in order, in the library's own type."""
    for score in range(out.size):
        out[score] = np.float32(rule.base[score]) if rule.is_single else rule.base[score]
    # Score by score would wait for each addition; the order within a score is the library's.
    if rule.is_single:
        for tree in range(reached.size):
            for score in range(out.size):
                single = np.float32(out[score]) + np.float32(trees.value[reached[tree], score])
                out[score] = np.float32(single)
        for score in range(out.size):
            out[score] = np.float32(np.float32(out[score]) / np.float32(rule.divisor))
    else:
        for tree in range(reached.size):
            for score in range(out.size):
                out[score] += trees.value[reached[tree], score]
        for score in range(out.size):
            out[score] /= rule.divisor


@bare
def judge(rule: Rule, scores: Floats, label: int, low: float, high: float) -> Outcome:
    """Say whether scores keep the label (or, for a regression, stay within low and high)."""
    if rule.kind == REGRESS:
        return Outcome.ROBUST if low <= scores[0] <= high else Outcome.COUNTEREXAMPLE
    if rule.kind == BINARY:
        is_kept = (scores[0] >= rule.cutoff) == (label == 1)
        return Outcome.ROBUST if is_kept else Outcome.COUNTEREXAMPLE
    outcome = Outcome.ROBUST
    for rival in range(scores.size):
        ahead = scores[rival] - scores[label]
        if rival == label or ahead < -rule.guard:
            continue
        if ahead > rule.guard or (ahead == 0.0 and rival < label):
            return Outcome.COUNTEREXAMPLE
        if ahead != 0.0:
            outcome = Outcome.NEAR_TIE
    return outcome


@bare
def weigh(row: Longs, plus: int, minus: int) -> int:
    """Weigh the fixed-point values of a leaf for one objective."""
    total = 0
    if plus >= 0:
        total += row[plus]
    if minus >= 0:
        total -= row[minus]
    return total
