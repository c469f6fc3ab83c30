"""Privacy of single records: what is drawn, what is counted, and what a server cannot get.

That the noise is the claimed one is tried in `tests/transcript/test_noise.py`.
"""

import json
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch

from support.federated import make_spec
from support.machine import full_disk
from tacit.dp import ADD_REMOVE_RECORD, Book, Gaussian, Ledger, epsilon, ledger_to_record, unroll
from tacit.dp import private as dp_private
from tacit.dp.ghost import RULES, Ghost
from tacit.errors import ConfigError, DataError, InputError, PartyError
from tacit.federated import (
    Learner,
    LocalEngine,
    Privacy,
    Training,
    engine,
    find_aggregator,
    flatten,
    round_config,
    run_rounds,
)
from tacit.federated.journal import Silo
from tacit.federated.records import train_records
from tacit.ring import Prg

DELTA = 1e-4


def prg(label="records"):
    return Prg(b"a key for tests.").fork(label)


def make_policy(*, training=None, records=100, rounds=2, **changes):
    training = training or Training(steps=3, batch=20, rate=0.5)
    asked = Privacy(
        kind="record", clip=1.0, epsilon=4.0, records=records, **{"delta": DELTA, **changes}
    )
    return make_spec(
        clients=4,
        rounds=rounds,
        aggregator="masked",
        privacy=asked,
        train=training,
        minimum=3,
        drop_rate=0.25,
        colluding_share=0.0,
    )


def make_learner(features, labels=None, clients=4, model=None):
    features = torch.as_tensor(features, dtype=torch.float32)
    labels = torch.zeros(len(features), dtype=torch.int64) if labels is None else labels
    model = model or torch.nn.Linear(features.shape[1], 2)
    parts = np.array_split(np.arange(len(features)), clients)
    return Learner(model, features, labels, parts, training=Training())


def steps_of(policy, learner):
    return round_config(policy, learner.dimension).mechanism.records


def silent(total, *, sigma, l2_sensitivity, relation, prg):
    """Stand in for noise that somebody forgot."""
    _, event = REAL(
        torch.zeros(1), sigma=sigma, l2_sensitivity=l2_sensitivity, relation=relation, prg=prg
    )
    return total.clone(), event


REAL = dp_private.add_gaussian


def test_every_record_is_drawn_by_a_coin_of_its_own(monkeypatch):
    """Rows with a one at their own place show in the update whether they were in the batch."""
    monkeypatch.setattr(dp_private, "add_gaussian", silent)
    rows, rounds, rate = 200, 60, 0.2
    learner = make_learner(np.eye(rows), clients=1)
    steps = steps_of(make_policy(training=Training(steps=1, batch=20, rate=1.0)), learner)
    source, weights = prg(), learner.first_weights()
    drawn = np.array(
        [
            train_records(learner, 0, weights, steps, prg=source)[0].values[:rows] != 0
            for _ in range(rounds)
        ]
    )
    count = rows * rounds
    assert abs(drawn.sum() - count * rate) < 6 * (count * rate * (1 - rate)) ** 0.5
    sizes = drawn.sum(1)
    assert sizes.var() > 0.4 * rows * rate * (1 - rate)  # a batch of one size would not vary
    together = (drawn[:, :-1] & drawn[:, 1:]).sum()  # neighbours in the file
    wanted = rounds * (rows - 1) * rate**2
    assert abs(together - wanted) < 6 * (2 * wanted) ** 0.5


@pytest.mark.parametrize("scale", [1.0, 1e6])
def test_one_record_more_moves_a_step_by_its_clip_and_nothing_else(monkeypatch, scale):
    """The divisor is public: the number of records does not show in the rest of the sum."""
    monkeypatch.setattr(dp_private, "add_gaussian", silent)
    rows = np.linspace(-1, 1, 30 * 6).reshape(30, 6)
    extra = np.vstack([rows, scale * np.ones(6)])
    policy = make_policy(training=Training(steps=1, batch=100, rate=0.5), records=100)
    found = []
    for given in (rows, extra):
        learner = make_learner(given, clients=1, model=MODEL)
        steps = steps_of(policy, learner)
        found.append(train_records(learner, 0, FLAT, steps, prg=prg())[0].values)
    moved = np.linalg.norm((found[1] - found[0]).astype(np.float64))
    assert 0 < moved <= 0.5 * 1.0 / 100 * (1 + 1e-3)


