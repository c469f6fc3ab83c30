"""Words of noise: secret, never the same twice, in every choice, and counted in full."""

import itertools
import math
from types import SimpleNamespace

import pytest
import torch

from support.training import NAMES, OWNERS, digits_of, make_task, run
from tacit.dp import ledger_from_record
from tacit.ring import Prg
from tacit.training import Privacy, programs, schedule
from tacit.training.gradients import count_right, plan_noise
from tacit.training.loop import walk_plain
from tacit.training.noise import (
    coarse_of,
    coins_name,
    draw_coins,
    draw_noise,
    noise_name,
    share_noise,
)
from tacit.training.ops import PlainStepOps
from tacit.training.privacy import Measures, plan_privacy
from tacit.training.schedule import TrainingWorker

JOINT = share_noise(
    ("p0", "p1"), multiplier=3.0, l2_sensitivity=1.0, frac_bits=16, shape=(8,), is_joint=True
)


@pytest.fixture(scope="module")
def digits():
    return digits_of(60)


def words_of(me, key, what, number):
    """Return a party's fine part and its coins, as its side of a run draws them."""
    party = SimpleNamespace(_session=SimpleNamespace(me=me), _prg=Prg(key))
    found = TrainingWorker._noise(party, what, number, JOINT)
    return found[noise_name(me)], found[coins_name(me)]


def test_coins_of_joint_noise_differ_by_party_step_and_training_and_follow_a_secret_key():
    keys = [bytes([number]) * 16 for number in range(4)]  # of two parties in two trainings
    runs = [("step", 1), ("step", 2), ("look", 2), ("choice", 0)]
    both = [words_of("p0", key, *one) for key, one in itertools.product(keys, runs)]
    for words in zip(*both, strict=True):
        assert len({one.numpy().tobytes() for one in words}) == len(keys) * len(runs)
    # The coins are no function of the fine part's stream either: who knows one knows nothing.
    fine, coins = words_of("p0", keys[0], "step", 1)
    alike = draw_coins(JOINT.shape, Prg(keys[0]).fork("step 1")).double() * 2.0**-16
    assert not torch.equal(coins, alike)
    assert torch.equal(fine, draw_noise(JOINT, Prg(keys[0]).fork("step 1")))


def test_a_training_with_joint_noise_has_in_its_weights_what_both_parties_coins_give(
    digits, monkeypatch
):
    task = make_task(
        rows=20,
        epochs=2,
        show_to=(),
        privacy=Privacy(epsilon=8.0, delta=1e-4, noise="joint"),
        test_rows=0,
        batch=60,
    )
    coins, fine = [], []

    def noted(draw, words):
        def drawn(*given):
            found = draw(*given)
            words.append(found)
            return found

        return drawn

    monkeypatch.setattr(schedule, "draw_coins", noted(draw_coins, coins))
    monkeypatch.setattr(schedule, "draw_noise", noted(draw_noise, fine))
    ends, *_ = run(task, digits, rows=20)
    assert len({one.numpy().tobytes() for one in coins}) == len(coins) == 2 * 2
    assert len({one.numpy().tobytes() for one in fine}) == len(fine) == 2 * 2
    plan, found = ends["bank"].privacy.steps, []
    # Steps follow each other; both parties of one are done before the next is drawn.
    for at in (0, 2):
        coarse = coarse_of(coins[at] + coins[at + 1], step=plan.step).double() * 2.0**-16
        found.append(coarse + fine[at] + fine[at + 1])
    plain, _ = walk_plain(task, *digits, noise=iter(found))
    for name, value in plain.items():
        assert (ends["bank"].weights[name] - value).abs().max() <= 2.0**-8 * value.abs().max()


def private_start(kind="best", **changes):
    privacy = Privacy(epsilon=30.0, delta=1e-4, start=kind, start_steps=3, look_noise=2.0)
    given = {"rows": 20, "epochs": 1, "show_to": (), "test_rows": 0, "batch": 60, **changes}
    return make_task(privacy=privacy, **given)


