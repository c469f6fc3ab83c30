"""The frontier of a split job, here and on a cluster."""

import sys
from functools import partial

import pytest

from fake_ray import FakeRay
from tacit.cli.jobs.split_data import load_whole
from tacit.cli.jobs.split_job import SplitJob
from tacit.cli.jobs.split_sweep import Point, draw_sweep, sweep_here, sweep_on_ray, try_strength
from tacit.cli.toml import read_record
from tacit.errors import ConfigError


def make(tmp_path, **audit):
    raw = {
        "job": {"name": "test", "kind": "split", "out": str(tmp_path / "out")},
        "parties": {"lab": {}, "clinic": {}},
        "data": {"set": "iris", "features": ["clinic"], "labels": "lab"},
        "model": {"kind": "mlp", "width": 8},
        "split": {"defend": {"kind": "potential-energy", "weight": 1}},
        "train": {"epochs": 4, "batch_rows": 15, "learning_rate": 0.01},
        "audit": audit,
    }
    return read_record(raw, SplitJob, source="test")


def trial_of(job):
    data = load_whole(job, ())
    return partial(try_strength, job, job.task(data.classes), data)


def half(strength):
    return Point(accuracy=strength / 2, attack=strength, base_line=0.5, gradients=1.0)


def test_strengths_are_tried_in_the_order_asked_for():
    assert [one.attack for one in sweep_here(half, [0.5, 0.25])] == [0.5, 0.25]


def test_the_frontier_has_one_point_for_each_strength_beside_the_base_line(tmp_path):
    job = make(tmp_path, sweep=[4.0, 0.25])
    data = load_whole(job, ())
    frontier, gradients, base = draw_sweep(job, job.task(data.classes), data)
    assert frontier.name == "the bottom model, potential-energy, weight swept"
    assert gradients.name == "training labels by gradients, potential-energy, weight swept"
    assert len(frontier.points) == len(gradients.points) == 2
    assert list(frontier.points) == sorted(frontier.points)
    assert min(share for _, share in gradients.points) > 0.6  # the loss does not protect them
    assert base.points[0][1] == base.points[1][1]


def test_a_cluster_without_a_sweep_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"audit.ray: wanted audit\.sweep"):
        make(tmp_path, ray="local")


@pytest.mark.slow
@pytest.mark.usefixtures("ray_tidied")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
def test_a_cluster_finds_what_this_machine_finds(tmp_path):
    pytest.importorskip("ray")
    trial = trial_of(make(tmp_path, sweep=[0.25, 1.0]))
    strengths = [0.25, 1.0]
    found = sweep_on_ray(trial, strengths, address="local")
    assert found == sweep_here(trial, strengths)


def test_a_cluster_tries_all_strengths_and_keeps_their_order(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", FakeRay())
    assert sweep_on_ray(half, [0.5, 0.25], address="local") == sweep_here(half, [0.5, 0.25])