torch.manual_seed(1)
MODEL = torch.nn.Linear(6, 2)
FLAT = torch.cat([MODEL.weight.detach().reshape(-1), MODEL.bias.detach()])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e30, 1e38, -3e38])
def test_no_weights_of_a_server_make_a_client_fall_out_for_its_rows(value):
    """A failure that depends on rows would tell about them without noise."""
    learner = make_learner(np.random.default_rng(3).normal(size=(40, 6)), clients=1, model=MODEL)
    steps = steps_of(make_policy(), learner)
    hostile = FLAT.clone()
    hostile[::2] = value
    update, ledger = train_records(learner, 0, hostile, steps, prg=prg())
    assert update.values.shape == (14,)
    assert sum(unroll(ledger.events_of(None)).values()) == 3


def test_weights_at_the_optimum_of_the_rows_do_not_make_a_client_fall_out():
    """There all gradients cancel; a check of their sum, relative to it, failed on these rows."""
    source = np.random.default_rng(0)
    rows = source.normal(size=(40, 6))
    labels = torch.tensor((rows[:, 0] + 2 * source.normal(size=40) > 0).astype(np.int64))
    learner = make_learner(rows, labels, clients=1)
    model = torch.nn.Linear(6, 2).double()
    settings = {"max_iter": 500, "tolerance_grad": 1e-13, "tolerance_change": 1e-15}
    optimizer = torch.optim.LBFGS(model.parameters(), line_search_fn="strong_wolfe", **settings)
    x = torch.tensor(rows)

    def loss():
        optimizer.zero_grad()
        found = torch.nn.functional.cross_entropy(model(x), labels)
        found.backward()
        return found

    optimizer.step(loss)
    found = model.float()
    ghost = Ghost(found)
    each = torch.nn.functional.cross_entropy(found(x.float()), labels, reduction="none")
    ghost.clipped_sum(each, 1.0)  # nor is `make_private` refused there
    ghost.remove()
    steps = steps_of(make_policy(training=Training(steps=1, batch=100, rate=0.5)), learner)
    train_records(learner, 0, flatten(found), steps, prg=prg())


class Centred(torch.nn.Module):
    """Rows less their mean, before or behind a layer; its last layer starts at zero."""

    def __init__(self, where):
        super().__init__()
        self.where, self.first, self.last = where, torch.nn.Linear(6, 6), torch.nn.Linear(6, 2)
        torch.nn.init.zeros_(self.last.weight)

    def forward(self, x):
        x = self.first(x - x.mean(0) if self.where == "before" else x)
        return self.last(torch.relu(x - x.mean(0) if self.where == "behind" else x))


@pytest.mark.parametrize("where", ["before", "behind"])
def test_rows_that_are_centred_in_the_model_are_refused_where_it_starts_at_zero_too(where):
    learner = make_learner(np.ones((40, 6)), model=Centred(where))
    steps = steps_of(make_policy(), learner)
    with pytest.raises(ConfigError, match="depends on other records"):
        train_records(learner, 0, learner.first_weights(), steps, prg=prg())


def test_a_model_is_tried_at_the_weights_of_the_round_and_never_on_the_clients_rows(monkeypatch):
    """What opens at some weights alone shows at those, with made-up rows."""

    class Late(torch.nn.Linear):
        def forward(self, x):
            seen.append(x)
            return super().forward(x - x.mean(0) if self.bias[0] == 7 else x)

    seen = []
    learner = make_learner(np.full((40, 6), 2.0), clients=1, model=Late(6, 2))
    # A layer of its own kind would be refused before.
    monkeypatch.setitem(RULES, Late, RULES[torch.nn.Linear])
    steps = steps_of(make_policy(), learner)
    weights = learner.first_weights()
    train_records(learner, 0, weights, steps, prg=prg())
    assert len([x for x in seen if float(x.max()) == 2.0]) == 3  # one for a step
    weights[-2:] = 7.0
    with pytest.raises(ConfigError, match="depends on other records"):
        train_records(learner, 0, weights, steps, prg=prg())


def run(learner, policy, drop_rate=0.0, rounds=2):
    engine = LocalEngine(learner, find_aggregator("masked"), drop_rate=drop_rate, prg=prg())
    return run_rounds(
        engine,
        learner.first_weights(),
        policy,
        rounds=rounds,
        judge=lambda weights: (),
        on_round=lambda report: None,
    )


