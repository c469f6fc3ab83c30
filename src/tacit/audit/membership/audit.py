"""The whole membership audit of a model: every threat that can be played, every attack on it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from tacit.audit.estimators import Ranking, auc, draw_roc, measure_ranking, proportion, tpr_at
from tacit.audit.findings import (
    BY_CLASS,
    BY_DP,
    EARLIER,
    Finding,
    best_findings,
    build_result,
)
from tacit.audit.membership.threats import ATTACKS, GAMES, Effort, Game, Scene, why_not
from tacit.audit.membership.views import Push
from tacit.audit.shadows import Fleet, Report
from tacit.audit.target import Classifier, SklearnTrainer, Trainer, as_classifier, code_of
from tacit.data.memory import features_and_labels, numbers_of, to_array
from tacit.errors import ConfigError, DataError
from tacit.notebook import Lines, Shown
from tacit.result import Curve, Metric, Result, Sheet

LEAST = 20
"""Fewest records of a side from which anything can be said."""

REMEDIES = (BY_DP, EARLIER, BY_CLASS)

Labelled = tuple[Any, Any]
"""Rows and labels, as tensors or arrays."""
_SHOWN = 10
_FEWEST = 10
"""Members and non-members of a group below which its leakage is not measured."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Membership(Shown):
    """What the audit found; ``rankings`` holds the scores behind every attack."""

    findings: tuple[Finding, ...]
    rankings: dict[str, Ranking]
    sheets: tuple[Sheet, ...]
    utility: tuple[Metric, ...]
    notes: tuple[str, ...]

    @property
    def best(self) -> Finding:
        """Return the strongest attack."""
        return max(self.findings, key=lambda one: one.headline.value or 0.0)

    @property
    def auc(self) -> float:
        """Return the area under its curve: ½ is a blind guess, 1 knows every member."""
        return self.best.headline.value or 0.0

    def result(self, name: str = "membership") -> Result:
        """Lay it out for `tacit.report`."""
        return build_result(
            name, self.findings, utility=self.utility, sheets=self.sheets, notes=self.notes
        )

    def _shown(self) -> tuple[str, Lines]:
        """Say how the best attack on every threat did, and how good the model is."""
        best = [(one.threat.name, one.attack, one.headline) for one in best_findings(self.findings)]
        return "Membership audit", [
            *((metric.name, f"{metric.value:.3f}") for metric in self.utility),
            *((name, attack, _in_words(metric)) for name, attack, metric in best),
            *(("note", note) for note in self.notes),
        ]


def audit_membership(
    model: object,
    members: Labelled,
    non_members: Labelled,
    *,
    trainer: Trainer | None = None,
    effort: Effort = Effort(),  # noqa: B008  it is frozen
    fleet: Fleet = Fleet(),  # noqa: B008  it is frozen
    groups: Sequence[str] | None = None,
    known_share: float = 0.2,
    push: Push = Push(),  # noqa: B008  it is frozen
) -> Membership:
    """Ask of every record whether it was trained on, by every attack that this target allows.

    Args:
        model: a torch module with a logit per class, or a fitted scikit-learn classifier.
        members: rows and labels that it was trained on.
        non_members: rows and labels of the same distribution that it was not.
        trainer: trains models like the target, for attacks with shadow models.
        effort: what is tried.
        fleet: how shadow models are trained and kept.
        groups: a word for every record, members first, to compare leakage between groups; the
            classes if not given.
        known_share: of the records, whose membership a white-box attacker knows already.
        push: how a malicious participant attacks.

    Raises:
        DataError: too few records, one class only, or a threat that this model does not allow.
    """
    x, y, is_member = join_records(members, non_members)
    classes = int(y.max()) + 1
    target = as_classifier(model, classes=classes)
    scene = Scene(
        target=target,
        trainer=trainer,
        x=x,
        y=y,
        is_member=is_member,
        effort=effort,
        fleet=fleet,
        known_share=known_share,
        push=push,
    )
    return audit_scene(scene, groups=groups)


def audit_scene(scene: Scene, *, groups: Sequence[str] | None = None) -> Membership:
    """Play every threat that is to be tried and lay out what was found."""
    findings: list[Finding] = []
    rankings: dict[str, Ranking] = {}
    notes: list[str] = []
    for name, game in GAMES.items():
        if scene.effort.threats and name not in scene.effort.threats:
            continue
        reason = why_not(name, scene)
        if reason and scene.effort.threats:
            raise DataError(f"threat {name!r}: {reason}")
        if reason:
            notes.append(f"{game.threat.name}: not measured; {reason}")
            continue
        found = _judge(game, scene)
        findings += found[0]
        rankings |= found[1]
    words = groups if groups is not None else [f"class {int(label)}" for label in scene.y]
    best = best_findings(
        [one for one in findings if len(rankings[one.attack].scores) == len(words)]
    )
    return Membership(
        findings=tuple(findings),
        rankings=rankings,
        sheets=_sheets(best, rankings, words),
        utility=_utility(scene),
        notes=tuple(notes),
    )


