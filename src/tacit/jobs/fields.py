"""The settings of a kind of job as a person fills them in: read off the records of job files.

A form and a dialogue ask for the same fields, with the words of the records' docstrings, and make
the same tables, which the reader of job files then checks. A new kind appears by itself.
"""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Literal, get_args, get_origin, get_type_hints

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
        words: what it means.
        record: of a table or tables, the record.
        choices: of a choice, the words.
    """

    name: str
    form: Form
    hint: object
    is_required: bool
    default: str
    wanted: str
    words: str
    record: type | None = None
    choices: tuple[str, ...] = ()


@cache
def list_settings(record: type, table: str = "") -> tuple[Setting, ...]:
    """List the settings of a record; what only concerns waiting and showing comes last."""
    hints = get_type_hints(record, include_extras=True)
    words = {
        one.name: USUAL.get(f"{table}.{one.name}") or USUAL.get(one.name, "")
        for one in fields(record)
    } | _attributes(record)
    found = [_setting(one, hints[one.name], words[one.name]) for one in fields(record)]
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
    for one in list_settings(record, table_of(at)):
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


def table_of(key: str) -> str:
    """Return the last word of a dotted key."""
    return key.rpartition(".")[2]


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


def _setting(field: "Field[object]", hint: object, words: str) -> Setting:
    form, record, choices = _form(hint)
    has_factory = field.default_factory is not MISSING
    is_required = field.default is MISSING and not has_factory
    default = "" if field.default in (MISSING, None, ()) else show_value(field.default)
    wanted = "" if form in ("table", "tables", "toml") else describe_type(hint)
    return Setting(
        name=field.name,
        form=form,
        hint=hint,
        is_required=is_required,
        default=default,
        wanted=wanted,
        words=words,
        record=record,
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
            found[name] = " ".join(text.split()).replace("``", "")
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


def walk(record: type, at: str = "") -> Iterator[tuple[str, Setting]]:
    """List every setting of a record and of the tables in it, by dotted key."""
    for one in list_settings(record, table_of(at)):
        key = f"{at}.{one.name}" if at else one.name
        yield key, one
        if one.form == "table" and one.record is not None:
            yield from walk(one.record, key)
        elif one.form == "tables" and one.record is not None:
            yield from walk(one.record, f"{key}.NAME")


USUAL = {
    "job.name": "of the job: a to z, 0 to 9, _ and -, at most 32 characters",
    "job.out": "folder for the result; out/NAME if not given",
    "address": "host:port where the others reach this party; not used if all run here",
    "key": "fingerprint that `tacit keys NAME` printed; made and thrown away if all run here",
    "data.owner": "the party that has the rows and gets the answers",
    "model.owner": "the party that has the model; nobody if two parties have shares of it",
    "set": "a data set known by name, for instance breast-cancer or digits",
    "file": "a file of one's own: .csv, .npz or .parquet, or a description of a table",
    "model.file": "weights by name: .safetensors, .pt or .npz",
    "label": "the column of the file with the true classes",
    "id": "the column by which rows of several owners are matched",
    "part": "which rows of a known set",
    "test_share": "the share of rows to measure on",
    "rows": "a stretch of rows: the first, and the one after the last",
    "columns": "a stretch of columns: the first, and the one after the last",
    "shape": "of a row, for layers that want pictures",
    "scale": "divisors of the columns, so that features keep within the bound; public",
    "data.bound": "promised size of a feature after scaling; public, larger values stop the job",
    "service.bound": "promised size of a feature after scaling; public",
    "model.bound": "promised size of a weight; public",
    "model.kind": "logistic says that the model is linear; may be left out",
    "layers": "the network in words, for instance dense 64, relu, dense 10",
    "protocol.layers": "another protocol for a kind of function, for instance activations",
    "code": "file.py:function that makes the model; it is run",
    "inputs": "the shape of a row that the layers take",
    "shares": "the file with each party's share of the model",
    "cap": "where hidden values saturate; what fits if not given",
    "protocol.kind": "sealed shows nothing but sizes and declared results; permuted3 is cheaper, "
    "and a helper sees values in random order; permuted2 shows them to the second party",
    "dealer": "the party that hands out randomness; it must not compute or own an input",
    "compute": "the two parties that compute; they must not work together",
    "reveal": "what is told of each row",
    "frac_bits": "binary digits behind the point",
    "split": "whether owners have different rows, or columns of the same rows",
    "labels": "the owner of the labels, where columns are split",
    "show_to": "who learns loss and accuracy on the way",
    "give_to": "who gets the weights; without it they stay shared",
    "score_to": "who learns the scores of the rows to measure on, in the end",
    "epochs": "passes over the data",
    "batch": "rows in a step",
    "steps": "of training",
    "rate": "learning rate",
    "server_rate": "learning rate of the server",
    "schedule": "how the learning rate goes on",
    "optimiser": "how weights follow gradients",
    "momentum": "of the optimiser",
    "decay": "of Adam's second moments",
    "clip": "largest norm of a gradient",
    "weight_decay": "how strongly weights are drawn to 0",
    "l2": "weight of the squared norm of the weights, against overfitting",
    "augment": "changes pictures at random, against overfitting",
    "patience": "rounds without a better accuracy after which it stops; 0 never",
    "loss": "softmax for several classes, logistic for one score of two",
    "class_weights": "how much an error on each class counts",
    "seed": "of public choices; not secret",
    "look_every": "steps between two looks at loss, accuracy and the size of weights",
    "keep": "write checkpoints to go on from",
    "device": "where it is computed: cpu or cuda",
    "sample_rate": "the chance of a row to be in a step",
    "multiplier": "how much larger the noise is than what one row can change",
    "noise": "how the noise is drawn",
    "learner.kind": "for instance kmeans, logistic-regression, random-forest, gradient-boosting",
    "parameters": "of the learner, a line each: name = value",
    "standardise": "bring columns to mean 0 and variance 1 first",
    "also_defend": "further defences",
    "doors": 'where each server takes clients: name = "host:port"',
    "sizes": "of batches",
    "on_failure": "stop, or go on without the worker, once it is caught lying",
    "least_terms": "products with fewer terms are computed here",
    "enclave": "prove by an enclave what this party runs; simulated, for trying it out",
    "data.features": "a public rule that turns rows into others, for instance hog",
    "book": "a file in which this owner counts what private trainings spend on its rows",
    "most_epsilon": "what all trainings in the book may spend together",
    "accumulate": "batches whose gradients make one step",
    "warmup": "steps in which the learning rate grows to its full size",
    "compare": "put a plain computation beside the private one, where all inputs are here",
    "model.train": "names of layers that learn as a whole beside adapters",
    "html": "write a page beside the result",
}
"""What settings mean that records do not explain one by one, by key or by table and key."""