def test_all_steps_of_all_rounds_are_in_the_ledger_of_each_client():
    learner, policy = make_learner(np.ones((40, 3))), make_policy()
    outcome = run(learner, policy)
    for client in range(4):
        events = outcome.ledger.events_of(f"client {client}")
        assert sum(unroll(events).values()) == 2 * 3
    claim = outcome.rounds[-1].claim
    assert claim.epsilon == pytest.approx(round_config(policy, 8).mechanism.claim.epsilon, rel=1e-3)
    assert claim.epsilon <= 4.0
    assert claim.relation == "adding or removing one record"
    assert "each record, towards everybody but its own client" in claim.subject
    assert any("every client's own code" in one for one in claim.assumptions)


def test_who_trained_has_spent_it_though_its_round_was_lost(monkeypatch):
    trained = []

    def spy(learner, client, *rest, **more):
        trained.append(f"client {client}")
        return train_records(learner, client, *rest, **more)

    monkeypatch.setattr(engine, "train_records", spy)
    outcome = run(make_learner(np.ones((40, 3))), make_policy(rounds=4), drop_rate=0.5, rounds=4)
    assert any(report.void for report in outcome.rounds)
    for client in outcome.ledger.clients:
        steps = sum(unroll(outcome.ledger.events_of(client)).values())
        assert steps == 3 * trained.count(client)
    assert set(trained) == set(outcome.ledger.clients)


def test_more_local_steps_and_rounds_cost_noise():
    first = steps_of(make_policy(), make_learner(np.ones((8, 3)))).multiplier
    longer = make_policy(training=Training(steps=12, batch=20, rate=0.5))
    more = steps_of(longer, make_learner(np.ones((8, 3)))).multiplier
    assert more > 1.3 * first
    assert steps_of(make_policy(rounds=8), make_learner(np.ones((8, 3)))).multiplier == (
        pytest.approx(more, rel=1e-6)  # four times the steps, either way
    )


def make_silo(folder, book=None, **changes):
    learner = make_learner(np.ones((40, 3)), clients=1)
    silo = Silo(lambda: learner, 0, book=book or folder / "rows.csv.ledger")
    return silo, make_policy(**changes)


def ledger_in(folder, name="rows.csv.ledger"):
    (found,) = Book(folder / name).ledgers().values()
    return found


def test_a_client_that_joins_again_goes_on_with_its_ledger(tmp_path):
    weights = np.zeros(8, np.float32)
    for _ in range(2):  # as two nodes, two runs, two processes: the rows are the same
        silo, policy = make_silo(tmp_path)
        assert silo.train(weights, policy).values.any()
    for _ in range(2):
        silo, policy = make_silo(tmp_path)
        with pytest.raises(PartyError, match="its ledger has no room"):
            silo.train(weights, policy)
    ledger = ledger_in(tmp_path)
    assert len(ledger) == 2
    assert epsilon(ledger, delta=DELTA, accountant="fourier").epsilon <= 4.0
    # Another plan for the same rows finds what was spent before it.
    silo, policy = make_silo(tmp_path, rounds=50)
    with pytest.raises(PartyError, match="its ledger has no room"):
        silo.train(weights, policy)


def test_a_ledger_keeps_its_least_delta(tmp_path):
    """With that of whoever asks, rows were at ε = 3.49 where 2 was promised at δ = 1e-6."""
    silo, policy = make_silo(tmp_path, rounds=1, delta=1e-6)
    silo.train(np.zeros(8, np.float32), policy)
    for delta in (1e-3, 1e-6):
        _, policy = make_silo(tmp_path, rounds=1, delta=delta)
        with pytest.raises(PartyError, match=r"no room.*at δ = 1e-06"):
            silo.train(np.zeros(8, np.float32), policy)
    events = [one.event for one in ledger_in(tmp_path).entries]
    assert len(events) == 1
    # There would have been room.
    assert epsilon(events * 2, delta=1e-3, accountant="fourier").epsilon < policy.privacy.epsilon


