"""How close guessed rows are to the true ones, and whether they tell who it was."""

import base64
from collections.abc import Sequence

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from tacit.audit.estimators import average, proportion
from tacit.audit.findings import beside_chance
from tacit.errors import DataError
from tacit.result import Metric, Picture

RECOVERED = 1e-3
"""Mean squared error, of rows within [0, 1], under which one takes guess and truth for the same."""


def pair(guess: Tensor, truth: Tensor) -> Tensor:
    """Return the guesses in the order of the truth: the assignment with the least squared error.

    An update says nothing about the order of the rows behind it.
    """
    if guess.shape != truth.shape:
        raise DataError(f"wanted guesses of shape {tuple(truth.shape)}, got {tuple(guess.shape)}")
    a, b = guess.flatten(1).double().cpu(), truth.flatten(1).double().cpu()
    errors = torch.cdist(b, a).square().numpy()
    _, columns = linear_sum_assignment(errors)
    return guess[torch.from_numpy(columns).to(guess.device)]


def squared_errors(guess: Tensor, truth: Tensor) -> Tensor:
    """Return the mean squared error of every row."""
    return (guess.double() - truth.double()).flatten(1).square().mean(1).cpu()


def psnr(guess: Tensor, truth: Tensor, *, width: float = 1.0) -> Tensor:
    """Return the peak signal-to-noise ratio of every row in dB; `width` is that of the bounds."""
    return 10 * torch.log10(width**2 / squared_errors(guess, truth).clamp_min(1e-12))


def ssim(guess: Tensor, truth: Tensor, *, width: float = 1.0) -> Tensor:
    """Return the structural similarity of every picture (Wang et al. 2004), 1 for the same.

    A Gaussian window of 11 pixels and deviation 1.5, or of the largest odd size that fits.
    """
    if truth.ndim != 4:
        raise DataError(
            f"wanted pictures (rows, channels, height, width), got {tuple(truth.shape)}"
        )
    x, y = guess.double().cpu(), truth.double().cpu()
    size = min(11, *(side - 1 + side % 2 for side in x.shape[2:]))
    window = _gaussian(size).expand(x.shape[1], 1, size, size)

    def blur(z: Tensor) -> Tensor:
        return torch.nn.functional.conv2d(z, window, groups=x.shape[1])

    mx, my = blur(x), blur(y)
    vx, vy = blur(x * x) - mx * mx, blur(y * y) - my * my
    both = blur(x * y) - mx * my
    c1, c2 = (0.01 * width) ** 2, (0.03 * width) ** 2
    map_ = (2 * mx * my + c1) * (2 * both + c2) / ((mx**2 + my**2 + c1) * (vx + vy + c2))
    return map_.flatten(1).mean(1)


def line_up(
    guess: Tensor, truth: Tensor, others: Tensor, *, size: int, generator: torch.Generator
) -> Tensor:
    """Say for every row whether its guess picks it out of a line-up of `size` candidates.

    The candidates are the true row and `size` − 1 of `others`; picked is the one nearest to the
    guess. A blind guess is right once in `size` times.

    Raises:
        DataError: there are fewer others than a line-up needs.
    """
    if size < 2 or len(others) < size - 1:
        raise DataError(
            f"a line-up of {size} needs {max(size, 2) - 1} other rows, got {len(others)}"
        )
    hits = []
    pool = others.flatten(1).double().cpu()
    for one, right in zip(
        guess.flatten(1).double().cpu(), truth.flatten(1).double().cpu(), strict=True
    ):
        keys = torch.empty(len(pool)).uniform_(generator=generator)
        rest = (pool[keys.argsort()[: size - 1]] - one).square().sum(1)
        hits.append(bool((right - one).square().sum() < rest.min()))
    return torch.tensor(hits)


def score_rows(
    name: str,
    guess: Tensor,
    truth: Tensor,
    *,
    others: Tensor,
    generator: torch.Generator,
    size: int = 10,
    bounds: tuple[float, float] = (0.0, 1.0),
) -> tuple[Metric, ...]:
    """Measure paired guesses: picked out of a line-up, recovered, MSE, PSNR and, if pictures, SSIM.

    Args:
        name: of the attack.
        guess: rows, in the order of the truth (see `pair`).
        truth: the rows that were attacked.
        others: rows of the same kind that were not, for the line-up and as the blind guess.
        generator: draws the line-ups.
        size: of a line-up.
        bounds: the smallest and largest value of a row.
    """
    width = bounds[1] - bounds[0]
    picked = line_up(guess, truth, others, size=size, generator=generator)
    errors = squared_errors(guess, truth) / width**2
    mean = others.double().mean(0, keepdim=True).expand_as(truth).to(truth.device)
    blind = float(squared_errors(mean, truth).mean()) / width**2
    found = [
        beside_chance(
            proportion(f"{name}: picked out of {size}", int(picked.sum()), len(picked)), 1 / size
        ),
        proportion(f"{name}: recovered", int((errors < RECOVERED).sum()), len(errors), note=_NOTE),
        _mean(f"{name}: squared error", errors, "", reference=blind),
        _mean(f"{name}: PSNR", psnr(guess, truth, width=width), "dB"),
    ]
    if truth.ndim == 4 and min(truth.shape[2:]) >= 3:
        found.append(_mean(f"{name}: SSIM", ssim(guess, truth, width=width), ""))
    return tuple(found)


def show(
    title: str, captions: Sequence[str], rows: Tensor, *, bounds: tuple[float, float] = (0.0, 1.0)
) -> tuple[Picture, ...]:
    """Turn rows of (channels, height, width) with one or three channels into pictures.

    Raises:
        DataError: the rows are no pictures, or not one caption each.
    """
    if rows.ndim != 4 or rows.shape[1] not in (1, 3) or len(captions) != len(rows):
        raise DataError(
            f"wanted {len(captions)} pictures of 1 or 3 channels, got shape {tuple(rows.shape)}"
        )
    low, high = bounds
    level = ((rows.double().cpu() - low) / (high - low)).clamp(0, 1)
    bytes_ = (level * 255).round().to(torch.uint8).movedim(1, 3).contiguous().numpy()
    return tuple(
        Picture(
            title=title,
            caption=caption,
            width=rows.shape[3],
            height=rows.shape[2],
            mode="gray" if rows.shape[1] == 1 else "rgb",
            pixels=base64.b64encode(np.ascontiguousarray(one).tobytes()).decode("ascii"),
        )
        for caption, one in zip(captions, bytes_, strict=True)
    )


_NOTE = f"squared error below {RECOVERED:g} of the squared width of the bounds"


def _mean(name: str, values: Tensor, unit: str, *, reference: float | None = None) -> Metric:
    note = "" if reference is None else "reference: the mean of other rows"
    return average(name, values.tolist(), unit, reference=reference, note=note)


def _gaussian(size: int) -> Tensor:
    at = torch.arange(size, dtype=torch.float64) - (size - 1) / 2
    bell = torch.exp(-(at**2) / (2 * 1.5**2))
    flat = torch.outer(bell, bell)
    return (flat / flat.sum()).view(1, 1, size, size)
