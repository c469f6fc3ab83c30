"""CryptoNets on MNIST by protocol `he`: 4,096 pictures in slots, and one picture by itself.

CPU time of both owners on one core, for keys, encryption, evaluation and decryption; the keys and
the weights that are prepared for one picture are made before it comes and are a row of their own.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import torch
from bench import Case

from tacit.cli.environment import data_folders
from tacit.data import load_dataset
from tacit.inference.he.packing import choose_packing
from tacit.nn import import_module, load_weights, parse_layers
from tacit.ring import Prg

LAYERS = ["conv 5 5 2 1", "square", "flatten", "dense 64", "square", "dense 10"]
WEIGHTS = Path(__file__).parents[2] / "examples/jobs/infer-encrypted/cryptonets.npz"


def cases(quick: bool) -> list[Case]:
    """List what is measured; `quick` leaves out the batch."""
    one = _Run(1)
    found = [
        _case("one picture: encrypt, evaluate, decrypt", one.ask, 1.0),
        _case("one picture: keys of both sides and prepared weights, before", one.prepare, None),
    ]
    if not quick:
        found.append(_case("4,096 pictures, keys and all", _Run(4096).whole, 60.0))
    return found


def _case(name: str, run: Callable[[], float], goal: float | None) -> Case:
    title = name if goal is None else f"{name} (wanted: {goal:g} s)"
    return Case(name=title, metric="CPU time", unit="s", ours=run, peers=(), goal=None)


class _Run:
    """One question, from the pixels to the scores."""

    def __init__(self, rows: int) -> None:
        data = load_dataset("mnist", data_folders())
        self.x = data.features[-10_000:][:rows].reshape(rows, -1)
        self.labels = data.labels[-10_000:][:rows]
        module = parse_layers(LAYERS, (1, 28, 28), seed=0)
        load_weights(module, WEIGHTS)
        model = import_module(module.double())
        self.plan, self.circuit = choose_packing(
            model, model.weights, (rows, 1, 28, 28), bits=3, bound=1.0
        )
        with torch.no_grad():
            steps = torch.from_numpy(np.rint(self.x * 8) / 8).reshape(rows, 1, 28, 28)
            self.wanted = module(steps).numpy()
        self._sides: tuple[Any, ...] = ()

    def prepare(self) -> float:
        """Make keys and prepare weights."""
        began = process_time()
        client = self.plan.way.client()
        self._sides = client, self.plan.way.server(client.keys(), self.circuit)
        return process_time() - began

    def ask(self) -> float:
        """Ask with keys that are there."""
        if not self._sides:
            self.prepare()
        client, server = self._sides
        began = process_time()
        rows = np.rint(self.x * 2.0**self.plan.parameters.input_scale).astype(np.int64)
        sent: Iterator[bytes] = client.encrypt(rows)
        answers = list(server.evaluate(lambda size: next(sent), len(rows), Prg.from_os().bytes))
        found = client.decrypt(answers, len(rows)) / 2**self.plan.parameters.output_scale
        took = process_time() - began
        if not np.array_equal(found.astype(float), self.wanted):
            raise AssertionError("an answer is not the network's")
        return took

    def whole(self) -> float:
        """Ask with new keys."""
        return self.prepare() + self.ask()
