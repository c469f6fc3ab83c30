"""A small training between alice and bob, with carol as dealer or helper."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from support.mpc import MEETING, PARTIES, ROLES
from support.training import train_plan
from tacit.data import Holding
from tacit.nn import make_model, parse_layers
from tacit.party import run_threads
from tacit.training import train

ROWS = 160


@pytest.fixture(scope="session")
def digits():
    found = load_digits()
    order = np.random.default_rng(0).permutation(len(found.data))[:ROWS]
    rows = torch.tensor(found.data[order] / 16)
    return rows, torch.nn.functional.one_hot(torch.tensor(found.target[order]), 10).double()


@pytest.fixture
def make_task():
    def make(*, layers=("dense 12", "relu", "dense 10"), inputs=(64,), cap=None, **changes):
        half = ROWS // 2
        settings = {
            "roles": ROLES,
            "protocol": "permuted3",
            "model": make_model(parse_layers(layers, inputs, seed=1), inputs, cap=cap),
            "holdings": (
                Holding(ROLES.first, half, inputs, "classes"),
                Holding(ROLES.second, ROWS - half, inputs, "classes"),
            ),
            "test_rows": 32,
            "batch": 32,
            "look_every": 2,
            "rate": 0.5,
            "show_to": (ROLES.first,),
            "give_to": (ROLES.second,),
            "cap": cap,
        }
        return train_plan(**{**settings, **changes})

    return make


@pytest.fixture
def run_training():
    def run(task, inputs, *, folders=None, patch=None):
        def party(session):
            rows, labels = inputs.get(session.me, (None, None))
            folder = None if folders is None else folders[session.me]
            return train(session, task, rows=rows, labels=labels, folder=folder)

        return run_threads(dict.fromkeys(PARTIES, patch or party), MEETING)

    return run
