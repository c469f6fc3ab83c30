"""Jobs between the two owners alone: on ciphertexts and in an enclave."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from support.jobs import JOBS, join_parts, read_changed, tacit_says, take_parts
from tacit.cli.launch.member import Seat, _attest, _enclave_of
from tacit.crypto import make_identity
from tacit.data import load_dataset
from tacit.errors import ConfigError, DisagreementError, TacitError
from tacit.inference.inputs import answer_plain, load_rows
from tacit.inference.spec import parse_kind
from tacit.jobs.config import job_digest
from tacit.jobs.infer import forecast
from tacit.jobs.kind import Asked
from tacit.jobs.kinds import load_job
from tacit.mpc.registry import parse_protocol
from tacit.nn import allow, parse_layers
from tacit.party import Meeting, SimulatedEnclave, run_threads, seal_file, without_setup

pytest.importorskip("tenseal")
SQUARES = ["dense 6", "square", "dense 10"]
ENCLAVE = {"clinic": {}, "lab": {"enclave": "simulated"}}


def make(layers, weights, **changes):
    raw = {
        "job": {"name": "j", "kind": "infer"},
        "parties": {"clinic": {}, "lab": {}},
        "data": {"owner": "clinic", "set": "digits", "rows": [0, 3]},
        "model": {"owner": "lab", "layers": layers, "inputs": [64], "file": str(weights)},
        "protocol": {"kind": "he", "reveal": "output"},
    }
    return read_changed(raw, changes)


def linear(**changes):
    gone = {"model__layers": None, "model__inputs": None, "model__file": None}
    rows = {"data__set": "breast-cancer", "data__part": "test", "data__rows": [0, 4]}
    train = {"set": "breast-cancer", "part": "train"}
    return make([], "", **gone, **rows, model__train=train, **changes)


@pytest.fixture
def weights(tmp_path):
    module = parse_layers(SQUARES, (64,), seed=3)
    path = tmp_path / "model.npz"
    np.savez(path, **{name: one.numpy() for name, one in module.state_dict().items()})
    return path


def run(job, tmp_path, inside=None):
    parts = take_parts(job, tmp_path, inside=inside)
    merged = join_parts(job, parts)
    planned = forecast(job, Asked())
    assert without_setup(merged.metered) == planned.forecast.cost
    assert set(merged.leakage) == set(planned.leaks)
    return parts["clinic"].values, replace(merged, utility=parts["clinic"].result.utility)


def test_a_network_of_squares_answers_on_ciphertexts_as_it_does_in_the_clear(weights, tmp_path):
    job = make(SQUARES, weights)
    values, _ = run(job, tmp_path)
    plain = answer_plain(job, load_rows(job, ())[0], ())
    assert (values - plain).abs().max() < 0.02
    assert torch.equal(values.argmax(dim=-1), plain.argmax(dim=-1))


@pytest.mark.parametrize("reveal", ["class", "output"])
def test_a_network_answers_inside_and_the_result_says_no_guarantee(weights, tmp_path, reveal):
    layers = ["dense 6", "relu", "dense 10"]
    job = make(layers, weights, parties=ENCLAVE, protocol={"kind": "enclave", "reveal": reveal})
    values, result = run(job, tmp_path)
    plain = answer_plain(job, load_rows(job, ())[0], ())
    assert torch.allclose(values, plain if reveal == "output" else plain.argmax(dim=-1).double())
    assert "no guarantee: simulated" in result.notes[0]
    assert "no guarantee: simulated" in forecast(job, Asked()).lines[1]


def test_a_sealed_model_opens_in_the_enclave_of_its_job_alone(weights, tmp_path):
    lab, sealed = make_identity("lab", tmp_path), tmp_path / "model.npz.sealed"
    inside = {"parties": ENCLAVE, "protocol": {"kind": "enclave", "reveal": "output"}}
    job = make(SQUARES, sealed, **inside)
    mine = SimulatedEnclave(lab, job_digest(job))
    seal_file(mine, weights, sealed)
    plain = answer_plain(make(SQUARES, weights, **inside), load_rows(job, ())[0], ())
    assert torch.allclose(run(job, tmp_path, mine)[0], plain)
    with pytest.raises(ConfigError, match="opens in the enclave of its job alone"):
        run(job, tmp_path)
    other = make(SQUARES, sealed, job__name="other", **inside)
    with pytest.raises(TacitError, match="does not open"):
        run(other, tmp_path, SimulatedEnclave(lab, job_digest(other)))


def test_an_enclave_that_runs_other_code_of_the_model_is_named(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    text = "from torch import nn\n\ndef make():\n    return nn.Linear(64, 10)\n"
    seats, meeting = {}, Meeting(parties=("clinic", "lab"), job_digest=bytes(32))
    lab = make_identity("lab", tmp_path)
    parties = {"clinic": {}, "lab": {"enclave": "simulated", "key": lab.fingerprint}}

    def attest(theirs):
        for me, folder, code in (("clinic", "a", text), ("lab", "b", theirs)):
            path = tmp_path / folder / "model.py"
            path.write_text(code)
            allow(path)
            model = {"owner": "lab", "code": str(path), "inputs": [64], "file": "w.npz"}
            job = make([], "", parties=parties, protocol={"kind": "enclave"}, model=model)
            seats[me] = Seat(job=job, me=me, identity=lab, listener=None, launched="", search=())
        run_threads(
            {me: lambda s: _attest(s, seats[s.me], _enclave_of(seats[s.me])) for me in seats},
            meeting,
        )

    attest(text)
    with pytest.raises(DisagreementError, match=r"'lab'.*runs other code"):
        attest(text + "# keep every row\n")


def test_a_linear_model_answers_by_both_words(tmp_path):
    job = linear(protocol={"kind": "he", "reveal": "score"})
    values, _ = run(job, tmp_path)
    plain = answer_plain(job, load_rows(job, ())[0], ())
    assert (values - plain).abs().max() < 1e-2
    inside = linear(parties=ENCLAVE, protocol={"kind": "enclave", "reveal": "class"})
    classes, _ = run(inside, tmp_path)
    assert torch.equal(classes, (plain >= 0.5).double())


def test_trees_answer_inside_as_their_library(tmp_path):
    xgboost = pytest.importorskip("xgboost")
    data = load_dataset("digits", ())
    model = xgboost.XGBClassifier(n_estimators=2, max_depth=2).fit(data.unscaled(), data.labels)
    model.save_model(tmp_path / "forest.json")
    gone = {"model__layers": None, "model__inputs": None, "model__kind": "forest"}
    inside = {"parties": ENCLAVE, "protocol": {"kind": "enclave", "reveal": "class"}}
    job = make([], tmp_path / "forest.json", **gone, **inside)
    assert run(job, tmp_path)[0].tolist() == model.predict(data.unscaled()[:3]).tolist()


def test_what_does_not_fit_two_owners_is_refused_by_its_key(weights):
    wrong = {
        "protocol.dealer": {"protocol__dealer": "lab"},
        "protocol.reveal: he cannot find the largest; take 'output'": {"protocol__reveal": "class"},
        "parties.third: has no part": {"parties__third": {}},
        "model.owner: owns the rows": {"model__owner": "clinic"},
        "model.owner: missing": {"model__owner": None},
        "model.cap": {"model__cap": 64.0},
        "parties.lab.enclave: missing": {"protocol__kind": "enclave"},
        "model.code: only lab has it": {
            "protocol__kind": "enclave",
            "parties": ENCLAVE,
            "model__code": "model.py",
            "model__layers": None,
            "model__inputs": None,
            "model__file": None,
        },
        "ring.frac_bits: an enclave": {
            "protocol__kind": "enclave",
            "parties": ENCLAVE,
            "ring": {"frac_bits": 12},
        },
        "protocol.kind: unknown protocol 'hee'": {"protocol__kind": "hee"},
    }
    for said, changes in wrong.items():
        with pytest.raises(ConfigError, match=said):
            make(SQUARES, weights, **changes)
    with pytest.raises(ConfigError, match=r"protocol.dealer: missing"):
        make(SQUARES, weights, protocol__kind="sealed")
    with pytest.raises(ConfigError, match=r"relu cannot be computed.*sealed"):
        forecast(make(["dense 6", "relu", "dense 10"], weights), Asked())


def test_the_example_of_cryptonets_is_planned_for_one_row_and_for_a_batch(monkeypatch):
    monkeypatch.chdir(JOBS.parents[1])
    job = load_job(JOBS / "infer-encrypted.toml")
    one, many = forecast(job, Asked()), forecast(job, Asked(rows=4096))
    assert one.lines[0].startswith("rows of shape (2, 1, 28, 28) in row; BFV of degree 16384")
    assert many.lines[0].startswith("rows of shape (4096, 1, 28, 28) in slots; BFV of degree 8192")
    assert one.forecast.cost.online_rounds == many.forecast.cost.online_rounds == 2
    assert "128-bit" in one.lines[0]


def test_plans_of_all_protocols_have_the_words_between_two_owners():
    code, said, _ = tacit_says("plan", JOBS / "predict-breast-cancer.toml", "--all-protocols")
    assert code == 0
    rows = {line.split()[0]: line for line in said.splitlines() if " MB " in line}
    assert "nobody" in rows["he"]
    assert "sizes" in rows["he"]
    assert "he: reveals all scores in place of the class" in said
    assert "lab: 5,130 values" in rows["enclave"]
    assert "a dealer" in rows["sealed"]


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("HE", r"enclave and 'sealed; linear: he; activations: garbled'; did you mean 'he'\?$"),
        ("sealed; linear: he", r"got 'sealed; linear: he'$"),
        ("checked bound", r"checked takes the option 'bounds' alone, got 'bound'$"),
        ("sealed bounds", r"sealed takes no options, got 'bounds'$"),
        ("seald", r"did you mean 'sealed'\?$"),
    ],
)
def test_a_protocol_that_is_misspelt_is_answered_with_what_there_is(word, said):
    with pytest.raises(ConfigError, match=said):
        parse_kind(word)


@pytest.mark.parametrize("word", ["he", "enclave", "sealed; linear: he; activations: garbled"])
def test_a_protocol_without_a_dealer_is_refused_where_one_is_needed(word):
    parse_kind(word)
    with pytest.raises(ConfigError, match="is for jobs of kind 'infer' alone; take 'sealed'"):
        parse_protocol(word)  # of trainings, fits and services
