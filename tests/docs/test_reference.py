"""The reference pages of the Python front say what the sources say."""

import importlib.util
from pathlib import Path

import pytest

import tacit

FOLDER = Path(__file__).parents[2] / "docs" / "reference"
_spec = importlib.util.spec_from_file_location("generate", FOLDER / "generate.py")
generate = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(generate)
PAGES = generate.write_pages()


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
