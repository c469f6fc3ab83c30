"""What a record of settings is made of: marks and ranges of its fields, its reading, its refusals.

A kind of work has one frozen record of what its user says. Job file, Python call, page, reference
and forecast are views of it: who may differ in a field is a mark on the field, which values it
takes is its annotation, and what depends on several fields is refused by ``__post_init__``.
pydantic reads, and what it complains about is said in our words. It is imported when something is
read, so that who imports a package does not wait for it.
"""

import difflib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    NamedTuple,
    NoReturn,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from annotated_types import Ge, Gt, Lt, MinLen

from tacit.errors import ConfigError

if TYPE_CHECKING:
    from pydantic import BaseModel, GetCoreSchemaHandler
    from pydantic_core import CoreSchema, ErrorDetails

T = TypeVar("T")

LOCAL: Mapping[str, bool] = {"is_local": True}
"""Marks a field that is one party's own business: it may differ, and no digest covers it."""

_DATE = "a date or a time"  # JSON has none, and no setting of ours is one


class Problem(NamedTuple):
    """A key, dotted, and what is wrong with it."""

    key: str
    text: str


class RefusedError(ConfigError):
    """Values that a table refuses, raised by its `__post_init__`; keys are relative to it."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__("; ".join(f"{key}: {text}" if key else text for key, text in problems))
        self.problems = problems


class ListedError(ConfigError):
    """Everything that is wrong with a file, as one text and key by key."""

    def __init__(self, source: str, problems: Sequence[Problem]) -> None:
        super().__init__(_list(source, problems))
        self.problems = tuple(sorted(problems))


_LONGEST_LINE = 600
"""Values are repeated to whoever wrote them, but not without end."""


def refuse(key: str, text: str) -> NoReturn:
    """Refuse the value of one key of the table whose `__post_init__` calls this."""
    raise RefusedError(Problem(key, text))


def refuse_together(*checks: Callable[[], object]) -> None:
    """Refuse at once all that several checks of a record refuse.

    Raises:
        RefusedError: at least one of them refused something.
    """
    problems: list[Problem] = []
    for check in checks:
        try:
            check()
        except RefusedError as error:
            problems += error.problems
        except ConfigError as error:
            problems.append(Problem("", str(error)))
    if problems:
        raise RefusedError(*problems)


@dataclass(frozen=True)
class Check:
    """An annotation: what a value must pass beyond its type; it stays as it was written."""

    check: Callable[[Any], object]

    def __get_pydantic_core_schema__(
        self, source: object, handler: "GetCoreSchemaHandler"
    ) -> "CoreSchema":
        """Let pydantic look at a value of the annotated type with the check."""
        from pydantic_core.core_schema import no_info_after_validator_function

        def look(value: object) -> object:
            self.check(value)
            return value

        return no_info_after_validator_function(look, handler(source))


def _check_stretch(stretch: tuple[int, ...]) -> None:
    if not (len(stretch) == 2 and 0 <= stretch[0] < stretch[1]):
        raise ConfigError(f"wanted two numbers, first < end, got {list(stretch)}")


def _check_two(names: tuple[str, ...]) -> None:
    if len(names) != 2:
        raise ConfigError(f"wanted the names of two parties, got {list(names)}")


class _Alone:
    """An annotation of a tuple of texts: a text that stands alone is a list of one."""

    def __get_pydantic_core_schema__(
        self, source: object, handler: "GetCoreSchemaHandler"
    ) -> "CoreSchema":
        """Let pydantic put a text into a list before it looks at the list."""
        from pydantic_core.core_schema import no_info_before_validator_function

        def put(value: object) -> object:
            if isinstance(value, str):
                return (value,)
            return tuple(value) if isinstance(value, list) else value

        return no_info_before_validator_function(put, handler(source))


_ALONE = _Alone()
Count = Annotated[int, Ge(1)]
Positive = Annotated[float, Gt(0)]
Names = Annotated[tuple[str, ...], MinLen(1), _ALONE]
"""Texts, of which one may stand without a list."""
Share = Annotated[float, Gt(0), Lt(1)]
Stretch = Annotated[tuple[int, ...], Check(_check_stretch)]
"""From the first to before the second."""
_NAMES_PARTY = "names a party"
Party = Annotated[str, _NAMES_PARTY]
"""The name of a party, or of an owner in Python: a job file must have it among its parties."""
TwoParties = Annotated[tuple[Party, ...], Check(_check_two)]
"""The two parties that compute."""


def read_record(raw: Mapping[str, object], record: type[T], *, source: str) -> T:
    """Build a dataclass from a table, its fields by their annotations.

    Fields may be `str`, `int`, `float`, `bool`, `Path`, a `Literal` of texts, another dataclass,
    a tuple or a mapping of these, each of them or None, and each annotated with what pydantic
    takes: `Ge(1)` for a range, `Check(f)` for a check of its own.

    Raises:
        ConfigError: a key is unknown, missing, of the wrong type or refused by the dataclass; all
            such keys are named at once.
    """
    from pydantic import ValidationError

    root: type = record
    problems = list(_unusable_paths(raw, record, ()))
    try:
        # As JSON: strict, but lists are tuples and texts are paths, which TOML cannot tell apart.
        text = json.dumps({"content": raw}, default=lambda value: {_DATE: str(value)})
        value = dict(_file(root).model_validate_json(text))["content"]
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            problems += _translate(detail, root)
    except RecursionError as error:
        raise ConfigError(f"{source}: nested too deeply") from error
    if problems:
        raise ListedError(source, problems)
    assert isinstance(value, record)  # noqa: S101 - an adapter makes what it was made for
    return value


def to_tables(record: object, *, is_shared: bool = False) -> Any:  # tables of anything
    """Return a record as the plain tables of a file, all of it or what parties share."""
    if is_dataclass(record):
        return {
            field.name: to_tables(getattr(record, field.name), is_shared=is_shared)
            for field in fields(record)
            if not (is_shared and field.metadata.get("is_local", False))
        }
    if isinstance(record, Mapping):
        return {name: to_tables(inner, is_shared=is_shared) for name, inner in record.items()}
    if isinstance(record, tuple | list):
        return [to_tables(inner, is_shared=is_shared) for inner in record]
    return str(record) if isinstance(record, Path) else record


def check_record(record: T, *, source: str) -> T:
    """Read a record that a program made as if it stood in a file, and return what was read.

    Raises:
        ConfigError: as `read_record`; types and ranges of a record made in Python are those of a
            job file.
    """
    return read_record(to_tables(record), type(record), source=source)


def parties_in(
    value: object, hint: object = None, at: tuple[int | str, ...] = ()
) -> Iterator[tuple[str, str]]:
    """List the names of parties in a record by dotted key: what is annotated as a `Party`."""
    if get_origin(hint) in {Union, UnionType}:
        hint = next(each for each in get_args(hint) if each is not type(None))
    if value is not None and _NAMES_PARTY in getattr(hint, "__metadata__", ()):
        yield _dotted(at), str(value)
    elif is_dataclass(value) and not isinstance(value, type):
        for name, inner in _hints(type(value)).items():
            yield from parties_in(getattr(value, name), inner, (*at, name))
    elif isinstance(value, Mapping):
        named, inner = get_args(strip_type(hint))
        for name, one in value.items():
            yield from parties_in(name, named, (*at, name))
            yield from parties_in(one, inner, (*at, name))
    elif isinstance(value, tuple):
        for number, one in enumerate(value):
            yield from parties_in(one, get_args(strip_type(hint))[0], (*at, number))


@cache
def _hints(record: type) -> Mapping[str, object]:
    hints = get_type_hints(record, include_extras=True)
    return {field.name: hints[field.name] for field in fields(record)}


def worded(record: T, **words: object) -> T:
    """Return a record with those of a call's short words that were given in their place."""
    given = {name: value for name, value in words.items() if value is not None}
    # A type variable that is bound to dataclasses cannot be written down.
    return replace(record, **given) if given else record  # type: ignore[type-var]


