"""A model of one linear layer: inputs, answers, the comparison with a plain computation."""

import numpy as np
import pytest
import torch
from torch import nn

from support.jobs import make_result
from tacit.errors import ConfigError, DataError
from tacit.inference import predict_plain, save_logistic
from tacit.inference.answers import AnsweredRows, read_answers
from tacit.inference.inputs import load_linear, load_rows
from tacit.jobs.infer import check_inputs, compare_plain
from tacit.jobs.kinds import read_job
from tacit.nn import to_safetensors

pytestmark = pytest.mark.usefixtures("code_is_allowed")


def job(data, model, reveal="class", kind="infer", **tables):
    raw = {
        "job": {"name": "j", "kind": kind},
        "parties": {"hospital": {}, "lab": {}, "dealer": {}},
        "data": {"owner": "hospital", **data},
        "model": {"owner": "lab", **model},
        "protocol": {"kind": "sealed", "dealer": "dealer", "reveal": reveal},
        **tables,
    }
    return read_job(raw, source="job.toml")


CANCER = {"set": "breast-cancer", "part": "test"}
TRAINED = {"train": {"set": "breast-cancer", "part": "train"}}


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("a,b,y\n1,8,0\n2,16,1\n")
    return str(path)


@pytest.mark.parametrize(
    ("data", "model", "reveal", "word"),
    [
        (CANCER, TRAINED, "output", "of a linear model wanted 'class' or 'score', got 'output'"),
        ({**CANCER, "shape": [30]}, TRAINED, "class", "data.shape: is for a network"),
        (CANCER, {**TRAINED, "cap": 2.0}, "class", "model.cap: one linear layer"),
        (CANCER, {"layers": ["dense 1"]}, "class", "model.inputs: missing"),
        (CANCER, {**TRAINED, "layers": ["dense 1"], "inputs": [30]}, "class", "one linear layer"),
        (CANCER, {"layers": ["dense 2"], "inputs": [30]}, "score", "of a network wanted 'class'"),
    ],
)
def test_settings_of_networks_and_of_linear_models_are_told_apart(data, model, reveal, word):
    with pytest.raises(ConfigError, match=word):
        job(data, model, reveal)


def test_rows_and_weights_fit_each_other():
    one = job(CANCER, TRAINED)
    assert load_rows(one, ())[0].shape[1] == len(load_linear(one, ())["weight"]) == 30


def test_rows_without_labels_have_none_to_compare_with(table):
    features, labels = load_rows(job({"file": table}, {"file": "m.npz"}), ())
    assert (features.shape, labels) == ((2, 3), None)


def test_the_parts_of_both_owners_do_not_overlap():
    test, _ = load_rows(job(CANCER, TRAINED), ())
    train, _ = load_rows(job({**CANCER, "part": "train"}, TRAINED), ())
    assert len(test) + len(train) == 569
    assert not {tuple(row) for row in test.tolist()} & {tuple(row) for row in train.tolist()}


def test_what_is_done_to_columns_is_done_to_a_file(table):
    tables = {name: {"divide": one} for name, one in zip("ab", (2.0, 16.0), strict=True)}
    one = job({"file": table, "label": "y", "prepare": tables}, TRAINED)
    assert load_rows(one, ())[0].tolist() == [[0.5, 0.5], [1.0, 1.0]]


def test_rows_with_other_columns_are_refused_by_name(table):
    with pytest.raises(DataError, match=r"data\.prepare: the rows have no column 'age'"):
        load_rows(job({"file": table, "label": "y", "prepare": {"age": {}}}, TRAINED), ())


@pytest.mark.parametrize(
    ("data", "model", "word"),
    [
        ({}, TRAINED, "data: wanted 'set' or 'file'"),
        ({"file": "/none.csv"}, TRAINED, "data.file: no such file: /none.csv"),
        (CANCER, {}, "model.train, model.file or model.code"),
        (CANCER, {"file": "/none.npz"}, "model.file: no such file"),
        (CANCER, {"train": {}}, "model.train: wanted"),
        (CANCER, {"train": {"file": "/none.csv"}}, "model.train.file: no such file"),
    ],
)
def test_an_owner_without_its_input_is_told_before_anyone_connects(data, model, word):
    one = job(data, model)
    with pytest.raises((ConfigError, DataError), match=word):
        check_inputs(one, list(one.parties))
    check_inputs(one, ["dealer"])


