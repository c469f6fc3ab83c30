import json
import math
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tacit.errors import DataError, InputError
from tacit.report import from_json, load, render, save, summarise, to_json
from tacit.report.schema import describe_result
from unit.report.test_html import Page
from unit.report.test_terminal import show


# Drawing a result takes longer than all that is done with it.
@settings(
    max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(data=st.data())
def test_any_result_comes_back_as_it_went_has_a_well_formed_page_and_can_be_shown(results, data):
    result = data.draw(results)
    assert from_json(to_json(result), source="memory") == result
    page = Page(render(result))
    assert not any("nan" in value for name, value in page.attributes if name in {"x", "y", "d"})
    assert show(summarise(result), 80)


def test_a_result_comes_back_from_a_file(example, tmp_path):
    save(example, tmp_path / "result.json")
    assert load(tmp_path / "result.json") == example


def test_a_whole_number_is_read_where_a_float_is_wanted(example):
    raw = json.loads(to_json(example))
    raw["parties"][0]["seconds"] = 2
    seconds = from_json(json.dumps(raw), source="f").parties[0].seconds
    assert (type(seconds), seconds) == (float, 2.0)


def _set(value, *keys):
    def change(raw):
        for key in keys[:-1]:
            raw = raw[key]
        raw[keys[-1]] = value

    return change


def _drop(*keys):
    def change(raw):
        for key in keys[:-1]:
            raw = raw[key]
        del raw[keys[-1]]

    return change


@pytest.mark.parametrize(
    ("change", "path", "problem"),
    [
        (_set(1, "colour"), "colour", "unknown key"),
        (_set(1, "parties", 0, "secs"), "parties[0].secs", "unknown key"),
        (_drop("notes"), "notes", "missing"),
        (_drop("parties", 2, "host"), "parties[2].host", "missing"),
        (_set("3", "parties", 1, "seconds"), "parties[1].seconds", "wanted a number, got '3'"),
        (_set(True, "leakage", 0, "elements"), "leakage[0].elements", "wanted a number, got True"),
        (_set(1.0, "leakage", 0, "elements"), "leakage[0].elements", "wanted a whole number"),
        (_set(2**63, "leakage", 0, "elements"), "leakage[0].elements", "64 bits"),
        (_set("rumour", "leakage", 0, "kind"), "leakage[0].kind", "wanted one of output"),
        (_set(None, "name"), "name", "wanted a text, got null"),
        (_set("\ud800", "name"), "name", "surrogate"),
        (_set({}, "parties"), "parties", "wanted a list, got an object"),
        (_set([], "forecast"), "forecast", "wanted an object, got a list"),
        (_set([1.0], "curves", 0, "points", 3), "curves[0].points[3]", "wanted 2 values, got 1"),
        (_set(math.nan, "utility", 0, "value"), "utility[0].value", "wanted a finite number"),
        (_set(-math.inf, "utility", 0, "low"), "utility[0].low", "wanted a finite number"),
        (_set(5, "schema"), "schema", "wanted 1 to 4, got 5; read it with the version that"),
        (_set(0, "schema"), "schema", "wanted 1 to 4, got 0"),
        (_set(True, "schema"), "schema", "wanted 1 to 4, got True"),
        (_drop("forecast", "notes"), "forecast.notes", "missing"),
        (_drop("schema"), "schema", "missing"),
    ],
)
def test_a_file_that_is_not_a_result_is_refused_with_file_and_key(example, change, path, problem):
    raw = json.loads(to_json(example))
    change(raw)
    with pytest.raises(DataError) as refusal:
        from_json(json.dumps(raw), source="old.json")
    assert str(refusal.value).startswith(f"old.json: {path}: ")
    assert problem in str(refusal.value)


def _age(raw, lacks):
    """Take out what a record of an older schema did not have."""
    if isinstance(raw, list):
        return [_age(one, lacks) for one in raw]
    return (
        {key: _age(one, lacks) for key, one in raw.items() if key not in lacks}
        if isinstance(raw, dict)
        else raw
    )


@pytest.mark.parametrize("schema", [1, 2, 3])
def test_a_file_of_an_older_schema_is_read_and_what_it_lacks_is_not_known(example, schema):
    lacks = {"computing_seconds", "detection"} if schema < 3 else set()
    lacks |= {"pictures", "sheets", "style", "x_axis", "y_axis"} if schema < 2 else set()
    raw = _age({**json.loads(to_json(example)), "schema": schema}, lacks)
    del raw["forecast"]["notes"]  # which no schema before 4 had, unlike a result
    assert from_json(json.dumps(raw), source="old.json") == example
    del raw["utility"][0]["note"]  # which all had
    with pytest.raises(DataError, match=r"old\.json: utility\[0\]\.note: missing"):
        from_json(json.dumps(raw), source="old.json")


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_what_is_written_is_what_the_schema_describes(results, data):
    jsonschema = pytest.importorskip("jsonschema")
    check = jsonschema.Draft202012Validator(describe_result())
    raw = json.loads(to_json(data.draw(results)))
    check.validate(raw)
    for wrong in ({**raw, "colour": 1}, {**raw, "schema": 3}, {**raw, "parties": [{}]}):
        assert not check.is_valid(wrong)


@pytest.mark.parametrize(
    "text",
    ["", "{", "null", "[]", "3", '"x"', "{}", "[" * 100_000, "1" * 5000, '{"schema": 1e999}'],
)
def test_text_that_is_not_a_result_is_refused(text):
    with pytest.raises(DataError, match=r"^broken\.json: "):
        from_json(text, source="broken.json")


def test_a_key_given_twice_is_refused(example):
    text = to_json(example).replace('"host": ', '"host": "x", "host": ', 1)
    with pytest.raises(DataError, match=r"f: parties\[0\]\.host: given twice"):
        from_json(text, source="f")


def test_an_overflowing_number_is_refused_like_infinity(example):
    text = to_json(example).replace("0.9708", "1e999")
    with pytest.raises(DataError, match=r"utility\[0\]\.value: wanted a finite number"):
        from_json(text, source="f")


def test_a_near_miss_is_suggested(example):
    text = to_json(example).replace('"protocol"', '"protocoll"', 1)
    with pytest.raises(DataError, match="did you mean 'protocol'"):
        from_json(text, source="f")


@pytest.mark.parametrize("value", [math.nan, math.inf, "0.9", 1j])
def test_a_result_that_json_cannot_carry_is_not_written(example, tmp_path, value):
    broken = replace(example, utility=(replace(example.utility[0], value=value),))
    with pytest.raises(DataError, match=r"utility\[0\]\.value"):
        save(broken, tmp_path / "result.json")
    assert list(tmp_path.iterdir()) == []


def test_a_list_in_place_of_a_tuple_is_not_written(example):
    with pytest.raises(DataError, match="notes: wanted a tuple, got list"):
        to_json(replace(example, notes=["a"]))


def test_loading_says_what_is_wrong_with_the_file(tmp_path):
    with pytest.raises(InputError, match=r"cannot read .*none\.json: No such file"):
        load(tmp_path / "none.json")
    (tmp_path / "image.json").write_bytes(b"\xff\xd8\xff")
    with pytest.raises(DataError, match="not UTF-8"):
        load(tmp_path / "image.json")
