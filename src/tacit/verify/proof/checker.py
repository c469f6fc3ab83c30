"""An independent check of proofs: plain Python and exact integers, nothing of the search.

Only the ensemble's own arrays are read. All bounds are computed over whole numbers of 2^-1100, in
which every float64 is exact; the library's rounding is bounded here once more. What the center of
the box answers by a missing value or a category is decided at the end, as plainly.
"""

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from tacit.verify.box import Box
from tacit.verify.models.ensemble import Ensemble
from tacit.verify.proof.proof import Proof, Side, read_group, read_split

UNIT = 1100
DIGITS = {"float32": 24, "float64": 53}
Reals = npt.NDArray[np.floating]
Region = dict[int, tuple[float, float]]
"""Per feature the keys above the first number and up to the second."""


class _Refused(Exception):
    """The proof does not show what it claims."""


def check_proof(ensemble: Ensemble, proof: Proof) -> str | None:
    """Check a proof from scratch; return None when it holds, else what is wrong with it."""
    try:
        _Checker(ensemble, proof).check()
    except _Refused as refused:
        return str(refused)
    except (LookupError, TypeError, ValueError, OverflowError) as broken:
        return f"a step is malformed: {broken!r}"
    return None


def _weigh(side: Side, row: list[int]) -> int:
    return sum(row[k] * sign for k, sign in ((side.plus, 1), (side.minus, -1)) if k >= 0)


class _Checker:
    def __init__(self, ensemble: Ensemble, proof: Proof) -> None:
        self.model, self.proof = ensemble, proof
        self.center = proof.box.center.astype(ensemble.input_type).astype(np.float64).tolist()
        self.value = [
            [int(Fraction(v) * (1 << UNIT)) for v in row] for row in ensemble.value.tolist()
        ]
        self.base = [int(Fraction(v) * (1 << UNIT)) for v in ensemble.base.tolist()]
        self.way = find_ways(ensemble, self.center)
        self.nodes = [_walk(ensemble, int(root), self.way) for root in ensemble.roots]
        self.leaves = [[n for n in nodes if ensemble.feature[n] < 0] for nodes in self.nodes]
        self.error = self._rounding_error()
        self.label = range(ensemble.n_classes)[int(proof.prediction)] if proof.rho is None else -1

    def check(self) -> None:
        rho = self.proof.rho
        if (wrong := refuse_box(self.model, self.proof.box)) is not None:
            raise _Refused(wrong)
        if (rho is not None) != (self.model.task == "regress"):
            raise _Refused("rho belongs to a regression, and to nothing else")
        keys = enumerate(self.center)
        scores = self._scores({f: (math.nextafter(k, -math.inf), k) for f, k in keys})
        if rho is None and float(self.label) != self.proof.prediction:
            raise _Refused(f"{self.proof.prediction} is not a class")
        if not (self._keeps(scores) if rho is None else scores[0] == self.proof.prediction):
            raise _Refused(f"the prediction at the center is not {self.proof.prediction}")
        if [(side.plus, side.minus) for side in self.proof.sides] != self._wanted_sides():
            raise _Refused(f"the sides {self._wanted_sides()} must be ruled out, in this order")
        for side in self.proof.sides:
            self._check_side(side)

    def _wanted_sides(self) -> list[tuple[int, int]]:
        if self.model.task == "regress":
            return [(0, -1), (-1, 0)]
        if self.model.n_scores == 1:
            return [(0, -1) if self.label == 1 else (-1, 0)]
        return [(self.label, k) for k in range(self.model.n_scores) if k != self.label]

    def _check_side(self, side: Side) -> None:
        waiting, threshold = [self._whole()], self._threshold(side)
        for kind, *rest in side.steps:
            if not waiting:
                raise _Refused("steps are left over")
            region = waiting.pop()
            if kind == "split":
                feature, cut = read_split(*rest)
                low, high = region[feature]
                if not low < cut < high:
                    raise _Refused(f"{cut} does not split feature {feature} of its region")
                waiting.append({**region, feature: (cut, high)})
                waiting.append({**region, feature: (low, cut)})
            elif kind == "point":
                if not self._keeps(self._scores(region)):
                    raise _Refused("a point changes the prediction")
            elif kind not in ("bound", "share") or self._bound(side, region, rest) < threshold:
                raise _Refused(f"{kind} does not reach the threshold")
        if waiting:
            raise _Refused("regions are left open")

    def _whole(self) -> Region:
        largest = np.finfo(self.model.input_type).max
        box, kind = self.proof.box, self.model.input_type
        low, high = (np.clip(e, -largest, largest).astype(kind) for e in (box.low, box.high))
        below = np.nextafter(low.astype(np.float64), -np.inf)
        return dict(enumerate(zip(below.tolist(), high.tolist(), strict=True)))

    def _bound(self, side: Side, region: Region, groups: Sequence[object]) -> int:
        """Bound the side's sum from below over a region."""
        total, rest = _weigh(side, self.base), set(range(len(self.leaves)))
        for feature, trees in map(read_group, groups):
            if not rest.issuperset(trees) or len(set(trees)) != len(trees):
                raise _Refused("a tree is shared out twice")
            rest.difference_update(trees)
            low, high = region[feature]
            asked = (n for tree in trees for n in self.nodes[tree])
            cuts = {self.model.threshold[n] for n in asked if self.model.feature[n] == feature}
            ends = [low, *sorted(t for t in cuts if low < t < high), high]
            total += min(
                sum(self._least(side, tree, region, {feature: interval}) for tree in trees)
                for interval in itertools.pairwise(ends)
            )
        return total + sum(self._least(side, tree, region, {}) for tree in rest)

    def _least(self, side: Side, tree: int, region: Region, inside: Region) -> int:
        return min(_weigh(side, self.value[n]) for n in self._reachable(tree, region, inside))

    def _reachable(self, tree: int, region: Region, inside: Region) -> list[int]:
        """List the leaves of a tree that a region, narrowed by `inside`, leads to."""
        found, walk = [], [(int(self.model.roots[tree]), inside)]
        while walk:
            node, here = walk.pop()
            feature = int(self.model.feature[node])
            if feature < 0:
                found.append(node)
                continue
            if node in self.way:
                walk.append((self.way[node], here))
                continue
            (low, high), t = here.get(feature, region[feature]), float(self.model.threshold[node])
            if low < t:
                walk.append((int(self.model.left[node]), {**here, feature: (low, min(high, t))}))
            if high > t:
                walk.append((int(self.model.right[node]), {**here, feature: (max(low, t), high)}))
        return found

    def _threshold(self, side: Side) -> int:
        """Say how large the side's sum must be for the library to keep its prediction."""
        unit = Fraction(self.model.divisor) * (1 << UNIT)
        if side.plus >= 0 and side.minus >= 0:
            tie = 0 if self.error == 0 and side.minus > side.plus else 1
            return 2 * self.error + math.ceil(Fraction(self.model.guard) * unit) + tie
        sign = 1 if side.plus == 0 else -1
        if self.model.task == "classify":
            # Class 1 may sit on the cutoff, class 0 must stay below it.
            limit = sign * Fraction(self.model.cutoff) * unit
            return self.error + (math.ceil(limit) if sign == 1 else math.floor(limit) + 1)
        limit = sign * Fraction(self.proof.prediction) - Fraction(float(self.proof.rho or 0.0))
        return math.ceil(limit * unit) + self.error

    def _rounding_error(self) -> int:
        """Bound by how much the library's sum can differ from the exact one."""
        most, numbers, digits = 0, list(self.base), DIGITS[self.model.sum_type]
        for k, start in enumerate(self.base):
            sizes = [[abs(self.value[leaf][k]) for leaf in leaves] for leaves in self.leaves]
            most = max(most, abs(start) + sum(map(max, sizes)))
            numbers += itertools.chain.from_iterable(sizes)
        finest = min((v & -v for v in numbers if v), default=1)
        keeps_order = self.model.divisor == 1.0 or len(self.base) > 1
        if most < finest << (digits - 3) and keeps_order and self.model.guard == 0.0:
            return 0
        steps = Fraction(len(self.leaves) + 3, 1 << digits)
        return int(steps / (1 - steps) * most) + 1

    def _scores(self, region: Region) -> Reals:
        """Sum as the library does, where a region leaves each tree one leaf."""
        kind = np.dtype(self.model.sum_type).type
        scores = self.model.base.astype(kind)
        for tree in range(len(self.leaves)):
            leaf, *others = self._reachable(tree, region, {})
            if others:
                raise _Refused("a point still has a choice of leaves")
            scores = scores + self.model.value[leaf].astype(kind)
        return np.asarray(scores / kind(self.model.divisor))

    def _keeps(self, scores: Reals) -> bool:
        if self.model.task == "regress":
            moved = abs(Fraction(float(scores[0])) - Fraction(self.proof.prediction))
            return moved <= Fraction(float(self.proof.rho or 0.0))
        if self.model.n_scores == 1:
            return bool((float(scores[0]) >= self.model.cutoff) == (self.label == 1))
        ahead = enumerate(float(scores[self.label] - score) for score in scores)
        guard, label = self.model.guard, self.label
        return all(a > guard or k == label or (a == 0.0 and k > label) for k, a in ahead)


