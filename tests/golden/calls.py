"""Calls from Python: what they send, show and promise, and whether what comes out is right."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.tree import DecisionTreeClassifier
from torch import nn

import tacit
from golden.jobs import changed
from golden.product import TacitError, serve_here, write_toml
from golden.watch import Watch
from golden.words import ERROR, SCORED, claim_table, cost_table, leak_lines, masked, result_table
from support.llm import write_model
from support.machine import free_ports
from tacit import federated
from tacit.dp import ADD_REMOVE_RECORD, REPLACE_RECORD, Pure, epsilon
from tacit.learners import LinearRegression, Local
from tacit.mpc import PROTOCOLS
from tacit.split import Compression, Defence
from tacit.text import (
    CausalModule,
    Text,
    TextPlan,
    by_terms,
    fine_tune,
    mark_corpus,
    tiny_model,
    train_tokenizer,
)
from tacit.training import Privacy, Training

WANTED = np.array([1.0, -2.0, 0.5, 0.0])


def _rows(count: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    coins = np.random.default_rng(0)
    x = coins.uniform(-1, 1, (count, columns)).astype(np.float32)
    return x, (x[:, 0] > x[:, 1]).astype(int)


def secure(folder: Path, *, protocol: str) -> Any:
    """Ask a network under one protocol."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3), nn.Sigmoid()).eval()
    x = torch.from_numpy(_rows(5, 4)[0])
    private = tacit.secure(module, protocol=protocol, bound=1.0)
    foreseen = private.forecast((5, 4))
    with Watch() as watch, torch.no_grad():
        answer = private(x)
        error = float((answer.values - module(x)).abs().max())
    return {
        "right": error < ERROR,
        "plan": cost_table(foreseen.cost),
        "notes": list(foreseen.notes),
        "cost": cost_table(answer.cost),
        "ledger": leak_lines(answer.ledger),
        "claims": [claim_table(one) for one in private.claims()],
        **watch.seen(),
    }


def train(folder: Path) -> Any:
    """Train on shares, with privacy."""
    torch.manual_seed(0)
    x, y = _rows(60, 4)
    with Watch() as watch:
        found = tacit.train(
            nn.Linear(4, 2),
            {"north": (x[:30], y[:30]), "south": (x[30:], y[30:])},
            epochs=3,
            epsilon=4.0,
            delta=1e-3,
        )
    return _found(found, watch)


def federate(folder: Path) -> Any:
    """Train with clients, with privacy."""
    torch.manual_seed(0)
    x, y = _rows(60, 4)
    clients = [(x[at::6], y[at::6]) for at in range(6)]
    promise = federated.Privacy(kind="central", clip=1.0, epsilon=8.0, delta=1e-3)
    with Watch() as watch:
        found = tacit.federated.fit(
            nn.Linear(4, 2), clients, rounds=2, privacy=promise, drop_rate=0.2, minimum=4
        )
    return {
        "claims": [claim_table(one) for one in found.claims],
        "measures": [masked(one.name) for one in found.metrics],
        "notes": [masked(one) for one in found.notes if not one.startswith(SCORED)],
        "events": watch.events_of(found.claims),
        **watch.seen(),
    }


def learn(folder: Path) -> Any:
    """Fit a classical learner on columns of two owners."""
    x, _ = _rows(40, 4)
    y = x @ WANTED
    with Watch() as watch, Local("bank", "shop") as parties:
        table = parties.columns({"bank": x[:, :2], "shop": (x[:, 2:], y)})
        model = LinearRegression()
        foreseen = model.forecast(table, parties)
        model.fit(table, parties)
        ledger = parties.ledger()
        cost = parties.cost()
        error = np.abs(model.coef_.reveal(to=("bank",)).ravel() - WANTED).max()
    return {
        "right": bool(error < ERROR),
        "plan": cost_table(foreseen.cost),
        "ledger": leak_lines(ledger),
        "cost": cost_table(cost),
        **watch.seen(),
    }


def split(folder: Path) -> Any:
    """Train a model cut in two."""
    torch.manual_seed(0)
    x, y = _rows(60, 4)
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
    with Watch() as watch:
        found = tacit.split.fit(
            model, features=x, labels=y, cut="1", compress=Compression(kind="topk", k=2)
        )
    return _found(found, watch)


def chat(folder: Path, *, protocol: str) -> Any:
    """Say something to a tiny language model."""
    model = write_model(folder / "tiny")
    with tacit.llm.chat(model, protocol="plain", limit=3) as talk:
        plain = talk.say("hello").text
    with Watch() as watch, tacit.llm.chat(model, protocol=protocol, limit=3) as talk:
        said = talk.say("hello").text
        spent, learned = talk.spent, talk.learned
        claims = talk.claims
    return {
        "right": said == plain,
        "sent": {
            "online bytes": spent.payload_bytes,
            "offline bytes": spent.offline_bytes,
            **({"round trips": spent.round_trips} if protocol == "sealed" else {}),
        },
        "learned": {who: leak_lines(leaks) for who, leaks in sorted(learned.items())},
        "claims": [claim_table(one) for one in claims],
        # Orders of masks cross the tokens of a permuted chat: which waits for which is not fixed.
        **watch.seen(rounds=protocol == "sealed"),
    }


