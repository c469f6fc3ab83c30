"""The settings of a kind of job as a person fills them in: read off the records of job files.

A form and a dialogue ask for the same fields, with the words of the records' docstrings, and make
the same tables, which the reader of job files then checks; the reference lists them. A new kind,
and a new key of one, appear by themselves.
"""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from tacit.errors import ConfigError
from tacit.jobs.toml import parse_toml, write_value
from tacit.spec import describe_type, strip_type

Form = Literal["text", "choice", "flag", "table", "tables", "toml"]
"""A line of text, one of a few words, yes or no, a table, a table for each of some names, TOML."""

_LAST = ("network", "report")
_ATTRIBUTE = re.compile(r"^    (\w+): (.*(?:\n     +.*)*)", re.M)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One key of a table.

    Attributes:
        name: the key.
        form: how it is filled in.
        hint: the annotation of its value.
        is_required: whether a table without it is refused.
        default: the value that stands for nothing, in words; empty if that is nothing.
        wanted: which values it takes, in words.
        words: what it means, from the record's docstring; code stands in backticks, and what
            decides what is protected begins with "privacy: ".
        is_local: whether it is one party's own business, and may differ.
        record: of a table or tables, the record.
        made: of a table that may be left out, what then stands for it.
        choices: of a choice, the words.
    """

    name: str
    form: Form
    hint: object
    is_required: bool
    default: str
    wanted: str
    words: str
    is_local: bool = False
    record: type | None = None
    made: object = None
    choices: tuple[str, ...] = ()


def list_settings(record: type, made: object = None) -> tuple[Setting, ...]:
    """List the settings of a record; what only concerns waiting and showing comes last.

    Args:
        record: the class.
        made: what stands for a table that is left out: its values are the defaults then.
    """
    hints, words = get_type_hints(record, include_extras=True), _attributes(record)
    found = [
        _setting(one, hints[one.name], words.get(one.name, ""), made) for one in fields(record)
    ]
    return tuple(sorted(found, key=lambda one: one.name in _LAST))


def state_table(record: type) -> str:
    """Say what a table is for, in the first paragraph of its record."""
    text = (inspect.getdoc(record) or "").partition("\n\n")[0]
    text = re.sub(r"^\[[^]]*\]: ", "", " ".join(text.split())).replace("``", "")
    return f"{text[:1].upper()}{text[1:]}"


def gather(
    record: type, given: Callable[[str], str], names: Callable[[str], list[str]], at: str = ""
) -> dict[str, object]:
    """Make the tables of a job file from texts.

    Args:
        record: the record of the outermost table.
        given: returns the text at a dotted key, empty if there is none.
        names: returns the names of the tables at a dotted key.
        at: where the record stands.
    """
    raw: dict[str, object] = {}
    for one in list_settings(record):
        key = f"{at}.{one.name}" if at else one.name
        if one.form == "table" and one.record is not None:
            inner = gather(one.record, given, names, key)
            if inner or one.is_required:
                raw[one.name] = inner
        elif one.form == "tables" and one.record is not None:
            found = {name: gather(one.record, given, names, f"{key}.{name}") for name in names(key)}
            if found or one.is_required:
                raw[one.name] = found
        elif text := given(key).strip():
            raw[one.name] = parse_text(text, one.hint)
    return raw


def parse_text(text: str, hint: object) -> object:
    """Read a text as a value of an annotation; what is none stays text, for the reader to refuse.

    Texts in a list are divided by commas, unless they stand in brackets, as in TOML.
    """
    inner = strip_type(hint)
    if inner is bool:
        return {"true": True, "false": False}.get(text, text)
    if inner in (int, float):
        return _number(text)
    if inner in (str, Path) or get_origin(inner) is Literal:
        return text
    if get_origin(inner) is tuple and text[0] != "[":
        parts = [part.strip() for part in text.split(",")]
        return [parse_text(part, get_args(inner)[0]) for part in parts if part]
    return _expression(text)


def show_value(value: object, form: Form = "text") -> str:
    """Write a value as `parse_text` reads it."""
    if form == "toml" and isinstance(value, Mapping):
        return "\n".join(
            f"{write_value_key(key)} = {write_value(one)}" for key, one in value.items()
        )
    if isinstance(value, str | Path):
        return str(value)
    if isinstance(value, list | tuple) and value and all(_is_plain(one) for one in value):
        return ", ".join(show_value(one) for one in value)
    return write_value(value)


def write_value_key(key: str) -> str:
    """Write a key of TOML."""
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else write_value(key)


def _setting(field: "Field[Any]", hint: object, words: str, made: object) -> Setting:
    form, record, choices = _form(hint)
    usual = field.default if field.default_factory is MISSING else field.default_factory()
    if made is not None and usual is not MISSING:
        usual = getattr(made, field.name)
    is_said = usual not in (MISSING, None, ()) and not isinstance(usual, Mapping)
    return Setting(
        name=field.name,
        form=form,
        hint=hint,
        is_required=usual is MISSING,
        default=show_value(usual) if is_said and record is None else "",
        wanted="" if form in ("table", "tables", "toml") else describe_type(hint),
        words=words,
        is_local=field.metadata.get("is_local", False),
        record=record,
        made=usual if is_said and record is not None else None,
        choices=choices,
    )


def _form(hint: object) -> tuple[Form, type | None, tuple[str, ...]]:
    inner = strip_type(hint)
    if isinstance(inner, type) and is_dataclass(inner):
        return "table", inner, ()
    if inner is bool:
        return "flag", None, ()
    if get_origin(inner) is Literal:
        return "choice", None, tuple(map(str, get_args(inner)))
    if get_origin(inner) is tuple:
        each = strip_type(get_args(inner)[0])
        return ("toml" if is_dataclass(each) else "text"), None, ()
    if inner in (str, int, float, Path):
        return "text", None, ()
    values = strip_type(get_args(inner)[1]) if len(get_args(inner)) == 2 else None
    if isinstance(values, type) and is_dataclass(values):
        return "tables", values, ()
    return "toml", None, ()


def _attributes(record: type) -> dict[str, str]:
    """Read what a docstring says of each attribute; a base class speaks for what it brings."""
    found: dict[str, str] = {}
    for one in reversed(record.__mro__):
        _, _, listed = (inspect.cleandoc(one.__doc__ or "")).partition("Attributes:\n")
        for name, text in _ATTRIBUTE.findall(listed):
            found[name] = " ".join(text.split()).replace("``", "`").rstrip(".")
    return found


def _number(text: str) -> object:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _expression(text: str) -> object:
    for whole, take in ((f"x = {text}", "x"), (text, "")):
        try:
            read = parse_toml(whole, source="")
        except ConfigError:
            continue
        return read[take] if take else read
    return text


def _is_plain(value: object) -> bool:
    return isinstance(value, str | int | float | Path) and not (
        isinstance(value, str) and ("," in value or value != value.strip() or not value)
    )


def walk(record: type, at: str = "", made: object = None) -> Iterator[tuple[str, Setting]]:
    """List every setting of a record and of the tables in it, by dotted key."""
    for one in list_settings(record, made):
        key = f"{at}.{one.name}" if at else one.name
        yield key, one
        if one.record is not None:
            inner = f"{key}.NAME" if one.form == "tables" else key
            for below, setting in walk(one.record, inner, one.made):
                yield below, replace(setting, is_local=setting.is_local or one.is_local)