def join_records(members: Labelled, non_members: Labelled) -> tuple[Tensor, Tensor, Tensor]:
    """Return all rows, all labels, and which are members.

    Raises:
        DataError: lengths or shapes do not fit, too few records, or one class only.
    """
    given = {"members": members, "non-members": non_members}
    sides = [(_rows(x, word), _labels(y, word)) for word, (x, y) in given.items()]
    for word, (x, y) in zip(given, sides, strict=True):
        if x.dim() < 2 or len(x) != len(y) or y.dim() != 1:
            raise DataError(
                f"{word}: wanted a label per row, got {tuple(x.shape)} and {tuple(y.shape)}"
            )
        if len(x) < LEAST:
            raise DataError(f"{word}: wanted {LEAST} records or more to say anything, got {len(x)}")
    if sides[0][0].shape[1:] != sides[1][0].shape[1:]:
        raise DataError(
            f"wanted rows of one shape, got {tuple(sides[0][0].shape[1:])} for members "
            f"and {tuple(sides[1][0].shape[1:])} for non-members"
        )
    y = torch.cat([sides[0][1], sides[1][1]])
    found = sorted(set(y.tolist()))
    if found[0] < 0 or len(found) < 2:
        raise DataError(
            "wanted labels 0, 1, … of two classes or more; with one class there is nothing to "
            f"predict and nothing to leak through it, got {found[:5]}"
        )
    is_member = torch.arange(len(y)) < len(sides[0][1])
    return torch.cat([sides[0][0], sides[1][0]]), y, is_member


def _rows(x: Any, word: str) -> Tensor:
    rows = torch.from_numpy(numbers_of(x, whose=word))
    if not bool(torch.isfinite(rows).all()):
        raise DataError(f"{word}: the rows hold NaN or infinite values; clean them first")
    return rows.float()


def _labels(y: Any, word: str) -> Tensor:
    found = to_array(y)
    if found.dtype.kind not in "biuf" or not bool((found == found.round()).all()):
        raise DataError(
            f"{word}: wanted a label per row, whole numbers from 0 on, got "
            f"{'none' if y is None else found.dtype}"
        )
    return torch.from_numpy(found.astype(np.int64))


def _judge(game: Game, scene: Scene) -> tuple[list[Finding], dict[str, Ranking]]:
    """Bring the truth to the scores."""
    findings, rankings = [], {}
    for attack, (scores, judged) in game.play(scene).items():
        ranking = Ranking(scores[judged], scene.is_member.numpy()[judged])
        metrics = measure_ranking(attack, ranking)
        # The best of several attacks is chosen on the same records: each gets its part of 5 %.
        _, low, _ = auc(ranking, confidence=1 - 0.05 / len(ATTACKS))
        rankings[attack] = ranking
        findings.append(
            Finding(
                threat=game.threat,
                attack=attack,
                headline=metrics[0],
                metrics=metrics,
                is_found=low > 0.5,
                curves=(draw_roc(attack, ranking),),
                remedies=REMEDIES,
            )
        )
    return findings, rankings


def _sheets(
    best: Sequence[Finding], rankings: dict[str, Ranking], words: Sequence[str]
) -> tuple[Sheet, ...]:
    if not best:
        return ()
    strongest = max(best, key=lambda one: one.headline.value or 0.0).attack
    ranking = rankings[strongest]
    return (
        sheet_of_exposed(strongest, ranking, words),
        sheet_of_groups(strongest, ranking, words),
    )


def _utility(scene: Scene) -> tuple[Metric, ...]:
    right = (scene.target.log_probs(scene.x).argmax(1) == scene.y).numpy()
    inside = scene.is_member.numpy()
    return tuple(
        proportion(f"accuracy on {word}", int(right[rows].sum()), int(rows.sum()))
        for word, rows in (("members", inside), ("non-members", ~inside))
    )


def _in_words(metric: Metric) -> str:
    between = "" if metric.low is None else f" ({metric.low:.3f} to {metric.high:.3f})"
    return f"AUC {metric.value:.3f}{between}"


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


