"""The data sets that are known by name: where they come from, what is published, how one reads."""

import difflib
import importlib
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.data.rows import Floats, Rows, divided
from tacit.data.tables import read_columns, read_npz
from tacit.errors import DataError

UCI = "https://archive.ics.uci.edu/dataset"


@dataclass(frozen=True, kw_only=True)
class BuiltInSet:
    """A set that comes with scikit-learn. ``maxima`` are from its description there."""

    load: str  # the function's name: scikit-learn is imported by those who read such a set
    maxima: tuple[float, ...]
    licence: str


@dataclass(frozen=True, kw_only=True)
class ArraySet:
    """An npz file with x_train, y_train, x_test and y_test; features between 0 and ``maximum``."""

    file: str
    maximum: float
    label_names: tuple[str, ...]
    licence: str
    source: str


@dataclass(frozen=True, kw_only=True)
class TableSet:
    """A parquet file. ``numbers`` gives each numeric column the largest magnitude it holds.

    The maxima are those of the published file, which everyone can look up. Columns of text are
    given one 0/1 feature per value, columns with missing values one 0/1 feature that says so.
    """

    file: str
    label: str
    classes: tuple[object, ...]
    numbers: dict[str, float]
    texts: tuple[str, ...] = ()
    label_names: tuple[str, ...] = ("no", "yes")
    licence: str
    source: str


@dataclass(frozen=True, kw_only=True)
class SheetSet:
    """Small square colour pictures, in one of two forms.

    Attributes:
        file: an npz file with x_train, y_train, x_test and y_test; colours first or last.
        labels: or an npz file with y_train and y_test alone, and in its folder
        sheets: a picture for each part, with as many tiles as there are labels, row by row.
        side: pixels of a tile.
        label_names: one per class.
        licence: what the carrier of the data states.
        source: where to get it.
    """

    file: str
    labels: str
    sheets: dict[str, str]
    side: int
    label_names: tuple[str, ...]
    licence: str
    source: str


BUILT_IN = {
    "breast-cancer": BuiltInSet(
        load="load_breast_cancer",
        maxima=(
            *(28.11, 39.28, 188.5, 2501.0, 0.163, 0.345, 0.427, 0.201, 0.304, 0.097),
            *(2.873, 4.885, 21.98, 542.2, 0.031, 0.135, 0.396, 0.053, 0.079, 0.03),
            *(36.04, 49.54, 251.2, 4254.0, 0.223, 1.058, 1.252, 0.291, 0.664, 0.208),
        ),
        licence="CC BY 4.0 (UCI)",
    ),
    "digits": BuiltInSet(load="load_digits", maxima=(16.0,) * 64, licence="CC BY 4.0 (UCI)"),
    "iris": BuiltInSet(load="load_iris", maxima=(7.9, 4.4, 6.9, 2.5), licence="CC BY 4.0 (UCI)"),
    "wine": BuiltInSet(
        load="load_wine",
        maxima=(14.8, 5.8, 3.23, 30.0, 162.0, 3.88, 5.08, 0.66, 3.58, 13.0, 1.71, 4.0, 1680.0),
        licence="CC BY 4.0 (UCI)",
    ),
}

