"""Take part in a job from Python: a clinic asks a lab's model, and neither shows what it has.

    python connect.py --as clinic      gives rows as an array, and gets their classes
    python connect.py --as lab         gives a torch module
    tacit party job.toml --as dealer   is not Python at all

All three have the same job.toml, with everyone's key in it. The clinic prints the first classes and
how many of all are right (about 95 in 100), and what was sent; the lab prints that it got nothing.
"""

import argparse

import torch
from sklearn.datasets import load_breast_cancer
from torch import nn

import tacit

ROWS = 100


def patients() -> tuple[torch.Tensor, torch.Tensor]:
    """Return rows of which every column lies between 0 and 1, and their classes."""
    found = load_breast_cancer()
    x = torch.from_numpy(found.data / found.data.max(axis=0))
    return x, torch.from_numpy(found.target)


def train(x: torch.Tensor, y: torch.Tensor) -> nn.Module:
    """Train the lab's model on rows of its own."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(30, 8), nn.ReLU(), nn.Linear(8, 2)).double()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(300):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return model


def main() -> None:
    """Be one of the two owners."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--as", dest="me", required=True, choices=("clinic", "lab"))
    me = parser.parse_args().me
    x, y = patients()
    with tacit.connect("job.toml", me) as party:
        if me == "lab":
            answer = party.run(model=train(x[ROWS:], y[ROWS:]))
            print("values", answer.values)
        else:
            answer = party.run(x[:ROWS].numpy())
            print("classes", *answer.values[:8].int().tolist())
            print("right", int((answer.values == y[:ROWS]).sum()))
            print("rounds", answer.result.metered.online_rounds)


if __name__ == "__main__":
    main()
