"""The reference says what the sources say: the Python front, and every key of every job file."""

import importlib.util
import re
from pathlib import Path

import pytest

import tacit
from golden.keys import keys_of
from tacit.audit.membership.threats import GAMES
from tacit.cli.commands.examples import WANTS, list_examples
from tacit.dp.policy import PATTERNS
from tacit.jobs.kinds import KINDS, load_job
from tacit.learners.spec import LEARNERS
from tacit.split import COMPRESSORS
from tacit.split.defend import DEFENCES
from tacit.split.models import MODELS

FOLDER = Path(__file__).parents[2] / "docs" / "reference"
_spec = importlib.util.spec_from_file_location("generate", FOLDER / "generate.py")
generate = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(generate)
try:
    PAGES = generate.write_pages()
except ValueError as error:  # a test says it, and the others still run
    PAGES, _MISSING = {}, str(error)
else:
    _MISSING = ""


def test_every_key_has_words_and_every_kind_a_place():
    assert not _MISSING


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_page_is_not_stale(path):
    assert path.read_text() == PAGES[path], "run `make reference`"


def test_everything_at_the_front_has_a_page_and_an_entry_in_the_list_of_pages():
    listed = (FOLDER.parent / "README.md").read_text()
    for name in tacit.__all__[1:]:
        assert (FOLDER / f"{name}.md") in PAGES
        assert f"reference/{name}.md" in listed


def test_arguments_and_promises_of_a_door_are_on_its_page():
    page = PAGES[FOLDER / "connect.md"]
    for words in (
        "connect(",
        "- `job`: the job file",
        "**Guarantee:** if every party follows the protocol",
        "- `PartyError`: ",
    ):
        assert words in page


def section(kind):
    """Return what the page of the job file lists for a kind."""
    page = (FOLDER / "job-file.md").read_text()
    return page.partition(f"<!-- keys: {kind} -->")[2].partition("<!-- end -->")[0]


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_of_the_job_file_explains_every_key_of_a_kind_and_says_what_is_local(kind):
    listed = {}
    for part in re.split(r"^(?=\*\*\[)", section("all") + section(kind), flags=re.M):
        if table := re.match(r"\*\*\[([\w.]+)\]\*\*(.*?): \S", part):
            # What is done to a column is the same in all kinds, and stands once.
            rows = section("prepare") if table[1].endswith(".COLUMN") else part
            for row in re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \| (.*\S) \|$", rows, re.M):
                key = f"{table[1].replace('COLUMN', 'NAME')}.{row[0]}"
                listed[key] = "*local*" in table[2] + row[1]
    wanted = {
        re.sub(r"\[\].*|\.NAME$", "", one.dotted): not one.is_agreed
        for one in keys_of(KINDS[kind]().record)
    }
    assert listed == wanted, "run `make reference`"


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("audit", GAMES),
        ("fit", LEARNERS),
        ("split", COMPRESSORS),
        ("split", DEFENCES),
        ("split", MODELS),
        ("text", PATTERNS),
    ],
)
def test_words_that_a_key_takes_from_a_table_are_on_the_page(kind, words):
    assert [one for one in words if not re.search(rf"\b{one}\b", section(kind))] == []


def test_every_kind_is_in_the_lists_of_what_one_may_want_and_of_examples():
    kinds = {load_job(path).job.kind for path in list_examples().values() if path.suffix == ".toml"}
    # Of these two the model is the user's own: nothing that comes along could be run.
    assert kinds | {"verify", "audit-llm"} == set(KINDS) == set(WANTS)
