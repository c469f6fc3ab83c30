"""Rows: features, with labels, ids and names where they have some, and what is asked of them."""

import hashlib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from itertools import islice
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.errors import DataError, RangeError

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]
Numbers = NDArray[Any]
"""Classes as whole numbers, numbers to be learned, or one row of either for each row."""
Target = Literal["none", "numbers", "classes"]
"""What labels are; in facts that are told, its place in this list."""
_MOST_NAMED = 5
FAR = 10.0
"""The root mean square of a column above which it is in a unit of its own: years, money."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Rows:
    """Rows of features, with or without labels.

    Attributes:
        features: (rows, columns), or pictures; divided by ``scale``. Without columns for somebody
            who has labels alone.
        labels: the class of each row as an index into ``classes``, or numbers to be learned; None
            if the rows are not labelled.
        ids: of the rows, to match them by; empty if nothing is matched.
        columns: the names of the features; empty for pictures, and for an owner's part of a known
            set, whose columns are nobody's own.
        classes: the names of the classes; empty without labels.
        scale: what features were divided by, one number or one for each. Of a known set these are
            public powers of two that bring features to [-1, 1]: they rest on what is published
            about the data, never on a party's own rows.
        name: how the rows were asked for.
        licence: what the carrier of the data states.
        note: what was done to the data on loading.
        published_test_rows: how many of the last rows are the published test set; 0 if there is
            none.
    """

    features: Floats
    labels: Numbers | None = None
    ids: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    scale: float | tuple[float, ...] = 1.0
    name: str = ""
    licence: str = "not stated"
    note: str = ""
    published_test_rows: int = 0

    def __post_init__(self) -> None:
        if self.labels is not None and len(self.labels) != len(self.features):
            raise DataError(
                f"data set {self.name!r}: wanted one label per row, {len(self.features)}, "
                f"got {self.labels.shape}"
            )

    def __repr__(self) -> str:
        labels = "no labels" if self.labels is None else f"{len(self.classes)} classes"
        return f"Rows({self.name!r}, features of shape {self.features.shape}, {labels})"

    def __len__(self) -> int:
        return len(self.features)

    def take(self, chosen: Sequence[int] | slice | Labels) -> Self:
        """Keep some rows by their places, in the order given."""
        at = np.arange(len(self))[chosen if isinstance(chosen, slice) else np.asarray(chosen, int)]
        return replace(
            self,
            features=self.features[at],
            labels=None if self.labels is None else self.labels[at],
            ids=tuple(self.ids[one] for one in at) if self.ids else (),
            published_test_rows=0,
        )

    def without(self, *columns: str | None) -> Self:
        """Leave columns out by name."""
        scale, kept = self.scale, [at for at, n in enumerate(self.columns) if n not in columns]
        if len(kept) == len(self.columns):
            return self
        return replace(
            self,
            features=self.features[:, kept],
            columns=tuple(self.columns[at] for at in kept),
            scale=scale if isinstance(scale, float) else tuple(scale[at] for at in kept),
        )

    def unscaled(self) -> Floats:
        """Return features as they lie; exact where they were divided by powers of two."""
        each = np.broadcast_to(self.scale, (math.prod(self.features.shape[1:]),))
        found: Floats = self.features * each.reshape(self.features.shape[1:])
        return found

    def check_columns(self, owner: str) -> None:
        """Refuse columns of an owner's own that say nothing about its rows.

        Public sets are let pass: pictures have pixels that are always black.

        Raises:
            DataError: a column has one value only.
        """
        flat = self.features.reshape(len(self), -1)
        is_constant = (flat.max(axis=0) == flat.min(axis=0)).tolist()
        named = [name for name, is_one in zip(self.columns, is_constant, strict=False) if is_one]
        if named:
            raise DataError(
                f"{', '.join(map(repr, named))} of {owner!r} are constant over {len(flat)} rows: "
                "nothing can be learned from them; leave these columns out"
            )

    def digest(self) -> bytes:
        """Hash what is in the rows."""
        content = hashlib.sha256(self.features.tobytes())
        if self.labels is not None:
            content.update(self.labels.tobytes())
        return content.digest()


@dataclass(frozen=True)
class Holding:
    """The public facts of one owner's part of the data, with which all parties plan.

    Attributes:
        owner: who has it.
        rows: how many.
        features: the shape of a row; (0,) for an owner who has labels alone.
        labels: none, numbers or classes.
        classes: how many, if they are classes and that is told.
        names: what stands for the names of columns, where owners have rows; 0 for none.
        bound: how large a feature can be, where that is told.
        label_bound: how large a label can be, likewise.
    """

    owner: str
    rows: int
    features: tuple[int, ...]
    labels: Target = "none"
    _: KW_ONLY
    classes: int = 0
    names: int = 0
    bound: float = 1.0
    label_bound: float = 1.0

    @property
    def columns(self) -> int:
        """Return how many numbers a row has; 0 for an owner who has labels alone."""
        return math.prod(self.features)

    @property
    def has_labels(self) -> bool:
        """Tell whether the owner has labels."""
        return self.labels != "none"


def divided(features: Floats, divisors: Floats) -> tuple[Floats, float | tuple[float, ...]]:
    """Divide features by divisors shaped like one row; return both as `Rows` holds them.

    Raises:
        DataError: there are not as many divisors as features of a row.
    """
    if divisors.shape != features.shape[1:]:
        raise DataError(
            f"wanted one divisor per feature, {features.shape[1:]}, got {divisors.shape}"
        )
    each = tuple(float(one) for one in divisors.ravel())
    return features / divisors, each[0] if len(set(each)) == 1 else each


def prepare_labels(
    rows: Rows, owner: str, *, classes: int, loss: Literal["softmax", "logistic"]
) -> Floats:
    """Return labels as a training wants them: one-hot, or a column of zeros and ones.

    Raises:
        DataError: there are none, or they are out of range.
    """
    if rows.labels is None:
        raise DataError(
            f"the data of {owner!r} has no labels; name the column with data.owners.{owner}.label"
        )
    beyond = rows.labels[(rows.labels < 0) | (rows.labels >= classes)]
    if len(beyond):
        raise DataError(
            f"the labels of {owner!r} go up to {int(beyond.max())}, but the model has "
            f"{classes} classes"
        )
    if loss == "logistic":
        return rows.labels.astype(np.float64).reshape(-1, 1)
    hot: Floats = np.eye(classes)[rows.labels]
    return hot


def check_features(rows: Rows, owner: str, *, may_be_none: bool) -> None:
    """Refuse rows that nothing can be learned from.

    Raises:
        DataError: there is no column, or all are constant.
    """
    if not rows.features.size:
        if not may_be_none:
            raise DataError(f"data.owners.{owner}: no columns are left")
    elif rows.features.ndim == 2 and len(rows.features) > 1:
        is_constant = rows.features.max(axis=0) == rows.features.min(axis=0)
        if bool(is_constant.all()):
            raise DataError(f"all columns of {owner!r} are constant: nothing to learn from")


def check_bound(rows: Rows, owner: str, bound: float) -> None:
    """Refuse features beyond the bound of a job, before anything is planned with it.

    Raises:
        RangeError: names the columns, where they have names, and no value.
    """
    beyond = (np.abs(rows.features) > bound).any(axis=0).ravel()
    if not bool(beyond.any()):
        return
    named = [name for name, is_one in zip(rows.columns, beyond.tolist(), strict=False) if is_one]
    what = few_names(named) if named else f"{int(beyond.sum())} of {len(beyond)} features"
    raise RangeError(
        f"{what} of {owner!r} go beyond data.bound = {bound:g}: bring the columns within it by "
        "data.prepare (of divided columns data.owners.NAME.prepare), or raise data.bound"
    )


def state_far(features: ArrayLike, names: Sequence[str]) -> str:
    """Say which columns are far from the values of about 1 that a network begins with, or nothing.

    There are sizes in it: it is for who has these rows, and for nobody else.
    """
    x = np.asarray(features)
    if x.ndim != 2 or not len(x) or x.dtype.kind != "f":
        return ""  # pictures, or ids of tokens
    sizes = np.sqrt(np.square(x, dtype=np.float64).mean(axis=0)).tolist()
    known = names or [f"column {at}" for at in range(1, len(sizes) + 1)]
    far = {
        name: f" (about {size:.1g})" for name, size in zip(known, sizes, strict=False) if size > FAR
    }
    if not far:
        return ""
    return (
        f"{few_names(far, far)} are far from the values of about 1 that a network begins with: it "
        "may learn to name the most frequent class and nothing else; state data.prepare for them"
    )


def few_names(names: Collection[str], beside: Mapping[str, str] | None = None) -> str:
    """Name columns, the first few of many."""
    shown = [f"{name!r}{(beside or {}).get(name, '')}" for name in islice(names, _MOST_NAMED)]
    rest = len(names) - len(shown)
    return ", ".join([*shown, *([f"{rest} more"] if rest else [])])
