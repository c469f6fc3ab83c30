"""Private training against the same training in the clear; stopping and going on."""

import pytest
import torch

from support.mpc import ROLES
from support.training import changed
from tacit.data import Holding
from tacit.errors import (
    ConfigError,
    RangeError,
)
from tacit.mpc import sum_forecasts
from tacit.party import merge_costs, without_setup
from tacit.training import ops, programs, train
from tacit.training.ops import PlainStepOps
from tacit.training.programs import initial_state, measure, train_step
from tacit.training.schedule import actions

MIXED = "sealed; activations: permuted3"


def halved(digits):
    rows, labels = digits
    half = len(rows) // 2
    return {
        ROLES.first: (rows[:half], labels[:half]),
        ROLES.second: (rows[half:], labels[half:]),
    }


def trained_plain(task, rows, labels):
    """Walk the same schedule in the clear."""
    shown = []
    weights = {name: value.double() for name, value in task.model.initial.items()}
    state = {name: value.double() for name, value in initial_state(task).items()}
    for action in actions(task):
        x, y = rows[action.rows], labels[action.rows]
        ops = PlainStepOps(task.spec.training.dials(action.step))
        if action.is_look:
            loss, right = measure(ops, task, task.model(ops, weights, x), y)
            shown.append((action.step, float(loss), float(right) / task.test_rows))
        else:
            rate = task.rate_at(action.step)
            weights, state = train_step(ops, task, weights, state, x, y, rate=rate)
    return weights, shown


@pytest.mark.parametrize("protocol", ["sealed", "permuted3", "permuted2", MIXED])
def test_a_private_training_ends_with_the_weights_of_a_plain_one(
    make_task, run_training, digits, protocol
):
    task = make_task(protocol=protocol)
    ends = run_training(task, halved(digits))
    weights, shown = trained_plain(task, *digits)
    for name, value in weights.items():
        torch.testing.assert_close(ends[ROLES.second].weights[name], value, atol=0.01, rtol=0.0)
    assert ends[ROLES.first].weights == {}
    for (step, loss, right), (at, plain, plain_right) in zip(
        ends[ROLES.first].shown, shown, strict=True
    ):
        assert step == at
        assert abs(loss - plain) < 0.02
        assert abs(right - plain_right) <= 1 / task.test_rows
    assert ends[ROLES.second].shown == ()


def test_a_mixed_training_shows_activations_and_no_scores_and_sends_what_was_forecast(
    make_task, run_training, digits
):
    task = make_task(protocol=MIXED)
    ends = {}

    def party(session):
        rows, labels = halved(digits).get(session.me, (None, None))
        trained = train(session, task, rows=rows, labels=labels)
        ends[session.me] = session.ledger.entries(), session.cost()
        return trained

    forecast = sum_forecasts(run_training(task, {}, patch=party)[ROLES.first].runs).cost
    mine = [leak for leak in ends[ROLES.dealer][0] if leak.to == ROLES.dealer]
    seen = {leak.what for leak in mine if leak.kind != "size"}
    # The hidden layer, and the one number that says whether a weight is too large.
    assert seen == {"the inputs of step, in random order", "the inputs of relu, in random order"}
    metered = without_setup(merge_costs({name: cost for name, (_, cost) in ends.items()}))
    assert metered.traffic == forecast.traffic
    assert metered.online_rounds == forecast.online_rounds


@pytest.mark.parametrize(
    "optimiser",
    [
        {"optimiser": "momentum"},
        {"optimiser": "adam"},
        {"clip": 0.5},
        {"weight_decay": 0.05},
    ],
    ids=["momentum", "adam", "clipped", "decaying"],
)
def test_every_optimiser_takes_the_steps_it_takes_in_the_clear(
    make_task, run_training, digits, optimiser
):
    rate = 0.02 if "adam" in optimiser.values() else 0.2
    task = make_task(**optimiser, rate=rate, schedule="cosine")
    ends = run_training(task, halved(digits))
    weights, _ = trained_plain(task, *digits)
    for name, value in weights.items():
        torch.testing.assert_close(ends[ROLES.second].weights[name], value, atol=0.01, rtol=0.0)


