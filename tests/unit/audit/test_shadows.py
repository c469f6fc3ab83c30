"""Shadow models: fair coins, a cache that resumes, the same outcome however they are trained."""

import socket
import sys
from dataclasses import dataclass
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tacit.audit import Fleet, TorchTrainer, seeded, toss, train_shadows
from tacit.errors import ConfigError, DataError
from tacit.federated import build_model


def build():
    return nn.Linear(2, 2)


X = torch.arange(24.0).view(12, 2) / 24
Y = torch.arange(12) % 2
TRAINER = TorchTrainer(build=build, epochs=2)


@dataclass
class Counting:
    """Trains as usual, counts, and breaks down when told to."""

    calls: int = 0
    breaks_at: int = 99
    recipe: str = "counting"

    def __call__(self, x, y, *, seed):
        self.calls += 1
        if self.calls == self.breaks_at:
            raise KeyboardInterrupt
        return TRAINER(x, y, seed=seed)


@given(st.integers(1, 30), st.integers(1, 6), st.integers(0, 99))
def test_every_record_is_in_exactly_half_of_the_models(rows, pairs, seed):
    coins = toss(rows, 2 * pairs, generator=seeded(seed))
    assert coins.shape == (2 * pairs, rows)
    assert coins.sum(0).tolist() == [pairs] * rows


@pytest.mark.parametrize("models", [0, 1, 5])
def test_half_of_an_odd_number_of_models_is_refused(models):
    with pytest.raises(ConfigError, match="even number"):
        toss(3, models, generator=seeded(0))


def test_an_interrupted_fleet_goes_on_where_it_stopped(tmp_path):
    coins = toss(12, 6, generator=seeded(0))
    broken = Counting(breaks_at=4)
    with pytest.raises(KeyboardInterrupt):
        train_shadows(broken, X, Y, coins, seed=0, fleet=Fleet(cache=tmp_path))
    told = []
    again = Counting()
    fleet = Fleet(cache=tmp_path, report=lambda done, total: told.append((done, total)))
    outputs = train_shadows(again, X, Y, coins, seed=0, fleet=fleet)
    assert again.calls == 3
    assert told == [(3, 6), (4, 6), (5, 6), (6, 6)]
    torch.testing.assert_close(outputs, train_shadows(TRAINER, X, Y, coins, seed=0, fleet=Fleet()))


def test_another_recipe_seed_or_row_is_not_taken_from_the_cache(tmp_path):
    coins = toss(12, 2, generator=seeded(0))
    fleet = Fleet(cache=tmp_path)
    train_shadows(Counting(), X, Y, coins, seed=0, fleet=fleet)
    for trainer, x, seed, calls in (
        (Counting(), X, 0, 0),
        (Counting(recipe="other"), X, 0, 2),
        (Counting(), X + 1, 0, 2),
        (Counting(), X, 50, 2),
    ):
        train_shadows(trainer, x, Y, coins, seed=seed, fleet=fleet)
        assert trainer.calls == calls


def test_a_file_that_was_cut_off_is_trained_again(tmp_path):
    coins = toss(12, 2, generator=seeded(0))
    fleet = Fleet(cache=tmp_path)
    first = train_shadows(Counting(), X, Y, coins, seed=0, fleet=fleet)
    for path in tmp_path.glob("*.npz"):
        path.write_bytes(path.read_bytes()[:40])
    again = Counting()
    assert torch.equal(train_shadows(again, X, Y, coins, seed=0, fleet=fleet), first)
    assert again.calls == 2


def test_a_shadow_model_sees_only_its_own_records():
    seen = []

    @dataclass
    class Spy:
        recipe: str = "spy"

        def __call__(self, x, y, *, seed):
            seen.append(x)
            return TRAINER(x, y, seed=seed)

    coins = toss(12, 2, generator=seeded(1))
    train_shadows(Spy(), X, Y, coins, seed=0, fleet=Fleet())
    assert all(torch.equal(x, X[coin]) for x, coin in zip(seen, coins, strict=True))


