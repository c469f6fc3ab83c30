"""The frontier of a defence at the cut, here and on a cluster."""

import sys
from functools import partial

import pytest

from support.machine import FakeRay
from tacit.audit.split import CutAudit, audit_whole
from tacit.audit.split.sweep import Swept, draw_sweep, sweep_here, sweep_on_ray, try_strength
from tacit.data import load_dataset
from tacit.party import Progress
from tacit.split import CutSpec, Defence, NetworkSpec, SplitData, SplitSpec, TrainingPace
from tacit.split.local import make_bottom
from tacit.split.rows import divide_whole

SPEC = SplitSpec(
    data=SplitData(features=("clinic",), labels="lab", classes=3),
    model=NetworkSpec(width=8),
    split=CutSpec(defend=Defence(kind="potential-energy", weight=1.0)),
    train=TrainingPace(epochs=4, batch=15, rate=0.01),
)


@pytest.fixture(scope="module")
def iris():
    return divide_whole(load_dataset("iris", ()), test_share=None, rows=None)


def half(strength):
    return Swept(accuracy=strength / 2, attack=strength, base_line=0.5, gradients=1.0)


def test_strengths_are_tried_in_the_order_asked_for_and_counted():
    told = []
    found = sweep_here(half, [0.5, 0.25], report=told.append)
    assert [one.attack for one in found] == [0.5, 0.25]
    assert told == [1, 2]


def test_the_frontier_has_one_point_for_each_strength_beside_the_base_line(iris):
    frontier, gradients, base = draw_sweep(SPEC, iris, how=CutAudit(sweep=(4.0, 0.25)))
    assert frontier.name == "the bottom model, potential-energy, weight swept"
    assert gradients.name == "training labels by gradients, potential-energy, weight swept"
    assert len(frontier.points) == len(gradients.points) == 2
    assert list(frontier.points) == sorted(frontier.points)
    assert min(share for _, share in gradients.points) > 0.6  # the loss does not protect them
    assert base.points[0][1] == base.points[1][1]


def test_every_attack_on_the_finished_model_is_announced(iris):
    told = []
    metrics, curves = audit_whole(
        SPEC,
        make_bottom(SPEC, iris.train_x.shape[1:]),
        iris,
        how=CutAudit(),
        progress=Progress(lambda stage, done, total: told.append(stage)),
    )
    assert metrics[-1].name == "input reconstruction"
    assert curves == ()
    assert told == ["attacking labels at the cut", "rebuilding inputs from the cut"]


@pytest.mark.slow
@pytest.mark.usefixtures("ray_tidied")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
def test_a_cluster_finds_what_this_machine_finds(iris):
    pytest.importorskip("ray")
    trial = partial(try_strength, SPEC, iris, 1)
    strengths = [0.25, 1.0]
    found = sweep_on_ray(trial, strengths, address="local")
    assert found == sweep_here(trial, strengths)


def test_a_cluster_tries_all_strengths_and_keeps_their_order(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", FakeRay())
    assert sweep_on_ray(half, [0.5, 0.25], address="local") == sweep_here(half, [0.5, 0.25])
