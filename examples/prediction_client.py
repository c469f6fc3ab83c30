"""Ask a prediction service from Python: 64 digits that neither server sees.

    tacit serve serve-digits.toml         in another terminal, after tacit run train-digits.toml
    python prediction_client.py serve-digits.toml

Prints the first answers, and how many of all are right.
"""

import sys
from pathlib import Path

import torch
from sklearn.datasets import load_digits

from tacit.cli.jobs.serve import load_service
from tacit.crypto import load_identity
from tacit.learn.service import connected

KEYS = Path("keys")


def main():
    """Connect to both servers over TLS, ask once, leave in good order."""
    job = load_service(Path(sys.argv[1])).with_keys(KEYS, may_make=False)
    x, y = load_digits(return_X_y=True)
    rows = torch.from_numpy(x[:64]) / job.service.scale
    with connected(
        "ann",
        job.task(),
        servers=job.server_peers(),
        identity=load_identity(KEYS, "ann"),
    ) as client:
        answers = client.ask(rows)
    print("answers", *(int(one) for one in answers[:8]))
    print("right", int((answers == torch.from_numpy(y[:64])).sum()), "of", len(answers))


if __name__ == "__main__":
    main()
