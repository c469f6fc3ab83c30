"""Federated jobs: what is read, what is promised before the run, and what the result says."""

import io
import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from rich.console import Console
from safetensors.torch import load

from tacit.cli.screen import OnConsole
from tacit.data import search_path
from tacit.dp import detection_of, epsilon, ledger_from_record
from tacit.errors import ConfigError, DataError
from tacit.federated import Seat, Update, find_aggregator, round_config
from tacit.federated.front import task_of, train_federated
from tacit.jobs.federated import (
    LEDGER,
    ROUNDS,
    WEIGHTS,
    FederatedJob,
    check_inputs,
    make_secrets,
    run,
)
from tacit.jobs.toml import read_toml
from tacit.nn import load_weights, read_facts
from tacit.ring import Prg
from tacit.spec import read_record

FOLDERS = search_path(os.environ.get("TACIT_DATA"), Path(__file__).parents[3], Path.home())
EXAMPLES = sorted((Path(__file__).parents[3] / "examples" / "jobs").glob("fl-*.toml"))


def make_job(**tables):
    raw = {
        "job": {"name": "small", "kind": "federated"},
        "data": {"set": "digits", "rows": 200},
        "federated": {"clients": 6, "rounds": 2, "colluding_share": 0.0},
        "privacy": {"kind": "none", "clip": 2.0},
        "train": {"steps": 3, "batch": 16, "rate": 0.5},
    }
    for name, table in tables.items():
        raw[name] = {**raw.get(name, {}), **table}
    return read_record(raw, FederatedJob, source="job.toml")


def run_job(job):
    out = io.StringIO()
    part = run(job, OnConsole(Console(file=out, width=200)), ())
    return part, out.getvalue()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_are_valid_and_their_promise_can_be_kept(path, monkeypatch):
    monkeypatch.chdir(EXAMPLES[0].parents[2])
    job = read_record(read_toml(path), FederatedJob, source=str(path))
    claim = round_config(job, 650).mechanism.claim
    if job.privacy.kind == "none":
        assert claim.guarantee == "no guarantee"
    else:
        assert claim.epsilon <= job.privacy.epsilon
    check_inputs(job, ())


@pytest.mark.parametrize(
    "name", ["encrypted", pytest.param("threshold", marks=pytest.mark.slow), "keyed"]
)
def test_the_examples_of_every_aggregator_run(name, monkeypatch):
    monkeypatch.chdir(EXAMPLES[0].parents[2])
    path = EXAMPLES[0].with_name(f"fl-{name}.toml")
    job = read_record(read_toml(path), FederatedJob, source=str(path))
    part, _ = run_job(job)
    assert not any("void" in note for note in part.result.notes)
    found = next(one.value for one in part.result.utility if one.name == "accuracy")
    assert found > (0.5 if job.privacy.kind == "none" else 0.0)  # of ten classes; noise hides more
    first = [claim.assumptions[0].split(":")[0] for claim in part.result.claims[1:]]
    assert set(first) <= {"semi-honest", "malicious"}
    assert first
    helper = {"keyed": {"authority"}}.get(name, set())  # sends and gets messages like the others
    moved = {one.sender: one.payload_bytes for one in part.result.metered.traffic}
    assert set(moved) == {one.receiver for one in part.result.metered.traffic}
    assert set(moved) == {"clients", "server"} | helper
    assert all(moved.values())


