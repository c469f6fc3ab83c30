"""Jobs of kind "train": what is read, what is refused, what a party brings."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load

from support.jobs import JOBS, make_result, read_changed, take_parts
from tacit.data import Holding
from tacit.data.source import shaped, stretch
from tacit.errors import ConfigError, DataError
from tacit.jobs import folder, train
from tacit.jobs.config import job_digest
from tacit.jobs.kinds import load_job
from tacit.jobs.train import check_inputs
from tacit.mpc import find_protocol
from tacit.nn import OwnModel, make_token_model, read_facts
from tacit.training import TrainPlan
from tacit.training.plan import build, trainable
from tacit.training.rows import load_rows

pytestmark = pytest.mark.usefixtures("code_is_allowed")


def job(**changes):
    raw = {
        "job": {"name": "j", "kind": "train"},
        "parties": {"north": {}, "south": {}, "helper": {}},
        "data": {"owners": {"north": {"set": "digits"}, "south": {"set": "digits"}}},
        "model": {"layers": ["dense 10"]},
        "protocol": {"kind": "sealed", "dealer": "helper"},
    }
    return read_changed(raw, changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"protocol__kind": "seald"}, "did you mean 'sealed'"),
        ({"protocol__dealer": "north"}, "must not own data"),
        ({"protocol__show_to": ["nobody"]}, "protocol.show_to"),
        ({"data__owners__north": {"set": "digits", "rows": [5, 5]}}, "first < end"),
        (
            {"data__prepare": {"age": {"divide": 0.0}}},
            r"data\.prepare\.age\.divide: wanted a number greater than 0",
        ),
        ({"model__bound": 0}, "greater than 0"),
        ({"parties__extra": {}}, "no part in this job"),
        ({"protocol__layers": {"softmx": "sealed"}}, r"protocol\.layers.*activations, norms"),
        ({"protocol__layers": {"softmax": "open"}}, "unknown protocol 'open'"),
        ({"protocol__layers": {"linear": "permuted3"}}, "sealed under every protocol"),
    ],
)
def test_a_wrong_key_is_named_with_what_was_wanted(changes, words):
    with pytest.raises(ConfigError, match=words):
        job(**changes)


def test_kinds_of_functions_have_protocols_of_their_own():
    mixed = job(protocol__layers={"linear": "sealed", "activations": "permuted3"})
    held = tuple(Holding(name, 500, (64,), "classes") for name in ("north", "south"))
    task = TrainPlan.of(mixed, held)
    assert find_protocol(task.spec.protocol.spelled).name == "sealed; activations: permuted3"
    assert mixed.role("helper") == "dealer, helper"
    assert job().role("helper") == "dealer"


def test_an_owner_without_data_is_told_before_anyone_connects():
    with pytest.raises(ConfigError, match=r"data\.owners\.north"):
        check_inputs(job(data__owners__north={}), ["north"])
    with pytest.raises(DataError, match="no such file"):
        check_inputs(job(data__owners__north={"file": "nowhere.csv"}), ["north"])


def test_rows_and_columns_of_a_set_are_cut_out():
    one = job(data__owners__north={"set": "digits", "rows": [10, 14], "columns": [3, 8]})
    rows = load_rows(one, "north", ())
    assert rows.features.shape == (4, 5)
    assert rows.labels.shape == (4, 10)
    assert rows.ids == ("10", "11", "12", "13")


def test_pictures_get_the_shape_that_the_job_says():
    rows = load_rows(job(data__shape=[1, 8, 8], model__layers=["flatten", "dense 10"]), "north", ())
    assert rows.features.shape[1:] == (1, 8, 8)


@pytest.fixture
def table(tmp_path):
    def write(text):
        path = tmp_path / "rows.csv"
        path.write_text(text)
        return {"file": str(path), "label": "y"}

    return write


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,y\n1,0\n1,1\n", "constant"),
        ("a,y\nnan,0\n1,1\n", "NaN|missing|not a number"),
        ("a,y\n", "no rows|empty|at least"),
    ],
)
def test_data_that_cannot_be_trained_on_is_refused(table, text, words):
    with pytest.raises(DataError, match=words):
        load_rows(job(data__owners__north=table(text), model__layers=["dense 2"]), "north", ())


def test_labels_beyond_the_classes_of_the_model_are_refused():
    with pytest.raises(DataError, match="go up to 9, but the model has 4 classes"):
        load_rows(job(model__layers=["dense 4"]), "north", ())


@pytest.fixture
def columns(tmp_path):
    def make(text):
        path = tmp_path / "columns.csv"
        path.write_text(text)
        owner = {"file": str(path), "id": "id", "label": "y"}
        other = {"set": "breast-cancer"}
        return job(
            data__split="columns",
            data__labels="north",
            data__owners={"north": owner, "south": other},
            data__bound=8.0,
            model__layers=["dense 2"],
        )

    return make


def test_a_constant_column_is_named_where_owners_have_columns(columns):
    good = load_rows(columns("id,a,b,y\n1,5,1,0\n2,5.5,2,1\n"), "north", ())
    good.check_columns("north")
    with pytest.raises(DataError, match=r"'b' of 'north' are constant over 2 rows"):
        load_rows(columns("id,a,b,y\n1,5,1,0\n2,6,1,1\n"), "north", ())


def test_a_column_that_is_constant_on_the_common_rows_is_named(columns):
    rows = load_rows(columns("id,a,b,y\n1,5,1,0\n2,6,1,1\n3,7,2,1\n"), "north", ())
    with pytest.raises(DataError, match=r"'b' of 'north' are constant over 2 rows"):
        rows.take([0, 1]).check_columns("north")


def test_an_owner_of_labels_alone_is_taken_and_one_of_nothing_is_not(columns):
    assert load_rows(columns("id,y\n1,0\n2,1\n"), "north", ()).features.shape == (2, 0)
    one = columns("id,y\n1,0\n2,1\n")
    other = replace(one, data=replace(one.data, labels="south"))
    with pytest.raises(DataError, match="no columns are left"):
        load_rows(other, "north", ())


def test_ids_that_a_float_cannot_hold_are_exact(columns):
    rows = load_rows(columns("id,a,y\n9007199254740993,5,0\n9007199254740992,6,1\n"), "north", ())
    assert rows.ids == ("9007199254740993", "9007199254740992")
    with pytest.raises(DataError, match="has lost digits"):
        load_rows(columns("id,a,y\n9007199254740993.0,5,0\n2,6,1\n"), "north", ())


def test_columns_are_prepared_as_all_parties_have_agreed(table):
    source = {**table("id,a,b,y\n7,10,,0\n9,-20,6,1\n"), "id": "id"}
    known = {"data__owners__north": source, "model__layers": ["dense 2"]}
    tables = {"a": {"divide": 20}, "b": {"impute": 3, "divide": 6}}
    one = job(data__prepare=tables, **known)
    rows = load_rows(one, "north", ())
    assert np.allclose(rows.features, [[0.5, 0.5], [-1.0, 1.0]])
    assert job_digest(one) == job_digest(job(data__prepare=dict(reversed(tables.items())), **known))
    assert job_digest(one) != job_digest(job(data__prepare={**tables, "a": {"divide": 9}}, **known))
    with pytest.raises(DataError, match=r"prepare: the rows have 'b' as well"):
        load_rows(job(data__prepare={"a": {}}, **known), "north", ())


def test_ids_are_a_column_that_is_not_a_feature(table):
    source = {**table("id,a,y\n7,1,0\n9,2,1\n"), "id": "id"}
    made = job(data__owners__north=source, data__bound=2.0, model__layers=["dense 2"])
    rows = load_rows(made, "north", ())
    assert rows.ids == ("7", "9")
    assert np.allclose(rows.features, [[1.0], [2.0]])
    missing = {**table("a,y\n1,0\n2,1\n"), "id": "id"}
    with pytest.raises(DataError, match="no column 'id'"):
        load_rows(job(data__owners__north=missing, model__layers=["dense 2"]), "north", ())


CODE = """
from torch import nn

