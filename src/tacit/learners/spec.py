"""What is said of a fit: whose rows, which learner, how rows are protected, and who sees what.

A learner's parameters are those of its class, by their names there, and are read off its signature.
"""

import inspect
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, Literal, Self, get_type_hints

from annotated_types import Ge, Le, Lt

from tacit.crypto.cipher.contract import Scheme
from tacit.data.prepare import PREPARED, Prepare
from tacit.data.rows import Target
from tacit.data.source import OwnerTable, check_prepared
from tacit.learners.base import Learner
from tacit.learners.bayes import CategoricalNB, GaussianNB
from tacit.learners.boosting import (
    GradientBoosting,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
)
from tacit.learners.classify import Classifier
from tacit.learners.clusters import KMeans, KNeighbors
from tacit.learners.linear import (
    ExtremeLearning,
    Lasso,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    Regressor,
    Ridge,
)
from tacit.learners.parties import FRAC_BITS
from tacit.learners.scaling import PCA
from tacit.learners.tables import Split
from tacit.learners.trees import DecisionTreeClassifier, RandomForestClassifier
from tacit.matching.helped import LEAST_LIKENESS, Helped
from tacit.mpc import Roles, find_protocol
from tacit.mpc.registry import parse_protocol
from tacit.ring import FixedPoint
from tacit.spec import (
    Check,
    Count,
    Party,
    Problem,
    RefusedError,
    Stretch,
    TwoParties,
    refuse,
    suggest,
)

LEARNERS: Mapping[str, type[Learner]] = {
    "categorical-bayes": CategoricalNB,
    "decision-tree": DecisionTreeClassifier,
    "extreme-learning": ExtremeLearning,
    "gaussian-bayes": GaussianNB,
    "gradient-boosting": GradientBoostingClassifier,
    "gradient-boosting-regression": GradientBoostingRegressor,
    "k-neighbours": KNeighbors,
    "kmeans": KMeans,
    "lasso": Lasso,
    "linear-regression": LinearRegression,
    "linear-svc": LinearSVC,
    "logistic-regression": LogisticRegression,
    "pca": PCA,
    "random-forest": RandomForestClassifier,
    "ridge": Ridge,
}
CIPHER = "cipher"
_ON_SHARES = ("edges", "categorical", "class_weight")
_BOOSTING = tuple(
    name for name in inspect.signature(GradientBoosting).parameters if name not in _ON_SHARES
)
_REGRESSION = ("C", "alpha", "max_iter")
BY_CIPHER: Mapping[str, tuple[str, ...]] = {
    "gradient-boosting": _BOOSTING,
    "gradient-boosting-regression": _BOOSTING,
    "logistic-regression": _REGRESSION,
    "linear-regression": _REGRESSION,
    "ridge": _REGRESSION,
}
"""What learns by a cipher, and which parameters it has there."""


@dataclass(frozen=True, kw_only=True)
class BlockTable:
    """[data.blocks.NAME]: some rows of the whole table, whose columns several owners have.

    Attributes:
        columns: by owner, which columns of the whole table it has, from the first to before the
            second. In every block each column belongs to one owner, and every owner is in one
            block: overlaps and holes are refused. ``data.owners.NAME.columns`` chooses from the
            owner's own file.
        labels: who has the labels of these rows, where the learner wants labels; it may have no
            columns.
    """

    columns: Mapping[str, Stretch]
    labels: str | None = None

    @property
    def owners(self) -> tuple[str, ...]:
        """Return who has a part of these rows, in the order of their columns, labels alone last."""
        found = sorted(self.columns, key=lambda one: self.columns[one])
        return tuple(dict.fromkeys([*found, *([self.labels] if self.labels else [])]))

    @property
    def width(self) -> int:
        """Return how many columns the whole table has, as far as this block knows."""
        return max((end for _, end in self.columns.values()), default=0)


