"""A module made private, between three real processes that meet over TLS."""

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import torch

from secured_party import CREW, network, rows
from tacit.crypto import make_identity
from tacit.mpc import PROTOCOLS
from tacit.transport import listen

SCRIPT = Path(__file__).parents[1] / "secured_party.py"
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.mark.parametrize(
    "protocol",
    [
        "sealed",
        *(pytest.param(one, marks=pytest.mark.slow) for one in PROTOCOLS if one != "sealed"),
    ],
)
def test_three_processes_compute_a_module_of_which_only_the_lab_has_the_weights(tmp_path, protocol):
    keys = {name: make_identity(name, tmp_path).fingerprint for name in CREW.parties}
    with ExitStack() as stack:
        doors = {name: stack.enter_context(listen("127.0.0.1", 0)) for name in CREW.parties}
        book = {name: (door.getsockname()[1], keys[name]) for name, door in doors.items()}
        (tmp_path / "peers.json").write_text(json.dumps(book))
        children = [
            subprocess.Popen(
                [sys.executable, str(SCRIPT), name, str(tmp_path), str(door.fileno()), protocol],
                pass_fds=(door.fileno(),),
                env=ENVIRONMENT,
            )
            for name, door in doors.items()
        ]
        codes = [child.wait(timeout=240) for child in children]
    assert codes == [0, 0, 0]
    with torch.no_grad():
        wanted = network(0)(rows()).numpy()
    assert np.abs(np.load(tmp_path / "values.npy") - wanted).max() < 2e-2