def make_model():
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 2, 3, stride=2), nn.GroupNorm(1, 2), nn.ReLU(),
        nn.Flatten(), nn.Linear(18, 10),
    )
"""


def test_ones_own_code_is_trained_and_the_weights_load_back_into_it(tmp_path):
    (tmp_path / "net.py").write_text(CODE)
    module = OwnModel.read(tmp_path / "net.py")()
    torch.save(module.state_dict(), tmp_path / "start.pt")
    half = {"set": "digits", "rows": [0, 30]}
    made = job(
        data__owners={"north": half, "south": {**half, "rows": [30, 60]}},
        model={"code": f"{tmp_path / 'net.py'}:make_model", "file": str(tmp_path / "start.pt")},
        protocol__kind="permuted3",
        protocol__give_to=["north"],
        training={"batch": 54, "rate": 1e-6, "keep": False},
    )
    check_inputs(made, ["north", "south"])

    parts = take_parts(made, tmp_path)
    (tmp_path / folder.MODEL).write_bytes(parts["north"].files[folder.MODEL])
    found = load(parts["north"].files[folder.MODEL])
    other = OwnModel.read(tmp_path / "net.py")()
    other.load_state_dict(found)  # names and shapes are those of the module
    # A step of so small a rate leaves the weights where they started: in the file.
    for name, value in module.state_dict().items():
        assert (found[name] - value).abs().max() < 1e-3
    assert read_facts(tmp_path / folder.MODEL)["scale"] == 16.0
    assert folder.MODEL not in parts["south"].files


def test_a_stretch_beyond_what_there_is_is_refused_and_not_cut_short():
    assert stretch(None, 10, "data.rows") == slice(0, 10)
    assert stretch((2, 10), 10, "data.rows") == slice(2, 10)
    with pytest.raises(DataError, match=r"data\.rows: wanted at most \[2, 10\]"):
        stretch((2, 11), 10, "data.rows")
    assert shaped(np.zeros((2, 6)), (2, 3), "data.shape").shape == (2, 2, 3)
    with pytest.raises(DataError, match=r"model\.inputs: wanted rows of 63 values.* got 64"):
        shaped(np.zeros((2, 64)), (63,), "model.inputs")


TEXT_MODEL = """
import torch
from torch import nn

