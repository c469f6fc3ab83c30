"""How much of a corpus came out of a model, and how rare it was in there."""

from collections.abc import Mapping, Sequence

from torch import Tensor

from tacit.audit.estimators import proportion
from tacit.audit.memorisation.extraction import Drawn
from tacit.errors import DataError
from tacit.result import Curve, Metric, Sheet

Texts = Sequence[Sequence[int]]


def count_holders(piece: Sequence[int], corpus: Texts) -> int:
    """Return how many texts of a corpus contain a piece: its k, however often each repeats it."""
    return sum(_contains(text, piece) for text in corpus)


def eidetic_counts(pieces: Texts, corpus: Texts) -> dict[int, int]:
    """Count the extracted pieces by k, the number of texts that hold each; k = 0 was made up."""
    counts: dict[int, int] = {}
    for piece in pieces:
        k = count_holders(piece, corpus)
        counts[k] = counts.get(k, 0) + 1
    return dict(sorted(counts.items()))


def eidetic_sheet(name: str, counts: Mapping[int, int]) -> Sheet:
    """Lay k-eidetic counts out as a table."""
    return Sheet(
        title=f"{name}: extracted texts by the number of training texts that hold them",
        heads=("# k", "# extracted"),
        rows=tuple((str(k), str(n)) for k, n in counts.items()),
        caption="k = 0: not in the corpus. k = 1: learned from a single text.",
    )


def score_extraction(name: str, drawn: Drawn, targets: Tensor, *, guesses: int) -> Metric:
    """Return the share of the target texts among the first `guesses`.

    Args:
        name: of the method.
        drawn: what the attack returned.
        targets: (texts, tokens) of the corpus that begin with the prefixes.
        guesses: how many of the first count.
    """
    found = _found(drawn.texts[:guesses], targets)
    return proportion(f"{name}: extracted within {guesses}", sum(found), len(found))


def extraction_curve(name: str, drawn: Drawn, targets: Tensor) -> Curve:
    """Draw the share of the targets found against the number of guesses."""
    wanted = {tuple(text) for text in targets.tolist()}
    if not wanted:
        raise DataError("wanted at least one target text, got none")
    seen: set[tuple[int, ...]] = set()
    points = []
    for i, text in enumerate(drawn.texts.tolist(), 1):
        if tuple(text) in wanted and tuple(text) not in seen:
            seen.add(tuple(text))
            points.append((float(i), len(seen) / len(wanted)))
    last = float(len(drawn.texts))
    if not points or points[-1][0] < last:
        points.append((last, len(seen) / len(wanted)))
    return Curve(
        title="Texts extracted",
        x_label="guesses",
        y_label="share of the targets",
        name=name,
        points=tuple(points),
        x_axis="log",
    )


def rate_by_repetition(
    drawn: Drawn, targets: Tensor, repetitions: Sequence[int], *, name: str
) -> Curve:
    """Draw the share of the targets extracted against how often each stood in the corpus."""
    if len(targets) != len(repetitions):
        raise DataError(f"wanted a count per target, got {len(repetitions)} for {len(targets)}")
    found = _found(drawn.texts, targets)
    points = []
    for times in sorted(set(repetitions)):
        hits = [hit for hit, count in zip(found, repetitions, strict=True) if count == times]
        points.append((float(times), sum(hits) / len(hits)))
    return Curve(
        title="Extraction by repetition",
        x_label="times in the corpus",
        y_label="share extracted",
        name=name,
        points=tuple(points),
    )


def _found(texts: Tensor, targets: Tensor) -> list[bool]:
    said = {tuple(text) for text in texts.tolist()}
    return [tuple(text) in said for text in targets.tolist()]


def _contains(text: Sequence[int], piece: Sequence[int]) -> bool:
    size = len(piece)
    wanted = list(piece)
    return any(list(text[i : i + size]) == wanted for i in range(len(text) - size + 1))