def test_secrets_of_a_job_are_made_once_and_open_its_rounds(tmp_path):
    path = tmp_path / "job.toml"
    path.write_text((EXAMPLES[0].with_name("fl-encrypted.toml")).read_text())
    lines = make_secrets(path, "clients", tmp_path / "keys")
    assert "clients-0.secret to clients-11.secret" in lines[0]
    assert (tmp_path / "keys" / "clients-3.secret").stat().st_mode & 0o077 == 0
    named = f'public_key = "{tmp_path}/keys/clients.public"\ncipher ='
    path.write_text(path.read_text().replace("cipher =", named))
    job = read_record(read_toml(path), FederatedJob, source=str(path))
    config = round_config(job, 5)
    secret = (tmp_path / "keys" / "clients-3.secret").read_bytes()
    seat = Seat(index=3, signing=Ed25519PrivateKey.generate(), secret=secret)
    known = find_aggregator("encrypted")
    server = known.make_server(config, Prg.from_os())
    offer = Update(np.zeros(5, np.float32), 1)
    client = known.make_client(config, seat, Prg.from_os())
    server.accept(3, client.answer(server.invite()[3], lambda: offer))
    with pytest.raises(ConfigError, match=r"federated.public_key: that of clients on nodes"):
        run_job(job)
    task = task_of(job, FOLDERS)
    with pytest.raises(ConfigError, match="simulated clients make keys themselves"):
        train_federated(task)
    with pytest.raises(ConfigError, match=r"is there already.*take another NAME or --dir"):
        make_secrets(path, "clients", tmp_path / "keys")
    path.write_text((EXAMPLES[0].with_name("fl-digits.toml")).read_text())
    with pytest.raises(ConfigError, match="needs no secrets beforehand"):
        make_secrets(path, "clients", tmp_path / "keys")
    path.write_text((EXAMPLES[0].with_name("infer-alone.toml")).read_text())
    with pytest.raises(ConfigError, match="wants a job of kind 'federated', got 'infer'"):
        make_secrets(path, "clients", tmp_path / "keys")


def test_a_run_reports_accuracy_cost_and_what_was_shown():
    part, said = run_job(make_job())
    result = part.result
    assert result.kind == "federated"
    assert "no guarantee" in said.splitlines()[0]
    assert result.utility[0].name == "accuracy"
    assert {curve.title for curve in result.curves} >= {"Accuracy", "Upload of a client"}
    assert any("sum of the updates" in leak.what for leak in result.leakage)
    assert result.metered.traffic[0].payload_bytes > 0
    assert set(part.files) == {LEDGER, ROUNDS, WEIGHTS}


