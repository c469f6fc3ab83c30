"""The job file of kind "fit": whose rows or columns, which learner, and what is opened to whom."""

import inspect
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, Literal, Self, get_type_hints

from annotated_types import Ge, Le, Lt
from pydantic import TypeAdapter, ValidationError

from tacit import learners
from tacit.crypto.cipher.contract import Scheme
from tacit.data.spec import OwnerTable
from tacit.jobs.config import Job, check_parties, check_references, parse_protocol
from tacit.jobs.fit_blocks import BlockTable, check_blocks
from tacit.jobs.way_checks import check_way
from tacit.learners import Classifier, Learner, Regressor
from tacit.learners.boosting import GradientBoosting
from tacit.learners.parties import FRAC_BITS
from tacit.mpc import Roles, find_protocol
from tacit.ring import FixedPoint
from tacit.spec import Check, Count, Problem, RefusedError, TwoParties, refuse, suggest

LEARNERS: Mapping[str, type[Learner]] = {
    "categorical-bayes": learners.CategoricalNB,
    "decision-tree": learners.DecisionTreeClassifier,
    "extreme-learning": learners.ExtremeLearning,
    "gaussian-bayes": learners.GaussianNB,
    "gradient-boosting": learners.GradientBoostingClassifier,
    "gradient-boosting-regression": learners.GradientBoostingRegressor,
    "k-neighbours": learners.KNeighbors,
    "kmeans": learners.KMeans,
    "lasso": learners.Lasso,
    "linear-regression": learners.LinearRegression,
    "linear-svc": learners.LinearSVC,
    "logistic-regression": learners.LogisticRegression,
    "pca": learners.PCA,
    "random-forest": learners.RandomForestClassifier,
    "ridge": learners.Ridge,
}


@dataclass(frozen=True, kw_only=True)
class FitData:
    """[data]: who owns what, and what everyone may know about it.

    Attributes:
        owners: of rows, or of columns of the same rows; the first two compute unless told so.
        split: what owners divide between them.
        blocks: with ``both``, the rows of the whole by name, and who has which columns of them.
        labels: the owner of the labels, where columns are split and the learner wants labels.
        classes: how many there are; found out from the labels if not given.
        test_share: of rows that are measured on and not learned from; 0 measures on all rows.
        seed: of the public coins that choose them.
        matching: how rows are matched where columns are split: ``exact`` among the owners,
            ``helper`` by keyed tags, ``fuzzy`` by names that are spelt alike, ``hidden`` as
            ``fuzzy`` and without telling the owners which rows match.
        likeness: from which two names count as one.
    """

    owners: Mapping[str, OwnerTable]
    split: Literal["rows", "columns", "both"] = "rows"
    blocks: Mapping[str, BlockTable] = field(default_factory=dict)
    labels: str | None = None
    classes: Count | None = None
    test_share: Annotated[float, Ge(0), Lt(1)] = 0.2
    seed: int = 0
    matching: Literal["exact", "helper", "fuzzy", "hidden"] = "exact"
    likeness: Annotated[float, Ge(0.5), Le(1)] = 0.8

    @property
    def is_named(self) -> bool:
        """Tell whether rows are matched by names, not by numbers."""
        return self.matching in ("fuzzy", "hidden")


@dataclass(frozen=True, kw_only=True)
class LearnerTable:
    """[learner]: which one, with its parameters; ``standardise`` brings columns to one scale first.

    Parameters are those of the class in `tacit.learners`, by their names there.
    """

    kind: str
    parameters: Mapping[str, Any] = field(default_factory=dict)  # checked against the class
    standardise: bool = False

    def __post_init__(self) -> None:
        if self.kind not in LEARNERS:
            near = suggest(self.kind, LEARNERS)
            refuse("kind", f"wanted one of {', '.join(LEARNERS)}, got {self.kind!r}{near}")
        problems = list(_wrong_parameters(self.type, self.parameters))
        if problems:
            raise RefusedError(*problems)

    @property
    def type(self) -> type[Learner]:
        """Return the class that learns."""
        return LEARNERS[self.kind]

    @property
    def target(self) -> Literal["classes", "numbers", "none"]:
        """Say what labels it wants."""
        if issubclass(self.type, Classifier):
            return "classes"
        return "numbers" if issubclass(self.type, Regressor) else "none"

    def make(self) -> Learner:
        """Return the learner, not fitted."""
        hints = get_type_hints(self.type.__init__)
        return self.type(
            **{name: _read(hints[name], value) for name, value in self.parameters.items()}
        )