def suggest(name: str, known: Iterable[str]) -> str:
    """Return a question that ends a message about an unknown name, or nothing."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


@cache
def _file(record: type) -> "type[BaseModel]":
    from pydantic import ConfigDict, create_model

    # A dataclass has no settings of its own: it takes those of the model that holds it.
    how = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    return create_model("File", __config__=how, content=record)


def _translate(detail: "ErrorDetails", root: type) -> Iterator[Problem]:
    """Say one of pydantic's complaints in our words."""
    at, raw = detail["loc"][1:], detail["input"]
    refused = detail.get("ctx", {}).get("error")
    if isinstance(refused, RefusedError):
        yield from (Problem(_dotted(at, key), text) for key, text in refused.problems)
    elif refused is not None:
        yield Problem(_dotted(at), str(refused))
    elif detail["type"] == "json_invalid":
        yield Problem("", "nested too deeply")
    elif detail["type"] == "unexpected_keyword_argument":
        yield Problem(_dotted(at), _unknown(str(at[-1]), _hint(root, at[:-1]), at[:-1], root))
    elif detail["type"] == "missing":
        yield Problem(_dotted(at), f"missing; wanted {describe_type(_hint(root, at))}")
    else:
        hint = _hint(root, at)
        choices = get_args(strip_type(hint)) if get_origin(strip_type(hint)) is Literal else ()
        near = suggest(raw, choices) if isinstance(raw, str) else ""
        yield Problem(_dotted(at), f"wanted {describe_type(hint)}, got {_show(raw)}{near}")