def test_the_weights_load_back_into_the_torch_module_and_say_their_scale(tmp_path):
    job = make_job()
    part, _ = run_job(job)
    task = task_of(job, ())
    shards = task.load()
    module = task.build(shards)
    module.load_state_dict(load(part.files[WEIGHTS]))  # as anybody would
    right = (module.eval()(shards.test_features).argmax(1) == shards.test_labels).float().mean()
    assert float(right) == pytest.approx(part.result.utility[0].value)
    (tmp_path / WEIGHTS).write_bytes(part.files[WEIGHTS])
    assert read_facts(tmp_path / WEIGHTS)["scale"] == 16.0  # pixels of digits
    # What earlier versions wrote is read, too: all parameters in order, as floats.
    flat = torch.cat([one.detach().reshape(-1) for one in module.parameters()])
    (tmp_path / "weights.f32").write_bytes(flat.numpy().astype("<f4").tobytes())
    again = task.build(shards)
    load_weights(again, tmp_path / "weights.f32")
    for mine, theirs in zip(again.parameters(), module.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_the_epsilon_of_the_result_follows_from_its_ledger():
    job = make_job(privacy={"kind": "central", "epsilon": 40.0, "delta": 1e-3})
    part, said = run_job(job)
    claim = part.result.claims[0]
    ledger = ledger_from_record(json.loads(part.files[LEDGER]))
    again = epsilon(ledger, delta=1e-3, accountant=claim.accountant)
    assert claim.epsilon == pytest.approx(again.epsilon)
    assert claim.epsilon <= 40.0
    assert "ε = " in said.splitlines()[0]
    assert any(curve.title == "Accuracy against ε" for curve in part.result.curves)


def test_epsilon_is_explained_before_and_after_the_run():
    job = make_job(privacy={"kind": "central", "epsilon": 5.0, "delta": 1e-3})
    part, said = run_job(job)
    assert said.splitlines()[1].startswith("An attacker who takes other data for the true data 1 %")
    claim = part.result.claims[0]
    # The whole curve of the noise says more than one (ε, δ), by which nearly all are found.
    assert claim.detection < 0.5 < detection_of(claim.epsilon, claim.delta)


def test_a_delta_is_held_against_the_number_of_clients():
    wanted = {"kind": "central", "epsilon": 5.0}
    with pytest.raises(ConfigError, match=r"1/n or more for n = 6 clients"):
        run_job(make_job(privacy={**wanted, "delta": 0.2}))
    part, said = run_job(make_job(privacy={**wanted, "delta": 0.1}))
    assert "Warning: δ = 0.1 is near 1/n for n = 6 clients" in said
    assert any("near 1/n" in text for text in part.result.claims[0].assumptions)


def test_epsilon_is_computed_again_by_other_code():
    job = make_job(privacy={"kind": "central", "epsilon": 40.0, "delta": 1e-3})
    result = run_job(job)[0].result
    (again,) = [metric for metric in result.utility if "computed again" in metric.name]
    assert again.value == pytest.approx(result.claims[0].epsilon, rel=1e-3)
    assert result.claims[0].accountant in again.note
    assert "replacing one client" in again.note


def test_a_masked_claim_is_about_a_curious_server_unless_keys_are_named():
    claims = run_job(make_job(federated={"rounds": 1}))[0].result.claims
    assert any(
        "follows the protocol and invents no clients" in one for one in claims[1].assumptions
    )
    with pytest.raises(ConfigError, match="'malicious' wants the clients' keys"):
        make_job(federated={"server": "malicious"})
    with pytest.raises(ConfigError, match="6 clients want as many keys, got 1"):
        make_job(federated={"server": "malicious", "keys": ["00" * 32]})
    with pytest.raises(ConfigError, match="64 hexadecimal digits"):
        make_job(federated={"keys": ["xyz"]})


def named(result, name):
    return next(metric for metric in result.utility if metric.name == name)


def test_with_keys_a_simulation_plays_a_malicious_server_with_keys_of_its_own():
    keys = [f"{number:064x}" for number in range(6)]
    job = make_job(federated={"server": "malicious", "keys": keys, "rounds": 1, "drop_rate": 0.0})
    result = run_job(job)[0].result
    assert any("may do anything" in one for one in result.claims[1].assumptions)
    assert named(result, "clients dropped in a round").value == 0  # nobody was refused


OPTIONS = {
    "quantile": {"kind": "central", "quantile": 0.5},
    "laplace": {"kind": "local", "mechanism": "laplace"},
    "nbafl": {"kind": "local", "mechanism": "nbafl", "records": 20},
    "layers": {"kind": "local-adaptive", "adaptive": {"by": "layers"}},
    "select": {"kind": "local-adaptive", "adaptive": {"select": 5}},
    "relevance": {
        "kind": "local-adaptive",
        "adaptive": {"relevance": "clients", "relevance_epsilon": 4.0},
    },
}


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_runs_and_its_ledger_gives_the_claim(name):
    options = {"epsilon": 60.0, "delta": 1e-3, **OPTIONS[name]}
    job = make_job(privacy=options, federated={"aggregator": "plain"})
    part, _ = run_job(job)
    claim = part.result.claims[0]
    ledger = ledger_from_record(json.loads(part.files[LEDGER]))
    again = epsilon(ledger, delta=1e-3, accountant=claim.accountant)
    assert claim.epsilon == pytest.approx(again.epsilon)
    # The noise of NbAFL does not keep what it is set for; the claim says what it gives.
    assert (claim.epsilon <= 60.0) == (name != "nbafl")
    assert len(ledger) == (3 if name == "relevance" else 2)
    sent = named(part.result, "bytes sent by a client in a round").value
    assert sent < 100 if name == "select" else sent >= 4 * 650


def test_binomial_noise_is_split_among_the_clients():
    job = make_job(
        federated={"clients": 20, "rounds": 1, "colluding_share": 0.0},
        privacy={
            "kind": "central",
            "mechanism": "binomial",
            "epsilon": 200.0,
            "delta": 1e-3,
        },
    )
    claim = run_job(job)[0].result.claims[0]
    assert claim.epsilon <= 200.0
    assert claim.accountant in ("advanced", "basic")


def test_objective_perturbation_is_about_records_and_trains_once():
    job = make_job(
        data={"set": "breast-cancer", "rows": 390},
        federated={"rounds": 1, "aggregator": "plain", "clients": 4, "minimum": 3},
        privacy={
            "kind": "local",
            "mechanism": "objective",
            "epsilon": 200.0,  # so that noise does not decide about the accuracy
            "clip": 1e3,
        },
    )
    result = run_job(job)[0].result
    claim = result.claims[0]
    assert claim.relation == "replacing one record"
    assert claim.epsilon <= 200.0 + 1e-3
    assert result.utility[0].value > 0.6
    with pytest.raises(ConfigError, match="trains once"):
        make_job(
            privacy={"kind": "local", "mechanism": "objective", "epsilon": 1.0},
        )


def test_attributes_without_noise_are_no_guarantee():
    privacy = {
        "kind": "local-adaptive",
        "epsilon": 60.0,
        "delta": 1e-3,
        "adaptive": {"p": 0.5},
    }
    part, said = run_job(make_job(privacy=privacy, federated={"aggregator": "plain"}))
    assert part.result.claims[0].guarantee == "no guarantee"
    assert part.result.claims[0].epsilon is None
    assert "no guarantee" in said.splitlines()[0]
    assert any("with probability 0.5" in one for one in part.result.claims[0].assumptions)


def test_a_target_out_of_reach_stops_before_the_data_is_read():
    job = make_job(
        data={"set": "no-such-set"},
        federated={"aggregator": "shuffled", "rounds": 5000},
        privacy={"kind": "shuffle", "epsilon": 1e-4, "delta": 1e-9},
    )
    with pytest.raises(ConfigError, match="the best this plan reaches"):
        run_job(job)


def test_what_a_run_will_end_with_is_said_before_the_data_is_read():
    out = io.StringIO()
    job = make_job(
        data={"set": "no-such-set"},
        privacy={"kind": "central", "epsilon": 40.0, "delta": 1e-3},
    )
    with pytest.raises(DataError, match="no-such-set"):
        run(job, OnConsole(Console(file=out, width=200)), ())
    assert out.getvalue().startswith("After 2 rounds: ε = 39.99")


def test_accuracy_is_shown_against_epsilon_while_it_runs():
    job = make_job(privacy={"kind": "central", "epsilon": 40.0, "delta": 1e-3})
    part, said = run_job(job)
    rounds = json.loads(part.files[ROUNDS])
    lines = [line for line in said.splitlines() if line.startswith("round")]
    assert len(lines) == len(rounds) == 2
    for line, one in zip(lines, rounds, strict=True):
        assert f"ε {one['claim']['epsilon']:7.3f}" in line
        assert f"accuracy {one['accuracy']:6.1%}" in line
    against = next(curve for curve in part.result.curves if curve.title == "Accuracy against ε")
    wanted = [(one["claim"]["epsilon"], one["accuracy"]) for one in rounds]
    assert [tuple(point) for point in against.points] == wanted


def test_a_stack_is_trained_like_any_model():
    part, _ = run_job(make_job(model={"stack": ["linear", "mlp"]}))
    sizes = (64 * 10 + 10, 64 * 64 + 64 + 64 * 10 + 10, 20 * 10 + 10)
    assert sum(one.numel() for one in load(part.files[WEIGHTS]).values()) == sum(sizes)


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"model": {"stack": ["mlp"]}}, "two models or more"),
        ({"model": {"stack": ["mlp", "trees"]}}, "stack"),
        (
            {
                "model": {"stack": ["mlp", "linear"]},
                "privacy": {
                    "kind": "local-adaptive",
                    "epsilon": 9.0,
                    "adaptive": {"by": "layers"},
                },
            },
            "not traced through a stack",
        ),
        ({"federated": {"aggregator": "shuffled"}}, "goes with privacy shuffle"),
        ({"privacy": {"kind": "cental"}}, "did you mean 'central'"),
        ({"privacy": {"mechanism": "laplace"}}, "'none' goes with mechanism gaussian"),
        ({"privacy": {"kind": "local", "epsilon": 1.0, "quantile": 0.5}}, "'central'"),
        ({"privacy": {"adaptive": {"p": 0.5}}}, "goes with privacy 'local-adaptive'"),
        ({"privacy": {"adaptive": {"p": 1.5}}}, "p must lie between 0 and 1"),
        (
            {
                "privacy": {
                    "kind": "local-adaptive",
                    "epsilon": 1.0,
                    "adaptive": {"select": 3},
                }
            },
            "go with aggregator 'plain'",
        ),
    ],
)
def test_what_does_not_fit_is_refused_by_name(tables, message):
    with pytest.raises(ConfigError, match=message):
        make_job(**tables)