def _wrong_parameters(learner: type[Learner], given: Mapping[str, object]) -> Iterator[Problem]:
    hints = get_type_hints(learner.__init__)
    known = inspect.signature(learner).parameters
    for name, value in given.items():
        key = f"parameters.{name}"
        if name not in known:
            near = suggest(name, known) or f"; known here: {', '.join(known) or 'none'}"
            yield Problem(key, f"{learner.__name__} has no such parameter{near}")
            continue
        try:
            _read(hints[name], value)
        except ValidationError as error:
            said = error.errors(include_url=False)[0]["msg"]
            yield Problem(key, f"{said[0].lower()}{said[1:]}, got {value!r}")
    for name, one in known.items():
        if one.default is inspect.Parameter.empty and name not in given:
            yield Problem(f"parameters.{name}", f"missing; {learner.__name__} has no default of it")


def _read(hint: type[object], value: object) -> object:
    # As JSON: strict, but lists are tuples, which TOML cannot tell apart.
    return TypeAdapter(hint).validate_json(json.dumps(value), strict=True)


def _parse_way(name: str) -> None:
    if name != CIPHER:
        parse_protocol(name)


CIPHER = "cipher"
WayName = Annotated[str, Check(_parse_way)]


@dataclass(frozen=True, kw_only=True)
class FitProtection:
    """[protocol]: how rows are protected while the learner learns.

    Attributes:
        kind: a protocol on shares, or ``cipher`` for the published ways by a cipher.
        dealer: who prepares masks, on shares; matches ids where it is asked to.
        compute: which two owners compute, on shares.
        cipher: which one, by a cipher.
        helper: by a cipher, who matches ids, and is the coordinator where matching is hidden.
    """

    kind: WayName
    dealer: str | None = None
    compute: TwoParties | None = None
    cipher: Scheme = "bfv"
    helper: str | None = None


@dataclass(frozen=True, kw_only=True)
class Reveal:
    """[reveal]: who is shown what; nothing is shown to anyone who is not named.

    Attributes:
        score: accuracy, R² or inertia on the rows that are measured on.
        auc: the area under the ROC curve, of two classes.
        confusion: how many rows of each class are taken for which.
        calibration: rows, mean chance and share of class 1, by steps of the chance.
        answers: an answer for every row that is measured on.
        coefficients: what was learned: coefficients, centres, means, components.
        trees: boosted trees as a file of XGBoost, with where owners cut their columns.
    """

    score: tuple[str, ...] = ()
    auc: tuple[str, ...] = ()
    confusion: tuple[str, ...] = ()
    calibration: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    coefficients: tuple[str, ...] = ()
    trees: tuple[str, ...] = ()

    def named(self) -> Mapping[str, tuple[str, ...]]:
        """Return who sees each."""
        return {one.name: getattr(self, one.name) for one in fields(self)}


