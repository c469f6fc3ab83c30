"""The same training in the clear, with given noise: what a private one is compared with."""

from collections.abc import Sequence

import torch
from torch import Tensor

from tacit.learners.clipping import shorten_rows
from tacit.learners.private import FRAC_BITS, LARGEST_WEIGHT, Descent


def train_in_clear(
    x: Tensor, y: Tensor, noise: Sequence[Tensor], *, clip: float, descent: Descent
) -> Tensor:
    """Descend as `train_private` does, in floating point; a sum of noise per step.

    Guarantee: none; whoever calls this holds all rows and the noise.
    """
    rows = shorten_rows(x.double(), frac_bits=FRAC_BITS, has_intercept=descent.fit_intercept)
    hot = torch.nn.functional.one_hot(y.long(), noise[0].shape[1]).double()
    weights, velocity = torch.zeros_like(noise[0]), torch.zeros_like(noise[0])
    for words in noise:
        errors = torch.softmax(rows @ weights, dim=1) - hot
        factors = (clip / errors.norm(dim=1, keepdim=True)).clamp(max=1.0)
        factors = factors * (1 - 2.0**-8) - 2.0**-12  # the margin of `rsqrt_below`
        velocity = descent.momentum * velocity + rows.T @ (errors * factors) + words
        weights = weights - descent.rate / len(rows) * velocity
        weights = weights.clamp(-LARGEST_WEIGHT, LARGEST_WEIGHT)
    return weights
