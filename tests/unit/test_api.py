"""The names that users may rely on: changing one of these lists is a decision, not an accident."""

import importlib
import sys
import warnings

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


@pytest.mark.parametrize(
    ("old", "new", "word", "renamed"),
    [
        ("private", "permuted", "Client", "Client"),
        ("clear", "backend.plain", "PlainVoice", "PlainBackend"),
        ("sampling", "backend.sampling", "Sampling", "Sampling"),
    ],
)
def test_old_names_of_language_models_work_and_warn(old, new, word, renamed, monkeypatch):
    monkeypatch.delitem(sys.modules, f"tacit.llm.{old}", raising=False)
    home = importlib.import_module(f"tacit.llm.{new}")
    with pytest.warns(DeprecationWarning, match=rf"tacit\.llm\.{new}"):
        module = importlib.import_module(f"tacit.llm.{old}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert getattr(module, word) is getattr(home, renamed)
    with pytest.raises(AttributeError, match="nonsense"):
        module.nonsense  # noqa: B018 - reading it is the test


def test_an_old_public_name_of_language_models_warns_at_the_line_that_used_it():
    llm = importlib.import_module("tacit.llm")
    with pytest.warns(DeprecationWarning, match="PlainBackend") as warned:
        assert llm.PlainVoice is llm.PlainBackend
    assert warned[0].filename == __file__
