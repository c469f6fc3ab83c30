"""A federated job on Flower's simulation: every client a node, in workers of their own."""

import os
import subprocess
import sys
import textwrap

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'tacit-ml[fl]'")
pytest.importorskip("ray", reason="Ray is not installed: pip install 'tacit-ml[fl]'")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

PROGRAM = """
    from rich.console import Console

    from tacit.cli.screen import OnConsole
    from tacit.jobs.federated import FederatedJob, run
    from tacit.spec import read_record

    aggregator, kind, epsilon = "AGGREGATOR", "KIND", EPSILON
    privacy = {"kind": kind, "clip": 1.0} | ({"epsilon": epsilon} if epsilon else {})
    job = read_record(
        {
            "job": {"name": "simulated", "kind": "federated"},
            "data": {"set": "digits"},
            "federated": {
                "clients": 4, "rounds": 1, "aggregator": aggregator, "engine": "flower",
                "minimum": 3, "colluding_share": 0.0, "drop_rate": 0.25,
                # A simulation makes a key of its own in the place of one that is pinned.
                **({"shuffler": "00" * 32} if aggregator == "shuffled" else {}),
                **({"authority": "00" * 32, "verified": True} if aggregator == "keyed" else {}),
                # Nor has it the private halves of keys that are named, here more than a round's.
                **(
                    {"server": "malicious", "keys": [f"{i:064x}" for i in range(6)]}
                    if aggregator in ("masked", "keyed") else {}
                ),
            },
            "privacy": privacy,
            "train": {"steps": 5, "rate": 0.5},
        },
        FederatedJob,
        source="job",
    )
    result = run(job, OnConsole(Console(quiet=True)), ()).result
    print("void rounds:", next(m.value for m in result.utility if m.name == "void rounds"))
"""


@pytest.mark.parametrize(
    ("aggregator", "kind", "epsilon"),
    [
        ("masked", "none", None),
        ("shuffled", "shuffle", 50.0),
        ("encrypted", "none", None),
        ("keyed", "none", None),
    ],
)
def test_a_job_runs_on_flowers_simulation(aggregator, kind, epsilon):
    text = textwrap.dedent(PROGRAM).replace("AGGREGATOR", aggregator).replace("KIND", kind)
    done = subprocess.run(
        [sys.executable, "-c", text.replace("EPSILON", repr(epsilon))],
        capture_output=True,
        text=True,
        timeout=350,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "void rounds: 0.0" in done.stdout
