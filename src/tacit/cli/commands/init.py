"""``tacit init``: ask for a job at the terminal, and write its file."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import click
from rich.console import Console

from tacit.cli.commands import own
from tacit.cli.commands.examples import WANTS, first_tables
from tacit.cli.commands.own import Ask
from tacit.cli.commands.plan import foresee
from tacit.cli.environment import data_folders
from tacit.cli.screen import say
from tacit.errors import InputError
from tacit.jobs.fields import Setting, gather, list_settings, show_value
from tacit.jobs.folder import write_text
from tacit.jobs.kind import Asked
from tacit.jobs.kinds import KINDS, read_job
from tacit.jobs.toml import write_toml
from tacit.spec import ListedError, suggest

_BY_PARTY = frozenset({"parties", "owners", "shares", "files", "doors"})
"""Tables whose keys are names of parties."""


def interview(kind: str | None, target: Path, console: Console, ask: Ask) -> Path:
    """Ask what is wanted and who has what, check it, and write the job file.

    Raises:
        InputError: the file is there already, or cannot be written.
    """
    if target.exists():
        raise InputError(f"{target} exists and is not written over; give another name")
    kind = kind or _choose(console, ask)
    record, is_own = KINDS[kind]().record, _is_own(kind, console, ask)
    if is_own:
        raw = own.begin(kind, _rename, console, ask)
        name = target.stem.lower().replace(" ", "-")
        raw["job"] = {"name": name, "kind": kind, "out": f"out/{name}"}
    else:
        raw = _rename(first_tables(kind, "", Path("out")), ask)
        say(console, "Every setting begins with that of an example; Enter keeps it.", "dim")
    answers = {}
    for key, setting, value in _leaves(record, raw):
        if is_own and value is not None:
            answers[key] = show_value(value)
        elif not is_own and (setting.is_required or value is not None):
            answers[key] = _put(key, setting, value, console, ask)
    known = {key: setting for key, setting, _ in _leaves(record, raw)}
    while True:
        made = _gather(record, kind, answers, raw)
        wrong = _list_wrong(made, console)
        if is_own and not wrong:
            _foresee(made, console)
        question = "Which setting to change, as table.key"
        more = [key for key in wrong if key in known]
        if not more:
            said = ask(question if wrong else f"{question} (Enter: none)", "")
            if not said and not wrong:
                break
            more = [said]
        for key in more:
            if key in known:
                answers[key] = _put(key, known[key], answers.get(key), console, ask)
            else:
                say(console, f"no setting {key!r}{suggest(key, known)}", "bold red")
    write_text(target, write_toml(made))
    return target


def _is_own(kind: str, console: Console, ask: Ask) -> bool:
    """Ask what to begin with."""
    if kind not in own.OWN:
        return False
    while True:
        said = ask("Begin with an example, or with your own file? (example, own)", "example")
        if said in ("example", "own"):
            return said == "own"
        say(console, f"wanted example or own, got {said!r}", "bold red")


def _foresee(made: Mapping[str, object], console: Console) -> None:
    """Say what `tacit plan` will have against these tables."""
    try:
        foresee(read_job(made, source="the job"), Path("the job"), Asked(search=data_folders()))
    except InputError as error:
        say(console, f"not to be planned yet: {error}", "bold red")


def _list_wrong(made: Mapping[str, object], console: Console) -> list[str]:
    """Say what the reader of job files has against these tables; return the keys."""
    try:
        read_job(made, source="the job")
    except ListedError as error:
        for key, text in error.problems:
            say(console, f"{key}: {text}", "bold red")
        return [key for key, _ in error.problems]
    return []


def _choose(console: Console, ask: Ask) -> str:
    kinds = sorted(KINDS, key=lambda one: [*WANTS, one].index(one))
    for number, kind in enumerate(kinds, 1):
        title, sentence = WANTS.get(kind, (kind, ""))
        say(console, f"{number:3}  {title}: {sentence}")
    while True:
        said = ask("What do you want? (a number)", "1")
        if said.isdecimal() and 0 < int(said) <= len(kinds):
            return kinds[int(said) - 1]


def _rename(raw: dict[str, object], ask: Ask) -> dict[str, object]:
    """Ask who takes part; a new name takes the place of the one that stood there."""
    parties = raw.get("parties")
    if not isinstance(parties, dict) or not parties:
        return raw
    said = ask("Who takes part? (names, divided by commas)", ", ".join(parties))
    names = [name.strip() for name in said.split(",") if name.strip()]
    new = dict(zip(parties, names, strict=False))
    changed = _replace(raw, new)
    kept: dict[str, object] = {name: {} for name in names}
    return {**(changed if isinstance(changed, dict) else raw), "parties": kept}


def _replace(value: object, new: Mapping[str, str], at: str = "") -> object:
    """Put new names of parties where old ones stand: as values, and as keys of their tables."""
    if isinstance(value, dict):
        keys = new if at in _BY_PARTY else {}
        return {keys.get(key, key): _replace(inner, new, key) for key, inner in value.items()}
    if isinstance(value, list):
        return [_replace(inner, new) for inner in value]
    return new.get(value, value) if isinstance(value, str) else value


def _put(key: str, setting: Setting, value: object, console: Console, ask: Ask) -> str:
    about = " · ".join(filter(None, (setting.words, setting.wanted)))
    say(console, f"{key}: {about}", "dim")
    return ask(key, "" if value is None else show_value(value))


def _leaves(
    record: type, raw: Mapping[str, object], at: str = ""
) -> Iterator[tuple[str, Setting, object]]:
    """List the settings that can be asked for, with the value that each has."""
    for one in list_settings(record):
        key, value = f"{at}.{one.name}" if at else one.name, raw.get(one.name)
        inner = value if isinstance(value, dict) else {}
        if key == "job.kind":
            continue
        if one.form == "table" and one.record is not None:
            yield from _leaves(one.record, inner, key)
        elif one.form == "tables" and one.record is not None:
            for name, table in inner.items():
                yield from _leaves(one.record, table, f"{key}.{name}")
        else:
            yield key, one, value


def _gather(
    record: type, kind: str, answers: Mapping[str, str], raw: Mapping[str, object]
) -> dict[str, object]:
    def names(key: str) -> list[str]:
        value: object = raw
        for step in key.split("."):
            value = value.get(step) if isinstance(value, dict) else None
        return list(value) if isinstance(value, dict) else []

    made = gather(record, lambda key: answers.get(key, ""), names)
    head = made.get("job")
    return {**made, "job": {**(head if isinstance(head, dict) else {}), "kind": kind}}


def ask_person(question: str, default: str) -> str:
    """Ask at the terminal."""
    answer: str = click.prompt(question, default=default, show_default=bool(default), err=True)
    if not sys.stdin.isatty():
        click.echo(err=True)  # a pipe shows no answer, so nothing has ended the line
    return answer.strip()