@dataclass(frozen=True, kw_only=True)
class FitData:
    """[data]: who owns what, and what everyone may know about it.

    Attributes:
        owners: of rows, or of columns of the same rows; the first two compute unless told so.
            Missing values are refused.
        split: what owners divide between them: "rows"; "columns" of the same rows, matched by id;
            or "both", blocks of rows in each of which owners have different columns (on shares,
            every learner but "extreme-learning").
        blocks: with "both", the rows of the whole by name, and who has which columns of them. Ids
            are matched within a block (``matching = "exact"``) and never between blocks: nobody
            notices an id that is in two of them, and it counts twice.
        labels: the owner of the labels, where columns are split and the learner wants labels.
        prepare: with split rows: what every owner does to the values of columns, by their names,
            before anything else.
        classes: how many there are; found out from the labels if not given, and everyone is told
            the largest label.
        test_share: of every owner's rows, drawn by public coins, to measure on and not to learn
            from; 0 measures on the rows learned from.
        seed: of these coins.
        matching: privacy: how rows are matched where columns are split: "exact" among the owners;
            "helper" by keyed tags at a helper; "fuzzy" between two owners by Bloom filters of names
            that are spelt alike (``id`` is the column of names); "hidden" as "fuzzy", and only the
            helper knows which rows match, once: further jobs on the same rows tell an owner who
            has more of them.
        likeness: from which Dice coefficient two names count as one.
    """

    owners: Mapping[Party, OwnerTable]
    split: Split = "rows"
    blocks: Mapping[str, BlockTable] = field(default_factory=dict)
    labels: Party | None = None
    prepare: Prepare = field(default_factory=dict, metadata=PREPARED)
    classes: Count | None = None
    test_share: Annotated[float, Ge(0), Lt(1)] = 0.2
    seed: int = 0
    matching: Literal["exact", "helper", "fuzzy", "hidden"] = "exact"
    likeness: Annotated[float, Ge(0.5), Le(1)] = LEAST_LIKENESS

    def __post_init__(self) -> None:
        check_prepared(self.split, self.prepare, self.owners)

    @property
    def is_named(self) -> bool:
        """Tell whether rows are matched by names, not by numbers."""
        return self.matching in ("fuzzy", "hidden")


