"""Compiled: sums of leaves in the library's arithmetic, and the decision they lead to."""

from typing import Any

import numpy as np

from tacit.verify.kernels.jit import bare, compiled
from tacit.verify.kernels.layout.index import BINARY, REGRESS

PROVED, FOUND, BLURRED, PAUSED = 0, 1, 2, 3
"""What a search says of a box: no input changes the decision; one does; some come too close to a
tie to be told; not decided yet."""

KEPT, CHANGED, TIED = 0, 1, 2
"""A decision is kept, changed, or too close to a tie for the library's softmax to be predicted."""


@compiled
def sum_scores(trees: Any, rule: Any, keys: Any, out: Any) -> None:
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
def add_leaves(trees: Any, rule: Any, reached: Any, out: Any) -> None:
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
def judge(rule: Any, scores: Any, label: int, low: float, high: float) -> int:
    """Say whether scores keep the label (or, for a regression, stay within low and high)."""
    if rule.kind == REGRESS:
        return KEPT if low <= scores[0] <= high else CHANGED
    if rule.kind == BINARY:
        return KEPT if (scores[0] >= rule.cutoff) == (label == 1) else CHANGED
    verdict = KEPT
    for rival in range(scores.size):
        ahead = scores[rival] - scores[label]
        if rival == label or ahead < -rule.guard:
            continue
        if ahead > rule.guard or (ahead == 0.0 and rival < label):
            return CHANGED
        if ahead != 0.0:
            verdict = TIED
    return verdict


@bare
def weigh(row: Any, plus: int, minus: int) -> int:
    """Weigh the units of a leaf for one side."""
    total = 0
    if plus >= 0:
        total += row[plus]
    if minus >= 0:
        total -= row[minus]
    return total
