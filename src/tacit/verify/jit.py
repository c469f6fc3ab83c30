"""The one way in which kernels are compiled, and what is said when Numba is not installed."""

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from tacit.errors import ConfigError

try:
    import numba
except ModuleNotFoundError as missing:
    raise ConfigError(
        "tacit.verify needs Numba; install it with: pip install 'tacit-ml[verify]'"
    ) from missing

F = TypeVar("F", bound=Callable[..., object])

# Any: only kernels call it. A name, not an address, so that kernels can be kept on disk.
external_clock: Any = numba.types.ExternalFunction(
    "clock_gettime", numba.types.int32(numba.types.int32, numba.types.voidptr)
)


def compiled(function: F) -> F:
    """Compile a function to machine code on first use and keep it on disk.

    The kernel releases the interpreter lock, so samples can be verified on several threads.
    Floating-point operations are neither reordered nor fused: predictions must be bit-equal.
    """
    return _compile(function)


def bare(function: F) -> F:
    """Compile a function that allocates nothing, without counting who holds its arrays.

    Counting takes longer than some kernels: each array of each tuple is counted at every call. The
    caller holds the arrays for as long as the kernel runs.
    """
    return _compile(function, _nrt=False)


def inlined(function: F) -> F:
    """Make a function part of every kernel that calls it: for what is called for each leaf."""
    # Any: as below. Nothing is kept on disk but the kernels that it is part of.
    kernel: Any = numba.njit(nogil=True, fastmath=False, inline="always")(function)
    return kernel  # type: ignore[no-any-return]


def _compile(function: F, **options: bool) -> F:
    # Any: Numba's types do not know all options.
    make: Any = numba.njit(nogil=True, fastmath=False, **options)  # type: ignore[call-overload]
    # Any: the compiled function is called exactly like the one it was made from.
    kernel: Any = make(function)
    kernel.enable_caching()
    try:
        index = kernel._cache._cache_file
        # Numba notices only changes of the file a kernel stands in, but machine code holds the
        # kernels it calls, from other files: an old one would go on proving what it proved.
        index._source_stamp = (index._source_stamp, digest_sources())
    except AttributeError:  # another version of Numba keeps its stamp elsewhere
        kernel = make(function)
    return kernel  # type: ignore[no-any-return]


@cache
def digest_sources() -> str:
    """Digest every file of this room, so that a change in any of them is noticed."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