def test_an_owner_s_book_and_a_silo_s_ledger_on_one_file_are_one_account(tmp_path):
    silo, policy = make_silo(tmp_path, rounds=1)
    silo.train(np.zeros(8, np.float32), policy)
    book, ledger = Book(tmp_path / "rows.csv.ledger", 4.5), Ledger()
    ledger.record(Gaussian(sigma=9.0, l2_sensitivity=1.0, relation=ADD_REMOVE_RECORD))
    many, spent = book.enter("a training", ledger_to_record(ledger), DELTA, kind="train")
    assert many == 2
    assert spent > 4.0
    other, limited = tmp_path / "other", Book(tmp_path / "rows.csv.ledger", 3.0)
    other.mkdir()
    with pytest.raises(PartyError, match="its ledger has no room"):
        make_silo(tmp_path)[0].train(np.zeros(8, np.float32), make_silo(tmp_path)[1])
    with pytest.raises(PartyError, match=r"no room.*and it allows 3"):
        make_silo(other, book=limited)[0].train(np.zeros(8, np.float32), policy)


def test_of_many_at_once_only_as_many_train_as_there_is_room_for(tmp_path):
    said = []

    def come():
        silo, policy = make_silo(tmp_path)
        try:
            said.append(bool(silo.train(np.zeros(8, np.float32), policy).values.any()))
        except PartyError:
            said.append(False)

    workers = [threading.Thread(target=come) for _ in range(5)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(said) == [False] * 3 + [True] * 2


def test_a_broken_ledger_is_refused_and_so_is_one_of_0_2(tmp_path):
    silo, policy = make_silo(tmp_path)
    file = tmp_path / "rows.csv.ledger"
    silo.train(np.zeros(8, np.float32), policy)
    whole = file.read_bytes()
    for broken in (
        whole[:-9],
        whole + whole,
        b"{}",
        json.dumps({"event": {}, "delta": 1e-5}).encode(),
    ):
        file.write_bytes(broken)
        with pytest.raises(DataError, match="what was spent is not known"):
            silo.train(np.zeros(8, np.float32), policy)
        assert file.read_bytes() == broken


def test_a_full_disk_trains_nothing_and_says_so_without_the_place(tmp_path, monkeypatch):
    silo, policy = make_silo(tmp_path)
    full_disk(monkeypatch, "fsync")
    with pytest.raises(InputError, match="cannot write the ledger of its rows") as caught:
        silo.train(np.zeros(8, np.float32), policy)
    assert str(tmp_path) not in str(caught.value)


def test_who_deletes_the_ledger_spends_again(tmp_path):
    """What is left open is shown to be open: the file is what is counted on."""
    silo, policy = make_silo(tmp_path, rounds=1)
    silo.train(np.zeros(8, np.float32), policy)
    (tmp_path / "rows.csv.ledger").unlink()
    silo.train(np.zeros(8, np.float32), policy)


def test_a_ledger_is_written_before_the_training_begins(tmp_path):
    def fail():
        raise OSError("the rows cannot be read any more")

    learner = make_learner(np.ones((40, 3)), clients=1)
    with pytest.raises(PartyError, match="wanted 8 weights"):
        Silo(lambda: learner, 0, book=tmp_path / "l").train(np.zeros(9, np.float32), make_policy())
    learner.rows_of = lambda client: fail()
    with pytest.raises(OSError, match="cannot be read"):
        Silo(lambda: learner, 0, book=tmp_path / "l").train(np.zeros(8, np.float32), make_policy())
    assert len(ledger_in(tmp_path, "l")) == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"records": None}, "privacy 'record' wants records, how many rows a client has"),
        ({"clip": None}, "missing: clip$"),
        ({"epsilon": None}, "wants epsilon and clip"),
        ({"records": 10_000}, "is 1/n or more for n = 10000 records"),
        ({"mechanism": "laplace"}, "goes with mechanism gaussian"),
    ],
)
def test_what_epsilon_depends_on_must_be_said(changes, message):
    policy = make_policy()

    def change():
        return round_config(replace(policy, privacy=replace(policy.privacy, **changes)), 8)

    with pytest.raises(ConfigError, match=message):
        change()


def test_a_model_that_mixes_records_is_refused():
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 2))
    learner = make_learner(np.ones((40, 3)), clients=1, model=model)
    steps = steps_of(make_policy(), learner)
    with pytest.raises(ConfigError, match="mixes or stores"):
        train_records(learner, 0, learner.first_weights(), steps, prg=prg())
