"""Data as it lies: text, dates, encodings, archives and databases, by a description."""

import gzip
import json
import sqlite3
import sys
import traceback
import zipfile
from contextlib import closing

import pytest

from tacit.data import described, load_file
from tacit.errors import DataError

CSV = "age,ward,admitted,notes,outcome\n61,north,2020-01-01,x,well\n,south,1969-12-31,y,ill\n"
ABOUT = """
file = "rows.csv"
[columns]
ward = ["north", "south", "west"]
admitted = "date"
notes = "skip"
outcome = ["ill", "well"]
[missing]
age = 50
"""
WANTED = [[61, 0, 1, 0, 0, 18262], [50, 1, 0, 1, 0, -1]]


def put(folder, about=ABOUT, **files):
    for name, content in files.items():
        (folder / name.replace("_", ".")).write_bytes(content)
    path = folder / "about.toml"
    path.write_text(about)
    return path


def check(dataset):
    assert dataset.features.tolist() == WANTED
    assert dataset.labels.tolist() == [1, 0]
    assert dataset.classes == ("ill", "well")
    assert dataset.columns == (
        *("age", "age missing", "ward = north", "ward = south", "ward = west", "admitted"),
    )


def test_text_dates_and_missing_numbers_become_features(tmp_path):
    check(load_file(put(tmp_path, rows_csv=CSV.encode()), label="outcome"))


def test_semicolons_and_other_encodings_are_read(tmp_path):
    text = CSV.replace(",", ";").replace("north", "北").replace("south", "南")
    about = ABOUT.replace('"north", "south"', '"北", "南"')
    path = put(tmp_path, 'encoding = "gbk"' + about, rows_csv=text.encode("gbk"))
    assert load_file(path, label="outcome").features.tolist() == WANTED
    with pytest.raises(DataError, match=r"byte \d+ is not utf-8"):
        load_file(put(tmp_path, about), label="outcome")
    with pytest.raises(DataError, match="unknown encoding"):
        load_file(put(tmp_path, 'encoding = "morse"' + about), label="outcome")


def test_packed_tables_are_read(tmp_path):
    packed = put(tmp_path, ABOUT.replace("rows.csv", "rows.csv.gz"))
    (tmp_path / "rows.csv.gz").write_bytes(gzip.compress(CSV.encode()))
    check(load_file(packed, label="outcome"))
    with zipfile.ZipFile(tmp_path / "rows.zip", "w") as archive:
        archive.writestr("inside/rows.csv", CSV)
        archive.writestr("readme.txt", "hello")
    check(load_file(put(tmp_path, ABOUT.replace("rows.csv", "rows.zip")), label="outcome"))
    for name in ("rows.csv.gz", "rows.zip"):
        (tmp_path / name).write_bytes(b"PK\x03\x04 broken")
        with pytest.raises(DataError, match="broken"):
            load_file(put(tmp_path, ABOUT.replace("rows.csv", name)), label="outcome")


