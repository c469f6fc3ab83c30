"""The names that users may rely on: changing one of these lists is a decision, not an accident."""

import importlib

import pytest

import tacit

ROOMS = [
    "crypto",
    "dp",
    "learn",
    "learn.noise",
    "learn.private",
    "learn.training",
    "learn.vertical",
    "llm",
    "llm.permuted",
    "mpc",
    "nn",
    "party",
    "report",
    "ring",
    "transport",
    "verify",
]


def test_the_package_itself_exports_its_version_and_the_way_to_make_a_model_private():
    assert tacit.__all__ == ["__version__", "secure"]


pytest.importorskip("numba", reason="tacit-ml[verify] is not installed")


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


@pytest.mark.parametrize("room", ROOMS)
def test_everything_that_is_exported_is_documented(room):
    module = importlib.import_module(f"tacit.{room}")
    for name in module.__all__:
        thing = getattr(module, name)
        if callable(thing) and getattr(thing, "__module__", "").startswith("tacit"):
            assert thing.__doc__, f"{room}.{name}"


def test_the_old_name_of_the_permuted_protocol_works_and_warns():
    permuted = importlib.import_module("tacit.llm.permuted")
    with pytest.warns(DeprecationWarning, match=r"tacit\.llm\.permuted"):
        private = importlib.import_module("tacit.llm.private")
    assert all(getattr(private, name) is getattr(permuted, name) for name in permuted.__all__)
