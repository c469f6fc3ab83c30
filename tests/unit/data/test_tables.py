import contextlib
import sys

import numpy as np
import pyarrow
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tacit.data import load_csv, load_file, take_rows
from tacit.errors import DataError

finite = st.floats(allow_nan=False, allow_infinity=False)
PRIVATE = "123456789"


def write(folder, text, name="own.csv"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@given(st.lists(st.tuples(finite, finite, st.integers(0, 9)), min_size=1, max_size=20))
def test_a_table_is_read_exactly(tmp_path_factory, rows):
    text = "a,class,b\n" + "".join(f"{a!r},{label},{b!r}\r\n" for a, b, label in rows)
    dataset = load_csv(write(tmp_path_factory.mktemp("csv"), text), label="class")
    assert dataset.features.tolist() == [[a, b] for a, b, _ in rows]
    assert dataset.labels.tolist() == [label for _, _, label in rows]
    assert dataset.columns == ("a", "b")
    assert dataset.scale == 1.0


def test_without_a_label_all_columns_are_features(tmp_path):
    dataset = load_csv(write(tmp_path, "\ufeffa, b\n1,2\n\n"), label=None)
    assert dataset.columns == ("a", "b")
    assert (dataset.labels, dataset.classes) == (None, ())
    assert dataset.name == "own"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a,b\n1,2\n3,nan\n", "line 3, column 'b'"),
        ("a,b\n1,2\n-inf,4\n", "line 3, column 'a'"),
        ("a,b\n1,2\n3,1e999\n", "line 3, column 'b'"),
        ("a,b\n1,2\n3,\n", "line 3, column 'b': wanted a number"),
        (f"a,b\n1,x{PRIVATE}\n", "line 2, column 'b': wanted a number"),
        (f"a,b\n1,{PRIVATE}_0\n", "line 2, column 'b': wanted a number"),
        (f'a,b\n"1\n",{PRIVATE}x\n', "line 3, column 'b'"),
        (f"a,b\n1,2\n{PRIVATE}\n", "line 3 has 1 columns, wanted 2"),
        (f"a,b\n1,2\n{PRIVATE},4,5\n", "line 3 has 3 columns, wanted 2"),
        (f"a,b\n1,2\n\n{PRIVATE},4\n", "line 3 is blank"),
        ("", "empty"),
        ("a,b\n", "at least one row"),
        ("a,a\n1,2\n", "names of their own"),
        ("a,\n1,2\n", "names of their own"),
        ('a,b\n"1,2', "comma-separated"),
        (b"a,b\n\xff,2\n", "UTF-8"),
    ],
)
def test_what_is_wrong_is_refused_with_its_place_and_without_its_value(tmp_path, text, place):
    with pytest.raises(DataError, match=place) as caught:
        load_csv(write(tmp_path, text), label=None)
    assert "own.csv" in str(caught.value)
    assert PRIVATE not in str(caught.value)


@given(st.binary(max_size=200))
def test_garbage_is_read_or_refused_and_never_a_crash(tmp_path_factory, garbage):
    folder = tmp_path_factory.mktemp("garbage")
    for name in ("own.csv", "own.npz", "own.parquet"):
        with contextlib.suppress(DataError):
            dataset = load_file(write(folder, garbage, name), label=None)
            assert np.isfinite(dataset.features).all()


@pytest.mark.parametrize("label", ["-1", "0.5", "65536"])
def test_labels_that_are_no_classes_are_refused(tmp_path, label):
    path = write(tmp_path, f"a,y\n1,0\n1,{label}\n")
    with pytest.raises(DataError, match="line 3, column 'y': wanted a label"):
        load_csv(path, label="y")


def test_a_label_column_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(DataError, match="no column 'z' for the labels; found a, y"):
        load_csv(write(tmp_path, "a,y\n1,0\n"), label="z")


def test_labels_alone_are_refused(tmp_path):
    with pytest.raises(DataError, match="beside the labels"):
        load_csv(write(tmp_path, "y\n1\n"), label="y")


def test_a_class_that_does_not_occur_keeps_its_number(tmp_path):
    dataset = load_csv(write(tmp_path, "a,y\n1,2\n1,2\n"), label="y")
    assert (dataset.labels.tolist(), dataset.classes) == ([2, 2], ("0", "1", "2"))


@pytest.mark.parametrize("ending", ["csv", "npz", "parquet", "feather", "arrow"])
def test_a_file_that_is_not_there_is_refused(tmp_path, ending):
    with pytest.raises(DataError, match=f"cannot read .*nothing.{ending}: .*[Nn]o such file"):
        load_file(tmp_path / f"nothing.{ending}", label=None)


def test_another_ending_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"\.csv, \.npz, \.parquet, \.feather, \.arrow, \.toml"):
        load_file(tmp_path / "own.sav", label=None)


def save(folder, **arrays):
    path = folder / "own.npz"
    np.savez(path, **arrays)
    return path


