"""What a party says after a training: measures, curves, claims, and what was unusual."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import exp, isfinite

import torch
from torch import Tensor

from tacit.data.metrics import ACCURACY, measure_odds, proportion
from tacit.matching import claims_of_matching, declare_matching
from tacit.mpc import find_protocol, sum_forecasts
from tacit.nn.running import note_of
from tacit.party import Session
from tacit.result import Claim, Curve, Metric, PartyReport, Result
from tacit.training.loop import Trained
from tacit.training.plan import TrainPlan
from tacit.training.privacy import PrivacyPlan

NOISY = "accuracy, with noise"
MANY_SATURATED = 1e-4
"""From this share of all values on, a report says that there are many."""


def summarise(
    session: Session,
    task: TrainPlan,
    trained: Trained,
    *,
    name: str,
    report: PartyReport,
    counts: Mapping[str, int],
    labels: Tensor | None = None,
) -> Result:
    """Write down one party's view of a training.

    Args:
        session: over which it was trained.
        task: what was trained.
        trained: what came of it.
        name: of the job.
        report: what this party has used.
        counts: how many ids every owner had, if rows were matched.
        labels: this party's own, to measure scores by that it may see.
    """
    shown = trained.shown
    utility = _metrics(task, shown[-1]) if shown else ()
    matching = claims_of_matching(counts) if counts else ()
    return Result(
        kind="train",
        name=name,
        protocol=task.spec.protocol.spelled,
        launched="session",
        parties=(report,),
        forecast=sum_forecasts(trained.runs, before=declare_matching(counts) if counts else ()),
        metered=session.cost(),
        leakage=session.ledger.entries(),
        claims=(
            *find_protocol(task.spec.protocol.spelled).claims,
            *matching,
            *claims_beyond(task, trained.privacy),
        ),
        utility=(*utility, *_quality(session.me, task, trained, labels)),
        curves=curves_of(shown, "private"),
        notes=_notes(trained),
    )


def _notes(trained: Trained) -> tuple[str, ...]:
    """Say what was out of the ordinary."""
    notes = {
        f"Taken up again after step {trained.resumed_at}.": trained.resumed_at,
        f"Weights were near half of their bound after step {trained.near_at}.": trained.near_at,
    }
    found = [note for note, step in notes.items() if step]
    if trained.cap is not None:
        found.append(note_of(trained.cap, "model.cap"))
    if trained.saturated is not None:
        found.append(describe_saturation(*trained.saturated, trained.cap))
    return tuple(found)


def describe_saturation(step: int, count: int, of: int, cap: float | None) -> str:
    """Say in a report how much saturated."""
    at = "" if cap is None else f" at ±{cap:g}"
    text = (
        f"After step {step}, {count} of {of} hidden values and gradients of held-out rows "
        f"saturated{at} ({100 * count / of:.2g} %)"
    )
    if count <= MANY_SATURATED * of:
        return text + "."
    change = f"above {MANY_SATURATED:g} they change what is learned"
    return f"{text}: {change}; choose a larger model.cap."


def _metrics(task: TrainPlan, last: tuple[int, float, float]) -> tuple[Metric, ...]:
    _, loss, right = last
    samples = task.answers
    if not isfinite(loss):
        assert task.spec.privacy is not None  # noqa: S101 - without privacy nothing has noise
        off = task.spec.privacy.look_noise / samples
        note = f"noise with a standard deviation of {off:.2g} or a little more is in it"
        return (Metric(name=NOISY, value=right, unit="fraction", samples=samples, note=note),)
    found = [
        proportion(ACCURACY, round(right * samples), samples),
        Metric(name="loss", value=loss, unit="nats", samples=samples),
    ]
    if task.model.tokens:
        found.append(Metric(name="perplexity", value=exp(loss), unit="", samples=samples))
    return tuple(found)


def _quality(me: str, task: TrainPlan, trained: Trained, own: Tensor | None) -> tuple[Metric, ...]:
    """Measure the scores that I may see, on the rows kept for measuring whose classes I know."""
    if trained.scores is None or own is None:
        return ()
    rows = task.test_indices() - task.rows_of(me).start
    is_mine = (rows >= 0) & (rows < len(own))
    if not is_mine.any():
        return ()
    scores, labels = trained.scores[torch.from_numpy(is_mine)], own[rows[is_mine]]
    if task.loss == "logistic":
        odds, classes = torch.sigmoid(scores[:, 0]), labels[:, 0].long()
    else:
        odds, classes = scores.softmax(dim=1), labels.argmax(dim=1)
    found = measure_odds(odds.numpy(), classes.numpy())
    if task.spec.data.split == "columns":
        return found[1:]  # the accuracy is known already
    return tuple(replace(one, name=f"{one.name}, rows of {me}") for one in found)


def curves_of(shown: Sequence[tuple[int, float, float]], name: str) -> tuple[Curve, ...]:
    """Draw loss and accuracy against steps, as they were shown on the way."""
    if not shown:
        return ()
    lines = (
        ("Loss while training", "mean loss", 1),
        ("Accuracy while training", "share of right answers", 2),
    )
    return tuple(
        Curve(
            title=title,
            x_label="step",
            y_label=label,
            name=name,
            points=tuple((float(one[0]), one[field]) for one in shown),
        )
        for title, label, field in lines
        if isfinite(shown[0][field])
    )


def claims_beyond(task: TrainPlan, privacy: PrivacyPlan | None = None) -> tuple[Claim, ...]:
    """Say what no protocol can hide: what follows from what is opened."""
    claims = []
    if task.spec.protocol.give_to and privacy is None:
        reason = (
            "a model remembers some of its data; only training with differential privacy bounds "
            "how much"
        )
        subject = "what the trained model tells {} about the rows it was trained on"
        claims.append((subject.format(", ".join(task.spec.protocol.give_to)), reason))
    if task.head is not None:
        reason = (
            "hidden states follow from the weights, which follow from everybody's rows; rows of "
            "one's own choice are as many questions to the model"
        )
        subject = "what the last hidden states of their own rows tell owners, in every step"
        claims.append((subject, reason))
    if task.spec.protocol.score_to:
        reason = (
            "a score is a function of the row and of the model: of a model without hidden layers, "
            "as many scores as columns are as many equations for what is not known of them"
        )
        subject = "what the scores of held-out rows tell {} about these rows and the model"
        claims.append((subject.format(", ".join(task.spec.protocol.score_to)), reason))
    return (
        *(() if privacy is None else (privacy.claim,)),
        *(() if privacy is None or privacy.inner is None else (privacy.inner,)),
        *(
            Claim(subject=subject, guarantee="no guarantee", assumptions=(reason,))
            for subject, reason in claims
        ),
    )
