"""Wrong jobs, and what is said of them."""

import copy
import os
from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin
from unittest.mock import patch

from golden.jobs import JOBS, changed, foresee
from golden.keys import keys_of
from golden.product import (
    KINDS,
    ListedError,
    TacitError,
    kind_of,
    read_job,
    read_toml,
    strip_type,
)

INLINE: dict[str, dict[str, Any]] = {
    "audit-llm": {
        "job": {"name": "talk", "kind": "audit-llm"},
        "model": {"path": "tiny"},
        "texts": {"file": "texts.txt", "prefix": 3, "tokens": 4, "count": 2},
        "canaries": {"sentence": "my pin is ", "planted": ["ab", "ca"], "alphabet": "abc"},
        "audit": {"draws": 3, "depths": [1, 2], "noise": [0.0, 9.0]},
    },
    "verify": {
        "job": {"name": "proved", "kind": "verify"},
        "model": {"file": "forest.npz"},
        "data": {"file": "rows.csv", "label": "y"},
        "verify": {"eps": 0.02},
    },
}
"""A good job of each kind that has none in examples/jobs."""
BASES = {
    "audit": ("audit-digits", "audit-private"),
    "federated": ("fl-digits", "fl-hospitals", "fl-shuffle", "fl-threshold"),
    "fit": ("fit-columns", "fit-cipher"),
    "infer": ("predict-breast-cancer", "predict-columns", "infer-encrypted"),
    "serve": ("serve-digits",),
    "split": ("split-private",),
    "text": ("text-hospital",),
    "train": ("train-columns", "train-private", "train-text"),
}
"""Good jobs that are made wrong key by key: together they have most tables of their kinds."""


def base(name: str) -> dict[str, Any]:
    """Return the tables of a good job."""
    return copy.deepcopy(INLINE[name]) if name in INLINE else read_toml(JOBS / f"{name}.toml")


def key_refusals(kind: str) -> dict[str, Any]:
    """Put a wrong value at every key of a kind's jobs, one at a time, and list what is said."""
    found: dict[str, Any] = {}
    known: dict[str, Any] = {}
    for name in BASES.get(kind, (kind,)):
        said = {}
        for one in keys_of(KINDS[kind]().record):
            for raw, what in _wrong(base(name), one.dotted, one.hint):
                if (text := read(raw)) is not None:
                    said[f"{one.dotted} {what}"] = text
        # Of another job of the kind what is said of it alone.
        found[name] = {place: text for place, text in said.items() if known.get(place) != text}
        known |= said
    return found


def read(raw: dict[str, Any]) -> str | list[str] | None:
    """Return why tables are no job, or None if they are one."""
    try:
        read_job(raw, source="job.toml")
    except ListedError as error:
        said = [f"{one.key}: {one.text}" for one in error.problems]
        return said if len(said) > 1 else said[0]
    except TacitError as error:
        return str(error)
    return None


