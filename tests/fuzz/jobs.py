"""Random jobs: examples with some keys set to other values that their types admit.

A job is refused by name when it is read or planned, or it runs, and then its plan was right: the
ledger is the one that was foreseen, entry by entry, and what was metered is what was forecast.
"""

import os
import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from fuzz.judge import Verdict
from golden.jobs import changed, foresee, run_job
from golden.keys import keys_of
from golden.product import KINDS, InputError, TacitError, read_job, strip_type

_FEW = {"data.owners.bank.rows": [0, 40], "data.owners.insurer.rows": [10, 50]}
_DIGITS = {"data.owners.north.rows": [0, 40], "data.owners.south.rows": [40, 80]}
SMALL: dict[str, dict[str, Any]] = {
    "predict-breast-cancer": {"data.limit": 12},
    "predict-permuted": {},
    "train-digits": {**_DIGITS, "training.epochs": 1, "model.layers": ["dense 10"]},
    "train-columns": {"training.epochs": 1},
    "fit-columns": {**_FEW, "learner": {"kind": "gaussian-bayes"}},
    "fl-digits": {"data.rows": 200, "federated.rounds": 1, "federated.clients": 5},
    "fl-shuffle": {"data.rows": 300, "federated.rounds": 1},
    "fl-threshold": {"data.rows": 200, "federated.rounds": 1},
    "split": {"train.epochs": 1, "data.set": "iris", "model.width": 8},
}
"""Examples, as small as they can be."""
BESIDE = ("job.", "parties.", "network.", "transport.", "federated.engine")
LONG = ("epochs", "rounds", "trees", "max_iter", "clients", "steps", "n_init", "width")
"""Of these small numbers are drawn alone: they say how long a job takes."""
WHOLE = (0, 1, 2, 3, 5, 8, 20, 64)
FRACTIONS = (0.0, 1e-6, 0.01, 0.1, 0.25, 0.5, 0.9, 1.0, 2.0, 8.0, 100.0)


@dataclass(frozen=True)
class DrawnJob:
    """An example by name, and what its keys are set to."""

    name: str
    keys: tuple[tuple[str, Any], ...]

    @property
    def tables(self) -> dict[str, Any]:
        """Return what the job file says."""
        found: dict[str, Any] = changed(self.name, SMALL[self.name] | dict(self.keys))
        return found


@cache
def _keys(name: str) -> list[tuple[str, object]]:
    kind = changed(name, {})["job"]["kind"]
    found = [(one.dotted, strip_type(one.hint)) for one in keys_of(KINDS[kind]().record)]
    return [
        (dotted, hint)
        for dotted, hint in found
        if not dotted.startswith(BESIDE) and "[]" not in dotted and _values(dotted, hint)
    ]


def _values(dotted: str, hint: object) -> tuple[Any, ...]:
    """List values of a key's type; none for names, paths and tables, which jobs have right."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    if hint is bool:
        return (True, False)
    if hint is int:
        return WHOLE[:4] if dotted.endswith(LONG) else WHOLE
    if hint is float:
        return FRACTIONS
    inner = [one for one in get_args(hint) if one is not type(None)]
    if len(inner) == 1 and type(None) in get_args(hint) and not is_dataclass(inner[0]):
        return _values(dotted, strip_type(inner[0]))
    return ()


def draw_job(seed: int) -> DrawnJob:
    """Draw a job; the same seed gives the same one."""
    rng = random.Random(seed)  # noqa: S311 - jobs are no secrets
    name = rng.choice([*SMALL])
    owners = [*changed(name, {}).get("data", {}).get("owners", {})]
    keys = {}
    for _ in range(rng.randint(1, 4)):
        dotted, hint = rng.choice(_keys(name))
        if "NAME" in dotted and not owners:
            continue
        keys[dotted.replace("NAME", rng.choice(owners or [""]))] = rng.choice(_values(dotted, hint))
    return DrawnJob(name, tuple(keys.items()))


def judge_job(drawn: DrawnJob) -> Verdict:
    """Read, plan and run it, and hold its ledger and cost against the plan."""
    with _place():
        try:
            job = read_job(drawn.tables, source="job.toml")
            foreseen = foresee(job)
        except InputError as refusal:
            return Verdict("refused", str(refusal))
        except Exception as error:
            return Verdict("wrong", f"planning ended in {type(error).__name__}: {error}")
        try:
            ran = run_job("job", raw=drawn.tables)
        except InputError as refusal:
            return Verdict("refused", f"in the run: {refusal}")
        except TacitError as error:
            return Verdict("wrong", f"the run ended in {type(error).__name__}: {error}")
        except Exception as error:
            return Verdict("wrong", f"the run ended in {type(error).__name__}: {error}")
    return _compared(ran) if foreseen.forecast is not None else Verdict("right")


def _compared(ran: dict[str, Any]) -> Verdict:
    planned, seen = ran["plan"], ran["result"]
    if odd := sorted(set(planned["ledger"]) ^ set(seen["ledger"])):
        return Verdict("wrong", f"the ledger is not the one foreseen: {odd[:4]}")
    metered = [one for one in seen["metered"]["traffic"] if not one.startswith("setup")]
    if odd := sorted(set(planned["cost"]["traffic"]) ^ set(metered)):
        return Verdict("wrong", f"what was sent is not what was forecast: {odd[:4]}")
    if seen["metered"]["rounds"] != planned["cost"]["rounds"]:
        return Verdict("wrong", f"{seen['metered']['rounds']}, not {planned['cost']['rounds']}")
    return Verdict("right")


@contextmanager
def _place() -> Iterator[None]:
    """Work in an empty folder, for one's own user, with no data but what everybody has."""
    before, home = Path.cwd(), os.environ.get("HOME", "")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ["HOME"] = folder
        try:
            yield
        finally:
            os.chdir(before)
            os.environ["HOME"] = home


def shrink_job(drawn: DrawnJob) -> DrawnJob:
    """Leave out keys for as long as it stays wrong."""
    while True:
        for at in range(len(drawn.keys)):
            fewer = replace(drawn, keys=(*drawn.keys[:at], *drawn.keys[at + 1 :]))
            if judge_job(fewer).outcome == "wrong":
                drawn = fewer
                break
        else:
            return drawn
