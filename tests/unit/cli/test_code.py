"""A user's own code as the model of a job: where it is taken, and how it is named."""

from pathlib import Path

import pytest
import torch

from tacit.errors import ConfigError
from tacit.jobs.kinds import find_kind
from tacit.jobs.toml import read_toml
from tacit.nn import OwnModel, build_network
from tacit.nn.code import split_code
from tacit.spec import read_record
from tacit.training.plan import build

pytestmark = pytest.mark.usefixtures("code_is_allowed")

JOBS = Path(__file__).parents[3] / "examples" / "jobs"
CODE = """
from torch import nn

def make_model():
    return nn.Sequential(nn.Linear(64, 6), nn.Tanh(), nn.Linear(6, 10))

def other():
    return nn.Sequential(nn.Linear(64, 10))
"""


@pytest.fixture
def code(tmp_path):
    path = tmp_path / "net.py"
    path.write_text(CODE)
    return path


def with_code(name, code):
    """Read an example with code instead of layers."""
    raw = read_toml(JOBS / f"{name}.toml")
    del raw["model"]["layers"]
    raw["model"]["code"] = str(code)
    return read_record(raw, find_kind(raw, name).record, source=name)


def test_a_service_answers_from_ones_own_network(code):
    model = with_code("serve-digits", f"{code}:other").task().model
    assert {name: tuple(one.shape) for name, one in model.initial.items()} == {
        "0/weight": (10, 64),
        "0/bias": (10,),
    }


def test_a_training_starts_from_the_weights_of_its_seed(code):
    job = with_code("train-digits", code)
    first, second = (build(job.model, (64,)).state_dict()["0.weight"] for _ in range(2))
    assert torch.equal(first, second)


def test_a_shared_network_is_ones_own_code(code):
    assert with_code("predict", f"{code}:make_model").shared_task().model.outputs == 10


def test_a_function_may_be_named_or_left_out(code):
    assert split_code(Path("a/net.py:build")) == (Path("a/net.py"), "build")
    assert split_code(Path("a/net.py")) == (Path("a/net.py"), None)
    assert len(OwnModel.read(code)()) == 3
    assert len(OwnModel.read(Path(f"{code}:other"))()) == 1
    with pytest.raises(ConfigError, match=r"wanted a function none\(\)"):
        OwnModel.read(Path(f"{code}:none"))()


def test_drawing_weights_leaves_the_generator_of_the_process_alone(code):
    before = torch.random.get_rng_state()
    build_network((), code, (64,), seed=3)
    assert torch.equal(torch.random.get_rng_state(), before)
