"""Read a TOML file into frozen dataclasses, strictly: what is not understood is refused by name."""

import difflib
import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from tacit.errors import ConfigError

T = TypeVar("T")

_LARGEST_FILE_BYTES = 1 << 20
_PLACE = re.compile(r"\s*\(at line (\d+), column (\d+)\)$")
_REFUSED = object()  # stands for a value that a problem was written down for


class Problem(NamedTuple):
    """A key, dotted, and what is wrong with it."""

    key: str
    text: str


class RefusedError(ConfigError):
    """Values that a table refuses, raised by its `__post_init__`; keys are relative to it."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__("; ".join(f"{key}: {text}" for key, text in problems))
        self.problems = problems


def read_toml(path: Path) -> dict[str, object]:
    """Read a file of TOML.

    Raises:
        ConfigError: no such file, unreadable, too large, or not TOML; names the line.
    """
    try:
        with path.open("rb") as stream:
            content = stream.read(_LARGEST_FILE_BYTES + 1)
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such file") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    if len(content) > _LARGEST_FILE_BYTES:
        raise ConfigError(f"{path}: wanted at most {_LARGEST_FILE_BYTES} bytes of TOML, got more")
    try:
        return tomllib.loads(content.decode())
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: wanted UTF-8 text (byte {error.start} is not)") from error
    except RecursionError as error:
        raise ConfigError(f"{path}: nested too deeply") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}{_place(str(error), content.decode())}") from error


def read_record(raw: Mapping[str, object], record: type[T], *, source: str) -> T:
    """Build a dataclass from a table, its fields by their annotations.

    Fields may be `str`, `int`, `float`, `bool`, `Path`, a `Literal` of texts, another dataclass,
    a tuple or a mapping of these, and each of them or None.

    Raises:
        ConfigError: a key is unknown, missing, of the wrong type or refused by the dataclass; all
            such keys are named at once.
    """
    reader = _Reader(record)
    value = reader.record(raw, record, "")
    if reader.problems or not isinstance(value, record):
        raise ConfigError(_list(source, reader.problems))
    return value


def suggest(name: str, known: Iterable[str]) -> str:
    """Return a question that ends a message about an unknown name, or nothing."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


class _Reader:
    """Reads one tree of tables and remembers every problem on the way."""

    def __init__(self, root: type) -> None:
        self.problems: list[Problem] = []
        self._homes = _homes(root, "")

    def record(self, raw: object, record: type, key: str) -> object:
        if not isinstance(raw, dict):
            return self._refuse(key, f"wanted a table, got {_show(raw)}")
        hints = get_type_hints(record)
        before = len(self.problems)
        for name in raw.keys() - hints.keys():
            self._refuse(_join(key, name), self._unknown(name, hints, key))
        values = {
            name: self.value(raw[name], hint, _join(key, name))
            for name, hint in hints.items()
            if name in raw
        }
        for field in fields(record):
            if field.name not in raw and _is_required(field):
                wanted = _describe(hints[field.name])
                self._refuse(_join(key, field.name), f"missing; wanted {wanted}")
        return _REFUSED if len(self.problems) > before else self._build(record, values, key)

    def value(self, raw: object, hint: Any, key: str) -> object:  # an annotation has no type
        origin = get_origin(hint)
        if is_dataclass(hint):
            assert isinstance(hint, type)  # noqa: S101 - annotations hold classes
            return self.record(raw, hint, key)
        if origin in {Union, UnionType}:
            return self.value(raw, _some(hint), key)
        if origin is tuple:
            if not isinstance(raw, list):
                return self._refuse(key, f"wanted {_describe(hint)}, got {_show(raw)}")
            inner = get_args(hint)[0]
            return tuple(self.value(item, inner, f"{key}[{i}]") for i, item in enumerate(raw))
        if isinstance(origin, type) and issubclass(origin, Mapping):
            if not isinstance(raw, dict):
                return self._refuse(key, f"wanted a table, got {_show(raw)}")
            inner = get_args(hint)[1]
            return {name: self.value(item, inner, _join(key, name)) for name, item in raw.items()}
        return self._leaf(raw, hint, key)

    def _leaf(self, raw: object, hint: Any, key: str) -> object:
        if get_origin(hint) is Literal:
            choices = get_args(hint)
            if raw in choices:
                return raw
            near = suggest(raw, choices) if isinstance(raw, str) else ""
            return self._refuse(key, f"wanted {_describe(hint)}, got {_show(raw)}{near}")
        if hint is float and type(raw) in (int, float) and math.isfinite(raw):  # type: ignore[arg-type]
            return float(raw)  # type: ignore[arg-type]
        if hint is Path and isinstance(raw, str) and raw and "\0" not in raw:
            return Path(raw)
        # bool is an int, but true is not a number of seconds.
        if hint in (str, int, bool) and type(raw) is hint:
            return raw
        return self._refuse(key, f"wanted {_describe(hint)}, got {_show(raw)}")

    def _build(self, record: type, values: dict[str, object], key: str) -> object:
        try:
            return record(**values)
        except RefusedError as refused:
            self.problems += [
                Problem(".".join(filter(None, (key, inner))), text)
                for inner, text in refused.problems
            ]
        except ConfigError as error:
            self._refuse(key, str(error))
        return _REFUSED

    def _unknown(self, name: str, hints: Mapping[str, object], key: str) -> str:
        if not hints:
            return "this table has no settings in this version; it must be empty"
        if near := suggest(name, hints):
            return f"unknown key{near}"
        homes = [home for home in self._homes.get(name, ()) if home != key]
        if homes:
            return f"unknown key; it belongs into [{homes[0]}]" if homes[0] else "unknown key"
        return f"unknown key; known here: {', '.join(hints)}"

    def _refuse(self, key: str, text: str) -> object:
        self.problems.append(Problem(key, text))
        return _REFUSED


