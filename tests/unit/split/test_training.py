"""Training over links is the training that one machine would do, and survives what it must."""

import copy
import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from support.split import WIDTH, make_bottom, make_task, make_top, rows, run_split, with_k
from tacit.errors import ConfigError, DataError, DisagreementError
from tacit.party import Progress
from tacit.split import (
    Compression,
    Defence,
    Halves,
    NetworkSpec,
    SplitData,
    TrainingPace,
    defend,
    fit_locally,
    make_codec,
)
from tacit.split import top as top_module
from tacit.split.summary import leaks_of_split


def weights(found):
    modules = [*found["bottoms"].values(), found["top"]]
    return [p.detach().clone() for module in modules for p in module.parameters()]


def test_a_split_model_takes_the_steps_of_the_whole_one():
    x, y = rows()
    bottom, top = make_bottom(), make_top()
    whole = nn.Sequential(copy.deepcopy(bottom), copy.deepcopy(top))
    optimiser = torch.optim.SGD(whole.parameters(), lr=0.1, momentum=0.9)
    for _ in range(5):
        optimiser.zero_grad()
        nn.functional.cross_entropy(whole(x), y).backward()
        optimiser.step()
    found = run_split(make_task(epochs=5, batch=60), bottoms={"clinic": bottom}, top=top)
    for ours, theirs in zip(weights(found), whole.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs.detach(), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("pace", [{"micro_batches": 4}, {"micro_batches": 60, "batch": 60}])
def test_micro_batches_do_not_change_the_step(pace):
    whole = run_split(make_task(**{"batch": 60, **pace, "micro_batches": 1}))
    parts = run_split(make_task(**{"batch": 60, **pace}))
    for ours, theirs in zip(weights(parts), weights(whole), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("in_flight", [1, 3, 50])
def test_it_learns_with_batches_in_flight(in_flight):
    x, y = rows(24, seed=5)
    found = run_split(make_task(epochs=8, in_flight=in_flight), questions=x)
    epochs = found["lab"]["epochs"]
    assert len(epochs) == 8
    assert epochs[-1].loss < epochs[0].loss / 2
    assert torch.equal(found["clinic"]["answers"], found["lab"]["logits"].argmax(1))
    assert float((found["clinic"]["answers"] == y).float().mean()) > 0.9


def test_two_feature_owners_learn_together():
    x, y = rows(24, seed=5)
    found = run_split(make_task(owners=("clinic", "bank"), epochs=8), questions=x)
    assert float((found["bank"]["answers"] == y).float().mean()) > 0.9
    assert torch.equal(found["bank"]["answers"], found["clinic"]["answers"])


@pytest.mark.parametrize(
    "compression",
    [
        Compression(kind="randtopk", k=3),
        Compression(kind="randtopk-coded", k=3, feedback=True),
        Compression(kind="quantise", bits=4, feedback=True),
        Compression(kind="l1", weight=0.001),
        Compression(kind="shrink", k=4),
    ],
    ids=lambda c: c.kind,
)
def test_it_learns_through_a_compressor_and_the_meter_counts_its_bytes(compression):
    x, y = rows(24, seed=5)
    task = make_task(compression=compression, epochs=10)
    found = run_split(task, questions=x)
    assert float((found["clinic"]["answers"] == y).float().mean()) > 0.8
    codec = make_codec(compression, WIDTH)
    sent = sum(
        one.payload_bytes
        for one in found["clinic"]["cost"].traffic
        if one.phase == "online" and one.receiver == "clinic" and one.sender == "lab"
    )
    answers = 6 * 1  # four rows of two bits each
    assert sent == 10 * 3 * codec.backward_bytes(20) + answers


@pytest.mark.parametrize(
    "defence",
    [
        Defence(kind="potential-energy", weight=0.1, warmup=5),
        Defence(kind="potential-energy", weight=0.1, form="plane"),
        Defence(kind="distance-correlation", weight=0.1),
        Defence(kind="label-dp", epsilon=4.0),
        Defence(kind="activation-noise", scale=0.1),
        Defence(kind="gradient-noise", scale=0.2),
        Defence(kind="gradient-norm"),
    ],
    ids=lambda d: f"{d.kind}-{d.form}",
)
def test_it_learns_under_a_defence(defence, monkeypatch):
    # Of fresh orders of the batches, a rare one loses a class; this one is always the same.
    drawn = SimpleNamespace(urandom=lambda count: bytes(range(count)))
    monkeypatch.setattr("tacit.split.top.os", drawn)
    monkeypatch.setattr("tacit.split.bottom.os", drawn)
    task = make_task(defences=(defence,), epochs=12)
    found = run_split(task, questions=rows(24, seed=5)[0])
    right = found["clinic"]["answers"] == rows(24, seed=5)[1]
    assert float(right.float().mean()) > 0.8


@pytest.mark.parametrize("seed", [57, 142])
def test_a_pair_that_comes_near_does_not_throw_its_class_away(seed):
    # With distances softened at a hundredth, these two of 250 orders lost a class in one step.
    task = make_task(
        defences=(Defence(kind="potential-energy", weight=0.1, form="plane"),), epochs=12
    )
    codec = make_codec(task.split.compress, WIDTH)
    halves = Halves(bottom=make_bottom(), top=make_top(), codec=codec)
    losses = fit_locally(task, halves, *rows(), seed=seed)
    assert max(losses[6:]) < losses[0] / 2
    assert halves.accuracy(*rows(24, seed=5)) > 0.9


def test_the_ledger_says_what_both_sides_saw():
    found = run_split(make_task(), questions=rows(24, seed=5)[0])
    seen = {(leak.to, leak.kind) for leak in found["clinic"]["leaks"] if leak.kind != "size"}
    assert seen == {("lab", "protocol"), ("clinic", "protocol")}
    shown = [leak.to for leak in found["lab"]["leaks"] if leak.kind != "size"]
    assert shown == ["clinic"]
    parties = ("clinic", "lab")
    sizes = {leak for name in parties for leak in found[name]["leaks"] if leak.kind == "size"}
    planned = leaks_of_split(make_task(), {"clinic": WIDTH}, len(rows()[0]), 24, parties)
    assert sizes == {leak for leak in planned if leak.kind == "size"}


@pytest.mark.parametrize("changes", [{}, {"in_flight": 2, "micro_batches": 2}])
@pytest.mark.parametrize("forgetful", ["all", "lab"])
def test_a_resumed_training_ends_in_the_same_bits(tmp_path, changes, forgetful):
    task = make_task(
        compression=Compression(kind="topk", k=3, feedback=True),
        defences=(Defence(kind="label-dp", epsilon=2.0),),
        optimiser="adam",
        rate=0.01,
        label_rate=0.04,
        checkpoint_every=2,
        **changes,
    )
    folders = {name: tmp_path / name for name in ("clinic", "lab")}
    first = run_split(task, folders=folders)
    for name, folder in folders.items():
        assert [path.name for path in sorted(folder.glob("step-*"))] == [
            "step-8.npz",
            "step-9.npz",
        ]
        if forgetful in ("all", name):
            (folder / "step-9.npz").unlink()
    again = run_split(
        task,
        folders=folders,
        bottoms={"clinic": make_bottom(seed=77)},
        top=make_top(seed=78),
    )
    for ours, theirs in zip(weights(again), weights(first), strict=True):
        assert torch.equal(ours, theirs)
    assert [e.loss for e in again["lab"]["epochs"]] == [e.loss for e in first["lab"]["epochs"]]


@pytest.mark.parametrize(
    ("kind", "scale"), [("gradient-noise", 1.0), ("activation-noise", 1.0)], ids=lambda v: str(v)
)
def test_a_step_that_is_done_again_is_not_under_the_same_noise(tmp_path, monkeypatch, kind, scale):
    # The peer has a step done again and subtracts: under one noise, what is left is no noise.
    task = make_task(defences=(Defence(kind=kind, scale=scale),), checkpoint_every=1)
    folders = {name: tmp_path / name for name in ("clinic", "lab")}
    drawn = []
    real = defend._gaussian
    monkeypatch.setattr(defend, "_gaussian", lambda *given: drawn.append(real(*given)) or drawn[-1])
    run_split(task, folders=folders)
    for folder in folders.values():
        (folder / "step-9.npz").unlink()
    before = drawn.copy()
    drawn.clear()
    run_split(task, folders=folders)
    assert len(drawn) == 1
    assert not any(torch.equal(one, drawn[0]) for one in before)


@pytest.mark.parametrize("forgetful", [(), ("clinic",), ("clinic", "lab")])
def test_a_peer_that_starts_a_training_again_does_not_have_labels_drawn_again(
    tmp_path, monkeypatch, forgetful
):
    task = make_task(defences=(Defence(kind="label-dp", epsilon=1.0),), epochs=1)
    folders = {name: tmp_path / name for name in ("clinic", "lab")}
    shown = []
    real = top_module.hide_labels
    monkeypatch.setattr(
        top_module, "hide_labels", lambda *given: shown.append(real(*given)) or shown[-1]
    )
    for _ in range(3):
        run_split(task, folders=folders)
        for name in forgetful:  # killed before the first checkpoint, or says so
            for path in folders[name].glob("step-*"):
                path.unlink()
    assert not torch.equal(shown[0], rows()[1])
    assert all(torch.equal(shown[0], other) for other in shown)


def test_labels_are_not_drawn_again_if_their_key_is_lost(tmp_path):
    task = make_task(defences=(Defence(kind="label-dp", epsilon=1.0),), epochs=1)
    folders = {name: tmp_path / name for name in ("clinic", "lab")}
    run_split(task, folders=folders)
    (folders["lab"] / "labels.npz").unlink()
    with pytest.raises(DataError, match="a second draw would tell more"):
        run_split(task, folders=folders)


class Killed(Exception):
    pass


def test_a_training_that_dies_goes_on_from_the_last_common_checkpoint(tmp_path):
    task = make_task(checkpoint_every=2)
    folders = {name: tmp_path / name for name in ("clinic", "lab")}

    def die(stage, done, total):
        if stage == "train" and done == 5:
            raise Killed

    with pytest.raises(Killed):
        run_split(task, folders=folders, progress={"clinic": Progress(die)})
    stages = []
    listener = Progress(lambda stage, done, total: stages.append((stage, done)))
    run_split(task, folders=folders, progress={"clinic": listener})
    assert [done for stage, done in stages if stage == "train"] == [0, 5, 6, 7, 8, 9]


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    task = make_task()
    folders = {name: tmp_path / name for name in ("clinic", "lab")}
    run_split(task, folders=folders)
    wider = nn.Sequential(nn.Linear(6, WIDTH), nn.Linear(WIDTH, WIDTH))
    with pytest.raises(DataError, match="of another model"):
        run_split(task, folders=folders, bottoms={"clinic": wider})


def test_another_k_is_named():
    task = with_k(make_task(), 3)
    with pytest.raises(DisagreementError, match=r"keeps k = \d values of the cut layer"):
        run_split(task, tasks={"clinic": with_k(task, 2)})


def test_another_cut_layer_is_named():
    task = make_task()
    with pytest.raises(DisagreementError, match="cuts the model at another layer"):
        run_split(task, tasks={"clinic": replace(task, model=NetworkSpec(cut="first"))})


def test_a_cut_layer_of_another_width_is_named():
    with pytest.raises(DisagreementError, match="cut layer has 5 values, the top model takes 8"):
        run_split(make_task(), bottoms={"clinic": make_bottom(width=5)})


def test_another_task_is_found_by_its_hash():
    task = make_task()
    other = replace(task, train=replace(task.train, rate=0.2))
    with pytest.raises(DisagreementError, match="another split task"):
        run_split(task, tasks={"clinic": other})


def test_another_rate_of_the_label_owner_is_another_task():
    task = make_task()
    other = replace(task, train=replace(task.train, label_rate=0.2))
    with pytest.raises(DisagreementError, match="another split task"):
        run_split(task, tasks={"clinic": other})


@pytest.mark.parametrize("is_local", [True, False])
def test_each_side_steps_at_its_own_rate(is_local):
    """Without momentum a step is the rate times the gradient, which is the same for all rates."""
    moves = []
    for rates in ({}, {"rate": 0.2}, {"label_rate": 0.3}):
        pace = {"epochs": 1, "batch": 60, **rates}
        moves.append(first_step(make_task(**pace), is_local=is_local))
    (bottom, top), faster_bottom, faster_top = moves
    torch.testing.assert_close(faster_bottom, (2 * bottom, 2 * top))
    torch.testing.assert_close(faster_top, (bottom, 3 * top))


def first_step(task, *, is_local):
    """Return how far the first weights of both sides go in a training of one step."""
    bottom, top = make_bottom(), make_top()
    before = bottom[0].weight.detach().clone(), top.weight.detach().clone()
    if is_local:
        halves = Halves(bottom=bottom, top=top, codec=make_codec(task.split.compress, WIDTH))
        fit_locally(task, halves, *rows(), seed=0)
    else:
        run_split(task, bottoms={"clinic": bottom}, top=top)
    return bottom[0].weight.detach() - before[0], top.weight.detach() - before[1]


def test_another_number_of_rows_is_named():
    with pytest.raises(DisagreementError, match="rows, we have"):
        run_split(make_task(), y=rows(42)[1])


def test_more_values_than_there_are_cannot_be_kept():
    with pytest.raises(ConfigError, match="cannot keep 9 of the 8 values"):
        run_split(with_k(make_task(), WIDTH + 1))


def test_features_that_are_not_finite_stop_before_anything_is_sent():
    x, _ = rows()
    x[3, 2] = math.nan
    with pytest.raises(DataError, match="cut layer holds values that are not finite"):
        run_split(make_task(), x=x)


def test_no_rows_are_refused():
    x, y = rows()
    with pytest.raises(DataError, match="at least one row"):
        run_split(make_task(), x=x[:0], y=y[:0])


def test_a_class_that_does_not_exist_is_refused():
    with pytest.raises(DataError, match="classes from 0 to 2, got 0 to 7"):
        run_split(make_task(), y=torch.cat([rows()[1][:-1], torch.tensor([7])]))


def test_a_batch_with_a_single_member_of_a_class_trains():
    x, y = rows()
    y = torch.cat([torch.tensor([2]), y[1:] % 2])
    task = make_task(defences=(Defence(kind="potential-energy", weight=1.0),))
    found = run_split(task, x=x, y=y)
    assert all(math.isfinite(one.loss) for one in found["lab"]["epochs"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 0}, "epochs: wanted at least 1"),
        ({"batch": 4, "micro_batches": 5}, "cannot cut 4 rows into 5"),
        ({"rate": 0.0}, "rate"),
        ({"label_rate": 0.0}, "label_rate: wanted above 0, got 0.0"),
        ({"label_rate": math.inf}, "label_rate: wanted above 0, got inf"),
    ],
)
def test_a_pace_that_makes_no_sense_is_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        TrainingPace(**settings)


def test_one_party_with_both_is_refused():
    with pytest.raises(ConfigError, match="it can train alone"):
        SplitData(features=("lab",), labels="lab", classes=2)
