"""Ask a prediction service from Python: 64 digits that neither server sees.

    tacit serve serve-digits.toml         in another terminal, after tacit run train-digits.toml
    python prediction_client.py serve-digits.toml

Prints the first answers, and how many of all are right.
"""

import sys

import torch
from sklearn.datasets import load_digits

import tacit


def main() -> None:
    """Connect to both servers over TLS, ask once, leave in good order."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    x, y = load_digits(return_X_y=True)
    with tacit.connect(sys.argv[1], me="ann", keys="keys") as service:
        answers = service.run(x[:64]).values
    print("answers", *answers[:8].int().tolist())
    print("right", int((answers == torch.from_numpy(y[:64])).sum()), "of", len(answers))


if __name__ == "__main__":
    main()
