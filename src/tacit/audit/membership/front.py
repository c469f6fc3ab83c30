"""The short way to a membership audit: a trained model, rows it has seen, rows it has not."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from tacit.audit.membership.audit import Labelled, Membership, audit_membership, join_records
from tacit.audit.membership.threats import Effort
from tacit.audit.shadows import Fleet, Report
from tacit.audit.target import Classifier, SklearnTrainer, Trainer, as_classifier, code_of
from tacit.data.memory import features_and_labels

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