def sweep(
    trainers: Mapping[str, Trainer],
    members: Labelled,
    non_members: Labelled,
    *,
    name: str,
    effort: Effort,
    fleet: Fleet,
    report: Callable[[int], None] = lambda done: None,
) -> tuple[Curve, Sheet]:
    """Train a target with every trainer, attack it, and lay out what each setting costs and saves.

    Args:
        trainers: by the words that describe their setting.
        members: rows and labels that every target is trained on.
        non_members: rows and labels that none is.
        name: of the defence.
        effort: what is tried against each.
        fleet: how shadow models are trained and kept.
        report: told how many settings were tried.

    Returns:
        The frontier, accuracy on non-members against the AUC of the best attack, and the table.
    """
    if not trainers:
        raise ConfigError("a sweep needs at least one setting")
    x, y, is_member = join_records(members, non_members)
    points, rows = [], []
    for words, trainer in trainers.items():
        target = trainer(x[is_member], y[is_member], seed=effort.seed)
        found = audit_membership(
            target, members, non_members, trainer=trainer, effort=effort, fleet=fleet
        )
        best, accuracy = found.best, found.utility[1]
        points.append((accuracy.value or 0.0, found.auc))
        low, high = best.headline.low or 0.0, best.headline.high or 0.0
        rows.append(
            (
                words,
                f"{accuracy.value:.1%} [{accuracy.low:.1%}, {accuracy.high:.1%}]",
                f"{found.auc:.3f} [{low:.3f}, {high:.3f}]",
                best.attack,
            )
        )
        report(len(rows))
    curve = Curve(
        title="Privacy against utility",
        x_label="accuracy on non-members",
        y_label="AUC of the best attack; ½ is a blind guess",
        name=name,
        points=tuple(sorted(points)),
    )
    heads = (name, "# accuracy on non-members", "# AUC of the best attack", "best attack")
    return curve, Sheet(title="Defence sweep", heads=heads, rows=tuple(rows))


Train = Callable[[Any, Any], Any]
"""Trains a fresh model on rows and labels, as arrays or tensors, and returns it."""


def membership(
    model: object,
    members: Labelled,
    strangers: Labelled,
    *,
    train: Train | Trainer | None = None,
    threats: Sequence[str] = (),
    shadows: int = 16,
    groups: Sequence[str] | None = None,
    workers: int = 1,
    seed: int = 0,
    report: Report | None = None,
) -> Membership:
    """Measure how well attackers can tell which records a model was trained on.

    The strongest attacks compare with shadow models, which are trained like the model on other
    halves of the records. A scikit-learn classifier is refitted for them by itself; for a torch
    module give `train`.

    Guarantee: none. An attack that fails proves nothing; one that succeeds is real.

    Args:
        model: a torch module with a logit per class, or a fitted scikit-learn classifier.
        members: rows and labels that it was trained on: a pair, or a torch or Hugging Face data
            set.
        strangers: rows and labels of the same distribution that it was not.
        train: trains a fresh model like it: `train(x, y)` returns one. It gets arrays where
            members are arrays, and tensors where they are tensors.
        threats: some of "scores", "labels", "shadows", "gradients" and "participant"; all that
            this model allows if empty.
        shadows: how many shadow models; even.
        groups: a word for every record, members first, to compare leakage between groups.
        workers: processes that train shadow models; `train` then is a function of a module.
        seed: of coins, models and attacks.
        report: told how many shadow models are ready, of how many: `print`, for instance.

    Returns:
        What was found. `print` it, take `best` or `auc`, or `result()` for a report.

    Raises:
        DataError: too few records, one class only, or a threat that this model does not allow.
    """
    members, strangers = features_and_labels(members), features_and_labels(strangers)
    _, labels, _ = join_records(members, strangers)
    classes = int(labels.max()) + 1
    return audit_membership(
        model,
        members,
        strangers,
        trainer=_trainer(model, train, classes, wants_arrays=not isinstance(members[0], Tensor)),
        effort=Effort(threats=tuple(threats), shadows=shadows, seed=seed),
        fleet=Fleet(workers=workers, report=report or (lambda done, total: None)),
        groups=groups,
    )


@final
@dataclass(frozen=True, kw_only=True)
class FunctionTrainer:
    """Trains by a function of one's own; torch's generator follows the seed while it does."""

    train: Train
    classes: int
    wants_arrays: bool

    @property
    def recipe(self) -> str:
        """Return the code; what else a function depends on is not known, so nothing is kept."""
        return code_of(self.train)

    def __call__(self, x: Tensor, y: Tensor, *, seed: int) -> Classifier:
        """Return a model trained on these rows alone."""
        rows = (x.numpy(), y.numpy()) if self.wants_arrays else (x, y)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return as_classifier(self.train(*rows), classes=self.classes)


def _trainer(
    model: object, train: Train | Trainer | None, classes: int, *, wants_arrays: bool
) -> Trainer | None:
    if train is None:
        is_estimator = hasattr(model, "predict_proba") and hasattr(model, "get_params")
        return SklearnTrainer(estimator=model, classes=classes) if is_estimator else None
    if hasattr(train, "recipe"):
        return train  # type: ignore[return-value]
    return FunctionTrainer(train=train, classes=classes, wants_arrays=wants_arrays)
