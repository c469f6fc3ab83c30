"""What a kind of job loads: every party of it starts with that."""

import subprocess
import sys

PROGRAM = """
import sys
from tacit.jobs.kinds import KINDS
KINDS["infer"](), KINDS["train"](), KINDS["serve"]()
heavy = ("sklearn", "scipy", "tacit.audit", "tacit.federated", "tacit.split")
print([name for name in sys.modules if name.startswith(heavy)])
"""


def test_parties_of_private_jobs_start_without_audits_and_other_ways_to_learn():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
