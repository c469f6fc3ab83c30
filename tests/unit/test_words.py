"""House words that were given up for those of the field do not come back as names in the code.

`docs/reference/glossary.md` has the words that stay. A word counts where it is a whole part of a
name: `half` is in `half_of` and in `LoadHalf`, and not in `behalf`.
"""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import tacit

PACKAGE = Path(tacit.__file__).parent
# The words that a folder has given up.
GIVEN_UP = {
    "cli": "half desk reception door knock shelf voice wish",
    "inference": "desk reception door knock shelf",
    "learners": "halves shelf hold",
    "federated": "course crowd hall promise terms wish",
    "llm": "hushed hands voice parcel shelf stock supply quick playback order orders tape "
    "veil veiled cover covered posted posting wire wires halves steady",
    "mpc": "disguise finish held holding ladder narrowing octaves rescale scene settle shelf sight "
    "thermometer",
    "verify": "rush slide hop slate glance barrier barriers units cell cells fare toll agree "
    "squeeze accord dual lunge stroll plunge chase lure lures halves quest purse joint scratch "
    "ground",
}


@cache
def names_in(path):
    """Return every part of every name that a file defines, with a place where it stands."""
    tree, found = ast.parse(path.read_text()), {}
    for node in ast.walk(tree):
        name = {
            ast.FunctionDef: "name",
            ast.ClassDef: "name",
            ast.arg: "arg",
            ast.Name: "id",
            ast.Attribute: "attr",
        }.get(type(node))
        if name is not None:
            for part in parts_of(getattr(node, name)):
                found.setdefault(part, f"{path.relative_to(PACKAGE)}:{node.lineno}")
    for part in parts_of(path.stem):
        found.setdefault(part, str(path.relative_to(PACKAGE)))
    return found


def parts_of(name):
    return [part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)]


def test_names_are_taken_apart_at_underscores_and_capitals():
    assert parts_of("_load_Half2") == ["load", "half", "2"]
    assert parts_of("behalfOf") == ["behalf", "of"]


@pytest.mark.parametrize("folder", GIVEN_UP)
def test_a_word_that_was_given_up_does_not_come_back(folder):
    words = set(GIVEN_UP[folder].split())
    back = [
        f"{place}: {word}"
        for path in sorted((PACKAGE / folder).rglob("*.py"))
        for word, place in names_in(path).items()
        if word in words
    ]
    assert back == []
