"""Calls from Python: what they send, show and promise, and whether what comes out is right."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import tacit
from golden.jobs import changed
from golden.product import serve_here, write_toml
from golden.watch import Watch
from golden.words import SCORED, claim_table, cost_table, leak_lines, masked, result_table
from llm_models import write_model
from ports import free_ports
from tacit.federated import PrivacySpec
from tacit.learners import LinearRegression, Local
from tacit.mpc import PROTOCOLS
from tacit.split import Compression

ERROR = 1e-3
"""Of answers of the small networks here at 16 bits; the page of each function declares its own."""


def _rows(count: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    coins = np.random.default_rng(0)
    x = coins.uniform(-1, 1, (count, columns)).astype(np.float32)
    return x, (x[:, 0] > x[:, 1]).astype(int)


def secure(folder: Path, *, protocol: str) -> Any:
    """Ask a network under one protocol."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3), nn.Sigmoid()).eval()
    x = torch.from_numpy(_rows(5, 4)[0])
    private = tacit.secure(module, protocol=protocol, input_bound=1.0)
    foreseen = private.forecast((5, 4))
    with Watch() as watch, torch.no_grad():
        answer = private(x)
        error = float((answer.values - module(x)).abs().max())
    return {
        "right": error < ERROR,
        "plan": cost_table(foreseen.cost),
        "notes": list(foreseen.notes),
        "cost": cost_table(answer.cost),
        "ledger": leak_lines(answer.leakage),
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
    promise = PrivacySpec(kind="central", clip=1.0, epsilon=8.0, delta=1e-3)
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
    y = x @ np.array([1.0, -2.0, 0.5, 0.0])
    with Watch() as watch, Local("bank", "shop") as parties:
        table = parties.columns({"bank": x[:, :2], "shop": (x[:, 2:], y)})
        model = LinearRegression()
        foreseen = model.forecast(table, parties)
        model.fit(table, parties)
        ledger = parties.ledger()
        cost = parties.cost()
    return {
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


SLICE: dict[str, Callable[[Path], Any]] = {
    **{f"secure {name}": partial(secure, protocol=name) for name in PROTOCOLS},
    "train from Python": train,
    "federated from Python": federate,
    "learners from Python": learn,
    "split from Python": split,
    "serve": serve,
    "chat sealed": partial(chat, protocol="sealed"),
    "chat permuted": partial(chat, protocol="permuted"),
}