class Speaker(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(6, 4)
        self.first, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)
        self.head = nn.Linear(4, 6, bias=False)

    def forward(self, ids):
        x = self.table(ids)
        return self.head(self.norm(x + torch.relu(self.first(x))))

def make_model():
    return Speaker()
"""


def text_job(tmp_path, **changes):
    (tmp_path / "net.py").write_text(TEXT_MODEL)
    coins = np.random.default_rng(0)
    for name in ("north", "south"):
        first = coins.integers(0, 6, size=(20, 1))
        rows = (first + np.arange(5)) % 6  # every id is told by the one before it
        text = "\n".join(",".join(map(str, one)) for one in [[f"t{at}" for at in range(5)], *rows])
        (tmp_path / f"{name}.csv").write_text(text)
    given = {
        "data__owners": {n: {"file": str(tmp_path / f"{n}.csv")} for n in ("north", "south")},
        "model": {
            "code": f"{tmp_path / 'net.py'}:make_model",
            "adapters": 2,
            "train": ["norm"],
            "table": "table",
            "head": "head",
            "cap": 16.0,
        },
        "protocol__kind": "permuted3",
        "protocol__show_to": ["north"],
        "protocol__give_to": ["north"],
        "training": {
            "loss": "next-token",
            "batch": 18,
            "epochs": 6,
            "rate": 0.5,
            "look_every": 2,
            "keep": False,
        },
    }
    return job(**{**given, **changes})


def test_adapters_and_a_loss_at_the_owners_of_texts_are_words_of_a_job(tmp_path):
    made = text_job(tmp_path)
    parts = take_parts(made, tmp_path)
    found = load(parts["north"].files[folder.MODEL])
    module = OwnModel.read(tmp_path / "net.py:make_model")()
    torch.manual_seed(0)
    module.load_state_dict(found)  # of the network as it is, with what adapters became
    start = build(made.model, (4,)).state_dict()
    changed = {name for name, value in found.items() if not torch.equal(value, start[name])}
    assert changed == {"first.weight", "norm.weight", "norm.bias"}
    shown = {one.what for one in parts["south"].result.leakage if one.to == "south"}
    assert "last hidden states of rows of its own" in shown
    assert not [one for one in shown if "loss" in one]
    losses = parts["north"].result.curves[0].points
    assert losses[-1][1] < losses[0][1]
    assert any("saturated at ±16" in note for note in parts["north"].result.notes)


BLOCKS = """
import torch
from torch import nn
from torch.nn import functional

def heads(x):
    return x.unflatten(2, (2, 4)).transpose(1, 2)

class Block(nn.Module):
    def attend(self, q, k, v):
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))

class Gpt(Block):
    def __init__(self):
        super().__init__()
        self.table, self.places = nn.Embedding(6, 8), nn.Embedding(4, 8)
        self.before, self.first, self.second = (nn.LayerNorm(8) for _ in range(3))
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)
        self.head = nn.Linear(8, 6, bias=False)

    def forward(self, ids):
        x = self.before(self.table(ids)) + self.places(torch.arange(4))
        q, k, v = self.qkv(self.first(x)).chunk(3, dim=-1)
        x = x + self.attend(heads(q), heads(k), heads(v))
        return self.head(x + self.down(functional.gelu(self.up(self.second(x)))))

