"""Private trainings of three owners and a dealer in threads, and how to kill one of them."""

import numpy as np
import torch
from sklearn.datasets import load_digits

from tacit.data import Holding
from tacit.data.source import OwnerTable
from tacit.mpc import Roles
from tacit.nn import make_model, parse_layers
from tacit.party import Meeting, run_threads
from tacit.ring import FixedPoint
from tacit.training import (
    Privacy,
    StateFolder,
    TrainData,
    Training,
    TrainModel,
    TrainPlan,
    TrainProtection,
    TrainSpec,
    schedule,
    train,
)

OWNERS = ("bank", "shop", "clinic")
NAMES = (*OWNERS, "dealer")
ROLES = Roles("bank", "shop", "dealer")
STEPS = 6
TO = ("show_to", "give_to", "score_to")


def train_plan(
    *,
    roles,
    model,
    holdings,
    protocol="sealed",
    split="rows",
    test_rows=1,
    frac_bits=16,
    bound=1.0,
    weight_bound=4.0,
    cap=None,
    head=None,
    privacy=None,
    **others,
):
    """Return the plan of a training in which each setting has one name, whatever its table."""
    counts = [one.rows for one in holdings]
    labels = next((one.owner for one in holdings if one.has_labels), None)
    total = sum(counts) if split == "rows" else counts[0]
    shares = {"test_share": test_rows / total} if test_rows and total else {}
    spec = TrainSpec(
        data=TrainData(
            owners={one.owner: OwnerTable() for one in holdings},
            split=split,
            labels=labels if split == "columns" else None,
            bound=bound,
            **shares,
        ),
        model=TrainModel(bound=weight_bound, cap=cap),
        protocol=TrainProtection(
            kind=protocol,
            dealer=roles.dealer,
            compute=roles.computing,
            **{name: others.pop(name) for name in TO if name in others},
        ),
        training=Training(**others),
        ring=FixedPoint(frac_bits=frac_bits),
        privacy=privacy,
    )
    return TrainPlan(
        spec=spec, holdings=tuple(holdings), model=model, head=head, bound=bound, cap=cap
    )


def changed(plan, **changes):
    """Return a plan with other settings."""
    spec = plan.spec
    known = {
        "roles": spec.roles,
        "model": plan.model,
        "holdings": plan.holdings,
        "protocol": spec.protocol.spelled,
        "split": spec.data.split,
        "test_rows": plan.test_rows,
        "frac_bits": plan.frac_bits,
        "bound": plan.bound,
        "weight_bound": spec.weight_bound,
        "cap": plan.cap,
        "head": plan.head,
        "privacy": spec.privacy,
        **{name: getattr(spec.protocol, name) for name in TO},
        **vars(spec.training),
    }
    return train_plan(**{**known, **changes})


def digits_of(rows):
    """Return so many handwritten digits, and their classes as one-hot rows."""
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))[:rows]
    hot = torch.nn.functional.one_hot(torch.from_numpy(y[order]), 10).double()
    return torch.from_numpy(x[order] / 16 - 0.3), hot


def make_task(rows=200, layers=("dense 10",), cap=None, **changes):
    settings = {
        "roles": ROLES,
        "model": make_model(parse_layers(layers, (64,), seed=1), (64,), cap=cap),
        "holdings": tuple(Holding(owner, rows, (64,), "classes") for owner in OWNERS),
        "test_rows": rows // 2,
        "optimiser": "momentum",
        "rate": 4.0,
        "epochs": STEPS,
        "look_every": 2,
        "weight_bound": 64.0,
        "cap": cap,
        "show_to": ("bank",),
        "give_to": ("bank",),
        "privacy": Privacy(epsilon=8.0, delta=1e-4, looks="noisy", look_noise=4.0),
    }
    return train_plan(**{**settings, **changes})


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
    method = getattr(schedule.TrainingWorker, what)
    count = []

    def dying(self, action):
        found = method(self, action)
        if self._session.me == "shop":
            count.append(action.step)
            if len(count) == after:
                raise KilledError
        return found

    monkeypatch.setattr(schedule.TrainingWorker, what, dying)
