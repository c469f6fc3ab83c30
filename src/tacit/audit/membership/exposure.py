"""Who is exposed: single records and groups, by the strongest attack."""

from collections.abc import Sequence

import numpy as np

from tacit.audit.ranking import Ranking, auc, tpr_at
from tacit.result import Sheet

_SHOWN = 10
_FEWEST = 10
"""Members and non-members of a group below which its leakage is not measured."""


def most_exposed(ranking: Ranking, count: int = _SHOWN) -> list[tuple[int, float]]:
    """Return the members with the highest scores: row, and the false alarms at its threshold.

    The second number is the share of non-members that score at least as high: how often someone
    who names this record in the same way would be wrong about a stranger.
    """
    order = np.argsort(-ranking.scores, kind="stable")
    rows = [int(row) for row in order if ranking.is_positive[row]][:count]
    strangers = np.sort(ranking.negatives)
    found = []
    for row in rows:
        above = len(strangers) - np.searchsorted(strangers, ranking.scores[row], side="left")
        found.append((row, float(above) / len(strangers)))
    return found


def sheet_of_exposed(attack: str, ranking: Ranking, words: Sequence[str]) -> Sheet:
    """List the members that are found most surely."""
    least = 1 / len(ranking.negatives)
    rows = tuple(
        (str(row), words[row], f"{false:.2%}" if false else f"below {least:.2%}")
        for row, false in most_exposed(ranking)
    )
    return Sheet(
        title="Most exposed records",
        heads=("# row of the members", "group", "# false alarms at its score"),
        rows=rows,
        caption=f"By {attack}. Rows are counted from 0.",
    )


def sheet_of_groups(attack: str, ranking: Ranking, words: Sequence[str]) -> Sheet:
    """Compare the leakage of groups; small groups are named, not measured."""
    names = np.asarray(words)
    rows = []
    for word in sorted(set(words)):
        chosen = names == word
        inside = int((chosen & ranking.is_positive).sum())
        outside = int((chosen & ~ranking.is_positive).sum())
        sizes = (str(inside), str(outside))
        if min(inside, outside) < _FEWEST:
            rows.append((word, *sizes, "not measured", "not measured"))
            continue
        part = Ranking(ranking.scores[chosen], ranking.is_positive[chosen])
        area, low, high = auc(part)
        found, least, most = tpr_at(part, 0.01)
        rows.append(
            (
                word,
                *sizes,
                f"{area:.3f} [{low:.3f}, {high:.3f}]",
                f"{found:.1%} [{least:.1%}, {most:.1%}]",
            )
        )
    return Sheet(
        title="Leakage by group",
        heads=("group", "# members", "# non-members", "# AUC", "# TPR at 1 % FPR"),
        rows=tuple(rows),
        caption=f"By {attack}; 95 % intervals.",
    )
