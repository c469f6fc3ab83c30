"""Checking products that somebody else has computed (Freivalds 1977), modulo 2^64.

One random vector is not enough here: against an error of 2^63 in one entry every second vector is
blind, whatever it is drawn from, because an error times a word is 0 whenever the word is even.
Vectors of bits are as good as any in that worst case, and cheap; each halves what a lie can hope
for.
"""

from typing import final

import numpy as np
import torch
from torch import Tensor

from tacit.errors import DataError
from tacit.ring.prg import Prg
from tacit.ring.product import matmul

SOUNDNESS_BITS = 40


def is_product(
    left: Tensor,
    right: Tensor,
    claimed: Tensor,
    *,
    prg: Prg,
    soundness_bits: int = SOUNDNESS_BITS,
) -> bool:
    """Tell whether ``claimed`` is left · right, for matrices or batches of them.

    Guarantee: a right product is always accepted. A wrong one is accepted with a probability of at
    most 2^-soundness_bits, whatever is wrong with it, if whoever made it could not know what
    ``prg`` draws from here on.
    Cost: products of both sides with ``soundness_bits`` columns; 0 rounds.
    """
    wanted = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    if claimed.dtype != torch.int64 or claimed.shape != (*wanted, left.shape[-2], right.shape[-1]):
        return False
    columns = _columns(right.shape[-1], prg, soundness_bits, right.device)
    expected = matmul(left, matmul(right, columns))
    return torch.equal(matmul(claimed, columns), expected)


@final
class FixedCheck:
    """Checks many products with one right operand, such as weights, at a lower price (Slalom 2019).

    Guarantee: as `is_product` for each; over q products a lie passes with a probability of at most
    q · 2^-soundness_bits, if whoever computes them learns nothing of the vectors. It learns one
    thing when a check fails; so a check that has failed once refuses everything.
    Cost: one thin product for every check, and one more ahead of all.
    """

    def __init__(self, right: Tensor, *, prg: Prg, soundness_bits: int = SOUNDNESS_BITS) -> None:
        if right.dim() != 2:
            raise DataError(f"wanted a matrix to check with, got shape {tuple(right.shape)}")
        self._columns = _columns(right.shape[1], prg, soundness_bits, right.device)
        self._expected = matmul(right, self._columns)
        self._has_failed = False

    def accepts(self, left: Tensor, claimed: Tensor) -> bool:
        """Tell whether ``claimed`` is left · right."""
        shape = (*left.shape[:-1], self._columns.shape[0])
        is_right = (
            not self._has_failed
            and claimed.dtype == torch.int64
            and claimed.shape == shape
            and torch.equal(matmul(claimed, self._columns), matmul(left, self._expected))
        )
        self._has_failed |= not is_right
        return is_right

    def __repr__(self) -> str:
        return f"FixedCheck(columns={self._columns.shape[1]})"  # never the vectors


def _columns(height: int, prg: Prg, soundness_bits: int, device: torch.device) -> Tensor:
    if soundness_bits < 1:
        raise DataError(f"soundness_bits must be at least 1, got {soundness_bits}")
    return prg.bits((height, soundness_bits), device=device).to(torch.int64)