def _wrong(raw: dict[str, Any], dotted: str, hint: object) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield jobs that are wrong at one key."""
    if "[]" in dotted:
        return
    found = _locate(raw, dotted.split("."))
    if found is None:
        return
    at, last = found
    for value in _values(hint):
        if value != _at(raw, at).get(last):
            again = copy.deepcopy(raw)
            _at(again, at)[last] = value
            yield again, f"= {value!r}"
    again = copy.deepcopy(raw)
    _at(again, at)[f"{last}s"] = 1
    yield again, "misspelled"
    if last in _at(raw, at):
        again = copy.deepcopy(raw)
        del _at(again, at)[last]
        yield again, "left out"


def _locate(raw: dict[str, Any], steps: list[str]) -> tuple[list[str], str] | None:
    """Find the table of a key, making those that are missing; the first of what a user names."""
    table, at = raw, []
    for step in steps[:-1]:
        if step == "NAME":
            if not table:
                return None
            step = next(iter(table))
        if not isinstance(table.setdefault(step, {}), dict):
            return None
        table = table[step]
        at.append(step)
    last = steps[-1]
    return (at, last) if last != "NAME" else (at, next(iter(table), "nobody"))


def _at(raw: dict[str, Any], at: list[str]) -> dict[str, Any]:
    for step in at:
        raw = raw[step]
    return raw


def _values(hint: object) -> tuple[Any, ...]:
    inner = strip_type(hint)
    if get_origin(inner) is Literal:
        return ("nonsense", 1)
    if get_origin(inner) is tuple:
        each = strip_type(get_args(inner)[0])
        return ("x", [], [0, -1], ["nonsense", "nonsense"]) if not is_dataclass(each) else ("x",)
    if inner is bool:
        return ("x",)
    if inner is int:
        return ("x", -1, 0, 1, 2.5)
    if inner is float:
        return ("x", -1.0, 0.0, 1.0, 1e9)
    return (5, "", "nonsense") if inner in (str, Path) else (5,)


def plan_refusals(folder: Path) -> dict[str, Any]:
    """List what is said of jobs of which several keys do not go together, when they are planned."""
    (folder / "short.csv").write_text("a,b,y\n1,2,0\n")
    (folder / "ragged.csv").write_text("a,b,y\n1,2,0\n1,2\n")
    (folder / "words.csv").write_text("a,b,y\n1,two,0\n3,4,1\n")
    (folder / "empty.csv").write_text("")
    # What whoever runs the tests has allowed is nobody else's: programs are as never read.
    with patch.dict(os.environ, {"HOME": str(folder)}):
        return {f"{name} {changes}": planned(changed(name, changes)) for name, changes in TOGETHER}


def planned(raw: dict[str, Any]) -> str | list[str]:
    """Read, check and plan a job, and return what is said of it."""
    if (said := read(raw)) is not None:
        return said
    job = read_job(raw, source="job.toml")
    kind, found = kind_of(job), []
    for look in (
        lambda: kind.check_inputs(job, tuple(job.parties)),
        lambda: foresee(job),
    ):
        try:
            look()
        except TacitError as error:
            found.append(str(error))
        except Exception as error:
            found.append(f"fails with {type(error).__name__}, a bug: wanted a refusal in words")
    return list(dict.fromkeys(found)) or "nothing is wrong with it"


TOGETHER: tuple[tuple[str, dict[str, Any]], ...] = (
    # infer
    ("predict-breast-cancer", {"protocol.kind": "seald"}),
    ("predict-breast-cancer", {"protocol.kind": "he"}),
    ("predict-breast-cancer", {"protocol.kind": "enclave"}),
    ("predict-breast-cancer", {"protocol.kind": "joint"}),
    ("predict-breast-cancer", {"protocol.dealer": "hospital"}),
    ("predict-breast-cancer", {"protocol.dealer": None}),
    ("predict-breast-cancer", {"protocol.compute": ["hospital", "dealer"]}),
    ("predict-breast-cancer", {"parties.spectator": {}}),
    ("predict-breast-cancer", {"parties.lab.address": "nowhere"}),
    ("predict-breast-cancer", {"parties.lab.key": "md5:00"}),
    ("predict-breast-cancer", {"parties.lab.worker": {"device": "cpu", "address": "a:1"}}),
    ("predict-breast-cancer", {"model.owner": "hospital"}),
    ("predict-breast-cancer", {"model.bound": 0.001}),
    ("predict-breast-cancer", {"data.bound": 1e-9}),
    ("predict-breast-cancer", {"ring.frac_bits": 30}),
    ("predict-breast-cancer", {"data.set": "brest-cancer"}),
    ("predict-breast-cancer", {"data.set": None}),
    ("predict-breast-cancer", {"data.set": None, "data.part": None, "data.file": "nowhere.csv"}),
    ("predict-breast-cancer", {"data.set": None, "data.part": None, "data.file": "empty.csv"}),
    ("predict-breast-cancer", {"data.set": None, "data.part": None, "data.file": "ragged.csv"}),
    ("predict-breast-cancer", {"data.set": None, "data.part": None, "data.file": "words.csv"}),
    ("predict-breast-cancer", {"data.file": "short.csv"}),
    ("predict-breast-cancer", {"model.train": None, "model.file": "nowhere.npz"}),
    ("predict-breast-cancer", {"model.train": None}),
    ("predict-columns", {"model.shares": {"bank": "nowhere.npz"}}),
    ("predict-columns", {"data.split": "rows"}),
    ("infer-digits", {"model.file": None, "model.layers": ["dens 32"]}),
    ("infer-digits", {"model.layers": ["dense 32", "conv 3 3"]}),
    ("infer-digits", {"model.inputs": [65]}),
    ("infer-encrypted", {"ring.frac_bits": 40}),
    ("infer-encrypted", {"protocol.dealer": "clinic"}),
    ("infer-encrypted", {"protocol.reveal": "class"}),
    # fit
    ("fit-columns", {"learner.kind": "kmean"}),
    ("fit-columns", {"learner.parameters": {"max_itr": 3}}),
    ("fit-columns", {"learner.parameters": {"max_iter": "many"}}),
    ("fit-columns", {"learner.kind": "kmeans"}),
    ("fit-columns", {"data.labels": None}),
    ("fit-columns", {"data.labels": "nobody"}),
    ("fit-columns", {"data.split": "rows"}),
    ("fit-columns", {"data.matching": "fuzzy"}),
    ("fit-columns", {"data.matching": "hidden"}),
    ("fit-columns", {"protocol.dealer": "bank"}),
    ("fit-columns", {"reveal": {}}),
    ("fit-columns", {"reveal": {"scoer": ["bank"]}}),
    ("fit-columns", {"reveal": {"trees": ["bank"]}}),
    ("fit-columns", {"data.owners.bank.rows": [0, 3], "data.owners.insurer.rows": [300, 303]}),
    ("fit-columns", {"data.owners.bank.columns": [0, 99]}),
    ("fit-cipher", {"learner.kind": "kmeans"}),
    ("fit-cipher", {"protocol.dealer": "bank"}),
    ("fit-cipher", {"protocol.cipher": "rsa"}),
    ("fit-cipher", {"reveal": {"coefficients": ["bank"]}}),
    ("fit-cipher", {"learner.parameters": {"max_depth": 0}}),
    # train
    ("train-digits", {"protocol.layers": {"softmx": "sealed"}}),
    ("train-digits", {"protocol.layers": {"linear": "permuted3"}}),
    ("train-digits", {"protocol.give_to": ["nobody"]}),
    ("train-digits", {"protocol.dealer": "north"}),
    ("train-digits", {"model.layers": ["dense 3"]}),
    ("train-digits", {"model.layers": ["flatten", "conv 8 3"]}),
    ("train-digits", {"training.batch": 100_000}),
    ("train-digits", {"training.loss": "logistic"}),
    ("train-digits", {"training.optimiser": "sdg"}),
    ("train-digits", {"training.schedule": "cosin"}),
    ("train-digits", {"training.accumulate": 7}),
    ("train-digits", {"training.warmup": 10_000}),
    ("train-digits", {"data.labels": "north"}),
    ("train-digits", {"data.split": "columns"}),
    ("train-digits", {"data.owners.north": {}}),
    ("train-digits", {"data.owners.north": {"file": "nowhere.csv"}}),
    ("train-digits", {"data.owners.north": {"set": "digits", "scale": [2.0]}}),
    ("train-digits", {"data.owners.north": {"set": "digits", "rows": [5000, 6000]}}),
    ("train-digits", {"data.owners.north": {"set": "iris"}}),
    ("train-digits", {"model.cap": 1e-6}),
    ("train-digits", {"ring": {"frac_bits": 40}}),
    ("train-private", {"protocol.kind": "permuted3"}),
    ("train-private", {"protocol.show_to": ["north"], "protocol.score_to": ["north"]}),
    ("train-private", {"privacy.looks": "none"}),
    ("train-private", {"privacy.epsilon": None}),
    ("train-private", {"privacy.epsilon": 1e-4}),
    ("train-private", {"privacy.epsilon": 1e6}),
    ("train-private", {"privacy.delta": 0.5}),
    ("train-private", {"privacy.clip": 0.0}),
    ("train-private", {"training.accumulate": 2}),
    ("train-private", {"training.batch": 32}),
    ("train-private", {"privacy.sampling": "hidden"}),
    ("train-private", {"privacy.noise": "joint"}),
    ("train-private", {"ring": {"frac_bits": 12}}),
    ("train-private", {"data.features": None}),
    ("train-private", {"data.features": "hogg"}),
    ("train-private", {"data.features": "nowhere.py:cut"}),
    ("train-private", {"data.split": "columns", "data.labels": "north"}),
    ("train-columns", {"data.owners.bank.columns": [0, 99]}),
    ("train-columns", {"data.owners.bank.rows": [0, 2], "data.owners.insurer.rows": [300, 303]}),
    ("train-text", {"model.code": "nowhere.py:make_model"}),
    ("train-text", {"training.loss": "logistic"}),
    # federated
    ("fl-digits", {"federated.clients": 1}),
    ("fl-digits", {"federated.minimum": 50}),
    ("fl-digits", {"federated.drop_rate": 1.0}),
    ("fl-digits", {"federated.drop_rate": 0.9}),
    ("fl-digits", {"federated.colluding_share": 1.0}),
    ("fl-digits", {"federated.server": "malicious"}),
    ("fl-digits", {"federated.keys": ["00"]}),
    ("fl-digits", {"federated.shuffler": "00"}),
    ("fl-digits", {"federated.threshold": 3}),
    ("fl-digits", {"federated.aggregator": "plain", "federated.verified": True}),
    ("fl-digits", {"federated.aggregator": "shuffled"}),
    ("fl-digits", {"federated.aggregator": "encrypted", "federated.cipher": "rsa"}),
    ("fl-digits", {"federated.aggregator": "sequential"}),
    ("fl-digits", {"federated.aggregator": "bounded"}),
    ("fl-digits", {"federated.engine": "flower", "federated.aggregator": "bounded"}),
    ("fl-digits", {"privacy.kind": "local"}),
    ("fl-digits", {"privacy.kind": "shuffle"}),
    ("fl-digits", {"privacy.kind": "record"}),
    ("fl-digits", {"privacy.kind": "none"}),
    ("fl-digits", {"privacy.clip": None}),
    ("fl-digits", {"privacy.epsilon": None}),
    ("fl-digits", {"privacy.epsilon": 1e-5}),
    ("fl-digits", {"privacy.delta": 0.5}),
    ("fl-digits", {"privacy.accountant": "guess"}),
    ("fl-digits", {"privacy.accountant": "basic"}),
    ("fl-digits", {"privacy.mechanism": "laplace"}),
    ("fl-digits", {"privacy.mechanism": "objective"}),
    ("fl-digits", {"privacy.quantile": 2.0}),
    ("fl-digits", {"model.name": "resnet"}),
    ("fl-digits", {"model.stack": ["linear"]}),
    ("fl-digits", {"data.file": "nowhere.csv"}),
    ("fl-digits", {"data.set": None, "data.file": "nowhere.csv"}),
    ("fl-digits", {"parties": {"north": {}}}),
    ("fl-digits", {"train.batch": 0}),
    ("fl-hospitals", {"federated.clients": 6}),
    ("fl-hospitals", {"data.partition": "shards"}),
    ("fl-hospitals", {"privacy.records": None}),
    ("fl-hospitals", {"privacy.delta": 0.01}),
    ("fl-hospitals", {"model.stack": ["linear", "mlp"]}),
    ("fl-shuffle", {"privacy.reports": 0}),
    ("fl-shuffle", {"privacy.epsilon": 0.01}),
    ("fl-shuffle", {"federated.minimum": 2}),
    ("fl-threshold", {"federated.threshold": 1}),
    ("fl-threshold", {"federated.threshold": 8}),
    ("fl-keyed", {"federated.verified": False, "federated.authority": "00"}),
    # split
    ("split", {"data.features": ["lab"]}),
    ("split", {"data.features": ["clinic", "clinic"]}),
    ("split", {"data.labels": "nobody"}),
    ("split", {"data.set": "digit"}),
    ("split", {"model.kind": "resnet"}),
    ("split", {"model.cut": "nowhere"}),
    ("split", {"model.width": 0}),
    ("split", {"split.compress": {"kind": "randtopk"}}),
    ("split", {"split.compress": {"kind": "randtopk", "k": 1000}}),
    ("split", {"split.compress": {"kind": "zip"}}),
    ("split", {"split.defend": {"kind": "label-dp"}}),
    ("split", {"split.defend": {"kind": "label-dp", "epsilon": -1}}),
    ("split", {"split.defend": {"kind": "hope"}}),
    ("split", {"train.batch": 1}),
    ("split", {"audit.leaked_per_class": 0}),
    ("split-private", {"split.also_defend": [{"kind": "label-dp", "epsilon": 1}]}),
    # text
    ("text-hospital", {"data.texts": "nowhere.jsonl"}),
    ("text-hospital", {"data.public": "nowhere.txt"}),
    ("text-hospital", {"policy.patterns": ["digit"]}),
    ("text-hospital", {"policy.patterns": []}),
    ("text-hospital", {"train.method": "hope"}),
    ("text-hospital", {"train.method": "vote"}),
    ("text-hospital", {"train.epsilon": None}),
    ("text-hospital", {"train.unit": "word"}),
    ("text-hospital", {"canaries.count": 0}),
    ("text-hospital", {"decode": {"epsilon": 1.0}}),
    # serve
    ("serve-digits", {"service.reveal": "all"}),
    ("serve-digits", {"service.doors": {"north": "127.0.0.1:1"}}),
    ("serve-digits", {"clients": {}}),
    ("serve-digits", {"clients": {"north": {}}}),
    ("serve-digits", {"protocol.kind": "he"}),
    ("serve-digits", {"service.sizes": [0]}),
    ("serve-digits", {"model.shares": {"north": "a.npz"}}),
    # audit
    ("audit-digits", {"audit.shadows": 1}),
    ("audit-digits", {"data.set": "digit"}),
    ("audit-digits", {"model.name": "forest"}),
    ("audit-digits", {"data.test_share": 1.0}),
    ("audit-private", {"audit.threats": ["looks"]}),
    ("audit-private", {"privacy.delta": 0.0}),
    ("audit-private", {"privacy.multiplier": 0.0}),
)
