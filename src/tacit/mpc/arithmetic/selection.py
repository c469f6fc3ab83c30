"""Selecting the piece of a function that holds, once its breakpoints have been compared."""

from math import comb

import torch
from torch import Tensor

from tacit import ring
from tacit.mpc.functions.curve import PiecewiseCurve


def select_pieces(
    curve: PiecewiseCurve, c: Tensor, tau: Tensor, r: Tensor, powers: Tensor, *, is_first: bool
) -> Tensor:
    """Add up the pieces: p_0(x) + Σ_k b_k·(p_k - p_{k-1})(x), for b_k = τ_k ⊕ ρ_k and x = c - r.

    b_k·r^i is τ_k·r^i + (1 - 2τ_k)·ρ_k·r^i, so with the steps A of the coefficients the sum is
    Σ_ij C(j,i)·(-1)^i·c^(j-i) · (Σ_k A_jk·τ_k · r^i + Σ_k A_jk·(1 - 2τ_k)·[ρ_k·r^i]), for every
    i by Horner's rule in c.
    """
    degree, height = curve.degree, curve.height
    plain = [torch.full_like(r, 1 if is_first else 0), r, *powers[: max(0, degree - 1)]]
    selected = powers[max(0, degree - 1) :].view(len(curve.breaks), degree + 1, -1)
    steps, base = curve.steps(c.device)[: height + 1], curve.base(c.device)[: height + 1]
    chosen = ring.matmul(steps, tau).add_(base)  # (height + 1, n), public
    sign = 1 - 2 * tau
    total = torch.zeros_like(r)
    for i in range(height + 1):
        masked = ring.matmul(steps[i:], sign * selected[:, i])  # (height + 1 - i, n), shared
        terms = torch.addcmul(masked, chosen[i:], plain[i])
        part = terms[-1] * comb(height, i) if 0 < i < height else terms[-1]
        for j in range(height - 1, i - 1, -1):
            term = terms[j - i] * comb(j, i) if 0 < i < j else terms[j - i]
            part = torch.addcmul(term, part, c)
        total = total.sub_(part) if i % 2 else total.add_(part)
    return total


def unpacked(words: Tensor, count: int) -> Tensor:
    """Spread packed bits (rows, words) out into (rows, count) words of 0 and 1."""
    bits = ring.unpack_bits(words.contiguous().view(torch.uint8), words.numel() * 64)
    return bits.view(len(words), -1)[:, :count].to(torch.int64)
