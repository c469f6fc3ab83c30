"""``tacit runs`` and ``tacit doctor``: what lies on this host, and who can be reached from it."""

import re
import socket
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

import tacit.extras
from support.jobs import make_result, tacit_says
from support.machine import free_port
from tacit import report
from tacit.cli.commands import doctor
from tacit.result import Claim, Metric

RESULT = make_result(
    kind="federated",
    name="wards",
    claims=(Claim(subject="s", guarantee="g", assumptions=(), epsilon=2.0, delta=1e-5),),
    utility=(Metric(name="accuracy", value=0.5, unit="fraction"),),
)


def put(folder, result):
    folder.mkdir(parents=True)
    report.save(result, folder / "result.json")


def test_runs_are_listed_newest_first_and_broken_ones_do_not_hide_the_others(tmp_path):
    put(tmp_path / "out" / "old", RESULT)
    put(tmp_path / "out" / "new", replace(RESULT, created="2026-05-02T03:04:05+00:00"))
    put(tmp_path / "out" / ".new.1-part", RESULT)
    (tmp_path / "out" / "broken").mkdir()
    (tmp_path / "out" / "broken" / "result.json").write_text("{")
    code, text, _ = tacit_says("runs", tmp_path / "out")
    assert code == 0
    lines = text.splitlines()
    places = [text.index(f"/out/{name}") for name in ("new", "old", "broken")]
    assert places == sorted(places)
    assert "2 (δ 1e-05)" in lines[1]
    assert "accuracy" in lines[1]
    assert ".new.1-part" not in text


def test_runs_of_a_folder_that_is_not_there_is_bad_input(tmp_path):
    code, _, complaint = tacit_says("runs", tmp_path / "nothing")
    assert code == 2
    assert "no such folder" in complaint


def test_the_doctor_names_a_missing_extra_and_its_command(monkeypatch):
    gone = tacit.extras.Extra(name="he", gives="secrets", modules=("no_such_module",))
    monkeypatch.setattr(doctor, "EXTRAS", (gone,))
    code, text, _ = tacit_says("doctor")
    assert code == 0
    assert "not installed; pip install 'tacit-ml[he]'" in text


def call_until_there(port):
    for _ in range(10_000):
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=5)
        except ConnectionRefusedError:
            threading.Event().wait(0.02)
    raise AssertionError("nobody waits")


def test_two_hosts_find_each_other_and_a_stranger_harms_nobody(monkeypatch):
    late, port, said = threading.Event(), free_port(), []
    clock = SimpleNamespace(
        time=time.time, monotonic=lambda: time.monotonic() + 1000 * late.is_set()
    )
    monkeypatch.setattr(doctor, "time", clock)
    waiting = threading.Thread(
        target=lambda: said.append(
            tacit_says("doctor", "--wait", f"127.0.0.1:{port}", "--seconds", "900")
        )
    )
    waiting.start()
    with call_until_there(port) as stranger:
        stranger.sendall(b"GET / HTTP/1.1")
    begun = time.monotonic()
    code, text, complaint = tacit_says("doctor", "--reach", f"127.0.0.1:{port}")
    spent_s = time.monotonic() - begun
    late.set()
    call_until_there(port).close()  # it looks at the clock after every call
    waiting.join()
    assert (code, complaint) == (0, "")
    assert "round trip" in text
    skew_s = float(re.search(r"that host's is ([0-9.]+) s", text)[1])
    assert skew_s <= spent_s + 0.05  # one clock, looked at during the call; the text is rounded
    assert said[0][0] == 0
    assert "called by 127.0.0.1" in said[0][1]


def test_a_host_that_nobody_waits_on_is_bad_input_with_what_to_do():
    code, _, complaint = tacit_says("doctor", "--reach", f"127.0.0.1:{free_port()}")
    assert code == 2
    assert "tacit doctor --wait" in complaint


JOB = """
[job]
name = "tumours"
kind = "infer"
[parties.hospital]
address = "127.0.0.1:{hospital}"
[parties.lab]
address = "127.0.0.1:{lab}"
[parties.dealer]
[data]
owner = "hospital"
set = "breast-cancer"
part = "test"
[model]
owner = "lab"
train = {{ set = "breast-cancer", part = "train" }}
[protocol]
kind = "sealed"
dealer = "dealer"
reveal = "class"
"""


@pytest.mark.parametrize("is_there", [True, False])
def test_the_addresses_of_a_job_are_tried(tmp_path, is_there):
    with socket.create_server(("127.0.0.1", 0)) as lab:
        port = lab.getsockname()[1] if is_there else free_port()
        job = tmp_path / "job.toml"
        job.write_text(JOB.format(hospital=free_port(), lab=port))
        code, text, _ = tacit_says("doctor", "--job", job, "--as", "hospital")
    assert code == 0
    assert "is free here" in text
    assert ("answers after" if is_there else "nobody listens") in text
    assert "has no address in the job" in text


FEDERATED = """
[job]
name = "wards"
kind = "federated"
[data]
set = "digits"
rows = 100
[federated]
clients = 6
rounds = 1
aggregator = "plain"
[privacy]
kind = "none"
[train]
steps = 1
"""


def test_a_federated_job_runs_twice_and_its_first_ledger_stays(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.toml").write_text(FEDERATED)
    assert tacit_says("run", "job.toml")[0] == 0
    first = (tmp_path / "out" / "wards" / "ledger.json").read_bytes()
    code, _, said = tacit_says("run", "job.toml")
    assert code == 0
    assert "will stay, as out/wards.1" in said
    assert (tmp_path / "out" / "wards.1" / "ledger.json").read_bytes() == first
    assert "out/wards.1" in tacit_says("runs")[1]


def test_every_example_is_listed_and_can_be_copied_but_not_over_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, text, _ = tacit_says("examples")
    assert code == 0
    names = [line.split()[0] for line in text.splitlines()]
    assert "fl-digits.toml" in names
    assert "program.py" in names
    assert all(len(line.split(maxsplit=1)[1]) > 20 for line in text.splitlines())
    code, text, _ = tacit_says("examples", "fl-digits")
    assert code == 0
    assert "tacit run fl-digits.toml" in text
    assert (tmp_path / "fl-digits.toml").read_text().startswith("# Federated")
    code, _, complaint = tacit_says("examples", "fl-digits")
    assert code == 2
    assert "not written over" in complaint
    assert tacit_says("examples", "nothing")[0] == 2
