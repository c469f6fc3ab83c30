"""A prediction service over real TLS links: started, asked by several clients, stopped."""

import shutil
import threading

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from rich.console import Console
from sklearn.ensemble import RandomForestClassifier

import tacit
from support.machine import free_ports
from tacit import report, ring
from tacit.cli.commands.ask import ask
from tacit.cli.commands.group import Edge
from tacit.cli.commands.serve import ask as ask_command
from tacit.cli.commands.serve import serve as serve_command
from tacit.crypto import make_identity
from tacit.errors import ConfigError, DataError, DisagreementError, PartyError
from tacit.inference.service import plan_service
from tacit.jobs.kinds import kind_of, load_job
from tacit.jobs.serve import ServeJob, load_service, serve_as, serve_here
from tacit.jobs.toml import read_toml, write_toml
from tacit.mpc import sum_forecasts
from tacit.nn import TorchOps
from tacit.verify import import_ensemble, save_ensemble

JOB = """
[job]
name = "little"
kind = "serve"
[parties.north]
{north}
[parties.south]
{south}
[parties.dealer]
{dealer}
[clients.ann]
[clients.ben]
[model]
layers = ["dense 6", "relu", "dense 3"]
inputs = [4]
[model.shares]
north = "{folder}/half-north.npz"
south = "{folder}/half-south.npz"
[service]
sizes = [1, 8]
prepare."*".divide = 2.0
[service.doors]
north = "127.0.0.1:{doors[0]}"
south = "127.0.0.1:{doors[1]}"
[protocol]
kind = "permuted3"
dealer = "dealer"
compute = ["north", "south"]
"""


@pytest.fixture
def job(tmp_path):
    *doors, north, south, dealer = free_ports(5)
    path = tmp_path / "job.toml"
    text = JOB.format(
        folder=tmp_path,
        doors=doors,
        north=f'address = "127.0.0.1:{north}"',
        south=f'address = "127.0.0.1:{south}"',
        dealer=f'address = "127.0.0.1:{dealer}"',
    )
    path.write_text(text)
    model, prg = load_service(path).task().model, ring.Prg(b"k" * 16)
    halves = {"north": {}, "south": {}}
    for name, value in model.initial.items():
        words = ring.encode(value.double(), frac_bits=16)
        halves["north"][name] = prg.words(tuple(words.shape))
        halves["south"][name] = words - halves["north"][name]
    for server, half in halves.items():
        arrays = {name: words.numpy() for name, words in half.items()}
        np.savez(tmp_path / f"half-{server}.npz", frac_bits=np.array(16), **arrays)
    return path


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "rows.csv"
    values = np.random.default_rng(1).uniform(-2, 2, (11, 4))
    lines = ["a,b,c,d", *(",".join(f"{one:.6f}" for one in row) for row in values)]
    path.write_text("\n".join(lines) + "\n")
    return path


def plain(job, rows):
    model = load_service(job).task().model
    values = torch.from_numpy(np.loadtxt(rows, delimiter=",", skiprows=1)) / 2
    weights = {name: value.double() for name, value in model.initial.items()}
    return model(TorchOps(), weights, values).argmax(-1).double()


class Running:
    """Parties in threads, until they are stopped."""

    def __init__(self, *parties):
        self.stop, self.results, self.errors = threading.Event(), [], []
        self._ready = threading.Semaphore(0)
        self._threads = [threading.Thread(target=self._run, args=(one,)) for one in parties]
        for thread in self._threads:
            thread.start()

    def _run(self, party):
        try:
            self.results.append(party(self._note, self.stop))
        except Exception as error:
            self.errors.append(error)
            self._ready.release(3)

    def _note(self, text):
        self._ready.release()

    def wait_until_open(self):
        for _ in range(3):
            assert self._ready.acquire(timeout=200)
        assert self.errors == []

    def end(self):
        self.stop.set()
        for thread in self._threads:
            thread.join(200)
            assert not thread.is_alive()
        assert self.errors == []
        return self.results


def test_a_service_on_one_machine_answers_its_clients_and_says_what_it_did(job, rows, tmp_path):
    keys = tmp_path / "keys"
    running = Running(lambda note, stop: serve_here(job, keys=keys, note=note, stop=stop))
    running.wait_until_open()
    replies = {}

    def client(name):
        if name == "ann":
            replies[name] = ask(job, rows, me=name, keys=keys, label=None).values
            return
        with tacit.connect(job, name, keys=keys) as service:  # as a Python program asks
            values = np.loadtxt(rows, delimiter=",", skiprows=1)
            first, rest = service.run(values[:4]), service.run(torch.from_numpy(values[4:]))
        replies[name] = torch.cat([first.values, rest.values])

    clients = [threading.Thread(target=client, args=(name,)) for name in ("ann", "ben")]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join(200)
    (result,) = running.end()
    for name in ("ann", "ben"):
        assert torch.equal(replies[name], plain(job, rows))
    counts = {metric.name: metric.value for metric in result.utility}
    assert counts["rows answered"] == 22
    assert any(leak.to == "clients" and leak.elements == 22 for leak in result.leakage)
    report.write(result, tmp_path / "page.html")
    assert "that they asked about" in (tmp_path / "page.html").read_text()
    assert any(leak.to == "dealer" and leak.kind == "protocol" for leak in result.leakage)


