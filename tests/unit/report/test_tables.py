import csv
import io
import re
import shutil
from dataclasses import replace

import pytest

from tacit.errors import InputError
from tacit.report import pdf, write_csv, write_pdf
from tacit.report.tables import Table, list_tables, to_csv
from tacit.result import Sheet

HOSTILE = '=HYPERLINK("x"),\r\n"a";\u202e../../etc'
SHEET = Sheet(title="../Größe: a/b", heads=("row", "#value"), rows=(("a", "-0.5"), ("b", "+12%")))


def _read(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file, strict=True))


def test_every_table_and_curve_comes_back_as_it_was(example, tmp_path):
    result = replace(example, sheets=(SHEET, SHEET))
    written = write_csv(result, tmp_path / "a" / "b")
    assert {path.stem for path in written} == {
        "metrics", "claims", "learned", "traffic", "cost", "networks", "parties", "stages",
        "table-gr-sse-a-b", "table-gr-sse-a-b-2", "curve-training-of-the-model", "curve-roc",
    }  # fmt: skip
    read = {path.stem: _read(path) for path in written}
    heads, *rows = read["metrics"]
    back = [dict(zip(heads, row, strict=True)) for row in rows]
    assert [float(row["value"]) for row in back] == [one.value for one in result.utility]
    assert [row["reference"] for row in back] == ["0.9766", "0.9958", ""]
    points = [(float(x), float(y)) for _, x, y in read["curve-roc"][1:]]
    assert tuple(points) == result.curves[-1].points
    assert read["table-gr-sse-a-b"] == [["row", "value"], ["a", "-0.5"], ["b", "+12%"]]
    assert read["traffic"][1] == ["dealer", "hospital", "offline", "6", "32", "6", "32"]
    assert read["stages"][1] == ["hospital", "connect", "0.0", "0.31"]


def test_lines_end_as_the_standard_says_and_text_is_utf_8(example, tmp_path):
    write_csv(example, tmp_path)
    text = (tmp_path / "claims.csv").read_bytes()
    assert text.count(b"\r\n") == 1 + len(example.claims) == text.count(b"\n")
    assert b"privacy loss distribution" in text


def test_a_hostile_name_is_neither_a_formula_nor_a_path_nor_a_new_row(example, tmp_path):
    party = replace(example.parties[0], name=HOSTILE, host="@SUM(A1)", role=" +cmd|x")
    result = replace(
        example,
        parties=(party,),
        sheets=(Sheet(title=HOSTILE, heads=(HOSTILE,), rows=(("-1+1",),)),),
    )
    written = write_csv(result, tmp_path)
    assert all(path.parent == tmp_path for path in written)
    rows = _read(tmp_path / "parties.csv")
    assert [len(row) for row in rows] == [len(rows[0])] * 2
    assert rows[1][:3] == [
        "'=HYPERLINK(\"x\"),\ufffd\ufffd\"a\";\ufffd../../etc", "' +cmd|x", "'@SUM(A1)"
    ]  # fmt: skip
    (table,) = (table for table in list_tables(result) if table.name.startswith("table"))
    assert to_csv(table).endswith("\r\n'-1+1\r\n")


FORMULAS = ("x;=1+1", 'x; "=1+1"', "＝1+1", "=1", ";;@SUM(A1)", "x;-1+1")


@pytest.mark.parametrize("reader", [",", ";", "\t"])
def test_no_cell_is_a_formula_for_a_reader_of_commas_or_of_semicolons(reader):
    rows = tuple(("a", text, ("", text)) for text in FORMULAS)
    text = to_csv(Table("t", ("a", "b", "c"), (*rows, ("a", "+12%", ("-1e-5", "-2")))))
    cells = [cell for row in csv.reader(io.StringIO(text), delimiter=reader) for cell in row]
    assert not [one for one in cells if re.match(r'[\s"]*([=@＝＋－＠]|[+-].*[A-Z+])', one)]
    if reader == ",":
        assert cells[-3:] == ["a", "+12%", "-1e-5; -2"]


def test_a_folder_that_cannot_be_made_is_named(example, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write into"):
        write_csv(example, tmp_path / "file")


def test_without_a_browser_the_message_says_what_is_missing(example, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="Chromium or Chrome"):
        write_pdf(example, tmp_path / "a.pdf")
    assert list(tmp_path.iterdir()) == []


def _browser(folder, script):
    path = folder / pdf.BROWSERS[0]
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_the_browser_prints_the_page_and_nothing_else_is_left(example, tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin:/usr/bin")
    copy = """for word; do case $word in
        --print-to-pdf=*) to=${word#*=};;
        file://*) from=${word#file://};;
    esac; done; cp "$from" "$to"
    """
    _browser(tmp_path / "bin", copy)
    write_pdf(example, tmp_path / "a.pdf")
    assert "What each party learned" in (tmp_path / "a.pdf").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.pdf", "bin"]


def test_a_browser_that_fails_is_quoted_and_the_old_file_stays(example, tmp_path, monkeypatch):
    (tmp_path / "a.pdf").write_text("old")
    monkeypatch.setenv("PATH", str(tmp_path))
    _browser(tmp_path, "echo no display >&2; exit 3")
    with pytest.raises(InputError, match=r"exit code 3\): no display"):
        write_pdf(example, tmp_path / "a.pdf")
    assert (tmp_path / "a.pdf").read_text() == "old"


@pytest.mark.slow
@pytest.mark.skipif(not any(map(shutil.which, pdf.BROWSERS)), reason="no Chromium, no Chrome")
def test_a_real_browser_makes_a_real_pdf(example, tmp_path):
    write_pdf(example, tmp_path / "a.pdf")
    assert (tmp_path / "a.pdf").read_bytes().startswith(b"%PDF-")
    with pytest.raises(InputError, match="cannot write"):
        write_pdf(example, tmp_path / "missing" / "a.pdf")
