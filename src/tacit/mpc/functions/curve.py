"""A function in fixed point: polynomials between breakpoints, and the selection of one by bits."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import comb

import torch
from torch import Tensor

from tacit import ring
from tacit.mpc import tables


@dataclass(frozen=True)
class PiecewiseCurve:
    """A function made of pieces: piece k holds from breakpoint k - 1 up to breakpoint k.

    A piece is a polynomial of x with coefficients in the ring, lowest first. It need not make
    sense as a polynomial of real numbers: what counts is its value modulo 2^64. ``breaks`` have
    the fraction bits of the input, values have ``frac_bits``. Where ``slack`` is given, piece k
    holds also from 2^slack below its breakpoint on.
    """

    breaks: tuple[int, ...]
    pieces: tuple[tuple[int, ...], ...]
    frac_bits: int
    bound: float
    slack: tuple[int, ...] = ()

    @cached_property
    def degree(self) -> int:
        """Return the largest degree of a piece."""
        return max(len(piece) for piece in self.pieces) - 1

    @cached_property
    def height(self) -> int:
        """Return the largest power that any piece has; the degree may be counted higher."""
        return max(j for piece in self.pieces for j, a in enumerate(piece) if a or not j)

    def edges(self, device: torch.device) -> Tensor:
        """Return the breakpoints."""
        return self._on(device)[0]

    def steps(self, device: torch.device) -> Tensor:
        """Return how the coefficients change at each breakpoint, (degree + 1, breaks)."""
        return self._on(device)[1]

    def base(self, device: torch.device) -> Tensor:
        """Return the coefficients of the lowest piece, (degree + 1, 1)."""
        return self._on(device)[2]

    @cached_property
    def _laid_out(self) -> dict[torch.device, tuple[Tensor, Tensor, Tensor]]:
        return {}

    def _on(self, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
        """Lay the tables out where they are read, once: a copy to an accelerator is a wait."""
        if device not in self._laid_out:
            parts = torch.tensor(self.breaks), self._steps(), self._base()
            edges, steps, base = (tables.laid_out(one, device) for one in parts)
            self._laid_out[device] = edges, steps, base
        edges, steps, base = tables.kept(*self._laid_out[device])
        return edges, steps, base

    @cached_property
    def reach(self) -> int:
        """Return how much larger than x can be a comparison of it with a breakpoint may get.

        That is the distance to a breakpoint, and what may be added to it within the slack.
        """
        slack = self.slack or (0,) * len(self.breaks)
        return max(abs(t) + (1 << m) - 1 for t, m in zip(self.breaks, slack, strict=True))

    def _steps(self) -> Tensor:
        rows = [list(piece) + [0] * (self.degree + 1 - len(piece)) for piece in self.pieces]
        steps = [
            [_wrap(b - a) for a, b in zip(old, new, strict=True)] for old, new in pairwise(rows)
        ]
        return torch.tensor(steps).T.contiguous()

    def _base(self) -> Tensor:
        lowest = self.pieces[0]
        return torch.tensor([[*lowest, *[0] * (self.degree + 1 - len(lowest))]]).T.contiguous()


def around(centre: int, coefficients: Sequence[int]) -> tuple[int, ...]:
    """Expand a polynomial of (x - centre) into powers of x, exactly, modulo 2^64."""
    return tuple(
        _wrap(
            sum(a * comb(j, i) * (-centre) ** (j - i) for j, a in enumerate(coefficients) if j >= i)
        )
        for i in range(len(coefficients))
    )


def _wrap(value: int) -> int:
    """Bring an integer into the range of a signed word, modulo 2^64."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


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
