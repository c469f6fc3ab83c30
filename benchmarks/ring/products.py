"""The ring: exact products against torch's own, the generator against the bare cipher, noise.

On CUDA the products are measured against the fp16 product of the same shape, which is what the
plaintext model would pay, and every kernel at the shapes where `tacit.ring` changes between them.
"""

import os
import time
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import torch
from bench import Case, InlinePeer
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from tacit.ring import (
    Factor,
    Prg,
    decode,
    discrete_gaussian,
    encode,
    from_planes,
    matmul,
    prepare,
    to_planes,
)
from tacit.ring.fused import is_available
from tacit.ring.product import Kernel, multiply_with

MIB = 1 << 20
CHUNK = 1 << 18
SMALL_WEIGHT = 1 << 14  # two digits: a weight below 4 with 12 fraction bits


def cases(quick: bool) -> list[Case]:
    """List what is measured; `quick` leaves out the large sizes."""
    found = [*_product_cases(quick), *_generator_cases(quick), *_other_cases(quick)]
    if torch.cuda.is_available():
        found += [*_cuda_product_cases(quick), *_cuda_vector_cases(), *_cuda_kernel_cases(quick)]
    return found


def _product_cases(quick: bool) -> list[Case]:
    prg = Prg.from_os()
    result = []
    for size in (256, 512, 1024) if quick else (256, 512, 1024, 2048):
        a, b = prg.words((size, size)), prg.words((size, size))
        result.append(
            Case(
                name=f"matmul {size}³",
                metric="time",
                unit="ms",
                ours=_bind(_milliseconds, matmul, a, b),
                peers=(InlinePeer("torch int64", _bind(_milliseconds, torch.matmul, a, b)),),
                goal=1.3 if size == 1024 else None,
            )
        )
    row, weights = prg.words((1, 2048)), prg.words((2048, 2048)).t()
    result.append(
        Case(
            name="matmul 1×2048 · 2048²ᵀ",
            metric="time",
            unit="ms",
            ours=_bind(_milliseconds, matmul, row, weights),
            peers=(InlinePeer("torch int64", _bind(_milliseconds, torch.matmul, row, weights)),),
        )
    )
    return result