FILES: dict[str, ArraySet | SheetSet | TableSet] = {
    "mnist": ArraySet(
        file="mnist/mnist.npz",
        maximum=255.0,
        label_names=tuple("0123456789"),
        licence="CC BY-SA 3.0, as usually cited",
        source="https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz",
    ),
    "fashion-mnist": ArraySet(
        file="fashion_mnist/fashion_mnist.npz",
        maximum=255.0,
        label_names=(
            *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
            *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
        ),
        licence="MIT",
        source="https://github.com/zalandoresearch/fashion-mnist",
    ),
    "cifar10": SheetSet(
        file="cifar10/cifar10.npz",
        labels="cifar10/labels.npz",
        sheets={"train": "cifar10_train_10000.webp", "test": "cifar10_test_2000.webp"},
        side=32,
        label_names=(
            *("airplane", "automobile", "bird", "cat", "deer"),
            *("dog", "frog", "horse", "ship", "truck"),
        ),
        licence="not stated",
        source="https://www.cs.toronto.edu/~kriz/cifar.html",
    ),
    "a9a": ArraySet(
        file="tabular/a9a.npz",
        maximum=1.0,
        label_names=("<=50K", ">50K"),
        licence="CC BY 4.0 (UCI Adult, which it is made from)",
        source="https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary.html",
    ),
    "adult": TableSet(
        file="tabular/adult_train.parquet",
        label="income-per-year",
        classes=("<=50K", ">50K"),
        label_names=("<=50K", ">50K"),
        numbers={
            "age": 90,
            "fnlwgt": 1484705,
            "education-num": 16,
            "capital-gain": 99999,
            "capital-loss": 4356,
            "hours-per-week": 99,
        },
        texts=(
            *("workclass", "education", "marital-status", "occupation", "relationship"),
            *("race", "sex", "native-country"),
        ),
        licence="CC BY 4.0 (UCI)",
        source=f"{UCI}/2/adult",
    ),
    "bank-marketing": TableSet(
        file="tabular/bank_marketing_additional.parquet",
        label="y",
        classes=("no", "yes"),
        numbers={
            "age": 98,
            "duration": 4918,
            "campaign": 56,
            "pdays": 999,
            "previous": 7,
            "emp.var.rate": 3.4,
            "cons.price.idx": 94.767,
            "cons.conf.idx": 50.8,
            "euribor3m": 5.045,
            "nr.employed": 5228.1,
        },
        texts=(
            *("job", "marital", "education", "default", "housing", "loan", "contact", "month"),
            *("day_of_week", "poutcome"),
        ),
        licence="CC BY 4.0 (UCI)",
        source=f"{UCI}/222/bank+marketing",
    ),
    "breast-cancer-original": TableSet(
        file="tabular/breast_cancer_wisconsin_original.parquet",
        label="cls",
        classes=(2, 4),
        label_names=("benign", "malignant"),
        numbers=dict.fromkeys(
            (
                *("clump", "size_unif", "shape_unif", "adhesion", "epith_size"),
                *("bare_nuclei", "chromatin", "nucleoli", "mitoses"),
            ),
            10,
        ),
        licence="CC BY 4.0 (UCI)",
        source=f"{UCI}/15/breast+cancer+wisconsin+original",
    ),
    "give-me-some-credit": TableSet(
        file="tabular/give_me_some_credit.parquet",
        label="SeriousDlqin2yrs",
        classes=(0, 1),
        numbers={
            "RevolvingUtilizationOfUnsecuredLines": 50708,
            "age": 109,
            "NumberOfTime30-59DaysPastDueNotWorse": 98,
            "DebtRatio": 329664,
            "MonthlyIncome": 3008750,
            "NumberOfOpenCreditLinesAndLoans": 58,
            "NumberOfTimes90DaysLate": 98,
            "NumberRealEstateLoansOrLines": 54,
            "NumberOfTime60-89DaysPastDueNotWorse": 98,
            "NumberOfDependents": 20,
        },
        licence="Kaggle competition rules",
        source="https://www.kaggle.com/c/GiveMeSomeCredit (cs-training.csv)",
    ),
    "pima-diabetes": TableSet(
        file="tabular/pima_diabetes.parquet",
        label="Outcome",
        classes=(0, 1),
        numbers={
            "Pregnancies": 17,
            "Glucose": 199,
            "BloodPressure": 122,
            "SkinThickness": 99,
            "Insulin": 846,
            "BMI": 67.1,
            "DiabetesPedigreeFunction": 2.42,
            "Age": 81,
        },
        licence="not stated",
        source="https://www.kaggle.com/datasets/uciml/pima-indians-diabetes-database",
    ),
}


def search_path(environment_value: str | None, start: Path, cache: Path) -> tuple[Path, ...]:
    """List the folders in which data sets are looked for, in order.

    Args:
        environment_value: what $TACIT_DATA holds: a folder, or several as in $PATH.
        start: where the search for a ``shared/data`` folder begins, going up.
        cache: the user's cache folder, looked at last.
    """
    named = [Path(part) for part in (environment_value or "").split(os.pathsep) if part]
    start = start.resolve()
    shared = (above / "shared" / "data" for above in (start, *start.parents))
    first = next((folder for folder in shared if folder.is_dir()), None)
    return (*named, *([] if first is None else [first]), cache)


def known_names() -> tuple[str, ...]:
    """List the names that `load_dataset` knows."""
    return tuple(sorted({*BUILT_IN, *FILES}))


def load_dataset(name: str, search: Sequence[Path] = ()) -> Rows:
    """Load a data set by name; underscores and hyphens mean the same.

    Args:
        name: one of `known_names()`.
        search: the folders to look in, from `search_path`. Built-in sets need none.

    Raises:
        DataError: no such name, not found in any folder, or not the file that was published.
    """
    key = name.lower().replace("_", "-")
    if key in BUILT_IN:
        return load_built_in(key, BUILT_IN[key])
    entry = FILES.get(key)
    if entry is None:
        close = difflib.get_close_matches(key, known_names(), n=3)
        hint = f"; did you mean {' or '.join(close)}?" if close else "."
        raise DataError(f"no data set {name!r}{hint} Known are: {', '.join(known_names())}")
    path = _find(key, entry, search)
    if isinstance(entry, TableSet):
        return load_table(key, entry, path)
    if isinstance(entry, SheetSet):
        return load_sheets(key, entry, path)
    return load_arrays(key, entry, path)


