"""The words of a training: a job file and `tacit.train` take the same, and nothing else."""

import inspect
from dataclasses import fields, is_dataclass, replace
from typing import get_type_hints

import numpy as np
import pytest
import torch
from torch import nn

import tacit
from tacit.data.source import OwnerTable
from tacit.dp import Book
from tacit.errors import ConfigError, DataError
from tacit.jobs.train import TrainJob
from tacit.spec import strip_type
from tacit.training import (
    Privacy,
    StateFolder,
    TrainData,
    Training,
    TrainModel,
    TrainProtection,
    TrainSpec,
)

LEFT = {
    "job": "a name, a kind and a folder for results are of a file; a call returns its result",
    "parties": "addresses, keys and workers: parties of a call are threads of one process",
    "network": "how long hosts wait for each other",
    "report": "which pages are written, and what stands beside the result",
}
"""Tables of a job file that `tacit.train` does not take, and why."""


class StoppedError(Exception):
    """Stands for a kill."""


SHORT = ("epochs", "batch", "rate", "loss", "look_every", "epsilon", "delta", "cap")


def test_what_stands_in_a_job_file_can_be_passed_from_python():
    taken = inspect.signature(tacit.train).parameters
    tables = {one.name for one in fields(TrainJob)}
    hints = get_type_hints(TrainSpec)
    assert tables - set(hints) == set(LEFT)
    for name in hints:
        record = strip_type(hints[name])
        assert is_dataclass(record)
        assert record.__name__ in str(taken[name].annotation)


def test_at_most_eight_settings_have_names_of_their_own_and_they_are_those_of_fields():
    taken = inspect.signature(tacit.train).parameters
    known = {one.name for table in (Training, Privacy, TrainModel) for one in fields(table)}
    others = {one.name for one in fields(TrainSpec)} | {
        *("module", "owners", "out", "search", "report"),
    }
    assert set(taken) - others == set(SHORT) <= known


def rows(count=40, columns=6):
    x = np.random.default_rng(0).uniform(-1, 1, (count, columns))
    return x, (x[:, 0] > 0).astype(int)


def zeroed(module):
    for value in module.parameters():
        nn.init.zeros_(value)
    return module


def test_columns_of_owners_are_matched_by_their_ids_and_scores_shown():
    x, y = rows(60)
    ids = np.arange(60.0)[:, None]
    names = tuple(f"c{at}" for at in range(3))
    bank = tacit.data.Rows(features=np.concatenate([ids, x[:, :3]], 1)[5:], columns=("id", *names))
    shop = tacit.data.Rows(
        features=np.concatenate([ids, x[:, 3:]], 1)[:55],
        columns=("id", *names),
        labels=y[:55],
        classes=("0", "1"),
    )
    table = OwnerTable(id="id")
    found = tacit.train(
        zeroed(nn.Linear(6, 1)),
        {"bank": bank, "shop": shop},
        data=TrainData(owners={"bank": table, "shop": table}, split="columns", labels="shop"),
        model=TrainModel(bound=32.0),
        training=Training(epochs=6, batch=15, rate=2.0, loss="logistic", class_weights=(1.0, 1.5)),
        protocol=TrainProtection(
            kind="sealed",
            dealer="helper",
            layers={"softmax": "permuted3"},
            compute=("shop", "bank"),
            show_to=("shop",),
            give_to=("bank",),
            score_to=("shop",),
        ),
    )
    assert found.plan.rows == 50
    assert (found.predict(x).numpy() == y).mean() > 0.8
    assert any("area" in one.name.lower() or "auc" in one.name.lower() for one in found.metrics)
    assert any("how many ids" in leak.what for leak in found.ledger)
    assert found.plan.parties == ("bank", "shop", "helper")


class Speaker(nn.Module):
    """Tells the next of six ids from each."""

    def __init__(self):
        super().__init__()
        self.table, self.first = nn.Embedding(6, 4), nn.Linear(4, 4)
        self.head = nn.Linear(4, 6, bias=False)

    def forward(self, ids):
        x = self.table(ids)
        return self.head(x + torch.relu(self.first(x)))


def test_adapters_a_public_table_and_a_loss_at_the_owners_are_words_of_a_call():
    ids = (np.arange(20)[:, None] + np.arange(5)) % 6
    torch.manual_seed(0)
    module = Speaker()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    found = tacit.train(
        module,
        {"north": ids[::2], "south": ids[1::2]},
        loss="next-token",
        rate=0.5,
        epochs=4,
        batch=9,
        cap=16.0,
        model=TrainModel(adapters=2, table="table", head="head"),
        protocol="permuted3",
    )
    after = found.model.state_dict()
    assert {name for name in before if not torch.equal(before[name], after[name])} == {
        "first.weight"
    }
    assert torch.equal(module.state_dict()["first.weight"], before["first.weight"])
    assert found.history[-1][1] < 3
    assert any("last hidden states" in leak.what for leak in found.ledger)