@pytest.mark.parametrize("name", ["rows.csv.gz", "rows.zip"])
def test_an_archive_that_unpacks_to_more_than_its_size_lets_expect_is_refused(
    tmp_path, monkeypatch, name
):
    monkeypatch.setattr(described, "_MOST_UNPACKED", 1 << 20)
    rows = b"0" * (2 << 20)
    (tmp_path / "rows.csv.gz").write_bytes(gzip.compress(rows))
    with zipfile.ZipFile(tmp_path / "rows.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("rows.csv", rows)
    about = put(tmp_path, ABOUT.replace("rows.csv", name))
    with pytest.raises(DataError, match="unpacks to more than 1 MB"):
        load_file(about, label="outcome")


def test_dates_can_have_another_form(tmp_path):
    about = 'file = "rows.csv"\n[columns]\nday = { date = "%d.%m.%Y" }\n'
    path = put(tmp_path, about, rows_csv=b"day\n02.01.1970\n")
    assert load_file(path, label=None).features.tolist() == [[1.0]]


def test_a_query_is_asked_of_a_database(tmp_path):
    duckdb = pytest.importorskip("duckdb", reason="pip install 'tacit-ml[sql]'")
    with duckdb.connect(str(tmp_path / "ward.duckdb")) as link:
        link.execute(
            "CREATE TABLE p AS SELECT * FROM (VALUES "
            "(61.0, 'north', DATE '2020-01-01', 'x', 'well'),"
            "(NULL, 'south', DATE '1969-12-31', 'y', 'ill')) t(age, ward, admitted, notes, outcome)"
        )
    about = ABOUT.replace(
        'file = "rows.csv"', 'database = "ward.duckdb"\nquery = "SELECT * FROM p"'
    )
    check(load_file(put(tmp_path, about), label="outcome"))
    with pytest.raises(DataError, match="kind Catalog; `tacit --debug` shows"):
        load_file(put(tmp_path, about.replace("FROM p", "FROM nowhere")), label="outcome")


def sqlite_of(folder, *statements):
    with closing(sqlite3.connect(folder / "ward.db")) as link, link:
        link.execute("CREATE TABLE p (age REAL, ward, admitted, notes, outcome, id INTEGER)")
        rows = [
            (61, "north", "2020-01-01", "x", "well", 110101199003071234),
            (None, "south", "1969-12-31", "y", "ill", 2**60 + 1),
        ]
        link.executemany("INSERT INTO p VALUES (?, ?, ?, ?, ?, ?)", rows)
        for one in statements:
            link.execute(one)


def asked(folder, query):
    text = f'database = "ward.db"\nquery = {json.dumps(query)}\n'
    return put(folder, ABOUT.replace('file = "rows.csv"\n', text))


def test_sqlite_is_asked_without_duckdb_and_ids_stay_exact(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    sqlite_of(tmp_path)
    found = load_file(asked(tmp_path, "SELECT * FROM p"), label="outcome", id="id")
    check(found)
    assert found.ids == ("110101199003071234", str(2**60 + 1))


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("", "wanted one SELECT, found none"),
        ("SELECT 1; SELECT 2", "wanted one SELECT"),
        ("DELETE FROM p", "only reads"),
        ("WITH x AS (SELECT 1) INSERT INTO p (age) SELECT 1", "only reads"),
        ("ATTACH 'other.db' AS other", "only reads"),
        ("VACUUM INTO 'planted.db'", "only reads"),
        ("PRAGMA journal_mode = DELETE", "only reads"),
        ("SELECT * FROM pragma_database_list", "only reads"),
        ("CREATE TEMP TABLE t AS SELECT 1", "only reads"),
        ("SELECT load_extension('evil')", "not authorized|only reads|kind SQLITE_ERROR"),
        ("SELECT age FROM nowhere", "no such table: nowhere"),
        ("SELECT age AS a, id AS a FROM p", "names of their own"),
        ("SELECT json_extract('{}', notes) FROM p", "an error of kind SQLITE_ERROR"),
        ("SELECT CAST(x'ff41' AS TEXT) AS t", "an error of kind"),
    ],
)
def test_a_query_of_sqlite_reads_one_file_and_shows_no_cell(tmp_path, caplog, query, words):
    sqlite_of(tmp_path, "UPDATE p SET notes = 'Alice HIV positive'")
    before = {one.name: one.read_bytes() for one in tmp_path.iterdir()}
    path = asked(tmp_path, query)
    with caplog.at_level("INFO"), pytest.raises(DataError, match=words) as caught:
        load_file(path, label="outcome")
    told = "".join(traceback.format_exception(caught.value))
    assert "Alice" not in told + caplog.text
    after = {one.name: one.read_bytes() for one in tmp_path.iterdir() if one != path}
    assert after == before


def test_what_is_not_read_says_what_to_do(tmp_path):
    about = 'database = "postgresql://user@host/bank"\nquery = "SELECT 1"\n'
    with pytest.raises(DataError, match=r"PostgreSQL.*psql's \\copy"):
        load_file(put(tmp_path, about), label=None)
    for path in (tmp_path / "rows.xlsx", put(tmp_path, 'file = "rows.xlsx"\n', rows_xlsx=b"PK")):
        with pytest.raises(DataError, match="save the sheet as CSV"):
            load_file(path, label=None)