@pytest.mark.slow
def test_processes_give_the_same_as_one(tmp_path):
    coins = toss(12, 4, generator=seeded(0))
    trainer = TorchTrainer(build=partial(build_model, "linear", (2,), 2, seed=0), epochs=2)
    apart = train_shadows(trainer, X, Y, coins, seed=0, fleet=Fleet(workers=2))
    torch.testing.assert_close(apart, train_shadows(trainer, X, Y, coins, seed=0, fleet=Fleet()))


def test_a_trainer_that_cannot_travel_is_refused_with_advice():
    coins = toss(12, 2, generator=seeded(0))
    trainer = TorchTrainer(build=lambda: nn.Linear(2, 2), epochs=1)
    with pytest.raises(ConfigError, match="one worker"):
        train_shadows(trainer, X, Y, coins, seed=0, fleet=Fleet(workers=2))


def test_a_fleet_needs_a_worker():
    with pytest.raises(ConfigError, match="workers"):
        Fleet(workers=0)


@pytest.mark.slow
@pytest.mark.usefixtures("ray_tidied")
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_models_trained_on_ray_are_the_same_and_are_kept(tmp_path):
    pytest.importorskip("ray", reason="Ray is not installed")
    coins = toss(12, 4, generator=seeded(0))
    alone = train_shadows(TRAINER, X, Y, coins, seed=0, fleet=Fleet())
    fleet = Fleet(cache=tmp_path, ray="local")
    torch.testing.assert_close(train_shadows(TRAINER, X, Y, coins, seed=0, fleet=fleet), alone)
    assert len(list(tmp_path.glob("*.npz"))) == 4
    counted = Counting(recipe=TRAINER.recipe)
    train_shadows(counted, X, Y, coins, seed=0, fleet=fleet)
    assert counted.calls == 0  # all are in the cache, and no cluster is started


def fake_ray(**how):
    # Imported late: the machines of a real cluster unpack this module, and have no such file.
    from support.machine import FakeRay

    return FakeRay(**how)


def test_a_cluster_is_asked_for_what_is_missing_and_left_afterwards(monkeypatch, tmp_path):
    cluster = fake_ray()
    monkeypatch.setitem(sys.modules, "ray", cluster)
    coins = toss(12, 4, generator=seeded(0))
    with socket.create_server(("127.0.0.1", 0)) as door:
        address = f"127.0.0.1:{door.getsockname()[1]}"
        fleet = Fleet(cache=tmp_path, ray=address)
        found = train_shadows(TRAINER, X, Y, coins, seed=0, fleet=fleet)
    torch.testing.assert_close(found, train_shadows(TRAINER, X, Y, coins, seed=0, fleet=Fleet()))
    assert cluster.addresses == [address]
    assert not cluster.is_up
    assert len(list(tmp_path.glob("*.npz"))) == 4


def test_a_missing_cluster_or_a_missing_ray_is_said_in_words(monkeypatch):
    coins = toss(12, 2, generator=seeded(0))
    monkeypatch.setitem(sys.modules, "ray", fake_ray(is_there=False))
    for nowhere in ("127.0.0.1:1", "ray://127.0.0.1:1", "127.0.0.1:here", "auto"):
        with pytest.raises(ConfigError, match=f"no Ray cluster at '{nowhere}'"):
            train_shadows(TRAINER, X, Y, coins, seed=0, fleet=Fleet(ray=nowhere))
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"tacit-ml\[fl\]"):
        train_shadows(TRAINER, X, Y, coins, seed=0, fleet=Fleet(ray="local"))


def test_a_machine_that_cannot_train_is_reported_and_the_cluster_left(monkeypatch):
    cluster = fake_ray()
    monkeypatch.setitem(sys.modules, "ray", cluster)

    def fail(*work):
        raise MemoryError("out of memory")

    monkeypatch.setattr("tacit.audit.shadows._train_apart", fail)
    coins = toss(12, 2, generator=seeded(0))
    with pytest.raises(DataError, match="'local' failed: out of memory"):
        train_shadows(TRAINER, X, Y, coins, seed=0, fleet=Fleet(ray="local"))
    assert not cluster.is_up