def _walk(model: Ensemble, root: int, way: dict[int, int]) -> list[int]:
    found, front = [], [root]
    while front:
        node = front.pop()
        if node in way:
            front.append(way[node])
            continue
        found.append(node)
        if model.feature[node] >= 0:
            front += [int(model.left[node]), int(model.right[node])]
    return found


def refuse_box(model: Ensemble, box: Box) -> str | None:
    """Say what is wrong with a box: its center, or a missing value or category that moves."""
    asked = () if model.categories is None else model.categories.feature.tolist()
    ends = zip(box.low.tolist(), box.center.tolist(), box.high.tolist(), strict=True)
    for feature, (low, center, high) in enumerate(ends):
        if math.isnan(center):
            if not model.takes_missing:
                return f"feature {feature} is missing, and the model takes no missing values"
            if not (math.isnan(low) and math.isnan(high)):
                return f"feature {feature} is missing at the center and moves"
        elif not low <= center <= high:
            return "the center is not in the box"
        elif feature in asked and low != high:
            return f"feature {feature} is a category and moves"
    return None


def find_ways(model: Ensemble, center: list[float]) -> dict[int, int]:
    """Find where every node leads that asks the row for a missing value or a category."""
    ways = {}
    for node, feature in enumerate(model.feature.tolist()):
        goes_left = _answer(model, node, feature, center) if feature >= 0 else None
        if goes_left is not None:
            ways[node] = int(model.left[node] if goes_left else model.right[node])
    return ways


def _answer(model: Ensemble, node: int, feature: int, center: list[float]) -> bool | None:
    """Say whether the row goes left; None where the node asks for a number that is there."""
    if feature < model.n_features or model.categories is None:
        return bool(model.missing_left[node]) if math.isnan(center[feature]) else None
    table, question = model.categories, feature - model.n_features
    key = center[table.feature[question]]
    if math.isnan(key):
        return bool(table.missing_left[question])
    ranges = range(table.start[question], table.start[question + 1])
    is_listed = any(table.low[i] <= key <= table.high[i] for i in ranges)
    return bool(is_listed == table.listed_left[question])
