"""The command line as a user has it: real processes, real links, real exit codes."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import tacit
from support.machine import free_ports
from support.parties import NAMES, predict_in_threads
from support.processes import Program
from tacit.crypto import make_identity

ROOT = Path(tacit.__file__).parents[2]
JOBS = ROOT / "examples" / "jobs"
# One thread per process: three parties share the cores.
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
COMMAND = [sys.executable, "-m", "tacit"]


def start(folder, *arguments):
    return Program(*arguments, folder=folder)


def start_anew(folder, *arguments):
    """Start it as a shell does, with an interpreter of its own."""
    return subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        cwd=folder,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process):
    out, err = process.communicate(timeout=240)
    return process.returncode, out, err


def tree(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Run both examples, once for all tests."""
    found = {}
    for job, how in (("predict-breast-cancer", start_anew), ("predict-permuted", start)):
        folder = tmp_path_factory.mktemp(job)
        code, out, err = finish(how(folder, "run", JOBS / f"{job}.toml"))
        assert code == 0, err
        found[job] = folder, out, err
    return found


@pytest.mark.parametrize(
    ("job", "out"), [("predict-breast-cancer", "demo"), ("predict-permuted", "predict-permuted")]
)
def test_an_example_leaves_a_whole_result_and_nothing_else(finished, job, out):
    folder, _, _ = finished[job]
    files = ["job.toml", "predictions.csv", "report.html", "result.json"]
    assert tree(folder) == ["out", f"out/{out}", *(f"out/{out}/{name}" for name in files)]


def test_the_sealed_example_gives_the_plain_classes_and_leaks_nothing_else(finished):
    folder, _, _ = finished["predict-breast-cancer"]
    result = json.loads((folder / "out/demo/result.json").read_text())
    utility = {metric["name"]: metric for metric in result["utility"]}
    assert utility["answers equal to plaintext"]["value"] == 1.0
    assert utility["accuracy"]["value"] == utility["accuracy"]["reference"] > 0.9
    assert {party["name"] for party in result["parties"]} == {"hospital", "lab", "dealer"}
    assert "protocol" not in {leak["kind"] for leak in result["leakage"]}
    outputs = [leak["to"] for leak in result["leakage"] if leak["kind"] == "output"]
    assert outputs == ["hospital"]


def test_the_permuted_example_says_that_its_helper_sees_scores(finished):
    folder, _, _ = finished["predict-permuted"]
    result = json.loads((folder / "out/predict-permuted/result.json").read_text())
    utility = {metric["name"]: metric for metric in result["utility"]}
    assert 0 < utility["largest difference to plaintext"]["value"] < 0.01
    assert {leak["to"] for leak in result["leakage"] if leak["kind"] == "protocol"} == {"helper"}


@pytest.mark.parametrize("job", ["predict-breast-cancer", "predict-permuted"])
def test_the_meter_agrees_with_the_forecast(finished, job):
    folder, _, _ = finished[job]
    (file,) = folder.rglob("result.json")
    result = json.loads(file.read_text())
    forecast, metered = result["forecast"]["cost"], result["metered"]
    for rounds in ("offline_rounds", "online_rounds"):
        assert metered[rounds] == forecast[rounds]
    both = [
        sorted(map(tuple, (one.values() for one in cost["traffic"] if one["phase"] != "setup")))
        for cost in (forecast, metered)
    ]
    assert both[0] == both[1]


@pytest.mark.parametrize(
    ("job", "out", "how"),
    [
        ("predict-breast-cancer", "demo", {"protocol": "sealed", "reveal": "class"}),
        (
            *("predict-permuted", "predict-permuted"),
            {"protocol": "permuted3", "reveal": "score", "frac_bits": 16},
        ),
    ],
)
def test_threads_give_the_answers_of_processes(finished, job, out, how):
    lines = (finished[job][0] / "out" / out / "predictions.csv").read_text().splitlines()[1:]
    # Truncation may round either way by one unit in the last place, so scores agree that far.
    unit = 2.0 ** -how.get("frac_bits", 20)
    answers = [float(line.split(",")[1]) for line in lines]
    assert answers == pytest.approx(predict_in_threads(**how), abs=10 * unit)


