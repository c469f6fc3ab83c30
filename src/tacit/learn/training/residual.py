"""A residual block, of which small ResNets are made (He et al. 2016), with norms of groups."""

import torch
from torch import Tensor, nn

LARGEST_GROUP = 8
"""So many channels are normalised together, at most."""


class Residual(nn.Module):
    """Add what two convolutions with norms make of images to the images themselves.

    Norms are those of groups (Wu and He 2018): they need no statistics of other rows, so a model
    in use does exactly what it did in training. Where the size changes, the images pass a
    convolution of single pixels.
    """

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.first_norm = nn.GroupNorm(groups_of(outputs), outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.second_norm = nn.GroupNorm(groups_of(outputs), outputs)
        self.relu = nn.ReLU()
        is_same = stride == 1 and inputs == outputs
        self.past = nn.Identity() if is_same else nn.Conv2d(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Run the block."""
        inner = self.relu(self.first_norm(self.first(x)))
        return torch.relu(self.second_norm(self.second(inner)) + self.past(x))


def groups_of(channels: int) -> int:
    """Return into how many groups channels are cut: as few as there may be."""
    counts = (count for count in range(1, channels + 1) if channels % count == 0)
    return next(count for count in counts if channels // count <= LARGEST_GROUP)
