"""What a record of settings is made of, and the strict reader of tables."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Literal

import pytest
from annotated_types import Ge, Le
from hypothesis import given
from hypothesis import strategies as st

from tacit.errors import ConfigError
from tacit.spec import ListedError, check_record, read_record, refuse


@dataclass(frozen=True, kw_only=True)
class Engine:
    fuel: Literal["petrol", "diesel"]
    litres: float = 1.5
    cylinders: Annotated[int, Ge(1), Le(16)] = 4
    turbos: Annotated[int, Ge(0)] | None = None

    def __post_init__(self):
        if self.turbos is not None and self.turbos > self.cylinders:
            refuse("turbos", f"wanted one per cylinder at most, got {self.turbos}")


@dataclass(frozen=True, kw_only=True)
class Wheel:
    side: str


@dataclass(frozen=True, kw_only=True)
class Nothing:
    pass


@dataclass(frozen=True, kw_only=True)
class Car:
    name: str
    engine: Engine
    wheels: Mapping[str, Wheel]
    colours: tuple[str, ...] | None = None
    manual: Path | None = None
    is_sold: bool = False
    reserved: Nothing | None = None


GOOD = {"name": "mini", "engine": {"fuel": "petrol"}, "wheels": {"front": {"side": "left"}}}


def read(raw):
    return read_record(raw, Car, source="car.toml")


def complaint(raw):
    with pytest.raises(ConfigError) as caught:
        read(raw)
    return str(caught.value)


def test_a_good_table_becomes_a_record():
    car = read({**GOOD, "colours": ["red"], "manual": "a/b.pdf", "is_sold": True})
    assert car == Car(
        name="mini",
        engine=Engine(fuel="petrol"),
        wheels={"front": Wheel(side="left")},
        colours=("red",),
        manual=Path("a/b.pdf"),
        is_sold=True,
    )


def test_a_whole_number_is_good_enough_for_a_float_and_becomes_one():
    litres = read({**GOOD, "engine": {"fuel": "diesel", "litres": 2}}).engine.litres
    assert (litres, type(litres)) == (2.0, float)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": 3}, ["name", "wanted a text", "got 3"]),
        ({"is_sold": 1}, ["is_sold", "true or false", "got 1"]),
        ({"engine": 5}, ["engine", "wanted a table", "got 5"]),
        ({"engine": {"fuel": "petrl"}}, ["engine.fuel", "'petrol'", "did you mean 'petrol'?"]),
        ({"engine": {"fuel": ["petrol"]}}, ["engine.fuel", "one of", "got ['petrol']"]),
        ({"engine": {}}, ["engine.fuel", "missing", "one of"]),
        ({"engine": {"fuel": "diesel", "litres": float("nan")}}, ["engine.litres", "finite"]),
        ({"engine": {"fuel": "diesel", "litres": True}}, ["engine.litres", "got true"]),
        ({"engine": {"fuel": "diesel", "cylinders": 2.0}}, ["engine.cylinders", "whole number"]),
        ({"engine": {"fuel": "diesel", "cylinders": 0}}, ["engine.cylinders", "from 1 to 16"]),
        ({"engine": {"fuel": "diesel", "turbos": -1}}, ["engine.turbos", "of at least 0, got -1"]),
        ({"engine": {"fuel": "diesel", "turbos": 5}}, ["engine.turbos: wanted one per cylinder"]),
        ({"name": date(2026, 1, 1)}, ["name: wanted a text, got 2026-01-01"]),
        ({"manual": "a\0b"}, ["manual: wanted a path"]),
        ({"colours": "red"}, ["colours", "a list", "got 'red'"]),
        ({"colours": ["red", 1]}, ["colours[1]", "a text", "got 1"]),
        ({"wheels": {"front": {}}}, ["wheels.front.side", "missing"]),
        ({"wheels": {"front": {"sid": "left"}}}, ["wheels.front.sid", "did you mean 'side'?"]),
        ({"wheels": []}, ["wheels", "a table"]),
        ({"nam": "x"}, ["nam:", "unknown key", "did you mean 'name'?"]),
        ({"fuel": "x"}, ["fuel:", "belongs into [engine]"]),
        ({"zzz": 1}, ["zzz:", "known here: name, engine"]),
        ({"reserved": {"epsilon": 1}}, ["reserved.epsilon", "no settings in this version"]),
        ({"a b.c": 1}, ["'a b.c'", "unknown key"]),
        ({"manual": ""}, ["manual", "a path"]),
    ],
)
def test_what_is_wrong_is_named_with_what_was_wanted(change, words):
    message = complaint({**GOOD, **change})
    assert message.startswith("car.toml: ")
    for word in words:
        assert word in message


def test_all_problems_are_named_at_once():
    message = complaint({"nam": "x", "engine": {"fuel": 1}, "wheels": {}})
    assert message.startswith("car.toml: 3 problems\n")
    assert [key in message for key in ("nam:", "name:", "engine.fuel:")] == [True] * 3


def test_a_long_value_is_not_shown_in_full():
    assert len(complaint({**GOOD, "is_sold": "x" * 10_000})) < 200


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from(["name", "engine", "wheels", "colours", "x"]), json_like))
def test_anything_is_either_read_or_refused_with_a_config_error(raw):
    with contextlib.suppress(ConfigError):
        assert isinstance(read(raw), Car)


def test_what_a_program_made_is_checked_as_if_it_stood_in_a_file():
    car = read({**GOOD, "colours": ["red"], "manual": "a/b.pdf"})
    assert check_record(car, source="car") == car
    wheels = {"front": Wheel(side=1)}
    made = Car(name="mini", engine=Engine(fuel="petrol", cylinders=0), wheels=wheels)
    with pytest.raises(ListedError) as caught:
        check_record(made, source="car")
    assert [one.key for one in caught.value.problems] == ["engine.cylinders", "wheels.front.side"]
