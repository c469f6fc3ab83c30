"""Jobs of kind "infer": what is read, what is refused, and a whole run between threads."""

from pathlib import Path

import numpy as np
import pytest
import torch

from support.jobs import join_parts, read_changed, take_parts, write_shares
from tacit.data import load_dataset
from tacit.errors import ConfigError, DataError
from tacit.inference.inputs import load_owned, load_rows
from tacit.jobs import folder, infer
from tacit.jobs.config import job_digest
from tacit.jobs.kind import Asked
from tacit.mpc.registry import NO_DEALER
from tacit.nn import OwnModel, parse_layers, to_safetensors
from tacit.party import without_setup

pytestmark = pytest.mark.usefixtures("code_is_allowed")

LAYERS = ["dense 8", "relu", "dense 10"]


@pytest.fixture
def weights(tmp_path):
    module = parse_layers(LAYERS, (64,), seed=3)
    arrays = {name.replace(".", "/"): one.numpy() for name, one in module.state_dict().items()}
    path = tmp_path / "model.npz"
    np.savez(path, **arrays)
    return path


@pytest.fixture
def make_job(weights):
    def make(**changes):
        raw = {
            "job": {"name": "j", "kind": "infer"},
            "parties": {"clinic": {}, "lab": {}, "dealer": {}},
            "data": {"owner": "clinic", "set": "digits", "rows": [0, 12]},
            "model": {"owner": "lab", "layers": LAYERS, "inputs": [64], "file": str(weights)},
            "protocol": {"kind": "sealed", "dealer": "dealer"},
        }
        return read_changed(raw, changes)

    return make


@pytest.mark.parametrize("protocol", ["sealed", "permuted3", "permuted2"])
@pytest.mark.parametrize("reveal", ["class", "output"])
def test_the_classes_are_those_of_the_network_in_the_clear(make_job, tmp_path, protocol, reveal):
    job = make_job(protocol__kind=protocol, protocol__reveal=reveal)

    parts = take_parts(job, tmp_path)
    assert parts["lab"].files == parts["dealer"].files == {}
    (tmp_path / folder.PREDICTIONS).write_text(parts["clinic"].files[folder.PREDICTIONS])
    merged = join_parts(job, parts)
    assert set(merged.leakage) == set(infer.forecast(job, Asked()).leaks)
    whole = infer.complete(job, merged, tmp_path, ())
    found = {metric.name: metric for metric in whole.utility}
    assert found["answers equal to plaintext"].value == 1.0
    assert found["accuracy"].value == found["accuracy"].reference


ALONE = {"protocol__kind": NO_DEALER, "protocol__dealer": None, "parties__dealer": None}


def test_two_parties_without_a_dealer_answer_as_the_network_and_as_forecast(make_job, tmp_path):
    job = make_job(**ALONE)
    parts = take_parts(job, tmp_path)
    assert set(parts) == {"clinic", "lab"}
    module = parse_layers(LAYERS, (64,), seed=3)
    with torch.no_grad():
        wanted = module(load_rows(job, ())[0].float()).argmax(1)
    assert parts["clinic"].values.tolist() == wanted.tolist()
    merged = join_parts(job, parts)
    outlook = infer.forecast(job, Asked())
    assert without_setup(merged.metered) == outlook.forecast.cost


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"protocol__kind": NO_DEALER}, "protocol.dealer.*has none; leave it out"),
        ({"protocol__kind": "sealed; linear: he"}, "without a dealer all functions are garbled"),
    ],
)
def test_a_dealer_too_many_or_too_few_is_refused(make_job, changes, words):
    with pytest.raises(ConfigError, match=words):
        make_job(**changes)