def _unknown(name: str, table: object, at: tuple[int | str, ...], root: type) -> str:
    known = get_type_hints(strip_type(table))
    if not known:
        return "this table has no settings in this version; it must be empty"
    for one in fields(strip_type(table)):  # type: ignore[arg-type]
        if one.metadata.get("before") == name:
            return f"unknown key; {one.name!r} has taken its place: see docs/howto/data.md"
    if near := suggest(name, known):
        return f"unknown key{near}"
    # The name and kind of the job are no settings that somebody puts elsewhere by mistake.
    homes = [one for one in _homes(root, "").get(name, ()) if one not in (_dotted(at), "job")]
    if homes:
        return f"unknown key; it belongs into [{homes[0]}]" if homes[0] else "unknown key"
    return f"unknown key; known here: {', '.join(known)}"


def _unusable_paths(raw: object, hint: object, at: tuple[int | str, ...]) -> Iterator[Problem]:
    """Find texts that no system takes for a path, which pydantic does."""
    for step, inner in _steps(raw):
        yield from _unusable_paths(inner, _inner(hint, step), (*at, step))
    if strip_type(hint) is Path and isinstance(raw, str) and (not raw or "\0" in raw):
        yield Problem(_dotted(at), f"wanted a path, got {_show(raw)}")


def _steps(raw: object) -> Iterable[tuple[int | str, object]]:
    if isinstance(raw, Mapping):
        return raw.items()
    return enumerate(raw) if isinstance(raw, list) else ()


def _hint(root: type, at: tuple[int | str, ...]) -> object:
    """Return the annotation of what stands at a place."""
    hint: object = root
    for step in at:
        hint = _inner(hint, step)
    return hint


def _inner(hint: object, step: int | str) -> object:
    """Return the annotation one step further in, or None where there is no such place."""
    hint = strip_type(hint)
    if is_dataclass(hint):
        return get_type_hints(hint, include_extras=True).get(str(step))
    if get_origin(hint) is tuple:
        return get_args(hint)[0]
    return get_args(hint)[1] if len(get_args(hint)) == 2 else None


