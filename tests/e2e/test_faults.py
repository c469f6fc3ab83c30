"""Kill each party at ten random points of a job: the others end, name it, and leave nothing."""

import signal

import numpy as np
import pytest

from support.processes import start

NAMES = ("hospital", "lab", "dealer")
SURVIVAL_S = 120  # more than connect_s + silence_s of the test job, on a busy machine
OPERATIONS = {"hospital": 28, "lab": 30, "dealer": 20}
"""How many messages a party sends and waits for before it tells the others that all is done."""
POINTS = {
    name: sorted(int(p) for p in np.random.default_rng(seed).integers(-1, limit, size=10))
    for seed, (name, limit) in enumerate(OPERATIONS.items())
}


def run_all(job, *, victim=None, die_at=None):
    """Start three parties; return their exit codes and what they printed."""
    folder = job.parent
    processes = {
        name: start(
            ["party", str(job), "--as", name, "--keys", str(folder / "keys")],
            folder / f"{name}.log",
            die_at=die_at if name == victim else None,
        )
        for name in NAMES
    }
    for process in processes.values():
        process.join(SURVIVAL_S)
    hanging = [name for name, process in processes.items() if process.is_alive()]
    for process in processes.values():
        process.kill()
        process.join()
    assert hanging == [], "a survivor did not end in time"
    codes = {name: process.exitcode for name, process in processes.items()}
    for process in processes.values():
        process.close()
    return codes, {name: (folder / f"{name}.log").read_text() for name in NAMES}


def test_the_job_ends_well_when_nobody_is_killed(make_job):
    job = make_job()
    codes, logs = run_all(job)
    assert codes == dict.fromkeys(NAMES, 0), logs
    for name in NAMES:
        assert (job.parent / f"out-{name}" / "result.json").exists()


@pytest.mark.parametrize("victim", NAMES)
def test_survivors_of_a_kill_end_with_code_4_and_name_the_victim(make_job, victim):
    for number, die_at in enumerate(POINTS[victim]):
        # Who dies before it connects is waited for until the time is up.
        job = make_job(f"job{number}", connect_s=15 if die_at < 0 else 60)
        codes, logs = run_all(job, victim=victim, die_at=die_at)
        assert codes[victim] == -signal.SIGKILL, f"point {die_at} lies behind the end of the job"
        for name in NAMES:
            if name != victim:
                assert codes[name] == 4, (die_at, name, logs[name])
                assert f"'{victim}'" in logs[name], (die_at, name, logs[name])
                assert "Traceback" not in logs[name]
        left = [path.name for path in job.parent.iterdir() if path.name.startswith(("out", "."))]
        assert left == [], f"point {die_at} left {left} behind"
