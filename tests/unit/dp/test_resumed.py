"""A private training that goes on after a break: what was spent stays spent, whoever forgets it."""

import io
import json

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils.data import DataLoader, TensorDataset

from tacit.dp import epsilon, event_from_record, make_private
from tacit.errors import ConfigError, DataError
from tacit.ring import Prg

KEY = bytes(range(16))


def made(*, epochs=2, clip=1.0, rows=200, prg=None, optimizer=torch.optim.Adam):
    x = torch.randn(rows, 4, generator=torch.Generator().manual_seed(1))
    loader = DataLoader(TensorDataset(x, (x[:, 0] > 0).long()), batch_size=50)
    model = nn.Linear(4, 2)
    chosen = optimizer(model.parameters(), lr=0.1)
    private = make_private(
        model, chosen, loader, epsilon=4.0, delta=1e-4, epochs=epochs, clip=clip, prg=prg
    )
    return model, chosen, private


def train(model, private, passes):
    for _ in range(passes):
        for x, y in private.loader:
            private.step(F.cross_entropy(model(x), y, reduction="none"))


def saved(model, optimizer, private):
    """Return what a user saves, once through a file."""
    file = io.BytesIO()
    parts = {"model": model, "optimizer": optimizer, "private": private}
    torch.save({name: part.state_dict() for name, part in parts.items()}, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def stopped_after_one_pass(**options):
    model, optimizer, private = made(**options)
    train(model, private, 1)
    return saved(model, optimizer, private)


def test_a_resumed_training_counts_the_steps_before_and_takes_only_the_rest():
    state = stopped_after_one_pass()
    json.dumps(state["private"])
    model, optimizer, private = made()
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    private.load_state_dict(state["private"])
    assert len(private.ledger) == 4
    train(model, private, 1)
    assert private.loader.steps_left == 0
    assert 3.99 < private.claim.epsilon <= 4.0
    whole = made()
    train(whole[0], whole[2], 2)
    assert private.ledger.entries == whole[2].ledger.entries
    assert any("number of records is public" in one for one in private.claim.assumptions)
    with pytest.raises(ConfigError, match="epochs are over"):
        train(model, private, 1)


@pytest.mark.parametrize("steps_before", [0, 1])
def test_a_resumed_training_that_forgets_what_was_spent_is_refused(steps_before):
    """Once a claim of 4.0 where both ledgers together were at 4.79."""
    state = stopped_after_one_pass()
    model, optimizer, private = made()
    model.load_state_dict(state["model"])
    train(model, private, steps_before)
    optimizer.load_state_dict(state["optimizer"])
    with pytest.raises(ConfigError, match="has taken 4 private steps that this training does not"):
        train(model, private, 1)


@pytest.mark.parametrize("is_frozen_first", [False, True])
def test_a_second_training_of_one_model_is_refused_though_its_optimizer_is_new(is_frozen_first):
    """Once 2.0 was claimed, and again, where both ledgers together were at 2.72."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
    model[0].requires_grad_(not is_frozen_first)  # thawed layer by layer, as is usual
    rows = TensorDataset(torch.randn(40, 4), torch.zeros(40).long())

    def begin():
        trained = [p for p in model.parameters() if p.requires_grad]
        optimizer = torch.optim.SGD(trained, lr=0.1)
        return make_private(
            model, optimizer, DataLoader(rows, 10), epsilon=2.0, delta=1e-4, epochs=2
        )

    first = begin()
    train(model, first, 1)
    first.remove()
    model.requires_grad_(True)
    second = begin()
    with pytest.raises(ConfigError, match="has taken 4 private steps that this training does not"):
        train(model, second, 1)
    assert len(second.ledger) == 0
    third = begin()
    if not is_frozen_first:
        third.load_state_dict(first.state_dict())
    else:
        third.adopt()
    train(model, third, 1)
    assert len(third.ledger) == (4 if is_frozen_first else 8)


def test_an_optimizer_that_is_further_than_the_state_is_refused():
    model, optimizer, private = made()
    batches = iter(private.loader)
    early = private.state_dict()
    for x, y in batches:
        private.step(F.cross_entropy(model(x), y, reduction="none"))
    late = optimizer.state_dict()
    model, optimizer, private = made()
    private.load_state_dict(early)
    optimizer.load_state_dict(late)
    with pytest.raises(ConfigError, match="has taken 4 private steps that this training does not"):
        train(model, private, 1)


def test_the_claim_says_what_no_optimizer_tells():
    state = stopped_after_one_pass()
    model, _, private = made()
    model.load_state_dict(state["model"])  # the weights alone
    train(model, private, 2)
    first = [event_from_record(one) for one, n in state["private"]["events"] for _ in range(n)]
    both = [*first, *(entry.event for entry in private.ledger.entries)]
    assert epsilon(both, delta=1e-4, accountant="fourier").epsilon > 4.5 > private.claim.epsilon
    assert any("a state that was loaded" in one for one in private.claim.assumptions)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"epochs": 4}, "multiplier"),
        ({"clip": 2.0}, "clip 1.0, now 2.0"),
        ({"rows": 220}, "records 200, now 220"),
    ],
)
def test_a_state_of_other_settings_is_refused(options, word):
    state = stopped_after_one_pass()
    with pytest.raises(ConfigError, match=word):
        made(**options)[2].load_state_dict(state["private"])


@pytest.mark.parametrize(
    "spoil",
    [
        lambda state: state.pop("events"),
        lambda state: state.update(events=[["x", 1]]),
        lambda state: state.update(steps_left="many"),
    ],
)
def test_what_is_no_state_is_refused_and_changes_nothing(spoil):
    state = stopped_after_one_pass()["private"]
    spoil(state)
    private = made()[2]
    with pytest.raises(DataError):
        private.load_state_dict(state)
    assert len(private.ledger) == 0
    assert private.loader.steps_left == 8


def test_fewer_steps_in_a_state_than_were_planned_are_refused():
    state = stopped_after_one_pass()["private"]
    state["events"][0][1] = 1
    with pytest.raises(ConfigError, match="5 steps, now 8"):
        made()[2].load_state_dict(state)


def test_noise_is_not_repeated_by_a_generator_that_begins_again():
    state = stopped_after_one_pass(prg=Prg(KEY))
    with pytest.raises(ConfigError, match="would repeat noise"):
        made(prg=Prg(KEY))[2].load_state_dict(state["private"])
    second = made(prg=Prg(KEY).fork("second"))
    second[2].load_state_dict(state["private"])
    again = saved(*second)["private"]
    for prg in (Prg(KEY), Prg(KEY).fork("second")):
        with pytest.raises(ConfigError, match="would repeat noise"):
            made(prg=prg)[2].load_state_dict(again)
    assert KEY.hex() not in str(again)


def test_a_state_is_loaded_before_the_first_step():
    state = stopped_after_one_pass()["private"]
    model, _, private = made()
    train(model, private, 1)
    with pytest.raises(ConfigError, match="before the first step"):
        private.load_state_dict(state)


def test_a_second_optimizer_on_the_same_weights_is_noticed():
    model, _, private = made()
    second = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = iter(private.loader)
    x, y = next(batches)
    private.step(F.cross_entropy(model(x), y, reduction="none"))
    F.cross_entropy(model(x), y).backward()
    second.step()
    second.zero_grad()
    x, y = next(batches)
    losses = F.cross_entropy(model(x), y, reduction="none")
    with pytest.raises(ConfigError, match="weights have changed since the last private step"):
        private.step(losses)
    private.adopt()
    private.step(losses)  # somebody has said that no record was used
    assert len(private.ledger) == 2


@pytest.mark.parametrize("way", ["data", "vector"])
def test_weights_that_are_changed_behind_their_versions_are_noticed(way):
    """`p.data` and what is written with it leave the count of changes as it was."""
    model, _, private = made()
    batches = iter(private.loader)
    x, y = next(batches)
    private.step(F.cross_entropy(model(x), y, reduction="none"))
    raw = torch.autograd.grad(F.cross_entropy(model(x), y), list(model.parameters()))
    if way == "data":
        for parameter, gradient in zip(model.parameters(), raw, strict=True):
            parameter.data -= 0.1 * gradient
    else:
        moved = parameters_to_vector(model.parameters()) - 0.1 * parameters_to_vector(raw)
        vector_to_parameters(moved, model.parameters())
    x, y = next(batches)
    losses = F.cross_entropy(model(x), y, reduction="none")
    with pytest.raises(ConfigError, match="weights have changed since the last private step"):
        private.step(losses)
    assert len(private.ledger) == 1


def test_a_raw_step_on_the_first_batch_is_noticed_too():
    model, _, private = made()
    model.load_state_dict({name: p + 1 for name, p in model.state_dict().items()})  # a start
    x, y = next(iter(private.loader))
    F.cross_entropy(model(x), y).backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    losses = F.cross_entropy(model(x), y, reduction="none")
    with pytest.raises(ConfigError, match="weights have changed"):
        private.step(losses)
    assert len(private.ledger) == 0


def test_weights_that_were_put_back_are_the_same_weights():
    model, _, private = made()
    for x, y in private.loader:
        private.step(F.cross_entropy(model(x), y, reduction="none"))
        before = {name: p.clone() for name, p in model.state_dict().items()}
        with torch.no_grad():
            model.weight.mul_(0.5)  # an average, to look at
        model.load_state_dict(before)
    assert len(private.ledger) == 4


def _unfreeze(model):
    model[0].requires_grad_(True)


def _replace(model):
    model[2] = nn.Linear(8, 2)


@pytest.mark.parametrize("change", [_unfreeze, _replace])
def test_what_is_trained_after_make_private_is_what_it_saw(change):
    """Once an unfrozen layer could be trained by an optimizer of its own, under the same ε."""
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    model[0].requires_grad_(False)
    loader = DataLoader(TensorDataset(torch.randn(200, 4), torch.zeros(200).long()), batch_size=50)
    optimizer = torch.optim.SGD(model[2].parameters(), lr=0.1)
    private = make_private(model, optimizer, loader, epsilon=4.0, delta=1e-4, epochs=2)
    change(model)
    with pytest.raises(ConfigError, match="replaced, added, frozen or unfrozen"):
        train(model, private, 1)
    assert len(private.ledger) == 0


def test_processes_that_train_together_are_refused_before_and_after_they_meet():
    model, _, private = made()
    x, y = next(iter(private.loader))
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    try:
        with pytest.raises(ConfigError, match=r"one of 2 processes of torch\.distributed"):
            made()
        with pytest.raises(ConfigError, match="train in one process"):
            private.step(F.cross_entropy(model(x), y, reduction="none"))
    finally:
        dist.destroy_process_group()
    assert len(private.ledger) == 0
