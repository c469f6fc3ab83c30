"""What missing values and categories answer, for the checker; nothing of the search."""

import math

from tacit.verify.box import Box
from tacit.verify.models.ensemble import Ensemble


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