def _homes(record: type, key: str) -> dict[str, list[str]]:
    """List, for each key, the tables that have it."""
    found: dict[str, list[str]] = {}
    for name, hint in get_type_hints(record).items():
        found.setdefault(name, []).append(key)
        inner = strip_type(hint)
        if isinstance(inner, type) and is_dataclass(inner):
            for below, tables in _homes(inner, f"{key}.{name}" if key else name).items():
                found.setdefault(below, []).extend(tables)
    return found


def strip_type(hint: object) -> object:
    """Return X of `X | None` and of `Annotated[X, …]`, and anything else as it is."""
    if get_origin(hint) is Annotated:
        return strip_type(get_args(hint)[0])
    if get_origin(hint) not in {Union, UnionType}:
        return hint
    (inner,) = (each for each in get_args(hint) if each is not type(None))
    return strip_type(inner)


_WORDS: Mapping[object, str] = {
    str: "a text",
    int: "a whole number",
    float: "a finite number",
    bool: "true or false",
    Path: "a path",
}


def describe_type(hint: object) -> str:
    """Say in words which values an annotation takes."""
    limits, inner = _limits(hint), strip_type(hint)
    if _ALONE in _notes(hint):
        return "a text, or a list of texts"
    if get_origin(inner) is Literal:
        choices = [repr(choice) for choice in get_args(inner)]
        return choices[0] if len(choices) == 1 else f"one of {', '.join(choices)}"
    if get_origin(inner) is tuple:
        each, *others = get_args(inner)
        count = "" if Ellipsis in others else f" of {1 + len(others)}"
        count = f" of at least {limits['min_length']}" if "min_length" in limits else count
        return f"a list{count}, each {describe_type(each)}"
    word = "a number" if inner is float and limits else _WORDS.get(inner, "a table")
    return word + _range(limits)


def _limits(hint: object) -> dict[str, object]:
    """Collect what annotations say about a value: gt, ge, lt, le, min_length."""
    return {
        name: getattr(note, name)
        for note in _notes(hint)
        for name in getattr(note, "__slots__", ())
    }


def _notes(hint: object) -> list[object]:
    """List what annotates a type, or one of a union."""
    if get_origin(hint) in {Union, UnionType}:
        return [note for each in get_args(hint) for note in _notes(each)]
    return list(get_args(hint)[1:]) if get_origin(hint) is Annotated else []


def _range(limits: Mapping[str, object]) -> str:
    match limits:
        case {"gt": low, "lt": high}:
            return f" between {low} and {high}"
        case {"ge": low, "le": high}:
            return f" from {low} to {high}"
        case {"ge": low, "lt": high}:
            return f" of at least {low} and below {high}"
        case {"gt": low}:
            return f" greater than {low}"
        case {"ge": low}:
            return f" of at least {low}"
    return ""


def _show(raw: object) -> str:
    raw = list(raw) if isinstance(raw, tuple) else raw  # as it was written
    if isinstance(raw, dict):
        return str(raw.get(_DATE, "a table"))
    if isinstance(raw, list) and any(isinstance(one, dict | list) for one in raw):
        return "a list of tables or lists"
    text = repr(raw) if not isinstance(raw, bool) else str(raw).lower()
    return text if len(text) <= 60 else f"{text[:57]}..."


def _dotted(at: Iterable[int | str], last: str = "") -> str:
    """Write a place as TOML does: `parties.lab.key`, `colours[1]`."""
    text = ""
    for step in at:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            step = step if re.fullmatch(r"[A-Za-z0-9_-]+", step) else repr(step)
            text += f".{step}" if text else step
    return f"{text}.{last}" if text and last else text or last


def _list(source: str, problems: Sequence[Problem]) -> str:
    lines = [f"{key}: {text}" if key else text for key, text in sorted(problems)]
    lines = [one if len(one) <= _LONGEST_LINE else f"{one[:_LONGEST_LINE]}..." for one in lines]
    if len(lines) == 1:
        return f"{source}: {lines[0]}"
    return "\n  ".join([f"{source}: {len(lines)} problems", *lines])