@pytest.mark.parametrize("shape", [(3, 2), (3, 4, 5)])
def test_arrays_are_read_with_their_shape(tmp_path, shape):
    features = np.arange(np.prod(shape), dtype=np.int16).reshape(shape)
    dataset = load_file(save(tmp_path, features=features, y=np.array([0, 1, 1])), label="y")
    assert np.array_equal(dataset.features, features)
    assert dataset.labels.tolist() == [0, 1, 1]
    assert len(dataset.columns) == (2 if len(shape) == 2 else 0)


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        ({"x": np.ones((2, 2))}, r"wanted arrays named 'features' and 'y', found \['x'\]"),
        ({"features": np.ones((2, 2))}, "'features' and 'y'"),
        ({"features": np.ones(2), "y": np.zeros(2)}, r"shape \(2,\)"),
        ({"features": np.ones((0, 2)), "y": np.zeros(0)}, "not empty"),
        ({"features": np.array([["a"]]), "y": np.zeros(1)}, "numbers"),
        ({"features": np.array([[1, None]]), "y": np.zeros(1)}, "plain arrays"),
        ({"features": np.array([[1, 2], [3, np.nan]]), "y": np.zeros(2)}, "row 2, column 1"),
        ({"features": np.ones((2, 2)), "y": np.zeros(3)}, "one label per row"),
        ({"features": np.ones((2, 2)), "y": np.array([0, 1.5])}, "row 2, column 'y'"),
        ({"features": np.ones((2, 2)), "y": np.zeros((2, 1))}, "list of whole numbers"),
    ],
)
def test_arrays_that_are_no_data_set_are_refused(tmp_path, arrays, reason):
    with pytest.raises(DataError, match=reason):
        load_file(save(tmp_path, **arrays), label="y")


def test_a_single_array_is_refused(tmp_path):
    with (tmp_path / "own.npz").open("wb") as stream:
        np.save(stream, np.ones((2, 2)))
    with pytest.raises(DataError, match="not an npz file"):
        load_file(tmp_path / "own.npz", label=None)


def write_parquet(folder, **columns):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = folder / "own.parquet"
    parquet.write_table(pyarrow.table(columns), path)
    return path


def test_parquet_tables_are_read_like_csv(tmp_path):
    path = write_parquet(tmp_path, a=[1, 2], b=[True, False], c=[0.5, 1.5], y=[1, 0])
    dataset = load_file(path, label="y")
    assert dataset.features.tolist() == [[1.0, 1.0, 0.5], [2.0, 0.0, 1.5]]
    assert dataset.labels.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"a": [1, None]}, "row 2, column 'a': wanted a finite number"),
        ({"a": [1.0, float("inf")]}, "row 2, column 'a'"),
        ({"a": [PRIVATE, "x"]}, "column 'a': wanted numbers"),
    ],
)
def test_parquet_values_that_are_no_numbers_are_refused(tmp_path, columns, reason):
    with pytest.raises(DataError, match=reason) as caught:
        load_file(write_parquet(tmp_path, **columns), label=None)
    assert PRIVATE not in str(caught.value)


def test_missing_features_become_nan_for_a_reader_who_allows_them(tmp_path):
    wanted = [[1.0, np.nan], [np.nan, 4.0]]
    (tmp_path / "own.csv").write_text("a,b,y\n1, ,0\nnan,4,1\n")
    np.savez(tmp_path / "own.npz", features=np.array(wanted), y=np.array([0, 1]))
    write_parquet(tmp_path, a=[1, None], b=[None, 4.0], y=[0, 1])
    for path in sorted(tmp_path.iterdir()):
        dataset = load_file(path, label="y", allows_missing=True)
        assert np.array_equal(dataset.features, wanted, equal_nan=True)
        with pytest.raises(DataError, match="wanted a"):
            load_file(path, label="y")


def test_without_pyarrow_the_message_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DataError, match=r"pip install 'tacit-ml\[tables\]'"):
        load_file(tmp_path / "own.parquet", label=None)


class Frame:
    """A data frame, as far as it counts here."""

    columns = ("id", "age", "sick")

    def to_numpy(self):
        return np.array([[7, 40, 1], [9, 50, 0]])


@pytest.mark.parametrize(
    "x",
    [
        np.array([[1.0, 2.0], [3.0, 4.0]], np.float32),
        torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True),
        [[1, 2], [3, 4]],
        {"feature 0": [1, 3], "feature 1": [2, 4]},
    ],
)
def test_rows_in_memory_are_taken_in_every_form(x):
    found = take_rows(x, [1, 0])
    assert found.features.tolist() == [[1, 2], [3, 4]]
    assert found.labels.tolist() == [1, 0]
    assert found.columns == ("feature 0", "feature 1")


def test_a_data_frame_keeps_its_names_and_gives_the_column_of_classes():
    found = take_rows(Frame(), label="sick")
    assert found.columns == ("id", "age")
    assert found.features.tolist() == [[7, 40], [9, 50]]
    assert found.labels.tolist() == [1, 0]


def test_columns_of_several_kinds_and_of_arrow_are_read_with_their_names():
    class Mixed(Frame):
        def to_numpy(self):
            return super().to_numpy().astype(object)

    arrow = pyarrow.table({"id": [7, 9], "age": [40.0, 50.0], "sick": [True, False]})
    for rows in (Mixed(), arrow):
        found = take_rows(rows, label="sick")
        assert found.columns == ("id", "age")
        assert found.features.tolist() == [[7, 40], [9, 50]]
        assert found.labels.tolist() == [1, 0]
    with pytest.raises(DataError, match="rows in memory: wanted rows of numbers, got a str"):
        take_rows(np.array([[1, "a"]], dtype=object))


def test_classes_alone_are_rows_without_columns():
    found = take_rows(None, np.array([0, 2, 1]))
    assert found.features.shape == (3, 0)
    assert found.labels.tolist() == [0, 2, 1]


@pytest.mark.parametrize(
    ("x", "y", "wrong"),
    [
        ([1, 2], None, "2 dimensions or more"),
        ([["a"]], None, "rows of numbers"),
        ([[float(PRIVATE)], [np.inf]], None, "row 2, column 0"),
        ([[1], [2]], [0, 0.5], "row 2, column 'y': wanted a label"),
        ([[1], [2]], [0], "one label per row"),
    ],
)
def test_rows_in_memory_are_refused_like_those_of_a_file(x, y, wrong):
    with pytest.raises(DataError, match=wrong) as caught:
        take_rows(x, y)
    assert PRIVATE not in str(caught.value)