class Llama(Block):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(6, 8)
        self.first, self.second, self.last = (nn.RMSNorm(8) for _ in range(3))
        self.q, self.k, self.v, self.out = (nn.Linear(8, 8, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(8, 16, bias=False) for _ in range(2))
        self.down, self.head = nn.Linear(16, 8, bias=False), nn.Linear(8, 6, bias=False)
        angles = torch.outer(torch.arange(4.0), torch.tensor([1.0, 0.01])).repeat(1, 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def turn(self, x):
        one, two = x.chunk(2, dim=-1)
        return x * self.cos + torch.cat([-two, one], -1) * self.sin

    def forward(self, ids):
        x = self.table(ids)
        h = self.first(x)
        q, k = self.turn(heads(self.q(h))), self.turn(heads(self.k(h)))
        x = x + self.attend(q, k, heads(self.v(h)))
        h = self.second(x)
        return self.head(self.last(x + self.down(functional.silu(self.gate(h)) * self.up(h))))
"""


@pytest.mark.parametrize("name", ["Gpt", "Llama"])
@pytest.mark.parametrize(
    "ends", [{"table": "table"}, {"table": "table", "head": "head", "adapters": 2}]
)
def test_blocks_with_attention_train_on_a_public_table_as_in_the_clear(tmp_path, name, ends):
    (tmp_path / "blocks.py").write_text(BLOCKS)
    made = text_job(
        tmp_path,
        model={"code": f"{tmp_path / 'blocks.py'}:{name}", "cap": 16.0, "bound": 16.0, **ends},
        training={"loss": "next-token", "batch": 18, "epochs": 1, "rate": 0.05, "keep": False},
    )
    x, y, holdings = train.join_owners(made, ())
    assert x.shape == (40, 4, 8)  # tokens of the width of the table
    wanted = train.train_plain(TrainPlan.of(made, holdings), x, y)[-1][1]
    part = take_parts(made, tmp_path)["north"]
    assert part.result.curves[0].points[-1][1] == pytest.approx(wanted, rel=0.01)
    saved = load(part.files[folder.MODEL])
    module = OwnModel.read(f"{tmp_path / 'blocks.py'}:{name}")()
    module.load_state_dict(saved)  # whole again, with both ends
    table = build(made.model, (4,)).state_dict()["table.weight"]
    assert torch.equal(saved["table.weight"], table)


def test_the_shipped_text_job_takes_its_table_away_too():
    made = load_job(JOBS / "train-text.toml")
    made = replace(made, model=replace(made.model, table="table", adapters=2))
    ends = trainable(made.model, (8, 16))
    model = make_token_model(ends.module, (8, 16), cap=made.model.cap)
    assert (model.tokens, model.outputs) == ((8,), 12)
    assert ends.table.shape == (12, 16)


def test_ends_that_are_none_are_refused_by_name(tmp_path):
    for words, changes in (
        ("no layer 'tabel'", {"table": "tabel"}),
        ("no layer 'norm' that is an nn.Linear", {"head": "norm"}),
        ("has a bias", {"head": "first"}),
    ):
        made = text_job(tmp_path)
        made = replace(made, model=replace(made.model, **changes))
        with pytest.raises(ConfigError, match=words):
            trainable(made.model, (4,))


def test_a_training_with_a_promise_has_none_in_the_clear_beside_it():
    """A second training of the same rows, shown without noise, would be outside the ε beside it."""
    made = job(privacy={"epsilon": 2.0, "delta": 1e-4})
    assert made.report.compare == "plain"  # as it is where a job says nothing
    found = train.complete(made, make_result(), Path(), ())
    assert (found.utility, found.curves) == ((), ())
    assert found.notes == (train.NOT_COMPARED,)


def test_sampling_and_joint_noise_are_words_of_a_job():
    made = job(
        privacy={"epsilon": 2.0, "delta": 1e-4, "noise": "joint", "sampling": "hidden"},
        training={"batch": 50},
    )
    held = tuple(Holding(name, 500, (64,), "classes") for name in ("north", "south"))
    task = TrainPlan.of(made, held)
    assert (task.spec.is_sampled, task.batch, task.spec.privacy.noise) == (True, 50, "joint")
    with pytest.raises(ConfigError, match="hiden"):
        job(privacy={"epsilon": 2.0, "delta": 1e-4, "sampling": "hiden"})
