"""The game of a malicious participant, and the sweep of a defence."""

import pytest
import torch
from torch import nn

from tacit.audit import Fleet, TorchTrainer
from tacit.audit.membership import Effort, Push, sweep
from tacit.audit.targets import play_rounds
from tacit.errors import ConfigError, DataError

ROWS = 60


@pytest.fixture
def pool():
    generator = torch.Generator().manual_seed(0)
    x = torch.empty(ROWS, 8).normal_(generator=generator)
    y = (torch.empty(ROWS).uniform_(generator=generator) * 3).long()
    return x, y, torch.arange(ROWS) < ROWS // 2


def build():
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))


PUSH = Push(clients=3, warm_rounds=2, rounds=4, steps=4, batch=8, rate=0.2)


def test_a_push_raises_the_loss_and_the_others_lower_it_for_members(pool):
    x, y, is_member = pool
    seen = play_rounds(build(), x, y, is_member, push=PUSH, seed=0)
    assert seen.quiet.shape == (2, ROWS)
    assert seen.pushed.shape == seen.returned.shape == (4, ROWS)
    drop = (seen.pushed - seen.returned).mean(0)
    assert float(drop[is_member].mean()) > 0
    assert float(seen.returned[-1][is_member].mean()) < float(seen.returned[-1][~is_member].mean())


def test_nobody_learns_from_records_that_are_not_members(pool):
    x, y, is_member = pool
    torch.manual_seed(0)
    model = build()
    first = play_rounds(model, x, y, is_member, push=PUSH, seed=0)
    other = y.clone()
    other[~is_member] = (other[~is_member] + 1) % 3
    quiet = play_rounds(model, x, other, is_member, push=PUSH, seed=0).quiet
    # Before the first push the labels of strangers have touched nothing.
    assert torch.equal(first.quiet[:, is_member], quiet[:, is_member])


def test_every_client_needs_a_member(pool):
    x, y, _ = pool
    with pytest.raises(DataError, match="a member for each of 3 clients"):
        play_rounds(build(), x, y, torch.arange(ROWS) < 2, push=PUSH, seed=0)


@pytest.mark.parametrize("wrong", [{"clients": 0}, {"rounds": 0}, {"length": 0.0}])
def test_a_push_that_makes_no_sense_is_refused(wrong):
    with pytest.raises(ConfigError):
        Push(**wrong)


def test_a_sweep_shows_that_less_training_leaks_less(pool):
    x, y, is_member = pool
    sides = (x[is_member], y[is_member]), (x[~is_member], y[~is_member])
    trainers = {
        f"epochs {epochs}": TorchTrainer(build=build, epochs=epochs, batch=8, rate=0.1)
        for epochs in (1, 40)
    }
    effort = Effort(threats=("scores",))
    curve, sheet = sweep(trainers, *sides, name="epochs", effort=effort, fleet=Fleet())
    assert [row[0] for row in sheet.rows] == ["epochs 1", "epochs 40"]
    areas = [float(row[2].split()[0]) for row in sheet.rows]
    assert areas[0] < areas[1]
    assert sorted(y for _, y in curve.points) == pytest.approx(areas, abs=1e-3)
    with pytest.raises(ConfigError, match="one setting"):
        sweep({}, *sides, name="epochs", effort=effort, fleet=Fleet())
