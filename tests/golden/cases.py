"""What is run: tiny jobs of every kind every day, all examples in `make test-all`.

A case takes an empty folder that has `examples/jobs` in it, works there,
and returns plain tables.
Simulated clients never drop out of the slice: who does is drawn afresh, and sizes follow.
"""

import contextlib
import io
import os
import runpy
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from golden import calls, examples, wrong
from golden.jobs import plan_jobs, run_job
from golden.keys import agreed_table, key_table
from golden.product import KINDS, allow
from support.llm import write_model

Case = Callable[[Path], Any]
_FEW = {"data.owners.bank.rows": [0, 40], "data.owners.insurer.rows": [10, 50]}
_SMALL_NET = ["dense 4", "relu", "dense 10"]
_FEW_DIGITS = {"data.owners.north.rows": [0, 40], "data.owners.south.rows": [40, 80]}
_CLIENTS = {"data.rows": 200, "federated.simulated_drops": 0.0}


def _job(name: str, **changes: Any) -> Case:
    return partial(_run, name=name, changes=changes)


def _run(folder: Path, *, name: str, changes: dict[str, Any], after: str | None = None) -> Any:
    if after is not None:  # it leaves a model, or shares of one
        run_job(after)
    return run_job(name, **changes)


def _attacked(folder: Path, *, name: str) -> Any:
    return run_job(name, attacked=True)


def _allowed(folder: Path) -> Any:
    """Train with a program of the job's, which its owner has read and allowed."""
    with patch.dict(os.environ, {"HOME": str(folder)}):
        allow(folder / "examples" / "jobs" / "train-text" / "model.py")
        # A step of 24 rows of 32 tokens, and two looks: the plan of all of them is in the slice.
        return run_job("train-text", **{"training.epochs": 1})


def _audit_llm(folder: Path) -> Any:
    write_model(folder / "tiny")
    (folder / "texts.txt").write_text("hello world again\nabcdefghijklmnop\na short\n")
    return run_job("audit-llm", raw=wrong.base("audit-llm"))


def _verify(folder: Path) -> Any:
    """Verify the forest of an example."""
    with contextlib.redirect_stdout(io.StringIO()):
        runpy.run_path(str(examples.FOLDER / "tree_model.py"), run_name="__main__")
    raw = wrong.base("verify")
    return run_job("verify", raw={**raw, "data": {"file": "patients.csv", "label": "diagnosis"}})


SLICE: dict[str, Case] = {
    "keys": lambda folder: key_table(),
    "agreed": lambda folder: agreed_table(),
    **{f"refused {kind}": lambda folder, kind=kind: wrong.key_refusals(kind) for kind in KINDS},
    "refused together": wrong.plan_refusals,
    "infer sealed": _job("predict-breast-cancer"),
    "infer checked": _job("predict-breast-cancer", **{"protocol.kind": "checked"}),
    "infer permuted": _job("predict-permuted"),
    "fit": _job("fit-columns", **_FEW, **{"learner": {"kind": "gaussian-bayes"}}),
    "fit cipher": _job(
        "fit-cipher", **_FEW, **{"learner.parameters": {"n_estimators": 1, "max_depth": 2}}
    ),
    "train rows": _job(
        "train-digits",
        **_FEW_DIGITS,
        **{"training.epochs": 1, "training.batch": 16, "training.look_every": 2},
        **{"model.layers": _SMALL_NET},
    ),
    "train columns": _job(
        "train-columns",
        **{"training.epochs": 1, "training.batch": 16, "training.look_every": 2},
        **{"data.owners.bank.rows": [0, 60], "data.owners.insurer.rows": [20, 80]},
    ),
    "train private": _job(
        "train-private",
        **_FEW_DIGITS,
        **{"data.owners.west.rows": [80, 120], "training.epochs": 3, "training.look_every": 2},
    ),
    "federated masked": _job(
        "fl-digits", **_CLIENTS, **{"federated.clients": 8, "federated.rounds": 2}
    ),
    "federated plain": _job(
        "fl-digits",
        **_CLIENTS,
        **{"federated.clients": 8, "federated.rounds": 2, "federated.aggregator": "plain"},
        privacy={"kind": "local", "epsilon": 20.0, "clip": 1.0},
    ),
    "federated shuffled": _job(
        "fl-shuffle",
        **_CLIENTS,
        **{"federated.clients": 40, "federated.minimum": 40, "federated.rounds": 1},
        **{"federated.drop_rate": 0.0},
    ),
    "federated keyed": _job(
        "fl-keyed",
        **_CLIENTS,
        **{"federated.clients": 6, "federated.rounds": 1, "federated.minimum": 4},
        **{"federated.drop_rate": 0.3},
    ),
    "federated record": _job("fl-hospitals", **{"federated.rounds": 2}),
    "federated bounded": _job(
        "fl-digits",
        **_CLIENTS,
        **{"federated.aggregator": "bounded", "federated.clients": 3, "federated.rounds": 1},
        privacy={"clip": 1.0},
    ),
    "federated encrypted": _job(
        "fl-encrypted", **_CLIENTS, **{"federated.clients": 3, "federated.rounds": 1}
    ),
    "split": _job("split", **{"train.epochs": 2, "data.set": "iris", "model.width": 8}),
    "split private": _job(
        "split-private", **{"train.epochs": 2, "data.set": "iris", "model.width": 8}, audit={}
    ),
    "text": _job(
        "text-hospital",
        **{"train.epochs": 1, "train.private_epochs": 1, "canaries": None, "data.length": 32},
        model={"layers": 1, "width": 16, "vocabulary": 300},
    ),
    "planned": plan_jobs,
    "audit": _job("audit-digits", **{"audit.shadows": 4, "train.epochs": 2, "data.rows": 100}),
    "audit-llm": _audit_llm,
    **calls.SLICE,
}
"""By the name of the file that says what came out."""
_NOBODY_DROPS = {"federated.simulated_drops": 0.0}
REST: dict[str, Case] = {
    **{
        f"job {name}": _job(name)
        for name in (
            *("audit-digits", "audit-private", "fit-columns", "fit-cipher"),
            *("fl-hospitals", "fl-threshold", "fl-shuffle", "infer-encrypted"),
            *("text-hospital", "train-columns", "train-digits", "train-private"),
        )
    },
    **{
        f"job {name}": _job(name, **_NOBODY_DROPS)
        for name in ("fl-digits", "fl-encrypted", "fl-keyed")
    },
    **{
        f"job {name}": partial(_run, name=name, changes={}, after=after)
        for name, after in (
            ("infer-alone", "train-digits"),
            ("infer-digits", "train-digits"),
            ("predict", "train-digits"),
            ("predict-columns", "train-columns"),
        )
    },
    **{
        f"job {name}": partial(_attacked, name=name)
        for name in ("split", "split-defended", "split-private")
    },
    "job train-text": _allowed,
    "job verify": _verify,
    # What follows takes a quarter of an hour as it stands.
    "job train-resnet": _job(
        "train-resnet", **_FEW_DIGITS, **{"training.epochs": 1, "training.batch": 16}
    ),
    "job train-mnist": _job(
        "train-mnist",
        **{"data.owners.north.rows": [0, 300], "data.owners.south.rows": [3000, 3300]},
        **{"training.epochs": 1},
    ),
    "job fl-mnist": _job("fl-mnist", **_NOBODY_DROPS, **{"federated.rounds": 2}),
    **examples.cases(),
}
NEEDS_MNIST = ("job infer-encrypted", "job train-mnist", "job fl-mnist")