@pytest.mark.parametrize("protocol", ["sealed", "permuted3"])
def test_a_rate_that_is_applied_to_the_error_takes_the_same_steps(
    make_task, run_training, digits, monkeypatch, protocol
):
    task = make_task(protocol=protocol, rate=0.3)
    weights, _ = trained_plain(task, *digits)
    monkeypatch.setattr(ops, "MANY_WEIGHTS", 1)
    ahead, _ = trained_plain(task, *digits)
    ends = run_training(task, halved(digits))
    for name, value in weights.items():
        torch.testing.assert_close(ahead[name], value)
        torch.testing.assert_close(ends[ROLES.second].weights[name], value, atol=0.01, rtol=0.0)


def test_a_linear_rate_falls_within_an_epoch_and_takes_the_steps_it_takes_in_the_clear(
    make_task, run_training, digits
):
    task = make_task(schedule="linear", rate=0.5, epochs=1)
    rates = [task.rate_at(step) for step in range(1, task.steps_per_epoch + 1)]
    assert rates[0] == 0.5
    assert rates == sorted(rates, reverse=True)
    assert len(set(rates)) == min(10, task.steps_per_epoch)
    assert rates[-1] >= 0.05
    ends = run_training(task, halved(digits))
    weights, _ = trained_plain(task, *digits)
    for name, value in weights.items():
        torch.testing.assert_close(ends[ROLES.second].weights[name], value, atol=0.01, rtol=0.0)


def test_rates_of_other_schedules_change_from_epoch_to_epoch(make_task):
    task = make_task(schedule="halving", rate=0.4, epochs=3)
    count = task.steps_per_epoch
    rates = [task.rate_at(step) for step in range(1, 3 * count + 1)]
    assert rates == [0.4] * count + [0.2] * count + [0.1] * count


@pytest.mark.parametrize("protocol", ["sealed", "permuted3"])
def test_a_look_at_many_rows_is_taken_piece_by_piece(
    make_task, run_training, digits, monkeypatch, protocol
):
    task = make_task(protocol=protocol)
    whole = run_training(task, halved(digits))[ROLES.first]
    # 64 numbers of a row are the widest of this model, so 11 rows at a time: 10, 11 and 11 of 32.
    monkeypatch.setattr(programs, "LOOK_ELEMENTS", 11 * 64)
    pieces = run_training(task, halved(digits))[ROLES.first]
    assert task.model.widest == 64
    assert [step for step, *_ in pieces.shown] == [step for step, *_ in whole.shown]
    for (_, loss, right), (_, wanted, share) in zip(pieces.shown, whole.shown, strict=True):
        assert loss == pytest.approx(wanted, abs=2e-3)
        assert right == share


def test_a_convolutional_network_trains(make_task, run_training, digits):
    rows, labels = digits
    images = (rows.reshape(-1, 1, 8, 8), labels)
    layers = ("conv 4 3 1 1", "relu", "avgpool 2", "conv 4 2 2", "tanh", "flatten", "dense 10")
    task = make_task(layers=layers, inputs=(1, 8, 8), cap=16.0, rate=0.1)
    ends = run_training(task, halved(images))
    weights, _ = trained_plain(task, *images)
    for name, value in weights.items():
        torch.testing.assert_close(ends[ROLES.second].weights[name], value, atol=0.02, rtol=0.0)


def test_columns_of_two_owners_make_one_row(make_task, run_training, digits):
    rows, labels = digits
    holdings = (
        Holding(ROLES.first, len(rows), (40,)),
        Holding(ROLES.second, len(rows), (24,), "classes"),
    )
    task = make_task(holdings=holdings, split="columns", score_to=(ROLES.second,))
    inputs = {ROLES.first: (rows[:, :40], None), ROLES.second: (rows[:, 40:], labels)}
    ends = run_training(task, inputs)
    weights, _ = trained_plain(task, *digits)
    for name, value in weights.items():
        torch.testing.assert_close(ends[ROLES.second].weights[name], value, atol=0.01, rtol=0.0)
    plain = task.model(PlainStepOps(), weights, rows[task.test_indices()])
    torch.testing.assert_close(ends[ROLES.second].scores, plain, atol=0.05, rtol=0.0)
    assert ends[ROLES.first].scores is None


