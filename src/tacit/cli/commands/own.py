"""``tacit init`` for files of one's own: what is in them, and what a job then says of them."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console

from tacit.cli.commands.examples import first_tables
from tacit.cli.screen import say
from tacit.data import load_file
from tacit.data.rows import Floats, Rows
from tacit.errors import InputError

Ask = Callable[[str, str], str]
"""Asks a question with a default, and returns the answer."""
_EXAMPLES = {
    "fit": "fit-columns",
    "train": "train-columns",
    "infer": "predict-breast-cancer",
    "federated": "fl-hospitals",
}
OWN = tuple(_EXAMPLES)
"""Kinds of jobs that files of one's own are asked for; the others begin with an example."""

_IDS = ("id", "key", "customer", "client", "patient", "person")
_LABELS = ("label", "target", "class", "outcome", "diagnosis", "default", "y", "ill")
_MOST_CLASSES = 20
_MOST_ASKED = 40
"""Columns that are asked about one by one; of more, all have one answer."""


class File(NamedTuple):
    """What a job says of one file."""

    path: str
    id: str
    label: str
    rows: Rows | None
    """Features alone; None if the file is not on this machine."""
    classes: int


def begin(
    kind: str,
    rename: Callable[[dict[str, object], Ask], dict[str, object]],
    console: Console,
    ask: Ask,
) -> dict[str, object]:
    """Ask for the files of a job, and put what is said of them into the tables of an example.

    Args:
        kind: one of `OWN`.
        rename: asks who takes part.
        console: where what was found is shown.
        ask: asks.
    """
    say(console, "Rows stay where they are; what a job says of columns is read by all parties.")
    raw = rename(first_tables(kind, _EXAMPLES[kind], Path("out")), ask)
    if kind == "federated":
        return _of_files(raw, console, ask)
    if kind == "infer":
        return _of_one_owner(raw, console, ask)
    return _of_owners(kind, raw, console, ask)


def _of_owners(kind: str, raw: dict[str, object], console: Console, ask: Ask) -> dict[str, object]:
    """Ask what each of several owners has: other rows, or other columns of the same rows."""
    data = _table(raw, "data")
    said = ask("Who of them has rows?", ", ".join(_table(data, "owners")))
    owners = [one.strip() for one in said.split(",") if one.strip()]
    question = "Do they have other rows, or other columns of the same people? (rows, columns)"
    split = _choose(question, ("columns", "rows"), console, ask)
    labels = owners[-1]
    if split == "columns":
        labels = _choose("Who has the label?", owners[::-1], console, ask)
    found: dict[str, File] = {}
    for name in owners:
        has_label = split == "rows" or name == labels
        at = f"data.owners.{name}"
        found[name] = _ask_file(at, console, ask, id=split == "columns", label=has_label)
    tables: dict[str, object] = {
        name: _stated(file=one.path, id=one.id, label=one.label) for name, one in found.items()
    }
    own: dict[str, object] = {"split": split, "test_share": data["test_share"]}
    if split == "columns":
        own["labels"] = labels
        for name, one in found.items():
            prepare = _ask_bounds([one], f"data.owners.{name}", console, ask)
            tables[name] = {**_table(tables, name), **prepare}
    else:
        own |= _ask_bounds(list(found.values()), "data", console, ask)
    raw = {**raw, "data": {**own, "owners": tables}}
    classes = max(one.classes for one in found.values())
    return raw | (_fit_training(raw, classes) if kind == "train" else _fit_reveal(raw, classes))


def _fit_training(raw: Mapping[str, object], classes: int) -> dict[str, object]:
    """Give a network as many outputs as there are classes, and batches that go by the rows."""
    training, model = _table(raw, "training"), _table(raw, "model")
    training.pop("batch")
    if classes > 2:
        model["layers"], training["loss"] = [f"dense {classes}"], "softmax"
    return {"training": training, "model": model}


def _fit_reveal(raw: Mapping[str, object], classes: int) -> dict[str, object]:
    """Leave out what is measured of two classes alone, where there are others."""
    reveal = _table(raw, "reveal")
    if classes > 2:
        reveal.pop("auc")
    return {"reveal": reveal}


