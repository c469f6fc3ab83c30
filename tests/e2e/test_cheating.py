"""Parties as processes under `checked`: a job runs; one that cheats is named, and all end."""

import json

import pytest

from support.processes import start

NAMES = ("hospital", "lab", "dealer")
ENDS_S = 120


def run_all(job, *, liar=None, lie_at=None):
    """Start three parties; return their exit codes and what they printed."""
    folder = job.parent
    processes = {
        name: start(
            ["party", str(job), "--as", name, "--keys", str(folder / "keys")],
            folder / f"{name}.log",
            lie_at=lie_at if name == liar else None,
        )
        for name in NAMES
    }
    for process in processes.values():
        process.join(ENDS_S)
    hanging = [name for name, process in processes.items() if process.is_alive()]
    for process in processes.values():
        process.kill()
        process.join()
    assert hanging == [], "a party did not end in time"
    codes = {name: process.exitcode for name, process in processes.items()}
    for process in processes.values():
        process.close()
    return codes, {name: (folder / f"{name}.log").read_text() for name in NAMES}


def test_a_job_under_checked_gives_the_answers_and_says_what_they_are_worth(make_job):
    codes, logs = run_all(job := make_job(protocol="checked bounds"))
    assert codes == dict.fromkeys(NAMES, 0), logs
    out = job.parent / "out-hospital"
    lines = (out / "predictions.csv").read_text().split()
    assert [line.rpartition(",")[2] for line in lines[1:]] == ["1", "0"]  # 0.6 and -1.1
    claims = json.loads((out / "result.json").read_text())["claims"]
    assert "if a computing party cheats" in claims[0]["subject"]


@pytest.mark.parametrize(
    ("liar", "lie_at"),
    [
        ("lab", 1),
        ("hospital", 1),
        *(pytest.param("lab", at, marks=pytest.mark.slow) for at in (0, 2, 3, 4, 5)),
        *(pytest.param("hospital", at, marks=pytest.mark.slow) for at in (0, 2, 3, 4, 5)),
    ],
)
def test_a_process_that_cheats_is_named_and_all_end_with_code_4(make_job, liar, lie_at):
    codes, logs = run_all(job := make_job(protocol="checked"), liar=liar, lie_at=lie_at)
    honest = {"lab": "hospital", "hospital": "lab"}[liar]
    assert codes == dict.fromkeys(NAMES, 4), logs
    assert f"'{liar}'" in logs[honest], "the honest party names the liar"
    assert "cheated" in logs[honest]
    said = " ".join(logs["dealer"].split())
    assert "hospital or lab" in said, "the dealer cannot know which"
    assert "Traceback" not in "".join(logs.values())
    assert not [path for path in job.parent.iterdir() if path.name.startswith("out")]