def test_files_words_and_rules_take_the_place_of_arrays_and_a_module():
    found = tacit.train(
        None,
        {
            "north": OwnerTable(set="digits", rows=(0, 60)),
            "south": OwnerTable(set="digits", rows=(60, 120)),
        },
        data=TrainData(shape=(8, 8), features="hog", test_share=0.25),
        model=TrainModel(layers=("dense 10",), bound=8.0, seed=3),
        training=Training(optimiser="momentum", epochs=2, batch=30),
    )
    assert found.plan.test_rows == 30
    assert found.plan.spec.weight_bound == 8.0
    assert found.model is not None
    with pytest.raises(ConfigError, match="wanted at least one layer"):
        tacit.train(None, {"north": rows(), "south": rows()})
    with pytest.raises(ConfigError, match="either a module or"):
        tacit.train(nn.Linear(6, 2), {}, model=TrainModel(layers=("dense 2",)))


def test_a_book_of_an_owner_is_asked_before_a_row_is_shared(tmp_path):
    owners = {"north": rows(), "south": rows()}
    table = OwnerTable(book=tmp_path / "book.json", most_epsilon=2.5)

    def spend():
        return tacit.train(
            zeroed(nn.Linear(6, 2)),
            owners,
            privacy=Privacy(epsilon=2.0, delta=1e-3),
            data=TrainData(owners={"north": table}),
        )

    spend()
    with pytest.raises(ConfigError, match=r"2\.5"):
        spend()
    assert Book(tmp_path / "book.json", 2.5)


def test_a_training_that_was_stopped_goes_on_from_its_folder(tmp_path, monkeypatch):
    owners = {"north": rows(), "south": rows()}
    settings = {"epochs": 4, "batch": 24, "look_every": 3, "out": tmp_path}
    save = StateFolder.save

    def dying(self, checkpoint):
        save(self, checkpoint)
        if checkpoint.step == 6:
            raise StoppedError

    with monkeypatch.context() as patch:
        patch.setattr(StateFolder, "save", dying)
        with pytest.raises(StoppedError):
            tacit.train(zeroed(nn.Linear(6, 2)), owners, **settings)
    assert (tmp_path / "north").is_dir()
    found = tacit.train(zeroed(nn.Linear(6, 2)), owners, **settings)
    assert any("Taken up again after step" in note for note in found.result.notes)
    assert not (tmp_path / "north").exists()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"epochs": 0}, r"training\.epochs: wanted a whole number of at least 1, got 0"),
        ({"training": Training(rate=-1.0)}, r"training\.rate: wanted a number greater than 0"),
        ({"data": TrainData(test_share=1.5)}, r"data\.test_share"),
        ({"loss": "hinge"}, r"training\.loss: wanted one of 'softmax'"),
        ({"model": TrainModel(head="0")}, "no layer '0'"),
    ],
)
def test_records_made_in_python_keep_the_ranges_of_a_job_file(settings, words):
    with pytest.raises(ConfigError, match=words):
        tacit.train(nn.Linear(6, 2), {"north": rows(), "south": rows()}, **settings)


def test_defaults_of_batch_and_bounds_follow_from_the_rows_and_the_promise():
    owners = {"north": rows(), "south": rows()}
    found = tacit.train(zeroed(nn.Linear(6, 2)), owners)
    assert (found.plan.batch, found.plan.test_rows, found.plan.spec.weight_bound) == (72, 8, 4.0)
    hidden = replace(Privacy(epsilon=8.0, delta=1e-3), sampling="hidden")
    found = tacit.train(zeroed(nn.Linear(6, 2)), owners, privacy=hidden)
    assert (found.plan.batch, found.plan.test_rows, found.plan.spec.weight_bound) == (79, 0, 64.0)


def test_labels_that_nobody_asked_for_are_not_left_out_without_a_word():
    with pytest.raises(DataError, match="rows alone"):
        tacit.train(nn.Linear(6, 2), {"north": rows(), "south": rows()[0]})


def test_what_no_look_goes_with_is_refused_together_and_before_a_party_starts():
    owners = {"north": OwnerTable(set="digits"), "south": OwnerTable(set="digits")}
    with pytest.raises(ConfigError) as refused:
        TrainSpec(
            data=TrainData(owners=owners),
            model=TrainModel(layers=("dense 10",)),
            protocol=TrainProtection(
                kind="sealed", dealer="dealer", show_to=("north",), score_to=("north",)
            ),
            privacy=Privacy(epsilon=2.0, delta=1e-5),
        )
    assert {one.key for one in refused.value.problems} == {"protocol.score_to", "protocol.show_to"}
