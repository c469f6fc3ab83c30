"""What an audit says about model inversion and class representatives."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from tacit.audit.estimators import proportion
from tacit.audit.findings import (
    BY_CLASS,
    BY_DP,
    EARLIER,
    Finding,
    Threat,
    beside_chance,
    judge,
)
from tacit.audit.reconstruction import score_rows, show
from tacit.audit.views import seeded
from tacit.errors import DataError
from tacit.result import Picture

CLASS_THREAT = Threat(
    name="class representatives",
    who="whoever may ask the model, or trains along with it",
    sees="confidences, or the joint model of every round",
    knows="the shape and the bounds of a row",
)
ANSWER_THREAT = Threat(
    name="rows from confidences",
    who="whoever overhears the model's answers",
    sees="the confidences of rows that it does not know",
    knows="rows of the same kind, and may ask the model",
)
COLUMN_THREAT = Threat(
    name="a hidden column from confidences",
    who="whoever knows a person but for one thing",
    sees="the model's confidences",
    knows="all other columns, the label, and how common each value is",
)
SERVER_THREAT = Threat(
    name="one client's pictures",
    who="the server of federated learning",
    sees="every client's update of every round, after its defence",
    knows="the model, the terms of a round, and rows of its own of the same kind",
)
_SERVER_REMEDIES = (
    "add updates up under masks: federated.aggregator = 'masked' shows the server the sum alone",
    "noise for whole clients, with an ε that says so",
)
_REMEDIES = (BY_CLASS, BY_DP, EARLIER)


def score_representatives(
    name: str, found: Tensor, rows: Tensor, labels: Tensor, *, wanted: Tensor | None = None
) -> Finding:
    """Say how many representatives look most like the mean row of their own class.

    Args:
        name: of the attack.
        found: (classes, *shape) rows, or several rows of the classes in `wanted`.
        rows: true rows of all classes; columns that never vary do not count.
        labels: their classes.
        wanted: the class of each found row; None if they are in order.
    """
    classes = int(labels.max()) + 1
    wanted = torch.arange(classes) if wanted is None else wanted
    if len(found) != len(wanted):
        raise DataError(f"wanted {len(wanted)} representatives, got {len(found)}")
    flat = rows.flatten(1).double()
    means = torch.stack([flat[labels == c].mean(0) for c in range(classes)])
    centre = flat.mean(0)
    guess = torch.nn.functional.normalize(found.flatten(1).double() - centre, dim=1)
    likeness = guess @ torch.nn.functional.normalize(means - centre, dim=1).t()
    hits = int((likeness.argmax(1) == wanted).sum())
    share = proportion(f"{name}: most like its class", hits, len(wanted))
    headline = beside_chance(share, 1 / classes)
    pictures: list[Picture] = []
    if rows.ndim == 4:
        for one, c in zip(found[:10], wanted[:10].tolist(), strict=True):
            mean = means[c].view(rows.shape[1:]).to(one)
            captions = (f"mean of class {c}", f"found for class {c}")
            pictures += show(f"{name}: classes", captions, torch.stack([mean, one]))
    finding = judge(CLASS_THREAT, name, headline, pictures=tuple(pictures), remedies=_REMEDIES)
    return replace(finding, is_general=True)


def score_answers(name: str, guess: Tensor, truth: Tensor, others: Tensor) -> Finding:
    """Say how often a rebuilt row picks the true one out of a line-up."""
    metrics = score_rows(name, guess, truth, others=others, generator=seeded(0))
    return judge(ANSWER_THREAT, name, *metrics, remedies=_REMEDIES)


def score_column(name: str, guess: Tensor, truth: Tensor) -> Finding:
    """Say how often the hidden column was guessed, beside always naming the commonest value."""
    hits = int((guess.cpu().float() - truth.cpu().float()).abs().lt(1e-6).sum())
    _, counts = torch.unique(truth, return_counts=True)
    base = float(counts.max()) / len(truth)
    headline = beside_chance(proportion(f"{name}: column guessed", hits, len(truth)), base)
    return judge(COLUMN_THREAT, name, headline, remedies=_REMEDIES)


def score_victim(
    name: str,
    found: Tensor,
    wanted: Tensor,
    clients: Sequence[tuple[Tensor, Tensor]],
    *,
    victim: int,
) -> Finding:
    """Say how many pictures look more like the victim's rows of their class than like others'.

    Pictures and clients' mean rows of a class are compared by their direction from the mean of all
    these means, so that a blurred picture is nobody's. Pictures of one generator stand and fall
    together: the interval is for this generator.
    """
    hits, judged = 0, 0
    for one, c in zip(found, wanted.tolist(), strict=True):
        means = {
            number: rows[labels == c].mean(0).flatten()
            for number, (rows, labels) in enumerate(clients)
            if bool((labels == c).any())
        }
        if victim not in means or len(means) < 2:
            continue
        centre = torch.stack(list(means.values())).mean(0)
        near = {
            number: float(nn.functional.cosine_similarity(one.flatten() - centre, mean - centre, 0))
            for number, mean in means.items()
        }
        hits += max(near, key=lambda number: near[number]) == victim
        judged += 1
    if not judged:
        raise DataError("no class is held by the victim and by another client too")
    headline = replace(
        proportion(f"{name}: nearest to the victim", hits, judged),
        reference=1 / len(clients),
        note="reference: blind guess; samples are pictures of one generator",
    )
    return judge(SERVER_THREAT, name, headline, remedies=_SERVER_REMEDIES)
