"""The models on which reconstruction is measured: LeNet with sigmoids, and a small ResNet."""

import torch
from torch import Tensor, nn


def lenet(channels: int, side: int, classes: int) -> nn.Sequential:
    """Build the LeNet of the DLG paper: twice differentiable, weights uniform in ±½.

    Takes pictures of (channels, side, side); draws its weights from torch's global generator, as
    torch's own layers do.
    """
    inner = (side + 3) // 4  # halved twice, rounded up
    model = nn.Sequential(
        *(nn.Conv2d(channels, 12, 5, padding=2, stride=2), nn.Sigmoid()),
        *(nn.Conv2d(12, 12, 5, padding=2, stride=2), nn.Sigmoid()),
        *(nn.Conv2d(12, 12, 5, padding=2), nn.Sigmoid()),
        nn.Flatten(),
        nn.Linear(12 * inner * inner, classes),
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.uniform_(-0.5, 0.5)
    return model


def small_resnet(channels: int, classes: int, *, width: int = 16) -> nn.Sequential:
    """Build a ResNet of three stages with one block each, group normalisation and no pooling layer.

    Group normalisation, because a client with few rows has no batch statistics worth the name.
    """
    return nn.Sequential(
        *(nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.GroupNorm(4, width), nn.ReLU()),
        _Block(width, width, 1),
        _Block(width, 2 * width, 2),
        _Block(2 * width, 4 * width, 2),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        nn.Linear(4 * width, classes),
    )


class _Block(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False),
            *(nn.GroupNorm(4, after), nn.ReLU()),
            nn.Conv2d(after, after, 3, padding=1, bias=False),
            nn.GroupNorm(4, after),
        )
        self.around = (
            nn.Identity()
            if before == after
            else nn.Conv2d(before, after, 1, stride=stride, bias=False)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the rectified sum of both ways."""
        both: Tensor = self.inner(x) + self.around(x)
        return nn.functional.relu(both)