_COPY = "COPY (SELECT 1) TO '{0}/planted.py'"


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("", "wanted one SELECT, found none"),
        ("SELECT 1; SELECT 2", "found SELECT, SELECT"),
        (_COPY, "found COPY"),
        ("ATTACH '{0}/other.duckdb'", "found ATTACH"),
        ("INSTALL httpfs", "found LOAD"),
        ("SET enable_external_access = true", "found SET"),
        ("SELECT * FROM read_text('/etc/passwd')", "in the folder of its description alone"),
        ("SELECT * FROM read_csv('http://localhost/x.csv')", "kind Permission"),
        # A SELECT for DuckDB, and one that writes.
        (f"WITH x AS ({_COPY}) SELECT 1", "kind Binder"),
        (f"(WITH x AS ({_COPY}) SELECT 1)", "kind Binder"),
        (
            "FROM json_execute_serialized_sql(json_serialize_sql("
            f"$$WITH x AS ({_COPY}) SELECT 1$$))",
            "found JSON_EXECUTE_SERIALIZED_SQL",
        ),
    ],
)
def test_a_query_reads_and_does_nothing_else(tmp_path, query, words):
    duckdb = pytest.importorskip("duckdb", reason="pip install 'tacit-ml[sql]'")
    duckdb.connect(str(tmp_path / "ward.duckdb")).close()
    query = query.format(tmp_path)
    for database in ("", 'database = "ward.duckdb"\n'):
        path = put(tmp_path, f"{database}query = {json.dumps(query)}\n")
        before = sorted(one.name for one in tmp_path.iterdir())
        with pytest.raises(DataError, match=words):
            load_file(path, label=None)
        assert sorted(one.name for one in tmp_path.iterdir()) == before
    beside = tmp_path / "beside.csv"
    beside.write_text("age\n61\n")
    path = put(tmp_path, f"query = \"FROM '{beside}'\"\n")
    assert load_file(path, label=None).features.tolist() == [[61.0]]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT name::INT AS name FROM p", "kind Conversion at column 'name'"),
        ("SELECT 1 FROM p WHERE name = 5", "kind Conversion at column 'name'"),
        ("SELECT strptime(name, '%Y') FROM p", "kind InvalidInput"),
        ("SELECT error(name) FROM p", "kind InvalidInput"),
    ],
)
def test_what_a_query_stumbles_over_is_not_shown(tmp_path, caplog, query, words):
    duckdb = pytest.importorskip("duckdb", reason="pip install 'tacit-ml[sql]'")
    with duckdb.connect(str(tmp_path / "ward.duckdb")) as link:
        link.execute("CREATE TABLE p AS SELECT 'Alice HIV positive' AS name")
    path = put(tmp_path, f'database = "ward.duckdb"\nquery = {json.dumps(query)}\n')
    with caplog.at_level("INFO"), pytest.raises(DataError, match=words) as caught:
        load_file(path, label=None)
    told = "".join(traceback.format_exception(caught.value))
    assert "Alice" not in told + caplog.text
    with caplog.at_level("DEBUG"), pytest.raises(DataError):
        load_file(path, label=None)
    assert "Alice" in caplog.text


def test_a_parquet_file_with_text_can_be_described(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="pip install 'tacit-ml[tables]'")
    from pyarrow import parquet

    columns = {"ward": ["south", "north"], "age": [61.5, None]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "rows.parquet")
    about = 'file = "rows.parquet"\n[columns]\nward = ["north", "south"]\n[missing]\nage = 0\n'
    found = load_file(put(tmp_path, about), label=None)
    assert found.features.tolist() == [[0, 1, 61.5, 0], [1, 0, 0, 1]]
    assert found.labels is None


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ('"north", ', "", r"row 1, column 'ward': a value that columns\.ward does not list"),
        ('admitted = "date"', "", "row 1, column 'admitted': wanted a number"),
        ("[missing]\nage = 50", "", "row 2, column 'age': the value is missing"),
        ('"date"', '"day"', r"columns\.admitted: wanted a list"),
        ('"date"', '{ date = "%H" }', "row 1, column 'admitted': wanted a date such as %H"),
        ('outcome = ["ill", "well"]', "", "row 1, column 'outcome'"),
        ("notes", "remarks", "no column 'remarks'"),
        ('["ill", "well"]', '["ill", "ill"]', "different values"),
        ("age = 50", 'age = "old"', r"missing\.age: wanted a number"),
        ("file =", "fiel =", "unknown key 'fiel'"),
        ('file = "rows.csv"', "", "either a file, or a query"),
        ("rows.csv", "other.csv", "cannot read .*other.csv"),
        ("[columns]", "[columns", "not a TOML file"),
    ],
)
def test_what_cannot_be_used_is_refused_without_showing_a_value(tmp_path, old, new, word):
    assert old in ABOUT
    path = put(tmp_path, ABOUT.replace(old, new), rows_csv=CSV.encode())
    with pytest.raises(DataError, match=word) as error:
        load_file(path, label="outcome")
    assert not {"61", "1969", "south"} & set(str(error.value).replace(",", " ").split())


def test_ragged_rows_and_empty_tables_are_refused(tmp_path):
    with pytest.raises(DataError, match="line 3 does not have 5 columns"):
        load_file(put(tmp_path, rows_csv=(CSV[:-10] + "\n").encode()), label="outcome")
    with pytest.raises(DataError, match="at least one row"):
        load_file(put(tmp_path, rows_csv=CSV.partition("\n")[0].encode()), label="outcome")
