"""Signed fixed point: reals as integers modulo 2^64 with a chosen number of fraction bits."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt
import torch
from annotated_types import Ge, Le
from torch import Tensor

from tacit.errors import DataError, RangeError

Real = float | int | npt.NDArray[np.generic] | Tensor
"""What `encode` takes: a number, or an array or tensor of floats or integers."""

MAX_FRAC_BITS = 62
FracBits = Annotated[int, Ge(1), Le(MAX_FRAC_BITS)]


@dataclass(frozen=True, kw_only=True)
class FixedPoint:
    """[ring]: how numbers are written as integers.

    Attributes:
        frac_bits: binary digits behind the point. More are more exact and leave less room for large
            numbers; a job that could overflow is refused.
    """

    frac_bits: FracBits = 16


def encode(values: Real, *, frac_bits: int, device: torch.device | str | None = None) -> Tensor:
    """Encode real numbers as ring words, round(value · 2^frac_bits), ties to even.

    Floats are scaled in double precision, where multiplying by a power of two is exact; integers
    never pass through a float. Without `device` the words stay where the values are.

    Raises:
        RangeError: a value is not a number or not below 2^(63 − frac_bits) in magnitude. The
            message counts such values and does not show them: they may be secret.
    """
    _check_frac_bits(frac_bits)
    source = _as_tensor(values).to(device).detach()
    if source.is_complex():
        raise DataError(f"values to encode must be real, got dtype {source.dtype}")
    if source.dtype.is_floating_point:
        return _encode_floats(source.to(torch.float64), frac_bits)
    return _encode_integers(source, frac_bits)


def decode(words: Tensor, *, frac_bits: int) -> Tensor:
    """Decode ring words to the doubles nearest to word / 2^frac_bits.

    Exact for words below 2^53 in magnitude; beyond, the result is correctly rounded.
    """
    _check_frac_bits(frac_bits)
    if words.dtype != torch.int64:
        raise DataError(f"ring words must be int64, got dtype {words.dtype}")
    return words.to(torch.float64).mul_(2.0**-frac_bits)


def _as_tensor(values: Real) -> Tensor:
    if isinstance(values, Tensor):
        return values
    # Not torch.as_tensor: it takes a Python float for single precision, and warns of read-only
    # arrays.
    return torch.from_numpy(np.require(values, requirements=["C", "W"]))


def _encode_floats(source: Tensor, frac_bits: int) -> Tensor:
    scaled = source * 2.0**frac_bits
    if scaled.numel() > 0:
        low, high = torch.aminmax(scaled)  # NaN reaches both and fails the comparison
        if not (low.item() > -(2.0**63) and high.item() < 2.0**63):
            _refuse(int((~(scaled.abs() < 2.0**63)).sum()), source.numel(), frac_bits)
    return scaled.round_().to(torch.int64)


def _encode_integers(source: Tensor, frac_bits: int) -> Tensor:
    if source.dtype == torch.uint64:
        raise DataError("values to encode must be signed: uint64 has no room for a sign, use int64")
    words = source.to(torch.int64)
    limit = 1 << (63 - frac_bits)
    bad = (words <= -limit) | (words >= limit) if frac_bits else words == -limit
    if bool(bad.any()):
        _refuse(int(bad.sum()), source.numel(), frac_bits)
    return words << frac_bits


def _refuse(bad: int, total: int, frac_bits: int) -> None:
    raise RangeError(
        f"values must be finite and below 2^{63 - frac_bits} in magnitude to be encoded with "
        f"{frac_bits} fraction bits, but {bad} of {total} are not; scale the values down or use "
        f"fewer fraction bits"
    )


def _check_frac_bits(frac_bits: int) -> None:
    if not 0 <= frac_bits <= MAX_FRAC_BITS:
        raise RangeError(f"frac_bits must be between 0 and {MAX_FRAC_BITS}, got {frac_bits}")