def _homes(record: type, key: str) -> dict[str, list[str]]:
    """List, for each key, the tables that have it."""
    found: dict[str, list[str]] = {}
    for name, hint in get_type_hints(record).items():
        found.setdefault(name, []).append(key)
        inner = _some(hint)
        if isinstance(inner, type) and is_dataclass(inner):
            for below, tables in _homes(inner, _join(key, name)).items():
                found.setdefault(below, []).extend(tables)
    return found


def _is_required(field: "Field[Any]") -> bool:  # of whatever type
    return field.default is MISSING and field.default_factory is MISSING


def _some(hint: Any) -> Any:
    """Return X of `X | None`, and anything else as it is."""
    if get_origin(hint) not in {Union, UnionType}:
        return hint
    (inner,) = (each for each in get_args(hint) if each is not type(None))
    return inner


_WORDS = {
    str: "a text",
    int: "a whole number",
    float: "a finite number",
    bool: "true or false",
    Path: "a path",
}


def _describe(hint: Any) -> str:
    hint = _some(hint)
    if get_origin(hint) is Literal:
        choices = [repr(choice) for choice in get_args(hint)]
        return choices[0] if len(choices) == 1 else f"one of {', '.join(choices)}"
    if get_origin(hint) is tuple:
        return f"a list, each {_describe(get_args(hint)[0])}"
    return _WORDS.get(hint, "a table")


def _show(raw: object) -> str:
    if isinstance(raw, dict):
        return "a table"
    text = repr(raw) if not isinstance(raw, bool) else str(raw).lower()
    return text if len(text) <= 60 else f"{text[:57]}..."


def _join(table: str, key: str) -> str:
    """Write a dotted key as TOML does."""
    if not re.fullmatch(r"[A-Za-z0-9_-]+", key):
        key = repr(key)
    return f"{table}.{key}" if table else key


def _place(message: str, text: str) -> str:
    """Turn a syntax error into `, line 3: what is wrong: the line`."""
    place = _PLACE.search(message)
    line = int(place[1]) if place else text.count("\n") + 1
    said = _PLACE.sub("", message).removesuffix(" (at end of document)")
    lines = text.splitlines()
    shown = f" in {lines[line - 1].strip()[:60]!r}" if 0 < line <= len(lines) else ""
    return f", line {line}: not TOML: {said}{shown}"


def _list(source: str, problems: list[Problem]) -> str:
    lines = [f"{key}: {text}" if key else text for key, text in sorted(problems)]
    if len(lines) == 1:
        return f"{source}: {lines[0]}"
    return "\n  ".join([f"{source}: {len(lines)} problems", *lines])