def test_a_forest_from_a_file_answers_as_its_library_and_shows_its_size(make_job, tmp_path):
    xgboost = pytest.importorskip("xgboost")
    data = load_dataset("digits", ())
    model = xgboost.XGBClassifier(n_estimators=3, max_depth=3).fit(data.unscaled(), data.labels)
    model.save_model(tmp_path / "forest.json")
    gone = {"model__layers": None, "model__inputs": None}
    job = make_job(model__kind="forest", model__file=str(tmp_path / "forest.json"), **gone)
    assert job_digest(job) != job_digest(make_job())  # all parties compare it
    parts = take_parts(job, tmp_path)
    found = parts["clinic"].values.tolist()
    assert found == model.predict(data.unscaled()[:12]).tolist()
    outlook = infer.forecast(job, Asked())
    merged = join_parts(job, parts)
    assert outlook.forecast.cost == without_setup(merged.metered)
    assert set(outlook.leaks) == set(merged.leakage)
    told = [one for one in parts["clinic"].result.leakage if "trees" in one.what]
    assert [one.kind for one in told if one.to == "clinic"] == ["size"]
    with pytest.raises(ConfigError, match="of a forest wanted 'class'"):
        make_job(model__kind="forest", protocol__reveal="output", **gone)
    with pytest.raises(ConfigError, match="a forest is its file"):
        make_job(model__kind="forest")


CODE = """
from torch import nn

def make_model():
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 4, 3, stride=2, groups=1), nn.BatchNorm2d(4),
        nn.ReLU(), nn.Flatten(), nn.Linear(36, 10),
    )
"""


@pytest.mark.parametrize("ending", [".pt", ".safetensors", ".npz"])
def test_a_model_is_ones_own_code_and_its_weights_come_from_any_file(make_job, tmp_path, ending):
    (tmp_path / "net.py").write_text(CODE)
    code = f"{tmp_path / 'net.py'}:make_model"
    torch.manual_seed(5)
    module = OwnModel.read(Path(code))()
    path = tmp_path / f"mine{ending}"
    if ending == ".pt":
        torch.save({"state_dict": module.state_dict()}, path)
    elif ending == ".npz":
        np.savez(path, **{name: one.numpy() for name, one in module.state_dict().items()})
    else:
        path.write_bytes(to_safetensors(module.state_dict(), {}))
    job = make_job(
        model__layers=None, model__code=code, model__file=str(path), protocol__reveal="output"
    )
    parts = take_parts(job, tmp_path)
    lines = parts["clinic"].files[folder.PREDICTIONS].splitlines()[1:]
    got = torch.tensor([[float(word) for word in line.split(",")[2:12]] for line in lines])
    with torch.no_grad():
        wanted = module.eval()(load_rows(job, ())[0].float())
    assert (got - wanted).abs().max() < 1e-3


def test_a_file_that_would_run_code_is_refused_and_runs_nothing(make_job, tmp_path):
    class Evil:
        def __reduce__(self):
            return (Path.write_text, (tmp_path / "ran", "it ran"))

    torch.save({"0.weight": Evil()}, tmp_path / "evil.pt")
    with pytest.raises(DataError, match=r"evil\.pt.*tensors by name and no code"):
        take_parts(make_job(model__file=str(tmp_path / "evil.pt")), tmp_path)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def other(): return 1", r"wanted a function make_model\(\)"),
        ("def make_model(): return 1", "wanted a torch module, got int"),
        ("def make_model(:", "wanted Python"),
        (CODE.replace("nn.Linear(36, 10)", "nn.Linear(35, 10)"), "does not take rows of shape"),
    ],
)
def test_code_that_makes_no_such_model_is_refused_in_words(make_job, tmp_path, text, words):
    (tmp_path / "net.py").write_text(text)
    with pytest.raises((ConfigError, DataError), match=words):
        take_parts(
            make_job(model__layers=None, model__code=f"{tmp_path / 'net.py'}:make_model"), tmp_path
        )


@pytest.fixture
def shares(tmp_path):
    module = parse_layers(LAYERS, (64,), seed=3)
    return write_shares(module.state_dict(), tmp_path, ("north", "south"))


@pytest.fixture
def make_shared(shares):
    def make(**changes):
        raw = {
            "job": {"name": "j", "kind": "infer"},
            "parties": {"north": {}, "south": {}, "dealer": {}, "clinic": {}},
            "data": {"owner": "clinic", "set": "digits", "rows": [0, 12]},
            "model": {"layers": LAYERS, "inputs": [64], "shares": shares},
            "protocol": {"kind": "sealed", "dealer": "dealer", "compute": ["north", "south"]},
        }
        if changes.get("data__owner", "clinic") != "clinic":
            del raw["parties"]["clinic"]
        return read_changed(raw, changes)

    return make


