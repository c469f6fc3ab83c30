"""Findings of the lab in words, tables, curves and pictures of a result."""

import base64
from math import isqrt, prod

import numpy as np
import torch
from torch import Tensor

from tacit.audit.estimators import proportion
from tacit.audit.permutation.lab import Recognition, Study
from tacit.result import Claim, Metric, Picture, Sheet

_SHOWN_QUERIES = 4
_SHOWN_FOUND = 3
_ENUMERABLE_BITS = 40
"""So many possible rows can be tried one by one."""
_SMALL = 16
"""Fewer values than this have few orders, and functions of few values say much about each."""


def metrics(findings: Study) -> tuple[Metric, ...]:
    """Return what was measured, with intervals and sample sizes; the strongest attack first."""
    last = max((one.step for one in findings.correlations), default=0)
    attacks = [one.metric() for one in findings.recognitions]
    found = sorted(attacks, key=lambda one: (one.value or 0) - (one.reference or 0), reverse=True)
    found += [
        Metric(
            name=f"distance correlation of rows with {one.what}",
            value=one.value,
            unit="",
            samples=one.rows,
            note=f"after {one.step} steps; p = {one.p:.2g} if independent",
        )
        for one in findings.correlations
        if one.step == last
    ]
    if findings.repeats[1]:
        found.append(proportion("rows recognised when they come again", *findings.repeats))
    found += [
        proportion(f"similar rows of the same class by {one.what}", one.hits, one.trials)
        for one in findings.retrievals
    ]
    return tuple(found)


def sheets(findings: Study) -> tuple[Sheet, ...]:
    """Return the tables: who sees what, recognition, retrieval, and when this is not safe."""
    found = [_correlations(findings)]
    if findings.recognitions:
        found += [_recognitions(findings), _verdict(findings)]
    return tuple(found)


def claims(findings: Study) -> tuple[Claim, ...]:
    """Say what follows for whoever relies on the permutation."""
    if not findings.subject.is_permuted:
        return ()
    return (
        Claim(
            subject=f"the rows, towards {findings.subject.viewer}, who sees permuted values",
            guarantee="no guarantee",
            assumptions=tuple(_warnings(findings)),
        ),
    )


def _correlations(findings: Study) -> Sheet:
    rows = tuple(
        (str(one.step), one.what, f"{one.value:.3f}", f"{one.p:.2g}", str(one.rows))
        for one in findings.correlations
    )
    return Sheet(
        title="How much each view has to do with the rows",
        heads=("#step", "what is seen", "#distance correlation", "#p if independent", "#runs"),
        rows=rows,
        caption="One run per row. 0 is independent, 1 is the same up to rotation, shift and scale.",
    )


def _recognitions(findings: Study) -> Sheet:
    rows = []
    for one in findings.recognitions:
        metric = one.metric()
        rows.append(
            (
                str(one.step),
                str(one.batch),
                one.knows,
                f"{one.hits} of {one.trials}",
                f"{100 * (metric.low or 0):.1f} to {100 * (metric.high or 0):.1f} %",
                f"{100 * one.chance:.1f} %",
            )
        )
    count = min(findings.settings.candidates, len(findings.subject.rows))
    return Sheet(
        title=f"Rows that {findings.subject.viewer} recognises among {count} candidates",
        heads=("#step", "#batch", "it knows", "#recognised", "#interval", "#chance"),
        rows=tuple(rows),
        caption="Matching the values seen, in whatever order, to those that candidates cause.",
    )


def _verdict(findings: Study) -> Sheet:
    """List the conditions under which permutation does not protect, and whether they hold."""
    rows = tuple(
        (condition, "yes" if holds else "no", why)
        for condition, holds, why in _conditions(findings)
    )
    return Sheet(
        title="When permutation is not safe",
        heads=("condition", "holds here", "what was measured"),
        rows=rows,
    )


def _conditions(findings: Study) -> list[tuple[str, bool, str]]:
    best = _best(findings, "the weights")
    bits, repeats = findings.input_bits, findings.repeats
    is_public = findings.subject.is_start_public
    return [
        (
            f"{findings.subject.viewer} knows candidates and the weights",
            is_public,
            f"{best.hits} of {best.trials} rows of batches of {best.batch} recognised"
            + ("; the weights of the first step are public" if is_public else ""),
        ),
        (
            "small layers",
            findings.smallest < _SMALL,
            f"the smallest view of one row has {findings.smallest} values",
        ),
        (
            "discrete rows",
            bits < _ENUMERABLE_BITS,
            f"all possible rows can be named with {bits:.0f} bits",
        ),
        (
            "the same row comes again under the same weights",
            True,
            f"{repeats[0]} of {repeats[1]} rows recognised when they came again",
        ),
    ]


def _warnings(findings: Study) -> list[str]:
    return [f"{condition}: {why}" for condition, holds, why in _conditions(findings) if holds] + [
        "a low distance correlation with values in random order says little: sorted, the same "
        "values tell more (see the table)",
    ]


def _best(findings: Study, knows: str) -> Recognition:
    """Return the largest attacked batch of the first point, for a viewer of this knowledge."""
    mine = [one for one in findings.recognitions if one.knows == knows]
    first = min(one.step for one in mine)
    return max((one for one in mine if one.step == first), key=lambda one: one.batch)


def pictures(findings: Study) -> tuple[Picture, ...]:
    """Show rows that are images beside the rows that retrieval took for similar."""
    rows = findings.subject.rows
    size = prod(rows.shape[1:])
    side = isqrt(size)
    if side * side != size or side < 4 or not findings.retrievals:
        return ()
    found = []
    for number, query in enumerate(findings.queries[:_SHOWN_QUERIES]):
        title = f"Similar rows by hidden values, row {number + 1} (figure 5.5 of seed 000)"
        found.append(_picture(rows[query], side, title, "looked for"))
        for one in findings.retrievals:
            for place in one.found[number][:_SHOWN_FOUND] if one.found else ():
                found.append(_picture(rows[place], side, title, one.what))
    return tuple(found)


def _picture(row: Tensor, side: int, title: str, caption: str) -> Picture:
    low, high = float(row.min()), float(row.max())
    gray = ((row.reshape(-1) - low) / max(high - low, 1e-12) * 255).round().to(torch.uint8)
    return Picture(
        title=title,
        caption=caption,
        width=side,
        height=side,
        mode="gray",
        pixels=base64.b64encode(np.asarray(gray).tobytes()).decode(),
    )
