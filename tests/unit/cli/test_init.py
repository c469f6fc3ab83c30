"""``tacit init`` and the fields that it shares with the page."""

import io
import tomllib
from pathlib import Path

import click
import pytest
from rich.console import Console

from tacit.cli.commands.examples import first_tables
from tacit.cli.commands.init import interview
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
