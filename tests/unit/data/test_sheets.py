"""Colour pictures: both forms give the same rows, and what does not fit is refused."""

import sys

import numpy as np
import pytest

from tacit.data import load_dataset as load
from tacit.errors import DataError

LABELS = {"y_train": np.array([3, 1], np.uint8), "y_test": np.array([9], np.uint8)}


def pictures(count, seed):
    drawn = np.random.default_rng(seed).integers(0, 256, (count, 32, 32, 3))
    return drawn.astype(np.uint8)


def test_arrays_with_colours_first_or_last_are_the_same_rows(tmp_path):
    train, test = pictures(2, 0), pictures(1, 1)
    found = []
    for name, axes in (("last", (0, 1, 2, 3)), ("first", (0, 3, 1, 2))):
        (tmp_path / name).mkdir()
        np.savez(
            tmp_path / name / "cifar10.npz",
            x_train=train.transpose(axes),
            x_test=test.transpose(axes),
            **LABELS,
        )
        found.append(load("cifar10", [tmp_path / name]))
    assert np.array_equal(found[0].features, found[1].features)
    assert found[0].features.shape == (3, 3, 32, 32)
    assert found[0].unscaled()[0, 2, 5, 7] == train[0, 5, 7, 2]
    assert found[0].labels.tolist() == [3, 1, 9]
    assert found[0].published_test_rows == 1
    assert found[0].features.max() <= 1


def test_tiles_of_a_sheet_are_cut_row_by_row(tmp_path):
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    folder = tmp_path / "cifar10"
    folder.mkdir()
    np.savez(folder / "labels.npz", **LABELS)
    train, test = pictures(2, 0), pictures(1, 1)
    image.fromarray(np.concatenate(list(train), axis=1)).save(
        folder / "cifar10_train_10000.webp", lossless=True, exact=True
    )
    image.fromarray(test[0]).save(folder / "cifar10_test_2000.webp", lossless=True, exact=True)
    found = load("cifar10", [tmp_path])
    assert np.array_equal(found.unscaled()[:2], train.transpose(0, 3, 1, 2))
    assert np.array_equal(found.unscaled()[2], test[0].transpose(2, 0, 1))


def test_sheets_without_pillow_say_what_to_install(tmp_path, monkeypatch):
    folder = tmp_path / "cifar10"
    folder.mkdir()
    np.savez(folder / "labels.npz", **LABELS)
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.delitem(sys.modules, "PIL.Image", raising=False)
    with pytest.raises(DataError, match=r"pip install 'tacit-ml\[images\]'"):
        load("cifar10", [tmp_path])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"x_test": pictures(2, 1)}, "wanted 1 pictures"),
        ({"x_test": pictures(1, 1).astype(float)}, "of one byte, got"),
        ({"y_test": np.array([10])}, "other labels than 0 to 9"),
        ({"y_test": None}, r"no arrays \['y_test'\]"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(tmp_path, changes, reason):
    arrays = {"x_train": pictures(2, 0), "x_test": pictures(1, 1), **LABELS, **changes}
    kept = {name: array for name, array in arrays.items() if array is not None}
    np.savez(tmp_path / "cifar10.npz", **kept)
    with pytest.raises(DataError, match=reason):
        load("cifar10", [tmp_path])
