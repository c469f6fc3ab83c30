"""Results to JSON and back: strict both ways, so that a file that loads is a result."""

import dataclasses
import difflib
import json
import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from tacit.disk import read_regular, write_whole
from tacit.errors import DataError, InputError
from tacit.result import ADDED, SCHEMA, Result

_INT_LIMIT = 2**63
_LARGEST_BYTES = 1 << 26
"""More than any result of ours has."""


@cache
def _hints(record: type) -> dict[str, object]:
    return get_type_hints(record)


def to_json(result: Result) -> str:
    """Write a result as JSON text.

    Raises:
        DataError: a field holds something that JSON cannot carry back, for instance NaN.
    """
    try:
        plain = _encode(result, Result, "")
    except _MismatchError as mismatch:
        raise DataError(f"result cannot be written: {mismatch}") from mismatch
    return json.dumps(plain, ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def from_json(text: str, *, source: str) -> Result:
    """Read a result from JSON text, of this schema or an older one; what that lacks is not known.

    Args:
        text: what `to_json` wrote.
        source: the name of the file, for messages.

    Raises:
        DataError: the text is not JSON, is of an unknown schema, or a key is unknown, missing,
            given twice or of the wrong type.
    """
    try:
        raw = json.loads(text, object_pairs_hook=_Object)
    except RecursionError as error:
        raise DataError(f"{source}: nested too deeply to be a result") from error
    except ValueError as error:
        raise DataError(f"{source}: not JSON: {error}") from error
    try:
        written = _check_schema(raw)
        later = [keys for schema, keys in ADDED.items() if schema > written]
        lacks = frozenset((name, key) for keys in later for name in keys for key in keys[name])
        result = _decode(raw, Result, "", lacks)
    except _MismatchError as mismatch:
        raise DataError(f"{source}: {mismatch}") from mismatch
    assert isinstance(result, Result)  # noqa: S101 - `_decode` builds the class it is given
    return dataclasses.replace(result, schema=SCHEMA)


def save(result: Result, path: Path) -> None:
    """Write a result to a file, whole or not at all."""
    write_whole(path, to_json(result))


def load(path: Path) -> Result:
    """Read a result from a regular file of at most 64 MB.

    Raises:
        InputError: it cannot be read, is too large, or holds no result.
    """
    try:
        content = read_regular(path, most=_LARGEST_BYTES + 1)
        if len(content) > _LARGEST_BYTES:
            raise DataError(f"{path}: wanted at most {_LARGEST_BYTES} bytes, got more")
        text = content.decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text, so not a result") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    return from_json(text, source=str(path))


class _MismatchError(Exception):
    """A value does not have the type its place wants."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path.lstrip('.') or 'top level'}: {problem}")


class _Object(NamedTuple):
    """A JSON object as it was written, doubled keys included."""

    pairs: list[tuple[str, object]]


def _check_schema(raw: object) -> int:
    found = [value for key, value in _pairs(raw, "") if key == "schema"]
    if not found:
        raise _MismatchError(".schema", "missing, so this is not a result file")
    written = found[0]
    if type(written) is not int or not 1 <= written <= SCHEMA:
        raise _MismatchError(
            ".schema",
            f"wanted 1 to {SCHEMA}, got {_show(written)}; read it with the version that wrote it",
        )
    return written


def _encode(value: object, hint: object, path: str) -> object:
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        if type(value) is not hint:
            raise _MismatchError(path, f"wanted a {hint.__name__}, got {type(value).__name__}")
        return {
            name: _encode(getattr(value, name), inner, f"{path}.{name}")
            for name, inner in _hints(hint).items()
        }
    if get_origin(hint) is tuple:
        if not isinstance(value, tuple):
            raise _MismatchError(path, f"wanted a tuple, got {type(value).__name__}")
        return [_encode(*item) for item in _items(value, hint, path)]
    if get_origin(hint) in {Union, UnionType}:
        return None if value is None else _encode(value, _unwrap(hint), path)
    return _check_leaf(value, hint, path)


_Lacks = frozenset[tuple[str, str]]
"""Records and keys that a file of an older schema cannot have."""


def _decode(raw: object, hint: object, path: str, lacks: _Lacks) -> object:
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return _decode_record(raw, hint, path, lacks)
    if get_origin(hint) is tuple:
        if not isinstance(raw, list):
            raise _MismatchError(path, f"wanted a list, got {_show(raw)}")
        return tuple(_decode(*item, lacks) for item in _items(raw, hint, path))
    if get_origin(hint) in {Union, UnionType}:
        return None if raw is None else _decode(raw, _unwrap(hint), path, lacks)
    return _check_leaf(raw, hint, path)


def _decode_record(raw: object, record: type, path: str, lacks: _Lacks) -> object:
    hints = _hints(record)
    values: dict[str, object] = {}
    for key, value in _pairs(raw, path):
        if key not in hints:
            near = difflib.get_close_matches(key, hints, n=1)
            advice = f"; did you mean {near[0]!r}?" if near else ""
            raise _MismatchError(f"{path}.{key}", f"unknown key{advice}")
        if key in values:
            raise _MismatchError(f"{path}.{key}", "given twice")
        values[key] = _decode(value, hints[key], f"{path}.{key}", lacks)
    for key in hints:
        if key not in values and (record.__name__, key) not in lacks:
            raise _MismatchError(f"{path}.{key}", "missing")
    return record(**values)


def _items(
    values: list[object] | tuple[object, ...], hint: object, path: str
) -> Iterator[tuple[object, object, str]]:
    """Yield (value, hint, path) for each element of a sequence with a tuple hint."""
    inner = get_args(hint)
    hints = [inner[0]] * len(values) if inner[-1] is Ellipsis else list(inner)
    if len(hints) != len(values):
        raise _MismatchError(path, f"wanted {len(hints)} values, got {len(values)}")
    for index, (value, each) in enumerate(zip(values, hints, strict=True)):
        yield value, each, f"{path}[{index}]"


def _check_leaf(value: object, hint: object, path: str) -> object:
    if get_origin(hint) is Literal:
        choices = get_args(hint)
        if not isinstance(value, str) or value not in choices:
            raise _MismatchError(path, f"wanted one of {', '.join(choices)}, got {_show(value)}")
        return value
    if hint is str:
        return _check_text(value, path)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _MismatchError(path, f"wanted a number, got {_show(value)}")
    if hint is int and not isinstance(value, int):
        raise _MismatchError(path, f"wanted a whole number, got {_show(value)}")
    if isinstance(value, int) and not -_INT_LIMIT <= value < _INT_LIMIT:
        raise _MismatchError(path, "wanted a number of at most 64 bits, got a longer one")
    if not math.isfinite(value):
        raise _MismatchError(path, f"wanted a finite number, got {value}; None is 'not measured'")
    return float(value) if hint is float else value


def _check_text(value: object, path: str) -> str:
    if not isinstance(value, str):
        raise _MismatchError(path, f"wanted a text, got {_show(value)}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise _MismatchError(path, "wanted Unicode text, got half a surrogate pair") from error
    return value


def _pairs(raw: object, path: str) -> list[tuple[str, object]]:
    if not isinstance(raw, _Object):
        raise _MismatchError(path, f"wanted an object, got {_show(raw)}")
    return raw.pairs


def _unwrap(hint: object) -> object:
    """Return X of `X | None`, the only union a result uses."""
    (inner,) = (each for each in get_args(hint) if each is not type(None))
    return inner


def _show(raw: object) -> str:
    if isinstance(raw, _Object):
        return "an object"
    if isinstance(raw, list):
        return "a list"
    if raw is None:
        return "null"
    text = repr(raw)
    return text if len(text) <= 60 else f"{text[:57]}..."
