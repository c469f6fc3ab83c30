"""The names that users may rely on: changing one of these lists is a decision, not an accident."""

import ast
import importlib
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import tacit

FRONT = [
    "audit",
    "connect",
    "dp",
    "federated",
    "learners",
    "llm",
    "secure",
    "split",
    "text",
    "train",
    "verify",
]
TABLE = tomllib.loads((Path(__file__).parent / "public_names.toml").read_text())
ROOMS = TABLE["names"]
OF_FLOWER = pytest.mark.filterwarnings("ignore:'click.utils:DeprecationWarning")


def test_the_package_itself_lists_its_front_and_loads_nothing_of_it():
    assert tacit.__all__ == ["__version__", *FRONT]
    assert set(tacit.__all__) <= set(dir(tacit))
    program = "import sys, tacit; dir(tacit); print(*(n for n in sys.modules if n[:6] == 'tacit.'))"
    python = [sys.executable, "-c", program]
    assert subprocess.run(python, check=True, capture_output=True, text=True).stdout.split() == []


@pytest.mark.parametrize("name", [name for name in FRONT if name != "verify"])
def test_what_the_package_lists_is_there_and_documented(name):
    assert getattr(tacit, name).__doc__


def exported():
    """Read the list of every room that has one."""
    package = Path(tacit.__file__).parent
    for path in sorted([*package.rglob("__init__.py"), *package.glob("[!_]*.py")]):
        place = path.parent if path.stem == "__init__" else path.with_suffix("")
        room = ".".join(place.relative_to(package).parts)
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__" and room:
                yield room, ast.literal_eval(node.value)


def test_every_room_exports_the_names_that_are_pinned():
    found = dict(exported())
    assert set(found) == set(ROOMS)
    came = [f"{room}.{n}" for room, names in found.items() for n in names if n not in ROOMS[room]]
    left = [f"{room}.{n}" for room, names in ROOMS.items() for n in names if n not in found[room]]
    # A name that comes goes into public_names.toml; one that leaves it.
    assert (came, left) == ([], [])


pytest.importorskip("numba", reason="tacit-ml[verify] is not installed")


def test_verification_can_be_called_and_imported_from():
    room = importlib.import_module("tacit.verify")
    assert tacit.verify is room
    assert type(room).__call__ is room.verify


@OF_FLOWER
@pytest.mark.parametrize("room", ROOMS)
def test_a_room_exports_existing_names_by_a_sorted_list(room):
    module = importlib.import_module(f"tacit.{room}")
    names = module.__all__
    assert len(set(names)) == len(names)
    assert all(hasattr(module, name) for name in names)
    constants = [name for name in names if name.isupper()]
    classes = [name for name in names if name[0].isupper() and not name.isupper()]
    functions = [name for name in names if name[0].islower()]
    assert names == sorted(constants) + sorted(classes) + sorted(functions)


@OF_FLOWER
@pytest.mark.parametrize("room", ROOMS)
def test_everything_that_is_exported_is_documented(room):
    module = importlib.import_module(f"tacit.{room}")
    for name in module.__all__:
        thing = getattr(module, name)
        if callable(thing) and getattr(thing, "__module__", "").startswith("tacit"):
            assert thing.__doc__, f"{room}.{name}"
