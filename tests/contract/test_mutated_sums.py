"""Changed messages and keys, to every party of every aggregator, in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("count", [60, pytest.param(10_000, marks=pytest.mark.slow)])
def test_no_changed_input_does_harm(count):
    done = subprocess.run(
        [sys.executable, "-m", "support.mutated_sums", str(count), "26"],
        cwd=TESTS,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{count} changed inputs" in done.stdout
