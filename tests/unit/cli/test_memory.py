"""Freed memory is used again, in a process of its own: the setting is the process's."""

import subprocess
import sys

import pytest

FAULTS = """
import resource, sys
import torch
from tacit.cli.memory import keep_freed_memory

if sys.argv[1] == "keep":
    keep_freed_memory()
for turn in range(12):
    if turn == 2:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    several = [torch.ones(33 << 17, dtype=torch.int64) for _ in range(3)]
    del several
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def count_faults(how):
    done = subprocess.run(
        [sys.executable, "-c", FAULTS, how], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a setting of the GNU C library")
def test_fresh_pages_are_asked_for_seldom():
    # Not never: a system short of memory takes pages back that it thinks are idle.
    assert count_faults("keep") < count_faults("usual") / 2