def serve(folder: Path) -> Any:
    """Answer a client of a prediction service over TLS."""
    doors = free_ports(2)
    raw = changed(
        "serve-digits",
        {
            "model": {
                "layers": ["dense 3"],
                "inputs": [4],
                "shares": {name: f"half-{name}.npz" for name in ("north", "south")},
            },
            "service.sizes": [1, 4],
            "service.doors": {
                name: f"127.0.0.1:{door}"
                for name, door in zip(("north", "south"), doors, strict=True)
            },
        },
    )
    (folder / "job.toml").write_text(write_toml(raw))
    weight, mask = np.arange(12).reshape(3, 4) << 14, np.arange(12) * 2**58
    arrays = {"0/weight": weight, "0/bias": np.zeros(3, np.int64)}
    for name, sign in (("north", 1), ("south", -1)):
        half = {
            key: value * (name == "north") + sign * mask[: value.size].reshape(value.shape)
            for key, value in arrays.items()
        }
        np.savez(folder / f"half-{name}.npz", frac_bits=np.array(16), **half)
    x = _rows(5, 4)[0]
    with Watch() as watch:
        result, answers = _ask(folder / "job.toml", folder / "keys", x)
    plain = torch.from_numpy(x / 16 @ (weight / 2**16).T).argmax(1)
    return {
        "right": answers.round().long().tolist() == plain.tolist(),
        "result": result_table(result),
        **watch.seen(),
    }


def _ask(job: Path, keys: Path, x: np.ndarray) -> tuple[Any, torch.Tensor]:
    """Start a service, ask it as a client, and stop it."""
    stop, told = threading.Event(), threading.Semaphore(0)
    with ThreadPoolExecutor(1) as pool:
        service = pool.submit(
            serve_here, job, keys=keys, note=lambda text: told.release(), stop=stop
        )
        service.add_done_callback(lambda done: told.release(3))
        try:
            for _ in range(3):  # each of the three says once that it is up
                told.acquire()
            if not service.done():
                with tacit.connect(job, "ann", keys=keys) as client:
                    answers = client.run(x).values
        finally:
            stop.set()
        return service.result(), answers


def _found(found: Any, watch: Watch) -> Any:
    return {
        "ledger": leak_lines(found.ledger),
        "cost": cost_table(found.cost),
        "claims": [claim_table(one) for one in found.claims],
        "measures": [masked(one.name) for one in found.metrics],
        "events": watch.events_of(found.claims),
        **watch.seen(),
    }


