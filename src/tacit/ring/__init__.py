"""Integers modulo 2^64 on torch, fixed point, exact products, bits, and secret randomness.

A ring word is an int64 and a ring array a plain torch tensor of them: torch's `+`, `-` and `*` wrap
modulo 2^64. What torch lacks is here.
"""

from tacit.ring.bits import (
    from_planes,
    less_unsigned,
    pack_bits,
    parity,
    popcount,
    shift_right,
    to_planes,
    unpack_bits,
)
from tacit.ring.check import SOUNDNESS_BITS, FixedCheck, is_product
from tacit.ring.convolution import conv1d, conv2d
from tacit.ring.device import check_device
from tacit.ring.fixed import MAX_FRAC_BITS, FixedPoint, FracBits, decode, encode
from tacit.ring.narrow import (
    PANEL_BYTES,
    encode_narrow,
    multiply_panels,
    narrowed,
    panel_rows,
)
from tacit.ring.prg import KEY_BYTES, Prg
from tacit.ring.product import Factor, accumulate, matmul, prepare
from tacit.ring.sampling import discrete_gaussian, discrete_laplace
from tacit.ring.wire import WIRE_DTYPES, from_bytes, to_bytes, wire_dtype

__all__ = [
    "KEY_BYTES",
    "MAX_FRAC_BITS",
    "PANEL_BYTES",
    "SOUNDNESS_BITS",
    "WIRE_DTYPES",
    "Factor",
    "FixedCheck",
    "FixedPoint",
    "FracBits",
    "Prg",
    "accumulate",
    "check_device",
    "conv1d",
    "conv2d",
    "decode",
    "discrete_gaussian",
    "discrete_laplace",
    "encode",
    "encode_narrow",
    "from_bytes",
    "from_planes",
    "is_product",
    "less_unsigned",
    "matmul",
    "multiply_panels",
    "narrowed",
    "pack_bits",
    "panel_rows",
    "parity",
    "popcount",
    "prepare",
    "shift_right",
    "to_bytes",
    "to_planes",
    "unpack_bits",
    "wire_dtype",
]
