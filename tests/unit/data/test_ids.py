"""Ids that rows are matched by: what is one id, what is not, and the same out of every format."""

from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from uuid import UUID

import numpy as np
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import feather, ipc, parquet

from tacit.data import Given, Source, load_dataset, load_file, take_rows
from tacit.data.ids import take_ids, write_ids
from tacit.errors import DataError

LONG = "110101199003071234"  # as of an identity card: 18 digits
ROWS = {"person": ["C17", LONG, " ü–9 "], "age": [40.0, 51.0, 33.0], "sick": [0, 1, 1]}


def ids(*cells):
    return write_ids("rows", {"id": cells})


@pytest.mark.parametrize(
    "alike",
    [
        ("C17", " C17\t", "Ｃ１７", np.str_("C17")),
        (
            "17",
            17,
            17.0,
            "17.0",
            "17.000",
            Decimal("17.00"),
            np.int32(17),
            np.float32(17),
            "１７",
            "1.70e+01",
        ),
        (LONG, int(LONG), Decimal(LONG), np.int64(int(LONG)), f"\u3000{LONG}"),
        ("u\u0308", "ü"),
        ("2020-02-01", date(2020, 2, 1), datetime(2020, 2, 1)),
        ("00000000-0000-0000-0000-00000000002a", UUID(int=42)),
    ],
)
def test_one_id_is_one_however_it_is_kept(alike):
    assert set(ids(*alike)) == {ids(alike[0])[0]}


def test_all_else_is_another_id():
    others = ["C17", "c17", "C 17", "C-17", "C017", "17", "017", "-17", "0x11", "1E17", LONG]
    others += [str(int(LONG) + 1), str(2**53), str(2**53 + 1), str(2**70), str(2**70 + 1), "1.2.3"]
    assert len(set(ids(*others))) == len(others)


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("", "row 2, column 'id': wanted an id, the cell is empty"),
        (" \u3000", "the cell is empty"),
        (None, "the cell is empty"),
        (float("nan"), "the cell is empty"),
        (1.5, "fraction"),
        ("1234.5", "fraction"),
        (2.0**53, "lost digits; keep ids of 16 digits and more as text"),
        (f"{2**53}.0", "lost digits"),
        ("1.10101E+17", "lost digits"),
        (float("inf"), "lost digits"),
        ("9" * 5000 + ".0", "lost digits"),
        pytest.param(10**5000, "lost digits", id="huge"),
        (True, "got bool"),
        (b"C17", "got bytes"),
        ("\ud800", "text in Unicode"),
    ],
)
def test_what_is_no_id_is_refused_by_its_place_and_not_shown(cell, words):
    with pytest.raises(DataError, match=words) as refused:
        ids("C1", cell)
    shown = str(cell) if isinstance(cell, str | float) and str(cell).strip() else "C17"
    assert shown not in str(refused.value)


PARTS = st.text(alphabet="a1|\\ 0.", min_size=1).filter(lambda one: len(ids("x")) and one.strip())


@given(st.tuples(PARTS, PARTS), st.tuples(PARTS, PARTS))
def test_ids_of_several_columns_are_alike_only_if_all_parts_are(one, other):
    try:
        first, second = write_ids(
            "rows", {"bank": (one[0], other[0]), "number": (one[1], other[1])}
        )
        parts = [write_ids("rows", {"": (one[at], other[at])}) for at in (0, 1)]
    except DataError:
        return  # a number with a fraction
    assert (first == second) == all(a == b for a, b in parts)


def files_of(tmp_path, columns):
    """Write the same rows in every format; returns what is loaded of them."""
    heads = ",".join(columns)
    lines = [",".join(map(str, row)) for row in zip(*columns.values(), strict=True)]
    (tmp_path / "rows.csv").write_text("\n".join([heads, *lines]) + "\n", encoding="utf-8")
    (tmp_path / "rows.toml").write_text('file = "rows.csv"\nencoding = "utf-8"\n')
    parquet.write_table(pyarrow.table(columns), tmp_path / "rows.parquet")
    feather.write_feather(pyarrow.table(columns), tmp_path / "rows.feather", compression="lz4")
    with ipc.new_stream(tmp_path / "rows.arrow", pyarrow.table(columns).schema) as stream:
        stream.write_table(pyarrow.table(columns))
    numbers = {name: one for name, one in columns.items() if name not in ("person", "bank")}
    features = np.stack([np.array(one) for name, one in numbers.items() if name != "sick"], 1)
    texts = {name: np.array(columns[name]) for name in ("person", "bank") if name in columns}
    np.savez(tmp_path / "rows.npz", features=features, sick=columns["sick"], **texts)
    return [
        tmp_path / f"rows.{ending}"
        for ending in ("csv", "toml", "parquet", "feather", "arrow", "npz")
    ]


def test_every_format_gives_the_same_ids_which_are_no_features(tmp_path):
    for file in files_of(tmp_path, ROWS):
        found = load_file(file, label="sick", id="person")
        assert found.ids == ("C17", LONG, "ü–9")
        assert found.features.tolist() == [[40.0], [51.0], [33.0]]
        assert found.labels.tolist() == [0, 1, 1]
        both = (
            load_file(file, label="sick", id=["person", "age"]) if file.suffix != ".npz" else None
        )
        assert both is None or both.ids[:2] == ("C17|40", f"{LONG}|51")
        with pytest.raises(DataError, match=r"no column 'nobody' to match rows by; it has .*age|f"):
            load_file(file, label="sick", id="nobody")


@pytest.mark.parametrize("kind", ["columns", "arrow", "rows"])
def test_what_a_program_hands_in_gives_the_same_ids(kind, tmp_path):
    table = {"columns": ROWS, "arrow": pyarrow.table(ROWS)}.get(kind)
    if kind == "rows":
        table = load_file(files_of(tmp_path, ROWS)[0], label="sick", id="person")
    source = Source(file=tmp_path / "none", label="sick", id=("person",))
    found = source.load(given=Given(x=table))
    assert found.ids == ("C17", LONG, "ü–9")
    assert found.features.tolist() == [[40.0], [51.0], [33.0]]
    assert found.labels.tolist() == [0, 1, 1]
    alone = {name: ROWS[name] for name in ("person", "sick")}
    if kind == "columns":  # of labels alone
        assert take_rows(alone, label="sick", id=["person"]).features.shape == (3, 0)
        apart = take_rows({"person": ROWS["person"]}, ROWS["sick"], id=["person"])
        assert (apart.labels.tolist(), len(apart.ids)) == ([0, 1, 1], 3)


def test_numbers_of_rows_in_memory_are_ids_as_far_as_they_are_exact():
    rows = take_rows({"id": [7, 2**53 - 1], "a": [1.0, 2.0]})
    assert take_ids(rows, ["id"]).ids == ("7", str(2**53 - 1))
    with pytest.raises(DataError, match="lost digits"):
        take_ids(take_rows({"id": [7, 2**53 + 1], "a": [1.0, 2.0]}), ["id"])
    divided = replace(rows, features=rows.features / 4, scale=4.0)
    assert take_ids(divided, ["id"]).ids[0] == "7"


def test_rows_of_a_known_set_are_their_places_and_stay_those_of_a_stretch():
    found = Source(set="iris", rows=(3, 5)).load()
    assert found.ids == ("3", "4")
    assert len(load_dataset("iris").ids) == 0