def _find(key: str, entry: ArraySet | SheetSet | TableSet, search: Sequence[Path]) -> Path:
    base = Path(entry.file).name
    names = [entry.file, base, *([entry.labels] if isinstance(entry, SheetSet) else [])]
    for path in (folder / name for folder in search for name in names):
        if path.is_file():
            return path
    searched = [str(folder) + ("" if folder.is_dir() else " (no such folder)") for folder in search]
    raise DataError(
        f"data set {key!r} not found; searched for {entry.file} or {base} in: "
        f"{', '.join(searched) or 'no folder'}. Get it from {entry.source} (licence: "
        f"{entry.licence}), and put it there as {base}, or name its folder in $TACIT_DATA"
    )


def load_built_in(name: str, entry: BuiltInSet) -> Rows:
    """Load a set that comes with scikit-learn."""
    bunch = getattr(import_module("sklearn.datasets"), entry.load)()
    maxima = np.array([power_of_two_at_least(maximum) for maximum in entry.maxima])
    features, scale = divided(np.asarray(bunch.data, np.float64), maxima)
    return Rows(
        name=name,
        features=features,
        labels=np.asarray(bunch.target, np.int64),
        columns=tuple(str(feature) for feature in bunch.feature_names),
        classes=tuple(str(label) for label in bunch.target_names),
        scale=scale,
        licence=entry.licence,
    )


def load_arrays(name: str, entry: ArraySet, path: Path) -> Rows:
    """Load a set of arrays, the published test set last."""
    arrays = read_npz(path)
    missing = {"x_train", "y_train", "x_test", "y_test"} - arrays.keys()
    if missing:
        raise DataError(f"{path}: no arrays {sorted(missing)}; get the file from {entry.source}")
    if not _is_published(arrays, entry):
        raise DataError(f"{path}: not the published file; get it from {entry.source}")
    pixels = np.concatenate([arrays["x_train"], arrays["x_test"]])
    scale = power_of_two_at_least(entry.maximum)
    labels = np.concatenate([arrays["y_train"], arrays["y_test"]]).astype(np.int64)
    count = pixels.shape[1] if pixels.ndim == 2 else 0  # pictures have no columns
    return Rows(
        name=name,
        features=pixels / scale,
        labels=labels,
        columns=tuple(f"feature {i + 1}" for i in range(count)),
        classes=entry.label_names,
        scale=scale,
        licence=entry.licence,
        published_test_rows=len(arrays["y_test"]),
    )


def load_table(name: str, entry: TableSet, path: Path) -> Rows:
    """Load a table: numbers as they are, texts and missing values as 0/1 features."""
    columns = read_columns(path)
    missing = {entry.label, *entry.numbers, *entry.texts} - columns.keys()
    if missing:
        raise DataError(f"{path}: no columns {sorted(missing)}; get the file from {entry.source}")
    features: dict[str, Floats] = {}
    scale: list[float] = []
    for column, maximum in entry.numbers.items():
        encoded = _encode_numbers(path, column, columns[column], maximum)
        features |= encoded
        scale += [power_of_two_at_least(maximum), 1.0][: len(encoded)]
    for column in entry.texts:
        encoded = _encode_texts(column, columns[column])
        features |= encoded
        scale += [1.0] * len(encoded)
    scaled, divisors = divided(np.stack(list(features.values()), axis=1), np.array(scale))
    return Rows(
        name=name,
        features=scaled,
        labels=_encode_labels(path, entry, columns[entry.label]),
        columns=tuple(features),
        classes=entry.label_names,
        scale=divisors,
        licence=entry.licence,
        note="texts as one 0/1 feature per value; missing numbers as 0 with a 0/1 feature beside",
    )


def _is_published(arrays: dict[str, np.ndarray[Any, Any]], entry: ArraySet) -> bool:
    """Tell whether shapes and values are such as were published; NaN is not."""
    if any(array.dtype.kind not in "biuf" or array.size == 0 for array in arrays.values()):
        return False
    if arrays["x_train"].shape[1:] != arrays["x_test"].shape[1:]:
        return False
    for part in ("train", "test"):
        pixels, labels = arrays[f"x_{part}"], arrays[f"y_{part}"]
        if labels.shape != pixels.shape[:1] or pixels.ndim not in (2, 3):
            return False
        if not np.isin(labels, np.arange(len(entry.label_names))).all():
            return False
        if not (pixels.min() >= 0 and pixels.max() <= entry.maximum):
            return False
    return True