def _of_one_owner(raw: dict[str, object], console: Console, ask: Ask) -> dict[str, object]:
    data, model = _table(raw, "data"), _table(raw, "model")
    one = _ask_file("data", console, ask, id=False, label=True)
    said = ask("model.file, the weights of the other party (.npz, .pt, .safetensors)", "model.npz")
    kept = {key: one for key, one in model.items() if key in ("owner", "bound")}
    own = _stated(owner=str(data["owner"]), file=one.path, label=one.label)
    own |= _ask_bounds([one], "data", console, ask)
    own["bound"] = 1.0
    kept["file"] = said
    return {**raw, "data": own, "model": kept}


def _of_files(raw: dict[str, object], console: Console, ask: Ask) -> dict[str, object]:
    """Ask for one file per client of a federated job."""
    said = ask("data.files, one per client (divided by commas)", "north.csv, south.csv, east.csv")
    paths = [one.strip() for one in said.split(",") if one.strip()]
    first = _ask_file("data.files", console, ask, id=False, label=True, path=paths[0])
    others = [_look(path, "", console) for path in paths[1:] if Path(path).exists()]
    rest = [one.without(first.label or None) for one in others if one is not None]
    files = [first, *(File("", "", "", rows, 0) for rows in rest)]
    prepare = _ask_bounds(files, "data", console, ask)
    data = {"files": [first.path, *paths[1:]], "label": first.label, **prepare}
    table = {**_table(raw, "federated"), "clients": len(paths)}
    table.pop("minimum", None)
    return {**raw, "data": data, "federated": table}


def _ask_file(
    at: str, console: Console, ask: Ask, *, id: bool, label: bool, path: str = ""
) -> File:
    """Ask for a file, and which of its columns are no features."""
    while True:
        path = path or ask(f"{at}.file (.csv, .parquet, .npz, or a description .toml)", "")
        if not path:
            continue
        if not Path(path).exists():
            say(console, f"{path} is not here, so it is not looked at: name its columns.", "yellow")
            by = ask(f"{at}.id, the column that rows are matched by", "id") if id else ""
            answer = ask(f"{at}.label, the column with the classes", "label") if label else ""
            return File(path, by, answer, None, 0)
        rows, by = _look(path, "", console), ""
        if rows is None and id:
            by = ask(f"{at}.id, if the ids are what is text (Enter: another file)", "")
            rows = _look(path, by, console) if by else None
        if rows is not None:
            break
        path = ""
    names = list(rows.columns)
    say(console, f"{path}: {len(rows):,} rows; columns: {', '.join(names)}", "bold")
    answer = ""
    if id and not by:
        by = _choose(f"{at}.id, the column that rows are matched by", _rank_ids(rows), console, ask)
    if label:
        rest = rows.without(by if by in names else None)
        question = f"{at}.label, the column with the classes (- if there is none)"
        answer = _choose(question, [*_rank_labels(rest), "-"], console, ask).removeprefix("-")
    classes = len(np.unique(_column(rows, answer))) if answer else 0
    features = rows.without(by if by in names else None).without(answer or None)
    return File(path, by, answer, features, classes)


def _look(path: str, id: str, console: Console) -> Rows | None:
    """Read a file, whatever is missing in it; say what is wrong with it, and return nothing."""
    try:
        return load_file(Path(path), label=None, allows_missing=True, id=id or None)
    except InputError as error:
        say(console, str(error), "bold red")
        say(console, "Text and dates are read by a description: docs/howto/data.md", "yellow")
        return None