def test_three_hosts_serve_together(job, rows, tmp_path, monkeypatch):
    # Hosts are processes; as threads of one they must not trace the model at the same time.
    lock, make = threading.Lock(), ServeJob.task

    def task(self, *told):
        with lock:
            return make(self, *told)

    monkeypatch.setattr(ServeJob, "task", task)
    keys = tmp_path / "keys"
    for name in ("north", "south", "dealer", "ann", "ben"):
        make_identity(name, keys)

    def party(name):
        return lambda note, stop: serve_as(job, name, keys=keys, at=None, note=note, stop=stop)

    running = Running(*map(party, ("north", "south", "dealer")))
    running.wait_until_open()
    edge = Edge(out=Console(), err=Console(stderr=True))
    out = tmp_path / "answers.csv"
    asked = [str(job), str(rows), "--as", "ann", "--keys", str(keys), "--out", str(out)]
    found = CliRunner().invoke(ask_command, asked, obj=edge, catch_exceptions=False)
    assert found.exit_code == 0
    answers = [int(line.split(",")[1]) for line in out.read_text().splitlines()[1:]]
    assert answers == plain(job, rows).long().tolist()
    results = running.end()
    assert {one.parties[0].name for one in results} == {"north", "south", "dealer"}
    assert {one.forecast.plan_hash for one in results} == {results[0].forecast.plan_hash}
    # As `tacit plan` foresees it: the start, and 11 rows in two batches of 8.
    loaded = load_service(job)
    planned = plan_service(loaded.task(), parties=tuple(loaded.parties))
    batches = [(plan, 2) for plan in planned.plans_of(8)]
    foreseen = sum_forecasts([*((plan, 1) for plan in planned.plans_of(0)), *batches])
    assert foreseen.cost == results[0].forecast.cost


def test_a_client_whose_key_is_not_in_the_job_gets_no_answer(job, rows, tmp_path):
    keys = tmp_path / "keys"
    running = Running(lambda note, stop: serve_here(job, keys=keys, note=note, stop=stop))
    running.wait_until_open()
    for file in keys.glob("ann*"):
        file.unlink()
    make_identity("ann", keys)
    try:
        with pytest.raises(PartyError, match="refused us"):
            ask(job, rows, me="ann", keys=keys, label=None)
        assert torch.equal(ask(job, rows, me="ben", keys=keys, label=None).values, plain(job, rows))
    finally:
        running.end()


def test_a_service_is_not_started_like_other_jobs(job):
    loaded = load_job(job)
    with pytest.raises(ConfigError, match="tacit serve"):
        kind_of(loaded).check_inputs(loaded, ["north"])


def test_a_missing_door_and_a_client_named_like_a_party_are_refused(job, tmp_path):
    text = job.read_text().replace("[clients.ann]", "[clients.north]")
    text = "\n".join(line for line in text.splitlines() if not line.startswith("sizes"))
    bad = tmp_path / "bad.toml"
    bad.write_text(text.replace('[service.doors]\nnorth = "127.0.0.1', '[service.doors]\nx = "h'))
    with pytest.raises(ConfigError, match=r"clients\.north") as refused:
        load_service(bad)
    assert "service.doors.north" in str(refused.value)


@pytest.fixture
def scored(job, tmp_path):
    """A service of a forest that north owns, the forest, and rows with more columns than it has."""
    x = np.random.default_rng(2).normal(size=(80, 3))
    forest = RandomForestClassifier(4, max_depth=3, random_state=0).fit(x, x[:, 0] > x[:, 2])
    save_ensemble(import_ensemble(forest), tmp_path / "forest.npz")
    raw = read_toml(job)
    raw["model"] = {"owner": "north", "kind": "forest", "file": str(tmp_path / "forest.npz")}
    raw["service"] |= {"columns": ["age", "debt", "income"]}
    del raw["service"]["prepare"]
    raw["protocol"]["kind"] = "sealed"
    job.write_text(write_toml(raw))
    rows = tmp_path / "people.csv"
    lines = ["income,name,age,debt", *(f"{c!r},{at},{a!r},{b!r}" for at, (a, b, c) in enumerate(x))]
    rows.write_text("\n".join(lines).replace("np.float64(", "").replace(")", "") + "\n")
    return job, rows, forest.predict(x).astype(int).tolist()


def test_a_client_asks_with_what_it_was_handed_and_its_own_key_alone(scored, tmp_path):
    job, rows, wanted = scored
    keys, own, handed = tmp_path / "keys", tmp_path / "own", tmp_path / "ann.zip"
    running = Running(lambda note, stop: serve_here(job, keys=keys, note=note, stop=stop))
    running.wait_until_open()
    edge = Edge(out=Console(), err=Console(stderr=True))
    told = ["--keys", str(keys), "--client", str(handed), "--as", "ann"]
    assert CliRunner().invoke(serve_command, [str(job), *told], obj=edge).exit_code == 0
    own.mkdir()
    for file in keys.glob("ann*"):
        shutil.move(file, own)
    out = tmp_path / "answers.csv"
    asked = [str(handed), str(rows), "--keys", str(own), "--out", str(out)]
    found = CliRunner().invoke(ask_command, asked, obj=edge, catch_exceptions=False)
    assert found.exit_code == 0
    answers = [int(line.split(",")[1]) for line in out.read_text().splitlines()[1:]]
    assert answers == wanted
    # Whoever changes it on the way finds that nothing is asked.
    raw = read_toml(handed)
    for change in ({"columns": ["income", "debt", "age"]}, {"sizes": [1, 8, 64]}, {"clip": True}):
        changed = tmp_path / "changed.toml"
        changed.write_text(write_toml(raw | {"service": raw["service"] | change}))
        with pytest.raises(DisagreementError, match="another service"):
            ask(changed, rows, me=None, keys=own, label=None)
    few = tmp_path / "few.csv"
    few.write_text("income,age\n1,2\n")
    with pytest.raises(DataError, match="the rows have no debt"):
        ask(handed, few, me=None, keys=own, label=None)
    (result,) = running.end()
    assert {metric.name: metric.value for metric in result.utility}["rows answered"] == 80