def _encode_numbers(path: Path, name: str, column: Any, maximum: float) -> dict[str, Floats]:
    values = np.asarray(column.to_numpy(), np.float64)
    is_missing = np.isnan(values)
    values = np.where(is_missing, 0.0, values)
    if not np.all(np.abs(values) <= maximum):
        raise DataError(
            f"{path}: column {name!r} holds values beyond {maximum:g}, unlike the published file"
        )
    if not is_missing.any():
        return {name: values}
    return {name: values, f"{name} is missing": is_missing.astype(np.float64)}


def _encode_texts(name: str, column: Any) -> dict[str, Floats]:
    values = np.array([str(value) for value in column.to_pylist()])
    return {
        f"{name} = {value}": (values == value).astype(np.float64) for value in np.unique(values)
    }


def _encode_labels(path: Path, entry: TableSet, column: Any) -> np.ndarray[Any, np.dtype[np.int64]]:
    index = {value: i for i, value in enumerate(entry.classes)}
    try:
        return np.array([index[value] for value in column.to_pylist()], np.int64)
    except KeyError as error:
        raise DataError(
            f"{path}: column {entry.label!r} holds other labels than {entry.classes}"
        ) from error


def power_of_two_at_least(bound: float) -> float:
    """Return the smallest power of two that is not below a positive bound."""
    mantissa, exponent = math.frexp(bound)  # the mantissa lies in [0.5, 1)
    return math.ldexp(1.0, exponent - 1 if mantissa == 0.5 else exponent)


_SCALE = 256.0


def load_sheets(name: str, entry: SheetSet, path: Path) -> Rows:
    """Load pictures as (channels, height, width), the published test rows last.

    Raises:
        DataError: Pillow is missing, or the pictures are not those that belong to the labels.
    """
    arrays = read_npz(path)
    missing = {"y_train", "y_test"} - arrays.keys()
    if missing:
        raise DataError(f"{path}: no arrays {sorted(missing)}; get the file from {entry.source}")
    parts = []
    for part in ("train", "test"):
        count = len(arrays[f"y_{part}"])
        if f"x_{part}" in arrays:
            parts.append(_check_pictures(path, arrays[f"x_{part}"], count, entry.side))
        else:
            parts.append(_cut_tiles(path.parent / entry.sheets[part], count, entry.side))
    labels = np.concatenate([arrays["y_train"], arrays["y_test"]]).astype(np.int64).reshape(-1)
    if not np.isin(labels, np.arange(len(entry.label_names))).all():
        raise DataError(f"{path}: holds other labels than 0 to {len(entry.label_names) - 1}")
    return Rows(
        name=name,
        features=np.concatenate(parts) / _SCALE,
        labels=labels,
        classes=entry.label_names,
        scale=_SCALE,
        licence=entry.licence,
        note=f"{len(parts[0])} pictures to train on and {len(parts[1])} to test on",
        published_test_rows=len(parts[1]),
    )


def _check_pictures(path: Path, pixels: NDArray[Any], count: int, side: int) -> NDArray[np.uint8]:
    if pixels.shape == (count, side, side, 3):
        pixels = pixels.transpose(0, 3, 1, 2)
    if pixels.shape != (count, 3, side, side) or pixels.dtype != np.uint8:
        raise DataError(
            f"{path}: wanted {count} pictures of {side} pixels in 3 colours of one byte, got "
            f"{pixels.shape} of {pixels.dtype}"
        )
    return pixels


def _cut_tiles(path: Path, count: int, side: int) -> NDArray[np.uint8]:
    try:
        image: Any = importlib.import_module("PIL.Image")  # optional, so its types may be missing
    except ModuleNotFoundError:
        raise DataError(
            f"{path} is a sheet of pictures, which needs Pillow: pip install 'tacit-ml[images]'"
        ) from None
    try:
        with image.open(path) as picture:
            sheet = np.asarray(picture.convert("RGB"), np.uint8)
    except OSError as error:
        raise DataError(f"{path} cannot be read as a picture: {error}") from error
    rows, columns = sheet.shape[0] // side, sheet.shape[1] // side
    if sheet.shape[0] % side or sheet.shape[1] % side or rows * columns < count:
        raise DataError(
            f"{path}: wanted {count} tiles of {side} pixels, got a sheet of {sheet.shape[:2]}"
        )
    tiles = sheet.reshape(rows, side, columns, side, 3).transpose(0, 2, 4, 1, 3)
    return np.ascontiguousarray(tiles.reshape(-1, 3, side, side)[:count])