@dataclass(frozen=True, kw_only=True)
class LearnerTable:
    """[learner]: which one, with its parameters.

    Attributes:
        kind: which one: kmeans, gaussian-bayes, categorical-bayes, linear-regression, ridge, lasso,
            extreme-learning, logistic-regression, linear-svc, pca, k-neighbours, decision-tree,
            random-forest, gradient-boosting or gradient-boosting-regression.
        parameters: those of its class in `tacit.learners`, by their names there.
        standardise: bring columns to mean 0 and variance 1 first, on shares; not for trees.
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
    def target(self) -> Target:
        """Say what labels it wants."""
        if issubclass(self.type, Classifier):
            return "classes"
        return "numbers" if issubclass(self.type, Regressor) else "none"

    @property
    def is_boosted(self) -> bool:
        """Tell whether it grows boosted trees."""
        return issubclass(self.type, GradientBoosting)

    def make(self) -> Learner:
        """Return the learner, not fitted."""
        hints = get_type_hints(self.type.__init__)
        return self.type(
            **{name: _read(hints[name], value) for name, value in self.parameters.items()}
        )


def _wrong_parameters(learner: type[Learner], given: Mapping[str, object]) -> Iterator[Problem]:
    from pydantic import ValidationError

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
    from pydantic import TypeAdapter

    # As JSON: strict, but lists are tuples, which TOML cannot tell apart.
    return TypeAdapter(hint).validate_json(json.dumps(value), strict=True)


def _parse_way(name: str) -> None:
    if name != CIPHER:
        parse_protocol(name)


@dataclass(frozen=True, kw_only=True)
class FitProtection:
    """[protocol]: how rows are protected while the learner learns.

    Attributes:
        kind: privacy: a protocol on shares, as in a training, or "cipher" for the published ways by
            a cipher, which show more.
        dealer: who prepares masks, on shares; the helper of ``data.matching``. Owns no data.
        compute: which two owners compute, on shares; the first two if not given.
        cipher: by a cipher, which one; matching that is hidden takes "paillier".
        helper: by a cipher, who matches ids, and is the coordinator where matching is hidden; owns
            no data.
    """

    kind: Annotated[str, Check(_parse_way)]
    dealer: Party | None = None
    compute: TwoParties | None = None
    cipher: Scheme = "bfv"
    helper: Party | None = None


@dataclass(frozen=True, kw_only=True)
class Reveal:
    """[reveal]: who is shown what; nothing is shown to anyone who is not named.

    Attributes:
        score: privacy: who learns accuracy, R² or inertia on the rows that are measured on.
        auc: privacy: who learns the area under the ROC curve, of two classes, by bins of scores,
            and how exact that is.
        ks: privacy: who learns the Kolmogorov-Smirnov distance of two classes, by the same bins,
            and how exact that is.
        confusion: privacy: who learns how many rows of each class are taken for which.
        calibration: privacy: who learns rows, mean chance and share of class 1, by steps of the
            chance.
        answers: privacy: who learns an answer for every row that is measured on (predictions.csv);
            with split "both" an owner finds ids of its own block, and rows of other blocks by their
            numbers.
        coefficients: privacy: who learns what was learned: coefficients, centres, means, components
            (coefficients.npz), and is told the names of all columns and what their owners divided
            them by.
        scaling: privacy: who of these learns mean and deviation of every column that was
            standardised, and so what linear coefficients are in the units of the rows; without it
            owners of columns know that of their own.
        trees: privacy: who gets boosted trees as a file of XGBoost (trees.json), with where every
            owner of columns has cut: quantiles of its columns.
    """

    score: tuple[Party, ...] = ()
    auc: tuple[Party, ...] = ()
    ks: tuple[Party, ...] = ()
    confusion: tuple[Party, ...] = ()
    calibration: tuple[Party, ...] = ()
    answers: tuple[Party, ...] = ()
    coefficients: tuple[Party, ...] = ()
    scaling: tuple[Party, ...] = ()
    trees: tuple[Party, ...] = ()

    def named(self) -> Mapping[str, tuple[str, ...]]:
        """Return who sees each."""
        return {one.name: getattr(self, one.name) for one in fields(self)}


@dataclass(frozen=True, kw_only=True)
class FitSpec:
    """Fit a learner on rows or columns that their owners do not show each other."""

    data: FitData
    learner: LearnerTable
    protocol: FitProtection
    reveal: Reveal = field(default_factory=Reveal)
    ring: FixedPoint = field(default_factory=lambda: FixedPoint(frac_bits=FRAC_BITS))

    def __post_init__(self) -> None:
        problems = [
            *_check_data(self),
            *_check_blocks(self),
            *_check_reveal(self),
            *_check_matching(self),
            *(_check_cipher(self) if self.is_by_cipher else _check_shares(self)),
        ]
        if problems:
            raise RefusedError(*problems)

    @property
    def is_by_cipher(self) -> bool:
        """Tell whether the learner learns in a published way by a cipher."""
        return self.protocol.kind == CIPHER

    @property
    def way(self) -> str:
        """Return what protects rows, as a report names it."""
        return f"cipher ({self.protocol.cipher})" if self.is_by_cipher else self.protocol.kind

    @property
    def helper(self) -> str | None:
        """Return who matches ids, where somebody else than the owners does."""
        return self.protocol.helper if self.is_by_cipher else self.protocol.dealer

    @property
    def helped(self) -> tuple[str, Helped] | None:
        """Return who helps to match, and how; None where owners match their ids themselves."""
        if self.data.matching == "exact" or self.helper is None:
            return None
        return self.helper, self.data.matching

    @property
    def owners(self) -> tuple[str, ...]:
        """Return the owners in one order for all parties, those who compute first."""
        first = self.protocol.compute or tuple(self.data.owners)[:2]
        return (*first, *sorted(set(self.data.owners) - set(first)))

    @property
    def members(self) -> tuple[str, ...]:
        """Return all who take part: the owners, and the dealer or the helper."""
        return (*self.owners, *([] if self.helper is None else [self.helper]))

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
    def classes(self) -> int | None:
        """Return how many classes there are, 0 if labels are numbers, None to find out."""
        return 0 if self.learner.target == "numbers" else self.data.classes

    @property
    def roles(self) -> Roles:
        """Return who is P0, P1 and dealer."""
        return Roles(self.owners[0], self.owners[1], self.protocol.dealer or "")

    def settled(self) -> Self:
        """Return the same with the computing parties named."""
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


def _check_data(spec: FitSpec) -> Iterator[Problem]:
    owners, target = spec.data.owners, spec.learner.target
    if len(owners) < 2:
        yield Problem("data.owners", f"wanted two owners or more, got {len(owners)}")
    if spec.protocol.dealer in owners:
        yield Problem("protocol.dealer", "must not own data: it knows the masks")
    for name in spec.protocol.compute or ():
        if name not in owners:
            yield Problem("protocol.compute", f"wanted two of the owners, got {name!r}")
    is_named = spec.data.labels is not None
    if spec.data.split == "rows" and is_named:
        yield Problem("data.labels", "with split rows every owner has labels; leave it out")
    elif spec.data.split == "columns" and target == "none" and is_named:
        yield Problem("data.labels", f"{spec.learner.kind} learns without labels; leave it out")
    elif spec.data.split == "columns" and target != "none" and spec.data.labels not in owners:
        text = f"wanted the owner of the labels, one of {', '.join(owners)}"
        yield Problem("data.labels", f"{text}, got {spec.data.labels!r}")
    if target != "classes" and spec.data.classes is not None:
        yield Problem("data.classes", f"{spec.learner.kind} learns no classes; leave it out")


def _check_blocks(spec: FitSpec) -> Iterator[Problem]:
    """Yield where blocks overlap, leave holes or do not fit below each other."""
    blocks = spec.data.blocks
    if spec.data.split != "both":
        if blocks:
            yield Problem("data.blocks", 'for rows and columns both divided: split = "both"')
        return
    if spec.data.labels is not None:
        yield Problem("data.labels", "every block names who has its labels; leave it out")
    if len(blocks) < 2:
        yield Problem("data.blocks", f"wanted two blocks of rows or more, got {len(blocks)}")
    for owner in spec.data.owners:
        places = [name for name, block in blocks.items() if owner in block.owners]
        if not places:
            yield Problem("data.blocks", f"{owner!r} is in no block: its rows would be left out")
        elif len(places) > 1:
            text = f"{owner!r} is in {' and '.join(places)}: an owner has rows of one block"
            yield Problem("data.blocks", text)
    width = max((block.width for block in blocks.values()), default=0)
    for name, block in blocks.items():
        key, wants = f"data.blocks.{name}", spec.learner.target != "none"
        yield from _check_columns(f"{key}.columns", block, width)
        if wants and block.labels is None:
            yield Problem(f"{key}.labels", "missing; wanted the owner of the labels of these rows")
        if not wants and block.labels is not None:
            yield Problem(f"{key}.labels", f"{spec.learner.kind} learns without; leave it out")
        for owner in block.owners:
            if owner not in spec.data.owners:
                yield Problem(key, f"{owner!r} is none of data.owners")


def _check_columns(key: str, block: BlockTable, width: int) -> Iterator[Problem]:
    """Walk from the first column to the last: every one belongs to one owner."""

    def said(start: int, end: int) -> str:
        return f"column {start}" if end == start + 1 else f"columns {start} to {end - 1}"

    at, before = 0, ""
    for owner, (start, end) in sorted(block.columns.items(), key=lambda one: one[1]):
        if start < at:
            last = min(at, end)
            yield Problem(key, f"{before} and {owner} overlap: both have {said(start, last)}")
        elif start > at:
            yield Problem(key, f"a hole: nobody has {said(at, start)}")
        if end > at:
            at, before = end, owner
    if at < width:
        yield Problem(key, f"a hole: nobody has {said(at, width)}, which another block has")


def _check_reveal(spec: FitSpec) -> Iterator[Problem]:
    reveal, kind = spec.reveal, spec.learner.kind
    if not any(reveal.named().values()):
        yield Problem("reveal", "missing; nobody would see anything of what was learned")
    if kind == "pca" and reveal.score:
        yield Problem("reveal.score", "pca has no score; open its coefficients or answers")
    if not spec.learner.type.results and reveal.coefficients:
        yield Problem("reveal.coefficients", f"{kind} has none that could be opened")
    if reveal.scaling and not spec.learner.standardise:
        yield Problem("reveal.scaling", "nothing is scaled: wanted learner.standardise = true")
    if strangers := sorted(set(reveal.scaling) - set(reveal.coefficients)):
        text = f"coefficients are read by it: name {', '.join(strangers)} in reveal.coefficients"
        yield Problem("reveal.scaling", text)
    if reveal.trees and not spec.learner.is_boosted:
        yield Problem("reveal.trees", f"boosted trees alone are written to a file, not {kind}")
    if reveal.trees and spec.learner.parameters.get("categorical"):
        yield Problem("reveal.trees", "trees with categorical columns are not written to a file")
    for what in ("auc", "ks", "confusion", "calibration"):
        if getattr(reveal, what) and spec.learner.target != "classes":
            yield Problem(f"reveal.{what}", f"{kind} learns no classes")


def _check_matching(spec: FitSpec) -> Iterator[Problem]:
    data = spec.data
    if data.matching == "exact":
        return
    if data.split != "columns":
        yield Problem("data.matching", "rows are matched where columns are split")
    if spec.helper is None:
        yield Problem("data.matching", "wanted someone who matches: name protocol.helper")
    if data.is_named and len(data.owners) != 2:
        yield Problem(
            "data.matching", f"names are matched between two owners, got {len(data.owners)}"
        )
    for name, owner in data.owners.items():
        if data.is_named and (owner.set is not None or owner.id is None):
            yield Problem(f"data.owners.{name}.id", "wanted a column of names in a file")


def _check_shares(spec: FitSpec) -> Iterator[Problem]:
    if spec.protocol.dealer is None:
        yield Problem("protocol.dealer", "missing; learning on shares takes one")
    if spec.protocol.helper is not None:
        yield Problem("protocol.helper", "on shares the dealer helps; leave it out")
    if spec.data.matching == "hidden":
        text = "rows that nobody knows to match are for a cipher with a helper"
        yield Problem("data.matching", text)


def _check_cipher(spec: FitSpec) -> Iterator[Problem]:
    protocol, data, kind = spec.protocol, spec.data, spec.learner.kind
    for key in ("dealer", "compute"):
        if getattr(protocol, key) is not None:
            yield Problem(f"protocol.{key}", "a cipher needs none; leave it out")
    if protocol.helper in data.owners:
        yield Problem("protocol.helper", "must not own data")
    if data.split != "columns":
        yield Problem("data.split", 'by a cipher columns are split: wanted "columns"')
    is_hidden = data.matching == "hidden"
    if kind in BY_CIPHER:
        for name in sorted(set(spec.learner.parameters) - set(BY_CIPHER[kind])):
            yield Problem(f"learner.parameters.{name}", "not by a cipher; leave it out")
        if not spec.learner.is_boosted and len(data.owners) != 2:
            yield Problem("data.owners", f"{kind} by a cipher is for two owners")
        if is_hidden and spec.learner.is_boosted:
            yield Problem("data.matching", "boosting must know which rows match")
        if is_hidden and protocol.cipher != "paillier":
            text = 'hidden matches take "paillier", which scales row by row'
            yield Problem("protocol.cipher", text)
    else:
        known = ", ".join(BY_CIPHER)
        yield Problem("learner.kind", f"by a cipher there are {known}, not {kind}")
    if is_hidden and data.test_share:
        text = "where matches are hidden nobody can measure: wanted 0"
        yield Problem("data.test_share", text)
    for what, names in spec.reveal.named().items():
        if is_hidden and what != "coefficients" and names:
            text = "scores would tell which rows match; open coefficients alone"
            yield Problem(f"reveal.{what}", text)
        allowed = set(data.owners) if what == "coefficients" else {data.labels}
        if what == "coefficients" and spec.learner.is_boosted and names:
            yield Problem("reveal.coefficients", f"{kind} has none")
        if what in ("trees", "calibration", "confusion", "scaling") and names:
            yield Problem(f"reveal.{what}", "not by a cipher")
        elif not set(names) <= allowed:
            yield Problem(f"reveal.{what}", f"by a cipher {data.labels} alone gets it")
