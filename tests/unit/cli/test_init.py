"""``tacit init`` and the fields that it shares with the page."""

import io
import tomllib
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from support.jobs import tacit_says
from tacit.cli.commands.examples import first_tables
from tacit.cli.commands.init import interview
from tacit.cli.commands.own import round_up
from tacit.errors import InputError
from tacit.jobs.fields import gather, list_settings, parse_text, show_value, walk
from tacit.jobs.kinds import KINDS, load_job, read_job
from tacit.jobs.toml import write_toml

EXAMPLES = sorted((Path(__file__).parents[3] / "examples" / "jobs").glob("*.toml"))


def answered(tmp_path, kind, answers):
    """Hold a dialogue in which every question has an answer, its default if none is given."""
    asked = []

    def ask(question, default):
        asked.append(question)
        given = answers.get(question, default)
        return given.pop(0) if isinstance(given, list) else given

    screen = io.StringIO()
    path = interview(kind, tmp_path / "job.toml", Console(file=screen, width=200), ask)
    return load_job(path), asked, screen.getvalue()


@pytest.mark.parametrize("kind", ["infer", "train", "fit", "federated", "split", "audit", "serve"])
def test_enter_throughout_writes_a_job_that_can_be_read(tmp_path, kind):
    job, asked, _ = answered(tmp_path, kind, {})
    assert job.job.kind == kind
    # What a form of the page would send, too: see test_studio.py.
    made = tomllib.loads((tmp_path / "job.toml").read_text())
    assert made == first_tables(kind, "", Path("out"))
    assert asked[-1].endswith("(Enter: none)")


def test_new_names_take_the_places_of_the_old_and_settings_are_changed(tmp_path):
    who = "Who takes part? (names, divided by commas)"
    more = "Which setting to change, as table.key (Enter: none)"
    answers = {who: "ward, clinic, helper", more: ["network.connect_s", "nothing.here", ""]}
    answers["network.connect_s"] = "7"
    job, _, said = answered(tmp_path, "infer", answers)
    assert (job.data.owner, job.model.owner, job.protocol.dealer) == ("ward", "clinic", "helper")
    assert job.protocol.compute == ("ward", "clinic")
    assert job.network.connect_s == 7
    assert "no setting 'nothing.here'" in said


def write_files(folder):
    """Write 60 people as two owners have them: columns of a bank and an insurer, or rows."""
    people = range(60)
    money = [1200.5 * i for i in people]
    bank = [(1000 + i, money[i], "" if i == 3 else i % 7) for i in people]
    insurer = [(1000 + i, i % 3 - 40, int(i % 5 > 2)) for i in people[6:]]
    write_csv(folder / "bank.csv", "customer,income,children", bank)
    write_csv(folder / "insurer.csv", "key,claims.open,flag", insurer)
    rows = [(money[i], i % 7, i % 3) for i in people]
    write_csv(folder / "north.csv", "income,children,outcome", rows[:30])
    write_csv(folder / "south.csv", "income,children,outcome", rows[30:])
    write_csv(folder / "words.csv", "ward,outcome", [("east", 1)])


def write_csv(path, head, rows):
    path.write_text("\n".join([head, *(",".join(map(str, row)) for row in rows)]) + "\n")


BEGIN = "Begin with an example, or with your own file? (example, own)"
SPLIT = "Do they have other rows, or other columns of the same people? (rows, columns)"
WHO = "Who takes part? (names, divided by commas)"
TYPES = "(.csv, .parquet, .npz, or a description .toml)"
PLANNED = [
    ("fit", {"bank": "bank.csv", "insurer": "insurer.csv"}, {}),
    ("fit", {"north": "north.csv", "south": "south.csv"}, {SPLIT: "rows"}),
    ("train", {"bank": "bank.csv", "insurer": "insurer.csv"}, {}),
    ("train", {"north": "north.csv", "south": "south.csv"}, {SPLIT: "rows"}),
    ("infer", {}, {f"data.file {TYPES}": "north.csv"}),
    ("federated", {}, {"data.files, one per client (divided by commas)": "north.csv, south.csv"}),
]


@pytest.mark.parametrize(("kind", "files", "more"), PLANNED)
def test_own_files_and_enter_throughout_make_a_job_that_can_be_planned(
    tmp_path, monkeypatch, kind, files, more
):
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    answers = {BEGIN: "own", **more}
    if files:
        answers[WHO] = ", ".join([*files, "helper"])
        answers |= {f"data.owners.{name}.file {TYPES}": file for name, file in files.items()}
    job, asked, said = answered(tmp_path, kind, answers)
    assert asked[0] == BEGIN
    assert "not to be planned yet" not in said, said
    assert job.job.name == "job"
    code, _, err = tacit_says("plan", "job.toml")
    assert code == 0, err
    assert "breast-cancer" not in (tmp_path / "job.toml").read_text()
    raw = tomllib.loads((tmp_path / "job.toml").read_text())["data"]
    if "bank" in files:
        assert (raw["owners"]["bank"]["id"], raw["owners"]["insurer"]["id"]) == (
            ["customer"],
            ["key"],
        )
        assert (raw["labels"], raw["owners"]["insurer"]["label"]) == ("insurer", "flag")
        assert raw["owners"]["bank"]["prepare"] == {
            "income": {"clip": [0.0, 100_000.0], "scale": [0.0, 100_000.0]},
            "children": {"impute": 0.0, "clip": [0.0, 10.0], "scale": [0.0, 10.0]},
        }
        assert raw["owners"]["insurer"]["prepare"]["claims.open"]["clip"] == [-50.0, 0.0]
    else:
        assert set(raw["prepare"]) == {"income", "children"}
    if kind == "train" and "north" in files:
        assert job.model.layers == ("dense 3",)


