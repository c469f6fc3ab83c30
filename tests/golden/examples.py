"""The programs in examples/, as they stand there: what they send, show and print."""

import contextlib
import io
import json
import re
import runpy
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from golden.product import make_identity
from golden.watch import Watch
from golden.words import TOP, masked
from support.llm import write_model
from support.machine import free_port
from support.processes import Program

FOLDER = TOP / "examples"
WATCHED = Path(__file__).with_name("watched.py")
APART = {
    "connect.py": ("clinic", "lab", "dealer"),
    "program_between_hosts.py": ("north", "south", "dealer"),
}
"""Programs whose parties are processes; the last of them need not be reached."""
JOB = """
[job]
name = "asked"
kind = "infer"
[data]
owner = "clinic"
[model]
owner = "lab"
layers = ["dense 8", "relu", "dense 2"]
inputs = [30]
[protocol]
kind = "sealed"
dealer = "dealer"
"""
ELSEWHERE = ("flower_strategy.py", "prediction_client.py")
"""On Flower's processes, and against a service: the cases of `PrivateStrategy` and "serve"."""


def alone(folder: Path, *, name: str) -> Any:
    """Run a program that has all parties in it."""
    words = [str(write_model(folder / "tiny")), "hi"] if name == "private_chat.py" else []
    said = io.StringIO()
    with (
        patch.object(sys, "argv", [name, *words]),
        Watch() as watch,
        contextlib.redirect_stdout(said),
    ):
        runpy.run_path(str(FOLDER / name), run_name="__main__")
    # A permuted chat's rounds follow the clock; see `calls.chat`.
    return {"prints": lines(said.getvalue()), **watch.seen(rounds=name != "private_chat.py")}


def apart(folder: Path, *, name: str) -> Any:
    """Run a program at every party, each a process of this machine."""
    parties = APART[name]
    write_parties(folder, parties, [JOB] if name == "connect.py" else [])
    started = {party: _start(folder, name, party) for party in parties}
    said = {party: one.communicate()[0] for party, one in started.items()}
    found: dict[str, Any] = {"prints": {party: lines(text) for party, text in said.items()}}
    for party in parties:
        seen = json.loads((folder / f"{party}.json").read_text(encoding="utf-8"))
        for part, table in seen.items():
            found.setdefault(part, {}).update(table)
    return found


def write_parties(folder: Path, parties: Sequence[str], tables: Sequence[str]) -> None:
    """Write a job file whose parties have keys and addresses here, and numbers of each."""
    lines = list(tables)
    for party in parties:
        lines.append(
            f'[parties.{party}]\nkey = "{make_identity(party, folder / "keys").fingerprint}"'
        )
        if party != parties[-1]:
            lines.append(f'address = "127.0.0.1:{free_port()}"')
            (folder / f"{party}.txt").write_text("1\n2\n3\n4\n5\n")
    for file in ("job.toml", "parties.toml"):
        (folder / file).write_text("\n".join(lines))


def _start(folder: Path, name: str, party: str) -> Program:
    script: Sequence[object] = (FOLDER / name, "--as", party)
    if name == "connect.py" and party == "dealer":
        script = ("tacit", "party", "job.toml", "--as", party)
    return Program(folder / f"{party}.json", *script, folder=folder, script=WATCHED)


def lines(text: str) -> list[str]:
    """Return what was printed, without its numbers; columns follow their widths."""
    # A rule is as wide as the figures of a run.
    return [re.sub("─+", "─", " ".join(masked(line).split())) for line in text.splitlines()]


def cases() -> dict[str, Callable[[Path], Any]]:
    """Return a case for every program."""
    found: dict[str, Callable[[Path], Any]] = {}
    for path in sorted([*FOLDER.glob("*.py"), *FOLDER.glob("research/*.py")]):
        name = path.relative_to(FOLDER).as_posix()
        if name not in ELSEWHERE:
            how = apart if name in APART else alone
            found[f"example {path.stem}"] = partial(how, name=name)
    return found
