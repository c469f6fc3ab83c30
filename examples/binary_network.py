"""A binary network (weights and activations of -1 and 1) asked in private, by two parties alone.

Trains it on digits, or on MNIST if its npz file is named on the command line, and lets a client
ask a server about test rows without a dealer: products come from homomorphic encryption, signs
from garbled circuits. Prints the accuracy of the answers, how many classes are those of the plain
network (all), the processor time of both parties for each image, in a batch and alone, and the
bytes for each image, offline and online.
"""

import sys
import time
from itertools import pairwise

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

import tacit

PROTOCOL = "sealed; linear: he; activations: garbled"
ROWS = 128


class Sign(torch.autograd.Function):
    """The sign, with the slope of a clipped line, so that it can be trained."""

    @staticmethod
    def forward(ctx, x):
        """Give -1 or 1."""
        ctx.save_for_backward(x)
        return torch.where(x >= 0, 1.0, -1.0)

    @staticmethod
    def backward(ctx, slope):
        """Let the slope through where the argument is small."""
        (x,) = ctx.saved_tensors
        return slope * (x.abs() <= 1)


class Binary(nn.Module):
    """Layers of signs of weights, each followed by a shift and, but for the last, by a sign."""

    def __init__(self, widths: list[int]) -> None:
        super().__init__()
        pairs = list(pairwise(widths))
        self.layers = nn.ModuleList(nn.Linear(a, b, bias=False) for a, b in pairs)
        self.norms = nn.ModuleList(nn.BatchNorm1d(b) for b in widths[1:])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Give the scores."""
        for at, (layer, norm) in enumerate(zip(self.layers, self.norms, strict=True)):
            x = norm(x @ Sign.apply(layer.weight).T)
            x = x if at == len(self.layers) - 1 else Sign.apply(x)
        return x

    def weights(self) -> dict[str, torch.Tensor]:
        """Return signs and shifts; in front of a sign a norm is no more than a shift."""
        found = {}
        for at, (layer, norm) in enumerate(zip(self.layers, self.norms, strict=True)):
            scale = norm.weight / (norm.running_var + norm.eps).sqrt()
            shift = norm.bias / scale - norm.running_mean
            # Of what a sign follows only the sign of the scale counts.
            factor = scale if at == len(self.layers) - 1 else torch.where(scale >= 0, 1.0, -1.0)
            found[f"w{at}"] = (Sign.apply(layer.weight) * factor[:, None]).T
            found[f"b{at}"] = shift * factor
        return {name: one.detach() for name, one in found.items()}


def network(ops, weights, x):
    """Compute the same on secrets: what is a sign plus one, halved, is a comparison."""
    last = sum(name.startswith("w") for name in weights) - 1
    for at in range(last):
        y = ops.add(ops.matmul(x, weights[f"w{at}"]), weights[f"b{at}"])
        x = ops.shift(ops.scale(ops.is_positive(y), 2.0), -1.0)
    return ops.add(ops.matmul(x, weights[f"w{last}"]), weights[f"b{last}"])


def plain(weights: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """Compute the same in the clear."""
    last = sum(name.startswith("w") for name in weights) - 1
    for at in range(last):
        x = (x @ weights[f"w{at}"] + weights[f"b{at}"] >= 0).double() * 2 - 1
    return x @ weights[f"w{last}"] + weights[f"b{last}"]


def load() -> tuple[torch.Tensor, ...]:
    """Return training and test rows, as -1 and 1, and their labels."""
    if len(sys.argv) > 1:
        with np.load(sys.argv[1]) as file:
            sets = [file[name] for name in ("x_train", "y_train", "x_test", "y_test")]
        rows = [torch.from_numpy(sets[at]).reshape(len(sets[at]), -1) / 255.0 for at in (0, 2)]
        labels = [torch.from_numpy(sets[at]).long() for at in (1, 3)]
    else:
        digits = load_digits()
        x, y = torch.from_numpy(digits.data / 16).float(), torch.from_numpy(digits.target).long()
        rows, labels = [x[:1400], x[1400:]], [y[:1400], y[1400:]]
    signs = [torch.where(one >= 0.3, 1.0, -1.0) for one in rows]
    return signs[0], labels[0], signs[1], labels[1]


def train(model: Binary, x: torch.Tensor, y: torch.Tensor) -> None:
    """Train by slopes that pass through the signs."""
    steps = 1500
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for step in range(steps):
        chosen = torch.arange(step * 128, (step + 1) * 128) * 7919 % len(x)
        loss = nn.functional.cross_entropy(model(x[chosen]) / 4, y[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()


def main() -> None:
    """Train, ask in private, and compare."""
    torch.manual_seed(0)
    x, y, test, labels = load()
    model = Binary([x.shape[1], 128, 128, 10])
    train(model, x, y)
    weights = {name: one.double() for name, one in model.eval().weights().items()}
    test, labels = test[:ROWS].double(), labels[:ROWS]
    wanted = plain(weights, test).argmax(1)
    private = tacit.secure(network, weights=weights, protocol=PROTOCOL, reveal="class", bound=1.0)
    private(test[:1])  # the first run compiles loops
    began = time.process_time()
    private(test[:1])
    alone, began = time.process_time() - began, time.process_time()
    answer = private(test)
    spent = time.process_time() - began
    found = answer.values.round().long()
    print(f"accuracy {float((found == labels).double().mean()):.4f}")
    print(f"as-plain {int((found == wanted).sum())} of {ROWS}")
    print(f"processor-ms-per-image {1e3 * spent / ROWS:.1f}")
    print(f"processor-ms-alone {1e3 * alone:.1f}")
    for phase in ("offline", "online"):
        sent = sum(one.payload_bytes for one in answer.cost.traffic if one.phase == phase)
        print(f"{phase}-kB-per-image {sent / ROWS / 1e3:.1f}")


if __name__ == "__main__":
    main()
