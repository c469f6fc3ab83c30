"""A data set in memory, and its division into rows to train on and rows to test on."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tacit.errors import ConfigError, DataError

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]
Part = Literal["train", "test", "all"]

PARTS: tuple[Part, ...] = ("train", "test", "all")
USUAL_TEST_SHARE = 0.3
PUBLIC_SEED = 0
"""Of choices that all parties make alike, such as which rows of a public set are tested on."""
NO_LABELS: Labels = np.empty(0, np.int64)


@dataclass(frozen=True, kw_only=True, eq=False)
class Dataset:
    """Rows of features, with or without labels.

    Attributes:
        name: how it was asked for.
        features: (rows, columns) or (rows, height, width).
        labels: the class of each row as an index into ``label_names``; of length 0 if the rows
            are not labelled.
        feature_names: one per column; empty for pictures.
        label_names: one per class; empty without labels.
        scale: public divisors, powers of two, shaped like one row: ``features / scale`` lies
            within [-1, 1] for the sets that we know. They rest on what is published about the
            data, never on a party's own rows.
        licence: what the carrier of the data states.
        note: what was done to the data on loading.
        published_test_rows: how many of the last rows are the published test set; 0 if there is
            none.
    """

    name: str
    features: Floats
    labels: Labels
    feature_names: tuple[str, ...]
    label_names: tuple[str, ...]
    scale: Floats
    licence: str = "not stated"
    note: str = ""
    published_test_rows: int = 0

    def __post_init__(self) -> None:
        if self.scale.shape != self.features.shape[1:]:
            raise DataError(
                f"data set {self.name!r}: wanted one divisor per feature, "
                f"{self.features.shape[1:]}, got {self.scale.shape}"
            )
        if self.is_labelled and self.labels.shape != self.features.shape[:1]:
            raise DataError(
                f"data set {self.name!r}: wanted one label per row, {len(self.features)}, "
                f"got {self.labels.shape}"
            )

    def __repr__(self) -> str:
        labels = f"{len(self.label_names)} classes" if self.is_labelled else "no labels"
        return f"Dataset({self.name!r}, features of shape {self.features.shape}, {labels})"

    @property
    def is_labelled(self) -> bool:
        """Tell whether the classes of the rows are known."""
        return self.labels.size > 0

    def scaled(self) -> Floats:
        """Divide the features by their public divisors; exact, as those are powers of two."""
        return self.features / self.scale

    def rescaled(self, scale: Sequence[float]) -> "Dataset":
        """Return the same rows with other public divisors, one per column.

        Raises:
            DataError: there are not as many as columns.
        """
        if self.features.shape[1:] != (len(scale),):
            raise DataError(
                f"{self.name}: data.scale has {len(scale)} divisors, "
                f"the rows are of shape {self.features.shape[1:]}"
            )
        return replace(self, scale=np.array(scale))


def split(
    dataset: Dataset, *, part: Part, test_share: float | None = None, seed: int = PUBLIC_SEED
) -> Dataset:
    """Take the rows to train on, those to test on, or all.

    The same seed gives the same rows to every party. Each class is divided in the same
    proportion; the order of the rows is kept.

    Args:
        dataset: what to divide.
        part: which rows to take.
        test_share: the share of the rows to test on. If not given, the published test set where
            there is one, else 0.3.
        seed: of the generator that chooses.

    Raises:
        ConfigError: another part, or a share that is not between 0 and 1.
        DataError: a part would be empty.
    """
    if part not in PARTS:
        raise ConfigError(f"wanted one of {', '.join(PARTS)} as the part of the data, got {part!r}")
    if test_share is not None and not 0 < test_share < 1:
        raise ConfigError(f"wanted a test share between 0 and 1, got {test_share}")
    if part == "all":
        return dataset
    is_test = _test_rows(dataset, test_share, seed)
    _check_parts(dataset, is_test)
    return _take(dataset, is_test if part == "test" else ~is_test)


def split_by_row(dataset: Dataset, *, part: Part, test_share: float | None = None) -> Dataset:
    """Take the rows to train on or those to test on, each by what the row itself holds.

    A row more or less changes nothing for the others, as it would with `split`: what is promised
    about one row of those to train on then holds for one row of the file. Equal rows are told apart
    by their number.

    Raises:
        DataError: a part would be empty.
    """
    if part == "all":
        return dataset
    share = USUAL_TEST_SHARE if test_share is None else test_share
    seen: dict[bytes, int] = {}
    is_test = np.zeros(len(dataset.features), bool)
    labels = dataset.labels if dataset.is_labelled else np.zeros(len(is_test), np.int64)
    for at, (row, label) in enumerate(zip(dataset.features, labels, strict=True)):
        held = row.tobytes() + int(label).to_bytes(8, "little", signed=True)
        seen[held] = seen.get(held, 0) + 1
        drawn = hashlib.sha256(held + seen[held].to_bytes(8, "little")).digest()
        is_test[at] = int.from_bytes(drawn[:8]) < share * 2.0**64
    _check_parts(dataset, is_test)
    return _take(dataset, is_test if part == "test" else ~is_test)


def power_of_two_at_least(bound: float) -> float:
    """Return the smallest power of two that is not below a positive bound."""
    mantissa, exponent = math.frexp(bound)  # the mantissa lies in [0.5, 1)
    return math.ldexp(1.0, exponent - 1 if mantissa == 0.5 else exponent)


def _check_parts(dataset: Dataset, is_test: NDArray[np.bool_]) -> None:
    if is_test.all() or not is_test.any():
        raise DataError(
            f"data set {dataset.name!r} has {len(is_test)} rows, too few for a part to train on "
            "and one to test on"
        )


def _test_rows(dataset: Dataset, test_share: float | None, seed: int) -> NDArray[np.bool_]:
    rows = len(dataset.features)
    if test_share is None and dataset.published_test_rows:
        return np.arange(rows) >= rows - dataset.published_test_rows
    share = USUAL_TEST_SHARE if test_share is None else test_share
    labels = dataset.labels if dataset.is_labelled else np.zeros(rows, np.int64)
    generator = np.random.default_rng(seed)
    is_test = np.zeros(rows, bool)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        wanted = round(share * members.size)
        is_test[generator.permutation(members)[:wanted]] = True
    return is_test


def _take(dataset: Dataset, chosen: NDArray[np.bool_]) -> Dataset:
    labels = dataset.labels[chosen] if dataset.is_labelled else dataset.labels
    return replace(dataset, features=dataset.features[chosen], labels=labels, published_test_rows=0)


def scale_of(dataset: Dataset) -> float | tuple[float, ...]:
    """Return what features are divided by: one number if it is the same for all, or one each."""
    divisors = tuple(float(one) for one in dataset.scale.ravel())
    return divisors[0] if len(set(divisors)) == 1 else divisors