def refused(folder: Path) -> Any:
    """List what is said of calls that cannot be right."""
    x, y = _rows(20, 4)
    two = {"north": (x[:10], y[:10]), "south": (x[10:], y[10:])}
    line, deep = nn.Linear(4, 2), nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    clients = [(x[:10], y[:10]), (x[10:], y[10:])]
    promise = federated.Privacy(kind="central", clip=1.0, epsilon=8.0, delta=1e-3)
    text = [Text(text="I am 9.", owner="a")]
    words = train_tokenizer(["I am nine"], size=270)

    def tune(term: str, plan: TextPlan) -> object:
        corpus = mark_corpus(text, words, by_terms([term]))
        return fine_tune(CausalModule(tiny_model(words.size, width=8)), corpus, plan)

    calls: dict[str, Callable[[], object]] = {
        "secure: a protocol's name": lambda: tacit.secure(line, protocol="seald"),
        "secure: a layer": lambda: tacit.secure(nn.PReLU()),
        "secure: no model": lambda: tacit.secure(3),
        "secure: bits": lambda: tacit.secure(line, frac_bits=40)(x),
        "secure: the shape of rows": lambda: tacit.secure(line)(x[:, :3]),
        "secure: rows beyond a bound": lambda: tacit.secure(line, bound=0.1)(x),
        "secure: not a number": lambda: tacit.secure(line)(np.full((1, 4), np.nan)),
        "secure: a forecast without a bound": lambda: tacit.secure(line).forecast((5, 4)),
        "secure: classes of a forest": lambda: tacit.secure(
            DecisionTreeClassifier().fit(x, y), reveal="output"
        ),
        "secure: what is revealed": lambda: tacit.secure(line, reveal="clas"),
        "secure: a device": lambda: tacit.secure(line, device="abacus")(x),
        "train: one owner": lambda: tacit.train(line, {"north": (x, y)}),
        "train: a δ of one record in all": lambda: tacit.train(line, two, epsilon=1.0, delta=0.5),
        "train: classes": lambda: tacit.train(nn.Linear(4, 1), two),
        "train: columns": lambda: tacit.train(nn.Linear(5, 2), two),
        "train: δ without ε": lambda: tacit.train(line, two, delta=1e-3),
        **{
            f"train: {word}": lambda word=word: Privacy(epsilon=4.0, delta=1e-3, **{word: "other"})
            for word in ("looks", "noise", "sampling")
        },
        **{
            f"train: {word}": lambda word=word: tacit.train(line, two, **{word: "other"})
            for word in ("loss", "protocol")
        },
        "train: schedule": lambda: tacit.train(line, two, training=Training(schedule="other")),
        "train: an optimiser": lambda: Training(optimiser="other"),
        "train: a batch": lambda: tacit.train(line, two, batch=1000),
        "federated: one client": lambda: tacit.federated.fit(line, clients[:1]),
        "federated: no ε": lambda: federated.Privacy(kind="central", clip=1.0),
        "federated: a privacy": lambda: federated.Privacy(kind="centrl", clip=1.0, epsilon=1.0),
        **{
            f"federated: {word}": lambda word=word: tacit.federated.fit(
                line, clients, privacy=promise, **{word: "other"}
            )
            for word in ("engine",)
        },
        **{
            f"federated: {word}": lambda word=word: federated.Federation(
                clients=6, rounds=2, aggregator="encrypted", colluding_share=0.0, **{word: "other"}
            )
            for word in ("server", "cipher")
        },
        "federated: a mechanism": lambda: federated.Privacy(
            kind="central", clip=1.0, epsilon=1.0, mechanism="laplace"
        ),
        "federated: an aggregator": lambda: tacit.federated.fit(line, clients, aggregator="sum"),
        "federated: privacy and aggregator": lambda: tacit.federated.fit(
            line, clients, aggregator="shuffled", privacy=promise
        ),
        "federated: too few who stay": lambda: tacit.federated.fit(
            line, clients, privacy=promise, drop_rate=0.9
        ),
        "federated: a model's name": lambda: tacit.federated.fit("resnet", clients),
        "learners: one owner": lambda: Local("bank"),
        "learners: a protocol": lambda: Local("bank", "shop", protocol="other"),
        "split: no such layer": lambda: tacit.split.fit(deep, features=x, labels=y, cut="9"),
        "split: more than there is": lambda: tacit.split.fit(
            deep, features=x, labels=y, cut="1", compress=Compression(kind="topk", k=9)
        ),
        "split: a kind of defence": lambda: Defence(kind="other"),
        "split: a kind of compression": lambda: Compression(kind="other"),
        "split: a defence": lambda: Defence(kind="label-dp"),
        "split: rows and labels": lambda: tacit.split.fit(deep, features=x, labels=y[:9], cut="1"),
        "text: a method": lambda: tune("I", TextPlan(method="hope", epsilon=1.0, rank=2)),
        "text: a unit": lambda: tune("I", TextPlan(unit="other", epsilon=1.0, rank=2)),
        "text: nothing that is marked": lambda: tune("nothing", TextPlan(method="jft", epsilon=1)),
        "chat: a protocol's name": lambda: _open_chat(folder, protocol="seald"),
        "chat: no model": lambda: _open_chat(folder, model=folder / "nowhere"),
        "connect: no job": lambda: tacit.connect(folder / "nowhere.toml", "ann").__enter__(),
        "audit: members that are strangers": lambda: tacit.audit.membership(
            DecisionTreeClassifier().fit(x, y), (x, y), (x[:0], y[:0])
        ),
        "dp: relations that do not add up": lambda: epsilon(
            [
                Pure(epsilon=1.0, relation=relation, mechanism="m")
                for relation in (ADD_REMOVE_RECORD, REPLACE_RECORD)
            ],
            delta=1e-5,
        ),
    }
    return {name: _said(call) for name, call in calls.items()}


def _open_chat(folder: Path, model: Path | None = None, protocol: Any = "sealed") -> None:
    with tacit.llm.chat(model or write_model(folder / "tiny"), protocol=protocol):
        pass


def _said(call: Callable[[], object]) -> str:
    try:
        call()
    except TacitError as error:
        return str(error)
    except Exception as error:
        return f"fails with {type(error).__name__}, a bug: wanted a refusal in words"
    return "nothing is wrong with it"


SLICE: dict[str, Callable[[Path], Any]] = {
    **{f"secure {name}": partial(secure, protocol=name) for name in PROTOCOLS},
    "train from Python": train,
    "federated from Python": federate,
    "learners from Python": learn,
    "split from Python": split,
    "refused from Python": refused,
    "serve": serve,
    "chat sealed": partial(chat, protocol="sealed"),
    "chat permuted": partial(chat, protocol="permuted"),
}