@pytest.mark.parametrize("labels", [None, np.array([1, 0])])
@pytest.mark.parametrize(
    ("reveal", "values"), [("class", [1.0, 0.0]), ("score", [0.1 + 0.2, 1e-9])]
)
def test_answers_survive_their_file(tmp_path, reveal, values, labels):
    path = tmp_path / "predictions.csv"
    found = AnsweredRows(
        values=torch.tensor(values, dtype=torch.float64), reveal=reveal, labels=labels
    )
    path.write_text(found.to_csv(head="prediction"))
    assert read_answers(path).tolist() == values
    lines = path.read_text().splitlines()
    assert lines[0] == ("row,prediction" if labels is None else "row,prediction,label")
    assert lines[1].startswith("1,1" if reveal == "class" else "1,0.3")


def test_without_labels_nothing_is_measured():
    assert AnsweredRows(values=torch.zeros(2), reveal="class").measure() == ()


@pytest.mark.parametrize(
    ("reveal", "name", "ideal"),
    [
        ("class", "answers equal to plaintext", 1.0),
        ("score", "largest difference to plaintext", 0.0),
    ],
)
def test_the_plain_answers_are_put_beside_the_private_ones(reveal, name, ideal):
    one = job(CANCER, TRAINED, reveal)
    features, labels = load_rows(one, ())
    plain = predict_plain(features, load_linear(one, ()), reveal=reveal)
    own = AnsweredRows(values=plain, reveal=reveal, labels=labels).measure()
    result = compare_plain(one, make_result(utility=own), plain, ())
    *quality, agreement = result.utility
    names = ["accuracy", "most frequent class", "F1"] + ["AUC", "KS", "calibration error"] * (
        reveal == "score"
    )
    assert [metric.name for metric in quality] == names
    accuracy, often, *rest = quality
    assert all(metric.reference == metric.value for metric in (accuracy, *rest))
    assert often.reference is None
    assert quality[0].value > 0.9
    assert (agreement.name, agreement.value, agreement.samples) == (name, ideal, len(plain))


def test_without_labels_the_comparison_is_with_the_plain_answers_alone(table, tmp_path):
    weights = {"weight": torch.ones(3, 1), "bias": torch.zeros(1)}
    save_logistic(tmp_path / "m.npz", weights)
    one = job({"file": table}, {"file": str(tmp_path / "m.npz")})
    (agreement,) = compare_plain(one, make_result(utility=()), torch.ones(2), ()).utility
    assert (agreement.name, agreement.value) == ("answers equal to plaintext", 1.0)


def test_a_wrong_answer_shows_in_the_comparison():
    one = job(CANCER, TRAINED)
    wrong = predict_plain(load_rows(one, ())[0], load_linear(one, ()), reveal="class")
    wrong[0] = 1 - wrong[0]
    agreement = compare_plain(one, make_result(utility=()), wrong, ()).utility[-1]
    assert agreement.value == (len(wrong) - 1) / len(wrong)


@pytest.mark.parametrize("ending", [".pt", ".safetensors", ".py"])
def test_a_torch_model_of_one_linear_layer_is_a_model(tmp_path, ending):
    path = tmp_path / f"model{ending}"
    module = nn.Sequential(nn.Linear(3, 1))
    if ending == ".pt":
        torch.save(module.state_dict(), path)
    elif ending == ".safetensors":
        path.write_bytes(to_safetensors(module.state_dict(), {}))
    else:
        torch.save(module.state_dict(), tmp_path / "w.pt")
        path.write_text(
            "import torch\nfrom torch import nn\ndef trained():\n    one = nn.Sequential("
            "nn.Linear(3, 1))\n    one.load_state_dict(torch.load("
            f"{str(tmp_path / 'w.pt')!r}, weights_only=True))\n    return one\n"
        )
    key = {"code": f"{path}:trained"} if ending == ".py" else {"file": str(path)}
    one = job(CANCER, key)
    check_inputs(one, ["lab"])
    found = load_linear(one, ())
    assert torch.equal(found["weight"], module[0].weight.detach().double().T)
    assert torch.equal(found["bias"], module[0].bias.detach().double())


@pytest.mark.parametrize("trained", [{}, {"*": {"divide": 2.0}}])
def test_a_model_that_was_trained_on_rows_prepared_otherwise_is_refused(tmp_path, trained):
    path, module = tmp_path / "model.safetensors", nn.Linear(3, 1)
    path.write_bytes(to_safetensors(module.state_dict(), {"prepare": trained}))
    one = job(CANCER, {"file": str(path)})
    if not trained:
        assert load_linear(one, ())["weight"].shape == (3, 1)
        return
    with pytest.raises(ConfigError, match=r"otherwise: wanted \{ divide = 2\.0"):
        load_linear(one, ())


def test_a_torch_model_of_two_layers_is_no_logistic_regression(tmp_path):
    torch.save(nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1)).state_dict(), tmp_path / "w.pt")
    with pytest.raises(DataError, match=r"wanted 'weight' and 'bias', got 0\.weight"):
        load_linear(job(CANCER, {"file": str(tmp_path / "w.pt")}), ())