def test_a_file_that_is_not_there_is_named():
    raw = {
        "job": {"name": "own", "kind": "federated"},
        "data": {"file": "nowhere.csv", "label": "y"},
        "federated": {"clients": 3, "rounds": 1},
        "privacy": {"clip": 1.0},
    }
    with pytest.raises(DataError, match=r"nowhere\.csv"):
        check_inputs(read_record(raw, FederatedJob, source="job.toml"), ())


SETS = [
    ("breast-cancer", "mlp", "iid"),
    pytest.param("adult", "linear", "shards", marks=[pytest.mark.data]),
    pytest.param("mnist", "cnn", "dirichlet", marks=[pytest.mark.data, pytest.mark.slow]),
    pytest.param("fashion-mnist", "cnn", "shards", marks=[pytest.mark.data, pytest.mark.slow]),
    pytest.param("cifar10", "cnn", "iid", marks=[pytest.mark.data, pytest.mark.slow]),
]


@pytest.mark.parametrize(("name", "model", "partition"), SETS)
def test_pictures_and_tables_are_learned_from(name, model, partition):
    job = make_job(
        data={"set": name, "partition": partition, "test_share": 0.1},
        model={"name": model},
        federated={"clients": 4, "rounds": 1},
    )
    try:
        result = run(job, OnConsole(Console(quiet=True)), FOLDERS).result
    except DataError as error:
        pytest.skip(str(error))
    assert result.utility[0].value >= 0.05
    assert all("void" not in note for note in result.notes)


def write_rows(path):
    """Write 120 rows in the format that the name ends in."""
    rows = np.array([(i % 7, i % 3) for i in range(120)], np.float32)
    labels = (rows[:, 0] > 3).astype(np.int64)
    if path.suffix == ".npz":
        np.savez(path, features=rows, y=labels)
    elif path.suffix == ".parquet":
        pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
        parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
        parquet.write_table(
            pyarrow.table({"a": rows[:, 0], "b": rows[:, 1], "y": labels}), str(path)
        )
    else:
        lines = [f"{a:g},{b:g},{y}" for (a, b), y in zip(rows, labels, strict=True)]
        path.write_text("\n".join(["a,b,y", *lines]) + "\n")


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".npz"])
def test_own_rows_from_a_file_are_learned(tmp_path, ending):
    path = tmp_path / f"rows{ending}"
    write_rows(path)
    raw = {
        "job": {"name": "own", "kind": "federated"},
        "data": {"file": str(path), "label": "y", "partition": "dirichlet", "alpha": 5.0},
        "federated": {"clients": 3, "rounds": 2, "aggregator": "plain", "minimum": 2},
    }
    part, _ = run_job(read_record(raw, FederatedJob, source="job.toml"))
    assert part.result.utility[0].value >= 0.5