def test_what_is_wrong_with_a_file_or_an_answer_is_said_and_asked_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    key = "data.owners.bank.prepare.income, from and to"
    answers = {BEGIN: ["mine", "own"], f"data.owners.bank.file {TYPES}": ["words.csv", "bank.csv"]}
    answers |= {f"data.owners.insurer.file {TYPES}": "elsewhere.csv", key: ["7, 5", "0, 3e5"]}
    answers["data.owners.bank.id, the column that rows are matched by"] = ["name", "customer"]
    job, _, said = answered(tmp_path, "fit", answers)
    for words in (
        "wanted example or own, got 'mine'",
        "column 'ward'",
        "docs/howto/data.md",
        "wanted one of customer, income, children, got 'name'",
        "wanted two numbers, the smaller one first, got '7, 5'",
        "elsewhere.csv is not here",
        "not to be planned yet: cannot read elsewhere.csv",
    ):
        assert words in said, words
    assert job.data.owners["bank"].prepare["income"].scale == (0.0, 3e5)
    assert job.data.owners["insurer"].label == "label"
    assert "east" not in said


def test_ids_that_are_text_are_named_when_the_file_was_seen(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    lines = (tmp_path / "bank.csv").read_text().splitlines()
    (tmp_path / "bank.csv").write_text("\n".join([lines[0], *(f"C{one}" for one in lines[1:])]))
    answers = {BEGIN: "own", f"data.owners.bank.file {TYPES}": "bank.csv"}
    answers["data.owners.bank.id, if the ids are what is text (Enter: another file)"] = "customer"
    answers[f"data.owners.insurer.file {TYPES}"] = "insurer.csv"
    job, _, said = answered(tmp_path, "fit", answers)
    assert "not to be planned yet: bank, insurer have no id in common" in said  # C1000 is not 1000
    assert set(job.data.owners["bank"].prepare) == {"income", "children"}


@given(st.floats(1e-12, 1e12))
def test_a_proposed_bound_lies_beyond_the_value_and_says_little_of_it(value):
    found = round_up(value)
    assert value <= found <= 2.5001 * value or found / value <= 10
    assert f"{found:e}".rstrip("0123456789").startswith(("1.", "2.", "5."))


def test_what_the_reader_refuses_is_said_and_asked_again(tmp_path):
    answers = {"data.bound": ["minus one", "2.5"], "protocol.kind": ["seald", "sealed"]}
    job, asked, said = answered(tmp_path, "infer", answers)
    assert job.data.bound == 2.5
    assert "data.bound: wanted a number greater than 0, got 'minus one'" in said
    assert "did you mean 'sealed'?" in said
    assert asked.count("data.bound") == 2


def test_nothing_is_written_over_and_leaving_writes_nothing(tmp_path):
    (tmp_path / "job.toml").write_text("mine")
    with pytest.raises(InputError, match="not written over"):
        answered(tmp_path, "infer", {})
    assert (tmp_path / "job.toml").read_text() == "mine"

    def leave(question, default):
        raise click.Abort

    with pytest.raises(click.Abort):
        interview("infer", tmp_path / "other.toml", Console(file=io.StringIO()), leave)
    assert not (tmp_path / "other.toml").exists()


@pytest.mark.parametrize(("kind", "bits"), [("fit", "20"), ("train", "16")])
def test_a_usual_value_is_that_of_the_table_that_is_left_out(kind, bits):
    assert dict(walk(KINDS[kind]().record))["ring.frac_bits"].default == bits


def test_odd_values_survive_being_written():
    raw = {
        "a b": {"c.d": 'x"\\\n\x7f\u00e9', "n": -1.5e300, "t": True, "l": [[1], [{"q": "'"}]]},
        "e": {},
    }
    assert tomllib.loads(write_toml(raw)) == raw


@pytest.mark.parametrize(
    ("text", "hint", "value"),
    [
        ("3", int, 3),
        ("3.5", float, 3.5),
        ("three", int, "three"),
        ("true", bool, True),
        ("a, b", tuple[str, ...], ["a", "b"]),
        ('["a, b"]', tuple[str, ...], ["a, b"]),
        ("1, 2", tuple[int, ...], [1, 2]),
        ("k = 1\nm = 'x'", dict[str, object], {"k": 1, "m": "x"}),
        ("{ k = 1 }", dict[str, object], {"k": 1}),
        ("no TOML", dict[str, object], "no TOML"),
    ],
)
def test_texts_become_values_or_stay_what_the_reader_refuses(text, hint, value):
    assert parse_text(text, hint) == value


def test_lists_whose_texts_have_commas_are_shown_as_toml():
    assert show_value(["a", "b"]) == "a, b"
    assert parse_text(show_value(["a, b", ""]), tuple[str, ...]) == ["a, b", ""]
    assert parse_text(show_value([]), tuple[str, ...]) == []  # which is not the same as nothing


def test_a_table_that_nobody_filled_in_is_left_out_unless_it_must_be_there():
    record = KINDS["infer"]().record
    raw = gather(record, lambda key: "", lambda key: [])
    assert set(raw) == {"job", "parties", "data", "model", "protocol"}
    assert [one.name for one in list_settings(record)][-2:] == ["network", "report"]
    with pytest.raises(InputError, match=r"data\.owner: missing"):
        read_job({**raw, "job": {"name": "x", "kind": "infer"}}, source="x")
