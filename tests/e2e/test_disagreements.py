"""Parties that should not work together do not, and every one of them says why."""

import socket

import pytest

from support.processes import start
from tacit.crypto import make_identity

NAMES = ("hospital", "lab", "dealer")
HALF_WAY = 15
"""A message in the middle of what a party sends and waits for."""


def run(jobs, *, keys=None, frozen=None):
    """Run each party with its own job file; return exit codes and logs."""
    processes, logs = {}, {}
    for name in NAMES:
        folder = jobs[name].parent
        logs[name] = folder / f"{name}.log"
        where = (keys or {}).get(name, folder / "keys")
        arguments = ["party", str(jobs[name]), "--as", name, "--keys", str(where)]
        freeze_at = HALF_WAY if name == frozen else None
        processes[name] = start(arguments, logs[name], freeze_at=freeze_at)
    for name, process in processes.items():
        if name != frozen:
            process.join(200)
    codes = {name: process.exitcode for name, process in processes.items()}
    for process in processes.values():
        process.kill()
        process.join()
        process.close()
    return codes, {name: path.read_text() for name, path in logs.items()}


def changed(job, name, old, new):
    """Write a copy of a job file that differs in one place."""
    text = job.read_text()
    assert old in text
    path = job.parent / f"{name}.toml"
    path.write_text(text.replace(old, new))
    return path


def nothing_left(job):
    return not [path for path in job.parent.iterdir() if path.name.startswith(("out", "."))]


def test_a_party_with_another_job_is_refused_by_all_and_named(make_job):
    job = make_job()
    other = changed(job, "lab", "frac_bits = 20", "frac_bits = 19")
    codes, logs = run({"hospital": job, "lab": other, "dealer": job})
    assert codes == dict.fromkeys(NAMES, 4), logs
    for name in NAMES:
        assert "another job" in logs[name]
        assert "Traceback" not in logs[name]
    assert "'lab'" in logs["hospital"]
    assert nothing_left(job)


def test_a_party_that_proves_another_key_than_the_pinned_one_is_refused(make_job, tmp_path):
    job = make_job(connect_s=15)  # they wait for the true one until the time is up
    impostor = make_identity("lab", tmp_path / "impostor")
    true_key = next(
        line.split('"')[1]
        for line in job.read_text().split("[parties.lab]")[1].splitlines()
        if "key" in line
    )
    lying = changed(job, "lab", true_key, impostor.fingerprint)
    codes, logs = run(
        {"hospital": job, "lab": lying, "dealer": job}, keys={"lab": tmp_path / "impostor"}
    )
    assert codes == dict.fromkeys(NAMES, 4), logs
    assert "'lab'" in logs["hospital"]
    assert "correct parties.lab.key" in logs["hospital"]
    assert "Traceback" not in "".join(logs.values())
    assert nothing_left(job)


def test_a_port_in_use_is_bad_input_and_the_message_names_it(make_job):
    job = make_job()
    address = job.read_text().split('address = "')[1].split('"')[0]
    host, port = address.rsplit(":", 1)
    with socket.create_server((host, int(port))):
        process = start(
            ["party", str(job), "--as", "hospital", "--keys", str(job.parent / "keys")],
            job.parent / "log",
        )
        process.join(200)
        code = process.exitcode
        process.close()
    log = (job.parent / "log").read_text()
    assert code == 2, log
    assert port in log
    assert "Traceback" not in log


@pytest.mark.parametrize("frozen", ["lab"])
def test_a_party_that_freezes_is_given_up_after_the_silence_and_named(make_job, frozen):
    job = make_job(silence_s=8)
    codes, logs = run(dict.fromkeys(NAMES, job), frozen=frozen)
    assert codes[frozen] is None, logs
    for name in NAMES:
        if name != frozen:
            assert codes[name] == 4, logs
            assert f"'{frozen}'" in logs[name]