def _ask_bounds(files: Sequence[File], at: str, console: Console, ask: Ask) -> dict[str, object]:
    """Ask between which numbers each column lies, in its own units; these become 0 and 1."""
    known = [one.rows for one in files if one.rows is not None]
    if not known:
        return {}
    names = known[0].columns
    if any(one.columns != names for one in known):
        say(console, "The files have other columns, or in another order: make them alike.", "red")
        return {}
    values = np.concatenate([one.unscaled() for one in known])
    if len(names) > _MOST_ASKED or not names:
        names, values = ("*",), values.reshape(-1, 1)
    say(
        console,
        "Bounds of columns, in their own units. All parties read them, so give what is",
        "dim",
    )
    say(
        console,
        "known without the rows; proposed is 1, 2 or 5 and zeros, beyond all values.",
        "dim",
    )
    tables: dict[str, object] = {}  # by column
    for name, column in zip(names, values.T, strict=True):
        tables[name] = _ask_column(f"{at}.prepare.{name}", column, console, ask)
    return {"prepare": tables}


def _ask_column(key: str, column: Floats, console: Console, ask: Ask) -> dict[str, object]:
    is_missing = np.isnan(column)
    there = column[~is_missing]
    low, high = (float(there.min()), float(there.max())) if len(there) else (0.0, 1.0)
    low, high = -round_up(-low) if low < 0 else 0.0, round_up(high) if high > 0 else 0.0
    proposed = f"{low:g}, {high if high > low else low + 1:g}"
    while True:
        said = ask(f"{key}, from and to", proposed)
        bounds = _numbers(said)
        if len(bounds) == 2 and bounds[0] < bounds[1]:
            break
        say(console, f"wanted two numbers, the smaller one first, got {said!r}", "bold red")
    table: dict[str, object] = {"clip": list(bounds), "scale": list(bounds)}
    while is_missing.any():
        said = ask(f"{key}.impute, what stands for {int(is_missing.sum()):,} missing values", "0")
        if len(_numbers(said)) == 1:
            return {"impute": _numbers(said)[0], **table}
        say(console, f"wanted a number, got {said!r}", "bold red")
    return table


def round_up(value: float) -> float:
    """Return the next of 1, 2 or 5 and zeros: it says little more than the number of digits."""
    unit = 10.0 ** math.floor(math.log10(value))
    return next(step * unit for step in (1, 2, 5, 10) if step * unit >= value)


def _rank_ids(rows: Rows) -> list[str]:
    """List columns, first what looks like ids: whole numbers, each once."""

    def rank(name: str) -> tuple[bool, bool]:
        column = _column(rows, name)
        is_key = bool((column == np.floor(column)).all()) and len(np.unique(column)) == len(column)
        return not is_key, not _sounds_like(name, _IDS)

    return sorted(rows.columns, key=rank)


def _rank_labels(rows: Rows) -> list[str]:
    """List columns, first what looks like classes: the whole numbers from 0, and few of them."""

    def rank(name: str) -> tuple[bool, bool, int, int]:
        found = np.unique(_column(rows, name))
        is_class = 1 < len(found) <= _MOST_CLASSES and (found == np.arange(len(found))).all()
        place = rows.columns.index(name)  # of equals the last: there labels usually stand
        return not is_class, not _sounds_like(name, _LABELS), len(found), -place

    return sorted(rows.columns, key=rank)


def _sounds_like(name: str, words: Iterable[str]) -> bool:
    parts = name.lower().replace("-", "_").replace(" ", "_").split("_")
    return any(word in parts for word in words)


def _column(rows: Rows, name: str) -> Floats:
    found: Floats = rows.unscaled()[:, rows.columns.index(name)]
    return found


def _choose(question: str, choices: Sequence[str], console: Console, ask: Ask) -> str:
    """Ask for one of some words, the first if nothing is said."""
    while (said := ask(question, choices[0])) not in choices:
        say(console, f"wanted one of {', '.join(choices)}, got {said!r}", "bold red")
    return said


def _numbers(text: str) -> list[float]:
    try:
        found = [float(one) for one in text.split(",")]
    except ValueError:
        return []
    return found if all(map(math.isfinite, found)) else []


def _stated(**values: str) -> dict[str, object]:
    return {key: value for key, value in values.items() if value}


def _table(raw: Mapping[str, object], key: str) -> dict[str, object]:
    found = raw.get(key)
    return dict(found) if isinstance(found, dict) else {}
