"""Colour pictures: whole arrays, or tiles of lossless sheets with the labels beside them."""

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.data.rows import Rows
from tacit.data.tables import read_npz
from tacit.errors import DataError

_SCALE = 256.0


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