def _generator_cases(quick: bool) -> list[Case]:
    prg = Prg.from_os()
    cipher = Cipher(algorithms.AES(os.urandom(16)), modes.CTR(bytes(16))).encryptor()
    kept = torch.empty(64 * MIB // 8, dtype=torch.int64)
    zeros = bytes(CHUNK)

    def encrypt() -> None:
        view = kept.numpy().data.cast("B")
        for start in range(0, len(view), CHUNK):
            cipher.update_into(zeros, view[start : start + CHUNK])

    result = [
        Case(
            name=f"prg words {size} MiB, fresh memory",
            metric="rate on one core",
            unit="GB/s",
            ours=_bind(_gigabytes, size * MIB, prg.words, size * MIB // 8),
            # Of larger draws the system's clearing of fresh pages takes the greater part.
            goal=4.0 if size == 8 else None,
            higher_is_better=True,
        )
        for size in ((8, 64) if quick else (8, 64, 512))
    ]
    result.append(
        Case(
            name="prg fill 64 MiB",
            metric="rate on one core",
            unit="GB/s",
            ours=_bind(_gigabytes, 64 * MIB, prg.fill, kept),
            peers=(InlinePeer("bare AES-CTR", _bind(_gigabytes, 64 * MIB, encrypt)),),
            higher_is_better=True,
        )
    )
    result.append(
        Case(
            name="prg 4 words",
            metric="time",
            unit="us",
            ours=lambda: 1e3 * _milliseconds(_repeat, prg.words, 4) / REPEATS,
        )
    )
    result.append(
        Case(
            name="prg fork",
            metric="time",
            unit="us",
            ours=lambda: 1e3 * _milliseconds(_repeat, prg.fork, "label") / REPEATS,
        )
    )
    return result


def _other_cases(quick: bool) -> list[Case]:
    prg = Prg.from_os()
    count = 10**5 if quick else 10**6
    words = prg.words(count)
    values = decode(words, frac_bits=62)
    numbers = np.random.default_rng()
    planes = to_planes(words)
    sigma2 = Fraction(100)
    return [
        _rate(f"encode {count}", "M values/s", count, lambda: encode(values, frac_bits=16)),
        _rate(f"decode {count}", "M values/s", count, lambda: decode(words, frac_bits=16)),
        _rate(f"to planes {count}", "M words/s", count, lambda: to_planes(words)),
        _rate(f"from planes {count}", "M words/s", count, lambda: from_planes(planes, count)),
        _rate(
            f"discrete gaussian σ=10, {count}",
            "M samples/s",
            count,
            lambda: discrete_gaussian(prg, count, sigma2=sigma2),
        ),
        Case(
            name=f"permutation {count}",
            metric="time",
            unit="ms",
            ours=_bind(_milliseconds, prg.permutation, count),
            peers=(
                InlinePeer(
                    "numpy, not for secrets", _bind(_milliseconds, numbers.permutation, count)
                ),
            ),
        ),
    ]


def _cuda_product_cases(quick: bool) -> list[Case]:
    prg = Prg.from_os()
    result = []
    for size in (1024,) if quick else (1024, 4096):
        a = prg.words((size, size), device="cuda")
        weights = _small_weights(prg, size, size)
        for name, right in (("words", a), ("prepared weights", prepare(weights))):
            result.append(
                Case(
                    name=f"cuda matmul {size}³, {name}",
                    metric="time",
                    unit="ms",
                    ours=_bind(_cuda_milliseconds, matmul, a, right),
                    peers=(_half_peer(size, size, size),),
                )
            )
    return result


def _cuda_vector_cases() -> list[Case]:
    """Measure one row against the four matrices' typical shape of a layer of a 6B model."""
    prg = Prg.from_os()
    result = []
    for k, n in ((4096, 4096), (4096, 16384)):
        row = prg.words((1, k), device="cuda")
        factor = prepare(_small_weights(prg, k, n))
        kernels: tuple[Kernel, ...] = ("fused", "stacked") if is_available() else ("stacked",)
        for kernel in kernels:
            result.append(
                Case(
                    name=f"cuda 1×{k} · {k}×{n}, prepared, {kernel}",
                    metric="time",
                    unit="ms",
                    ours=_bind(_cuda_milliseconds, multiply_with, kernel, row, factor),
                    peers=(_half_peer(1, k, n),),
                )
            )
    return result


def _cuda_kernel_cases(quick: bool) -> list[Case]:
    """Measure every kernel around the sizes at which `tacit.ring.product.choose` changes."""
    prg = Prg.from_os()
    result = []
    for size in (256, 512, 1024) if quick else (128, 256, 512, 1024, 2048):
        a, b = prg.words((size, size), device="cuda"), prg.words((size, size), device="cuda")
        result += [_kernel_case(kernel, a, b, "words") for kernel in ("int8", "float64")]
    factor = prepare(_small_weights(prg, 4096, 4096))
    for rows in (1, 8, 16, 32, 64):
        left = prg.words((rows, 4096), device="cuda")
        kernels: list[Kernel] = ["int8", "stacked"]
        if rows <= 16 and is_available():
            kernels.append("fused")
        result += [_kernel_case(kernel, left, factor, "prepared") for kernel in kernels]
    return result


def _kernel_case(
    kernel: Kernel, left: torch.Tensor, right: torch.Tensor | Factor, kind: str
) -> Case:
    m, k = left.shape
    return Case(
        name=f"cuda kernel {kernel}, {m}×{k} · {k}×{right.shape[1]}, {kind}",
        metric="time",
        unit="ms",
        ours=_bind(_cuda_milliseconds, multiply_with, kernel, left, right),
    )


def _small_weights(prg: Prg, k: int, n: int) -> torch.Tensor:
    return prg.below(2 * SMALL_WEIGHT, (k, n), device="cuda") - SMALL_WEIGHT


def _half_peer(m: int, k: int, n: int) -> InlinePeer:
    a = torch.randn((m, k), dtype=torch.float16, device="cuda")
    b = torch.randn((k, n), dtype=torch.float16, device="cuda")
    return InlinePeer("plaintext fp16", _bind(_cuda_milliseconds, torch.matmul, a, b))


def _rate(name: str, unit: str, count: int, work: Callable[[], object]) -> Case:
    return Case(
        name=name,
        metric="rate on one core",
        unit=unit,
        ours=lambda: count / (1e3 * _milliseconds(work)),
        higher_is_better=True,
    )


REPEATS = 2000


def _repeat(work: Callable[..., object], *arguments: object) -> None:
    for _ in range(REPEATS):
        work(*arguments)


def _gigabytes(count: int, work: Callable[..., object], *arguments: object) -> float:
    return count / (1e6 * _milliseconds(work, *arguments))


def _milliseconds(work: Callable[..., object], *arguments: object) -> float:
    """Time one call on one core."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    start = time.perf_counter()
    work(*arguments)
    elapsed = time.perf_counter() - start
    torch.set_num_threads(threads)
    return 1e3 * elapsed


def _cuda_milliseconds(work: Callable[..., object], *arguments: object) -> float:
    """Time a run of calls with events, so that launches overlap as they do in a model."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    work(*arguments)  # compiles, and fills the allocator's cache
    start.record()
    for _ in range(20):
        work(*arguments)
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) / 20


def _bind(measure: Callable[..., float], *arguments: object) -> Callable[[], float]:
    return lambda: measure(*arguments)
