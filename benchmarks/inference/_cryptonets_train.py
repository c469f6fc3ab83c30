"""Train the network of examples/jobs/infer-encrypted.toml: squares, and whole numbers of few bits.

Weights are rounded to three bits after the first 40 % of the epochs, as the plan of protocol `he`
rounds them; an L1 penalty keeps most weights of the wide layer at zero, which makes the bound of
outputs small and the evaluation short. A minute of one core.

    python benchmarks/run.py inference/_cryptonets_train mnist.npz cryptonets.npz
"""

import math
import sys
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

BITS, EPOCHS, BATCH, PENALTY = 3, 24, 128, 5e-5


class CryptoNets(nn.Module):
    """A convolution of five maps, a square, 64 hidden numbers, a square, ten scores."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 5, 5, stride=2, padding=1)
        self.hidden, self.out = nn.Linear(845, 64), nn.Linear(64, 10)
        self.is_rounded = False
        with torch.no_grad():  # squares grow: begin small
            self.hidden.weight.mul_(0.3)
            self.out.weight.mul_(0.5)

    def forward(self, x: Tensor) -> Tensor:
        """Give the scores."""
        weights = (self.conv.weight, self.hidden.weight, self.out.weight)
        first, second, third = map(self._seen, weights)
        x = functional.conv2d(x, first, self.conv.bias, stride=2, padding=1).square().flatten(1)
        x = functional.linear(x, second, self.hidden.bias).square()
        return functional.linear(x, third, self.out.bias)

    def _seen(self, weight: Tensor) -> Tensor:
        """Round, and let gradients pass as if nothing were rounded."""
        if not self.is_rounded:
            return weight
        return weight + (rounded(weight) - weight).detach()


def fraction_bits(weight: Tensor) -> int:
    """Return how many bits stand after the point of a weight."""
    return BITS - math.ceil(math.log2(float(weight.detach().abs().max()) + 1e-9))


def rounded(weight: Tensor) -> Tensor:
    """Round to three bits of the largest weight."""
    scale = 2.0 ** fraction_bits(weight)
    return torch.round(weight.detach() * scale) / scale


def pixels(values: Tensor) -> Tensor:
    """Round as inputs are rounded."""
    return torch.round(values * 2**BITS) / 2**BITS


def moved(x: Tensor) -> Tensor:
    """Turn, stretch, shear and shift pictures a little."""
    count = len(x)
    angle = (torch.rand(count) - 0.5) * math.radians(24)
    size, shear = 1 + (torch.rand(count) - 0.5) * 0.2, (torch.rand(count) - 0.5) * 0.3
    turn = torch.zeros(count, 2, 3)
    turn[:, 0, 0] = turn[:, 1, 1] = torch.cos(angle) * size
    turn[:, 0, 1] = -torch.sin(angle) * size + shear
    turn[:, 1, 0] = torch.sin(angle) * size
    turn[:, :, 2] = (torch.rand(count, 2) - 0.5) * 0.2
    grid = functional.affine_grid(turn, list(x.shape), align_corners=False)
    return functional.grid_sample(x, grid, align_corners=False)


def train(x: Tensor, labels: Tensor) -> CryptoNets:
    """Train on pictures that are moved, at last on those that are not."""
    net = CryptoNets()
    optimizer = torch.optim.Adam(net.parameters())
    steps = len(x) // BATCH
    rates = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 4e-3, total_steps=EPOCHS * steps + 1, pct_start=0.15
    )
    for epoch in range(EPOCHS):
        net.is_rounded = epoch >= 0.4 * EPOCHS
        order = torch.randperm(len(x))
        for at in range(steps):
            chosen = order[at * BATCH : (at + 1) * BATCH]
            rows = moved(x[chosen]) if epoch < 0.9 * EPOCHS else x[chosen]
            loss = functional.cross_entropy(net(pixels(rows)), labels[chosen])
            loss = loss + PENALTY * net.hidden.weight.abs().sum()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            rates.step()
    return net


def exported(net: CryptoNets) -> dict[str, Tensor]:
    """Return rounded weights, and biases rounded to the scale of what they are added to."""
    found, scale = {}, BITS
    for place, layer in (("0", net.conv), ("3", net.hidden), ("5", net.out)):
        weight = layer.weight.detach().double()
        scale += fraction_bits(weight)
        found[f"{place}.weight"] = rounded(weight)
        found[f"{place}.bias"] = torch.round(layer.bias.detach().double() * 2.0**scale) / 2.0**scale
        scale *= 2
    return found


def accuracy(state: dict[str, Tensor], x: Tensor, labels: Tensor) -> float:
    """Return the share of right classes of exported weights."""
    y = functional.conv2d(
        pixels(x).double(), state["0.weight"], state["0.bias"], stride=2, padding=1
    )
    y = functional.linear(y.square().flatten(1), state["3.weight"], state["3.bias"])
    y = functional.linear(y.square(), state["5.weight"], state["5.bias"])
    return float((y.argmax(dim=1) == labels).double().mean())


def main(source: Path, target: Path) -> None:
    """Train, say the accuracy on the test rows, and write the weights."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = np.load(source)
    sides = {
        part: (
            torch.from_numpy(data[f"x_{part}"]).float().reshape(-1, 1, 28, 28) / 255,
            torch.from_numpy(data[f"y_{part}"]).long(),
        )
        for part in ("train", "test")
    }
    state = exported(train(*sides["train"]))
    print(f"accuracy {accuracy(state, *sides['test']):.4f}")
    arrays = {
        name: one.numpy().astype(np.float32 if "weight" in name else np.float64)
        for name, one in state.items()
    }
    np.savez_compressed(target, **arrays)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