def test_an_owner_of_labels_may_have_no_columns(make_task, run_training, digits):
    rows, labels = digits
    holdings = (
        Holding(ROLES.first, len(rows), (64,)),
        Holding(ROLES.second, len(rows), (0,), "classes"),
    )
    task = make_task(holdings=holdings, split="columns")
    inputs = {ROLES.first: (rows, None), ROLES.second: (rows[:, :0], labels)}
    ends = run_training(task, inputs)
    weights, _ = trained_plain(task, *digits)
    for name, value in weights.items():
        torch.testing.assert_close(ends[ROLES.second].weights[name], value, atol=0.01, rtol=0.0)
    with pytest.raises(ConfigError, match="neither columns nor labels"):
        make_task(holdings=(*holdings, Holding("dave", len(rows), (0,))), split="columns")


def test_a_logistic_model_trains_with_weights_of_classes(make_task, run_training, digits):
    rows, labels = digits
    yes = labels[:, :5].sum(dim=1, keepdim=True)
    task = make_task(layers=("dense 1",), loss="logistic", class_weights=(1.0, 2.0))
    ends = run_training(task, halved((rows, yes)))
    weights, shown = trained_plain(task, rows, yes)
    torch.testing.assert_close(
        ends[ROLES.second].weights["0/weight"], weights["0/weight"], atol=0.01, rtol=0.0
    )
    assert abs(ends[ROLES.first].shown[-1][2] - shown[-1][2]) <= 1 / task.test_rows


def test_two_trainings_of_one_session_share_no_masks(make_task, run_training, digits):
    task, inputs = make_task(epochs=1, give_to=()), halved(digits)

    def party(session):
        rows, labels = inputs.get(session.me, (None, None))
        return [train(session, task, rows=rows, labels=labels).shares for _ in range(2)]

    first, second = run_training(task, inputs, patch=party)[ROLES.first]
    for name, share in first.items():
        assert not (share == second[name]).any()


def test_weights_that_grow_beyond_their_bound_stop_the_training(make_task, run_training, digits):
    task = make_task(rate=8.0, weight_bound=1.0)
    with pytest.raises(RangeError, match="beyond half of its bound"):
        run_training(task, halved(digits))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"batch": 500}, "batch of 1 to 128"),
        ({"test_rows": 160}, "for measuring"),
        ({"loss": "logistic"}, "one output"),
        ({"class_weights": (1.0,)}, "10 class weights"),
        ({"holdings": ()}, "different owners"),
        ({"holdings": (Holding("carol", 160, (64,), "classes"),)}, "must not own data"),
        ({"holdings": (Holding("alice", 160, (63,), "classes"),)}, "wants rows of shape"),
        ({"holdings": (Holding("alice", 160, (64,)),)}, "without labels"),
        ({"split": "columns"}, "exactly one owner of the labels"),
    ],
)
def test_a_task_that_cannot_be_is_refused_with_what_was_wanted(make_task, changes, words):
    with pytest.raises(ConfigError, match=words):
        make_task(**changes)


def test_rows_kept_for_measuring_are_never_trained_on(make_task):
    task = changed(make_task(), epochs=3)
    test = set(task.test_indices().tolist())
    for action in actions(task):
        assert action.is_look == bool(test & set(action.rows.tolist()))


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        (("dense",), "layer 1"),
        (("desne 3",), "desne"),
        (("conv 3 3",), "does not fit"),
        (("dense 3", "flatten", "dense x"), "layer 3"),
    ],
)
def test_layers_that_do_not_fit_are_named(make_task, layers, words):
    with pytest.raises(ConfigError, match=words):
        make_task(layers=layers)


TEN = (*("dense 12", "relu") * 9, "dense 10")


@pytest.mark.parametrize("protocol", ["sealed", "permuted3"])
def test_a_network_of_ten_layers_trains_with_defaults(make_task, run_training, digits, protocol):
    task = make_task(layers=TEN, protocol=protocol)
    done = run_training(task, halved(digits))
    cap = done[ROLES.second].cap
    assert cap is not None
    weights, shown = trained_plain(task.capped(cap), *digits)
    for name, value in weights.items():
        assert (done[ROLES.second].weights[name] - value).abs().max() < 5e-3
    assert done[ROLES.first].shown[-1][1] == pytest.approx(shown[-1][1], abs=0.02)


def test_a_training_that_no_cap_helps_is_refused_with_what_to_do(make_task, run_training, digits):
    with pytest.raises(RangeError, match=r"need more.*cap= of make_model and TrainModel"):
        run_training(make_task(layers=TEN, frac_bits=28), halved(digits))