@dataclass(frozen=True, kw_only=True)
class FitJob(Job):
    """A whole job file of kind "fit"."""

    data: FitData
    learner: LearnerTable
    protocol: FitProtection
    reveal: Reveal = field(default_factory=Reveal)
    ring: FixedPoint = field(default_factory=lambda: FixedPoint(frac_bits=FRAC_BITS))

    def __post_init__(self) -> None:
        problems = [
            *check_parties(self.parties),
            *check_references(self.parties, _named(self)),
            *_check_data(self),
            *check_blocks(self),
            *_check_reveal(self),
            *check_way(self),
        ]
        if problems:
            raise RefusedError(*problems)

    @property
    def is_by_cipher(self) -> bool:
        """Tell whether the learner learns in a published way by a cipher."""
        return self.protocol.kind == CIPHER

    @property
    def helper(self) -> str | None:
        """Return who matches ids, where somebody else than the owners does."""
        return self.protocol.helper if self.is_by_cipher else self.protocol.dealer

    @property
    def owners(self) -> tuple[str, ...]:
        """Return the owners in one order for all parties, those who compute first."""
        first = self.protocol.compute or tuple(self.data.owners)[:2]
        return (*first, *sorted(set(self.data.owners) - set(first)))

    @property
    def blocks(self) -> tuple[tuple[str, BlockTable], ...]:
        """Return the blocks in one order for all parties."""
        return tuple(sorted(self.data.blocks.items()))

    @property
    def matched(self) -> tuple[tuple[str, ...], ...]:
        """Return the owners who match their ids with each other, group by group."""
        if self.data.split == "columns":
            return (self.owners,)
        return tuple(block.owners for _, block in self.blocks if len(block.owners) > 1)

    @property
    def roles(self) -> Roles:
        """Return who is P0, P1 and dealer."""
        return Roles(self.owners[0], self.owners[1], self.protocol.dealer or "")

    def settled(self) -> Self:
        """Return the job with the computing parties named."""
        if self.is_by_cipher:
            return self
        return replace(self, protocol=replace(self.protocol, compute=self.roles.computing))

    def role(self, party: str) -> str:
        """Say in words what a party does."""
        is_dealer = party == self.protocol.dealer
        if self.is_by_cipher:
            named = "labels and key" if party == self.data.labels else "data owner"
            return named if party in self.data.owners else "helper"
        duties = {
            "data owner": party in self.data.owners,
            "computes": party in self.roles.computing,
            "dealer": is_dealer,
            "helper": is_dealer and find_protocol(self.protocol.kind).helper_is_online,
        }
        return ", ".join(duty for duty, has_it in duties.items() if has_it)

    def wants_labels(self, owner: str) -> bool:
        """Tell whether an owner brings labels."""
        if self.learner.target == "none":
            return False
        if self.data.split == "both":
            return any(block.labels == owner for block in self.data.blocks.values())
        return self.data.split == "rows" or owner == self.data.labels


def _named(job: FitJob) -> Mapping[str, str]:
    lists = {f"reveal.{what}": names for what, names in job.reveal.named().items()}
    lists["protocol.compute"] = job.protocol.compute or ()
    named = {f"data.owners.{name}": name for name in job.data.owners}
    named |= {f"{key}[{i}]": name for key, names in lists.items() for i, name in enumerate(names)}
    thirds = {"protocol.dealer": job.protocol.dealer, "protocol.helper": job.protocol.helper}
    named |= {key: name for key, name in thirds.items() if name is not None}
    if job.data.labels is not None:
        named["data.labels"] = job.data.labels
    return named


def _check_data(job: FitJob) -> Iterator[Problem]:
    owners, target = job.data.owners, job.learner.target
    if len(owners) < 2:
        yield Problem("data.owners", f"wanted two owners or more, got {len(owners)}")
    if job.protocol.dealer in owners:
        yield Problem("protocol.dealer", "must not own data: it knows the masks")
    for name in job.protocol.compute or ():
        if name not in owners:
            yield Problem("protocol.compute", f"wanted two of the owners, got {name!r}")
    is_named = job.data.labels is not None
    if job.data.split == "rows" and is_named:
        yield Problem("data.labels", "with split rows every owner has labels; leave it out")
    elif job.data.split == "columns" and target == "none" and is_named:
        yield Problem("data.labels", f"{job.learner.kind} learns without labels; leave it out")
    elif job.data.split == "columns" and target != "none" and job.data.labels not in owners:
        text = f"wanted the owner of the labels, one of {', '.join(owners)}"
        yield Problem("data.labels", f"{text}, got {job.data.labels!r}")
    if target != "classes" and job.data.classes is not None:
        yield Problem("data.classes", f"{job.learner.kind} learns no classes; leave it out")


def _check_reveal(job: FitJob) -> Iterator[Problem]:
    reveal, kind = job.reveal, job.learner.kind
    if not any(reveal.named().values()):
        yield Problem("reveal", "missing; nobody would see anything of what was learned")
    if kind == "pca" and reveal.score:
        yield Problem("reveal.score", "pca has no score; open its coefficients or answers")
    if not job.learner.type.results and reveal.coefficients:
        yield Problem("reveal.coefficients", f"{kind} has none that could be opened")
    if reveal.trees and not issubclass(job.learner.type, GradientBoosting):
        yield Problem("reveal.trees", f"boosted trees alone are written to a file, not {kind}")
    if reveal.trees and job.learner.parameters.get("categorical"):
        yield Problem("reveal.trees", "trees with categorical columns are not written to a file")
    for what in ("auc", "confusion", "calibration"):
        if getattr(reveal, what) and job.learner.target != "classes":
            yield Problem(f"reveal.{what}", f"{kind} learns no classes")
