"""The audit of a language model for memorisation, as its report shows it."""

import math
from collections.abc import Callable, Mapping, Sequence

from torch import Tensor

from tacit.audit.estimators import mean_interval, proportion
from tacit.audit.findings import Finding, Threat, draw_sweep, judge
from tacit.audit.memorisation.canary import Format, exact_exposures
from tacit.audit.memorisation.extraction import (
    Drawn,
    Extract,
    Method,
    SeenSpeakers,
    Speech,
    by_second_model,
)
from tacit.audit.memorisation.views import SeenSpeech
from tacit.audit.views import seeded
from tacit.errors import DataError
from tacit.result import Curve, Metric, Sheet

CANARY_THREAT = Threat(
    name="canary exposure",
    who="whoever may question the language model",
    sees="the scores of the next token after any text",
    knows="the sentence around the secret and the alphabet of the secret",
)
EXTRACTION_THREAT = Threat(
    name="extraction of training texts",
    who="whoever may question the language model",
    sees="the scores of the next token after any text",
    knows="how some training texts begin",
)
_REMEDIES = (
    "train with differential privacy for a person with all their texts: train_dp_sgd(owners=…)",
    "remove repeated texts from the corpus",
    "keep numbers and names out of the corpus, or mask them",
)
BLIND_BITS = 1 / math.log(2)
"""Mean exposure of a canary that was never seen: its rank is uniform."""
Texts = Sequence[Sequence[int]]


def audit_canaries(
    seen: SeenSpeech, form: Format, canaries: Sequence[int], *, name: str = "canaries"
) -> Finding:
    """Rank planted canaries exactly; found if their mean exposure is beyond a blind rank.

    Raises:
        DataError: there are no canaries.
    """
    if not canaries:
        raise DataError("wanted at least one canary, got none")
    values = [one.value for one in exact_exposures(seen, form, canaries)]
    mean, low, high = mean_interval(values)
    if not math.isfinite(low):
        # Equal exposures: n uniform ranks all give t bits or more with probability 2^−nt.
        low, high = max(mean + math.log2(0.05) / len(values), 0.0), form.bits
    headline = Metric(
        name=f"{name}: exposure",
        value=mean,
        unit="bits",
        samples=len(values),
        low=low,
        high=high,
        reference=BLIND_BITS,
        note=f"reference: a canary never seen; at most log2 |R| = {form.bits:.2f}",
    )
    return judge(CANARY_THREAT, name, headline, remedies=_REMEDIES)


def sweep_defence(
    defend: Callable[[float], tuple[SeenSpeech, float]],
    form: Format,
    canaries: Sequence[int],
    *,
    strengths: Sequence[float],
    name: str = "canaries",
) -> tuple[tuple[Finding, ...], tuple[Curve, ...]]:
    """Rank canaries under a defence of several strengths and draw exposure against utility.

    Args:
        defend: for a strength, the model under the defence, trained or answering, as it is seen,
            and what it is worth.
        form: the format of the canaries.
        canaries: their fillings.
        strengths: the strengths to try.
        name: of the defence.
    """
    findings, utilities = [], []
    for strength in strengths:
        seen, utility = defend(strength)
        findings.append(audit_canaries(seen, form, canaries, name=f"{name} at {strength:g}"))
        utilities.append(utility)
    titles = ("Exposure under a defence", "Exposure against utility")
    return tuple(findings), draw_sweep(
        name, findings, strengths, utilities, titles=titles, y_label="exposure in bits"
    )


def audit_extraction(
    seen: SeenSpeakers,
    targets: Tensor,
    *,
    methods: Mapping[str, Method],
    speech: Speech,
    count: int,
    corpus: Sequence[Sequence[int]] = (),
    seed: int = 0,
) -> tuple[Finding, ...]:
    """Extract with every method and count the target texts among as many guesses as targets.

    Args:
        seen: what the attacker holds.
        targets: (texts, tokens) training texts that begin with the prefixes.
        methods: the ways to try; those that need a second model are left out without one.
        speech: how texts are drawn.
        count: draws per prefix.
        corpus: training texts, to count how many hold each text that was found.
        seed: of the draws.
    """
    wanted = {tuple(text) for text in targets.tolist()}
    findings = []
    said: dict[bool, Tensor] = {}  # what is drawn alike is drawn once
    for name, method in methods.items():
        if method.rank is by_second_model and seen.second is None:
            continue
        attack = Extract(method=method, speech=speech, count=count)
        if method.is_decaying not in said:
            said[method.is_decaying] = attack.draw(seen, generator=seeded(seed))
        drawn = attack.rank(seen, said[method.is_decaying])
        headline = score_extraction(name, drawn, targets, guesses=len(targets))
        ever = score_extraction(name, drawn, targets, guesses=len(drawn.texts))
        hits = [text for text in drawn.texts.tolist() if tuple(text) in wanted]
        sheets = (eidetic_sheet(name, eidetic_counts(hits, corpus)),) if corpus and hits else ()
        findings.append(
            Finding(
                threat=EXTRACTION_THREAT,
                attack=name,
                headline=headline,
                metrics=(headline, ever),
                is_found=(headline.low or 0.0) > 0,
                curves=(extraction_curve(name, drawn, targets),),
                sheets=sheets,
                remedies=_REMEDIES,
            )
        )
    return tuple(findings)


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