def test_predictions_have_a_line_per_row(finished):
    folder, _, _ = finished["predict-breast-cancer"]
    with (folder / "out/demo/predictions.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [int(row["row"]) for row in rows] == list(range(1, 172))
    right = sum(row["prediction"] == row["label"] for row in rows)
    assert right / len(rows) > 0.9


def test_results_go_to_one_stream_and_progress_to_the_other(finished):
    _, out, err = finished["predict-breast-cancer"]
    assert "accuracy" in out
    assert out.rstrip().endswith("out/demo/report.html")
    assert "hospital  computing" in err
    assert "accuracy" not in err


def test_a_result_can_be_shown_again(finished, tmp_path):
    folder, out, _ = finished["predict-permuted"]
    file = folder / "out/predict-permuted/result.json"
    page = tmp_path / "again.html"
    code, again, _ = finish(start(folder, "report", file, "--html", page))
    assert code == 0
    assert page.read_text() == file.with_name("report.html").read_text()
    assert again.split("\n\nReport:")[0].strip() == out.split("\n\nReport:")[0].strip()


def test_a_party_whose_data_breaks_its_promise_is_the_cause_and_nothing_is_left(tmp_path):
    text = (JOBS / "predict-breast-cancer.toml").read_text()
    job = tmp_path / "job.toml"
    job.write_text(text.replace("bound = 1.0 ", "bound = 0.1 "))
    code, out, err = finish(start(tmp_path, "run", job))
    assert code == 2
    assert err.splitlines()[-1].startswith("error: party 'hospital': input 'features'")
    assert "Traceback" not in err
    assert out == ""
    assert tree(tmp_path) == ["job.toml"]


def children(process):
    """Map the name of each party to its process id."""
    found = {}
    listed = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    for child in listed.read_text().split() if listed.exists() else []:
        words = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
        if b"--as" in words:
            found[words[words.index(b"--as") + 1].decode()] = int(child)
    return found


@pytest.fixture
def running(tmp_path):
    """Start a job, and give it with its parties as soon as all of them are there."""
    process = start(tmp_path, "run", JOBS / "predict-breast-cancer.toml")
    deadline = time.monotonic() + 200
    while len(children(process)) < 3:
        if process.poll() is not None or time.monotonic() > deadline:
            pytest.fail(f"the job did not start: {finish(process)}")
        time.sleep(0.02)
    # Let the parent finish starting the last one; the parties need longer to get anywhere.
    time.sleep(0.3)
    yield process
    process.kill()
    process.communicate()


needs_proc = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux's /proc")


@needs_proc
def test_a_killed_party_is_named_and_nothing_is_left(running, tmp_path):
    parties = children(running)
    os.kill(parties["lab"], signal.SIGKILL)
    code, _, err = finish(running)
    assert code == 4
    assert err.splitlines()[-1] == "error: party 'lab' failed: killed by signal 9 (SIGKILL)"
    assert tree(tmp_path) == []
    assert not any(Path(f"/proc/{one}").exists() for one in parties.values())


@needs_proc
def test_a_stopped_job_leaves_neither_files_nor_processes(running, tmp_path):
    parties = children(running)
    running.terminate()
    code, out, err = finish(running)
    assert (code, out) == (128 + signal.SIGTERM, "")
    assert err.split()[-2:] == ["stopping…", "stopped"]
    assert err.count("stopping…") == 1
    assert "Traceback" not in err
    assert tree(tmp_path) == []
    assert not any(Path(f"/proc/{one}").exists() for one in parties.values())


def test_three_parties_started_apart_give_their_own_results(tmp_path):
    """Each party has its own folder, key and copy of the job, as on hosts of their own."""
    lines = {}
    for name in NAMES:
        (tmp_path / name).mkdir()
        code, lines[name], err = finish(start(tmp_path / name, "keys", name))
        assert code == 0, err
    text = (JOBS / "predict-breast-cancer.toml").read_text()
    for (name, line), port in zip(lines.items(), free_ports(3), strict=True):
        address = f'address = "127.0.0.1:{port}"\n' if name != "lab" else ""
        text = text.replace(f"[parties.{name}]\n", line + address)
    text += "\n[network]\nconnect_s = 100\n"
    processes = {}
    for name in lines:
        (tmp_path / name / "job.toml").write_text(text)
        told = ("--progress", "told.jsonl")
        processes[name] = start(tmp_path / name, "party", "job.toml", "--as", name, *told)
    for name, process in processes.items():
        code, out, err = finish(process)
        assert code == 0, err
        events = [*map(json.loads, (tmp_path / name / "told.jsonl").read_text().splitlines())]
        assert [one["event"] for one in (*events[:2], events[-1])] == ["open", "start", "end"]
        assert events[-2]["stage"] == "done"
        last = next(one for one in reversed(events) if "sent" in one)
        assert set(last["sent"]) == {*NAMES} - {name}
        assert f"{name} " in out
        result = json.loads((tmp_path / name / f"out/demo-{name}/result.json").read_text())
        assert [party["name"] for party in result["parties"]] == [name]
        has_answers = (tmp_path / name / f"out/demo-{name}/predictions.csv").exists()
        assert has_answers == (name == "hospital")


def test_rows_and_a_model_of_ones_own_need_no_labels(tmp_path):
    text = (JOBS / "predict-breast-cancer.toml").read_text()
    head, rest = text.split("[data]")
    own = """[data]
owner = "hospital"
file = "patients.csv"
bound = 1.0

[data.prepare]
pressure = { divide = 128 }
sex = {}
age = { divide = 64 }

[model]
owner = "lab"
file = "model.npz"
bound = 4.0

"""
    text = head + own + "[protocol]" + rest.split("[protocol]")[1]
    for name, port in zip(NAMES, free_ports(3), strict=True):
        key = f'key = "{make_identity(name, tmp_path / "keys").fingerprint}"'
        entry = f'[parties.{name}]\n{key}\naddress = "127.0.0.1:{port}"\n'
        text = text.replace(f"[parties.{name}]\n", entry)
    (tmp_path / "job.toml").write_text(text)
    (tmp_path / "patients.csv").write_text("pressure,sex,age\n64,0,32\n0,1,0\n128,1,1\n")
    np.savez(tmp_path / "model.npz", weight=[0.8, -1.2, 0.4], bias=[0.1])
    started = [start(tmp_path, "party", "job.toml", "--as", name) for name in NAMES]
    ends = [finish(one) for one in started]
    assert [code for code, _, _ in ends] == [0, 0, 0], ends
    answers = (tmp_path / "out/demo-hospital/predictions.csv").read_text()
    assert answers == "row,prediction\n1,1\n2,0\n3,0\n"
    result = json.loads((tmp_path / "out/demo-hospital/result.json").read_text())
    assert result["utility"] == []  # it has neither labels nor the model to measure against


def test_a_reader_that_goes_away_is_no_error_to_speak_of(tmp_path):
    process = start_anew(tmp_path, "completion", "bash")
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()
    assert process.wait(240) == 128 + signal.SIGPIPE
    assert err == ""
