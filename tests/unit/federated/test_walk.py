"""How far a reader walks: the files that one round of secure aggregation passes."""

import sys
from pathlib import Path

import numpy as np
import torch

import tacit
from tacit.federated import Privacy, fit

SOURCE = str(Path(tacit.__file__).parent) + "/"
# The last holds no protocol: whatever holds rows or numbers is read there, in every room.
GROUND = ("errors.py", "ring/", "crypto/", "dp/", "data/")
OTHERS = ("llm/", "audit/", "cli/")  # may not be called from here; what runs is of other tests


def test_a_masked_round_passes_at_most_eighteen_files_above_the_ground_floor():
    """From `fit` to the model after the round: every file of which a function is called."""
    rows = [(np.eye(8, dtype=np.float32), np.arange(8) % 2) for _ in range(4)]
    privacy = Privacy(kind="central", clip=1.0, epsilon=8.0, delta=1e-3)
    model = torch.nn.Linear(8, 2)
    seen = set()

    def note(frame, event, arg):
        if event == "call" and frame.f_code.co_filename.startswith(SOURCE):
            seen.add(frame.f_code.co_filename.removeprefix(SOURCE))

    sys.setprofile(note)
    try:
        fit(model, rows, privacy=privacy, rounds=1)
    finally:
        sys.setprofile(None)
    seen = {file for file in seen if not file.startswith(OTHERS)}
    above = {file for file in seen if not file.startswith(GROUND)}
    assert "federated/secagg/server.py" in above
    assert len(above) <= 18, " ".join(sorted(above))
    assert len(seen) <= 39, " ".join(sorted(seen))
