"""A function in fixed point: polynomials, each of which holds between two breakpoints."""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor

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


def _wrap(value: int) -> int:
    """Bring an integer into the range of a signed word, modulo 2^64."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)