@pytest.mark.parametrize(
    ("protocol", "owner", "reveal"),
    [
        ("sealed", "clinic", "class"),
        ("sealed", "north", "output"),
        ("permuted3", "clinic", "class"),
        ("permuted3", "north", "output"),
        ("permuted2", "south", "output"),
    ],
)
def test_a_model_that_nobody_has_answers_as_it_would_in_the_clear(
    make_shared, tmp_path, protocol, owner, reveal
):
    job = make_shared(protocol__kind=protocol, protocol__reveal=reveal, data__owner=owner)

    parts = take_parts(job, tmp_path)
    assert [name for name, part in parts.items() if part.files] == [owner]
    (tmp_path / folder.PREDICTIONS).write_text(parts[owner].files[folder.PREDICTIONS])
    merged = join_parts(job, parts)
    assert set(merged.leakage) == set(infer.forecast(job, Asked()).leaks)
    whole = infer.complete(job, merged, tmp_path, ())
    found = {metric.name: metric for metric in whole.utility}
    assert found["answers equal to plaintext"].value == 1.0
    opened = [leak for leak in whole.leakage if leak.kind == "output"]
    bit = "whether any weight is beyond its bound"
    assert [leak.to for leak in opened if leak.what != bit] == [owner]
    assert {leak.to for leak in opened if leak.what == bit} == set(job.parties)
    sent = sum(one.payload_bytes for one in without_setup(whole.metered).traffic)
    # Every message is metered by who sends and by who receives it.
    assert sent in (
        sum(one.payload_bytes for one in whole.forecast.cost.traffic) * times for times in (1, 2)
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"protocol__compute": None}, r"protocol\.compute: missing"),
        ({"protocol__compute": ["north"]}, "names of two parties"),
        ({"protocol__dealer": "north"}, "another one that deals"),
        ({"data__owner": "dealer"}, "must not own the rows"),
        ({"model__owner": "north"}, "without an owner"),
        ({"protocol__kind": "permuted2"}, "let it be 'clinic', or use sealed"),
    ],
)
def test_a_shared_model_with_wrong_parties_is_refused(make_shared, changes, words):
    with pytest.raises(ConfigError, match=words):
        make_shared(**changes)


def test_a_share_that_is_not_there_is_told_before_anyone_connects(make_shared, shares):
    job = make_shared(model__shares={"north": shares["north"]})
    infer.check_inputs(job, ["north"])
    with pytest.raises(ConfigError, match=r"model\.shares\.south: missing"):
        infer.check_inputs(job, ["south"])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"protocol__dealer": "lab"}, "another party for each"),
        ({"data__rows": [3, 3]}, "first < end"),
    ],
)
def test_a_wrong_key_is_named_with_what_was_wanted(make_job, changes, words):
    with pytest.raises(ConfigError, match=words):
        make_job(**changes)


def test_owners_without_inputs_are_told_before_anyone_connects(make_job):
    with pytest.raises(ConfigError, match=r"model\.file: missing"):
        infer.check_inputs(make_job(model__file=None), ["lab"])
    with pytest.raises(DataError, match="no such file"):
        infer.check_inputs(make_job(model__file="nowhere.npz"), ["lab"])
    infer.check_inputs(make_job(model__file=None), ["clinic"])


def test_weights_of_other_layers_are_refused(make_job):
    job = make_job(model__layers=["dense 9", "relu", "dense 10"])
    with pytest.raises(DataError, match="does not hold the weights of this model"):
        load_owned(parse_layers(job.model.layers, (64,), seed=0), job)


def test_a_file_that_is_no_archive_is_refused(make_job, tmp_path):
    path = tmp_path / "noise.npz"
    path.write_bytes(b"noise")
    with pytest.raises(DataError, match=r"not a \.npz file of weights"):
        load_owned(torch.nn.Linear(2, 2), make_job(model__file=str(path)))
