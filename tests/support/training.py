"""Private trainings of three owners and a dealer in threads, and how to kill one of them."""

from dataclasses import replace

import numpy as np
import torch
from sklearn.datasets import load_digits

from tacit.mpc import Roles
from tacit.nn import make_model, parse_layers
from tacit.party import Meeting, run_threads
from tacit.training import HeldData, Optimiser, Privacy, StateFolder, TrainTask, train, worker

OWNERS = ("bank", "shop", "clinic")
NAMES = (*OWNERS, "dealer")
ROLES = Roles("bank", "shop", "dealer")
STEPS = 6


def digits_of(rows):
    """Return so many handwritten digits, and their classes as one-hot rows."""
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))[:rows]
    hot = torch.nn.functional.one_hot(torch.from_numpy(y[order]), 10).double()
    return torch.from_numpy(x[order] / 16 - 0.3), hot


def make_task(rows=200, layers=("dense 10",), cap=None, **changes):
    model = make_model(parse_layers(layers, (64,), seed=1), (64,), cap=cap)
    task = TrainTask(
        name="t",
        roles=ROLES,
        protocol="sealed",
        model=model,
        holdings=tuple(HeldData(owner, rows, (64,), True) for owner in OWNERS),
        split="rows",
        test_rows=rows // 2,
        batch=3 * rows - rows // 2,
        optimiser=Optimiser(kind="momentum"),
        rate=4.0,
        epochs=STEPS,
        watch_every=2,
        weight_bound=64.0,
        cap=cap,
        show_to=("bank",),
        give_to=("bank",),
        privacy=Privacy(epsilon=8.0, delta=1e-4, looks="noisy", look_noise=4.0),
    )
    return replace(task, **changes)


def run(task, digits, *, folders=None, rows=200, is_fresh=False):
    """Train with all parties as threads; also their costs and ledgers."""
    costs, ledgers = {}, {}

    def party(session):
        mine = {}
        if session.me in OWNERS:
            first = rows * OWNERS.index(session.me)
            mine = {
                "rows": digits[0][first : first + rows],
                "labels": digits[1][first : first + rows],
            }
        folder = None if folders is None else folders[session.me]
        found = train(session, task, folder=folder, is_fresh=is_fresh, **mine)
        costs[session.me], ledgers[session.me] = session.cost(), session.ledger.entries()
        return found

    meeting = Meeting(parties=NAMES, job_digest=bytes(32))
    return run_threads(dict.fromkeys(NAMES, party), meeting), costs, ledgers


class KilledError(Exception):
    """Stands for a kill."""


def folders_in(path):
    return {name: StateFolder(path / name, "b") for name in NAMES}


def killed(monkeypatch, after, what):
    """Let the shop die after so many of its steps or looks."""
    method = getattr(worker.TrainingWorker, what)
    count = []

    def dying(self, action):
        found = method(self, action)
        if self._session.me == "shop":
            count.append(action.step)
            if len(count) == after:
                raise KilledError
        return found

    monkeypatch.setattr(worker.TrainingWorker, what, dying)
