"""Networks of a user's own code."""

import threading
from pathlib import Path

import pytest
import torch

from tacit.nn import OwnModel, build_network

pytestmark = pytest.mark.usefixtures("code_is_allowed")

CODE = """
import threading
from torch import nn

def make_model():
    first = nn.Linear(3, 3)
    meanwhile = getattr(threading, "meanwhile_of_test", None)
    if meanwhile is not None:
        meanwhile()
    return nn.Sequential(first, nn.Linear(3, 2))

def make_other():
    return nn.Linear(3, 3)
"""


def test_a_party_that_makes_a_network_does_not_disturb_the_seed_of_another(tmp_path, monkeypatch):
    code = tmp_path / "net.py"
    code.write_text(CODE)
    other = OwnModel.read(Path(f"{code}:make_other"))

    def build():
        return build_network((), Path(f"{code}:make_model"), (3,), seed=7).state_dict()

    def meanwhile():
        one = threading.Thread(target=other.make, daemon=True)
        one.start()
        one.join(0.2)  # it has to wait until the network of this party is made

    alone = build()
    monkeypatch.setattr(threading, "meanwhile_of_test", meanwhile, raising=False)
    together = build()
    assert all(torch.equal(alone[name], value) for name, value in together.items())
