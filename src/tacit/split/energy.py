"""Losses that spread or blur the classes at the cut layer, so that it tells little of the label."""

import torch
from torch import Tensor

_SOFT_ANGLE = 0.05
_SOFT_DISTANCE = 0.05
_LARGEST_COSINE = 1 - 1e-6


def plane_energy(h: Tensor, labels: Tensor) -> Tensor:
    """Return the potential energy of equal charges: 1 / ‖h − h'‖ for same-class pairs (eq. 4-10).

    The mean over pairs and not their sum, so that the weight does not depend on the batch, and
    1 / √(r² + 0.05²) in place of 1 / r, whose slope has no bound: a single pair that comes near can
    throw a class out of reach of the top, which then never gets it right again. A class with one
    member has no pair, and a batch without pairs has energy 0.

    Guarantee: none; known attacks on the finished bottom model get harder, as the audit measures.
    Labels of the rows trained on are not protected: their gradients tell them.
    Cost: the label owner computes rows² distances; nothing more is sent.
    """
    return _mean_over_pairs((_squared_distances(h) + _SOFT_DISTANCE**2).rsqrt(), labels)


def sphere_energy(h: Tensor, labels: Tensor) -> Tensor:
    """Return the potential energy on the sphere: 1 / angle for same-class pairs (eq. 4-22).

    Meant for a cut layer after layer normalisation, which bounds it without giving it a border:
    classes cannot flee to infinity. The mean over pairs, and 1 / √(θ² + 0.05²) in place of 1 / θ,
    whose slope has no bound as two points meet.

    Guarantee: none; known attacks on the finished bottom model get harder, as the audit measures.
    Labels of the rows trained on are not protected: their gradients tell them.
    Cost: the label owner computes rows² angles; nothing more is sent.
    """
    unit = torch.nn.functional.normalize(h, dim=1)
    return _mean_over_pairs(angle_energies(unit, unit), labels)


def angle_energies(one: Tensor, other: Tensor) -> Tensor:
    """Return 1 / angle, softened, of all pairs of two sets of rows of length 1."""
    cosine = (one @ other.t()).clamp(-_LARGEST_COSINE, _LARGEST_COSINE)
    angle = torch.arccos(cosine)
    return (angle.square() + _SOFT_ANGLE**2).rsqrt()


def distance_correlation(h: Tensor, labels: Tensor) -> Tensor:
    """Return how far distances at the cut layer follow distances of labels (eq. 4-23, 4-24).

    Both sums run over i and j. One-hot labels are √2 apart or equal. 0 if all labels are equal.

    Guarantee: none, and labels of the rows trained on are not protected. Cost: rows² distances at
    the label owner.
    """
    near = _centre((_squared_distances(h) + 1e-12).sqrt())
    apart = _centre((labels[:, None] != labels[None, :]).to(h.dtype) * 2**0.5)
    scale = (near.square().sum() * apart.square().sum()).clamp(min=1e-12).sqrt()
    return (near * apart).sum() / scale


def _squared_distances(h: Tensor) -> Tensor:
    """Return ‖h − h'‖² for all pairs of rows, without a (rows, rows, width) array.

    In double precision: ‖h‖² + ‖h'‖² − 2⟨h, h'⟩ loses half of the digits of points that are near.
    """
    wide = h.double()
    products = wide @ wide.t()
    lengths = products.diagonal()
    squared = lengths[:, None] + lengths[None, :] - 2 * products
    return squared.clamp(min=0).to(h.dtype)


def _mean_over_pairs(energy: Tensor, labels: Tensor) -> Tensor:
    is_pair = (labels[:, None] == labels[None, :]).fill_diagonal_(False)
    return torch.where(is_pair, energy, 0.0).sum() / is_pair.sum().clamp(min=1)


def _centre(distances: Tensor) -> Tensor:
    rows, columns = distances.mean(0, keepdim=True), distances.mean(1, keepdim=True)
    return distances - rows - columns + distances.mean()