def test_steps_that_owners_take_alone_have_fresh_noise_each(digits, monkeypatch):
    task = private_start()
    noise, words = plan_noise(task).steps, []

    def noted(plan, prg):
        found = real(plan, prg)
        words.append(found)
        return found

    real = programs.draw_alone
    monkeypatch.setattr(programs, "draw_alone", noted)
    rows, labels = digits[0][:20], digits[1][:20]
    models = [
        programs.train_alone(task, noise, "bank", rows, labels, prg=Prg(bytes([key]) * 16))
        for key in range(3)
    ]
    assert len({one.numpy().tobytes() for one in words}) == len(words) == 3 * 3
    for one, other in itertools.combinations(models, 2):
        assert (one - other).abs().mean() > 0.1 * one.abs().mean()


@pytest.mark.parametrize("favoured", [1, 2])
def test_the_start_that_is_chosen_is_that_of_counts_with_noise(digits, monkeypatch, favoured):
    """Noise beyond all counts decides; a choice without it would be the same in both cases."""
    own = {owner: 1.0 + number for number, owner in enumerate(OWNERS)}

    def trained(task, noise, owner, rows, labels, *, prg):
        return torch.full((650,), own[owner], dtype=torch.float64)

    def pushed(plan, prg):
        if plan.shape != (len(OWNERS) + 1,):
            return draw_noise(plan, prg) * 0
        return torch.eye(4, dtype=torch.float64)[favoured] * math.floor(plan.bound)

    monkeypatch.setattr(schedule, "train_alone", trained)
    monkeypatch.setattr(schedule, "draw_noise", pushed)
    task = private_start(rate=2.0**-12)
    ends, *_ = run(task, digits, rows=20)
    weights = torch.cat([value.flatten() for value in ends["bank"].weights.values()])
    assert weights.mean() == pytest.approx(own[OWNERS[favoured - 1]], abs=0.05)


@pytest.mark.parametrize("kind", ["parts", "joint"])
@pytest.mark.parametrize("owners", [2, 3, 8])
def test_a_choice_counts_what_a_record_moves_in_the_scores_of_all_candidates(owners, kind):
    facts = Measures(
        makers=("p0", "p1", "owner", "dealer"),
        computing=("p0", "p1"),
        roundings=((1.0, 10),),
        weights=100,
        steps=2,
        looks=0,
        rows=1000,
        answers=5,
        owners=owners,
        frac_bits=16,
        protocol="sealed",
    )
    privacy = Privacy(
        epsilon=50.0, delta=1e-4, start="best", start_steps=1, look_noise=3.0, noise=kind
    )
    found = plan_privacy(privacy, facts)
    # One record's five answers are right for every owner's model and for the average, or for none.
    moved = math.sqrt((owners + 1) * 5**2) * 2**16
    (event,) = (
        entry.event.event
        for entry in ledger_from_record(found.events).entries
        if entry.note == "choice between starts"
    )
    assert found.choice.shape == (owners + 1,)
    assert event.l2_sensitivity == pytest.approx(moved)
    assert min(map(found.choice.unknown_to, NAMES)) >= (3.0 * moved) ** 2 * (1 - 1e-9)


def test_no_record_that_is_left_out_moves_a_choice_by_more_than_is_stated(digits):
    task = private_start()
    stated = plan_noise(task).choice.l2_sensitivity
    ops = PlainStepOps()
    # Every candidate takes every record for a seven, so that a seven moves all counts at once.
    seven = {name: torch.zeros_like(value) for name, value in task.model.initial.items()}
    seven["0/bias"][7] = 1.0
    candidates = [seven] * (len(OWNERS) + 1)
    x, hot = digits

    def counts(kept):
        scores = [task.model(ops, one, x[kept]) for one in candidates]
        return torch.cat([count_right(ops, task, found, hot[kept]) for found in scores])

    every = torch.arange(len(x))
    moved = [float((counts(every) - counts(every != one)).norm()) for one in every]
    assert max(moved) == pytest.approx(stated)
