"""The one way in which kernels are compiled, and what is said when Numba is not installed."""

from collections.abc import Callable
from typing import Any, TypeVar

from tacit.errors import ConfigError

try:
    import numba
except ModuleNotFoundError as missing:
    raise ConfigError(
        "tacit.verify needs Numba; install it with: pip install 'tacit[verify]'"
    ) from missing

F = TypeVar("F", bound=Callable[..., object])


def compiled(function: F) -> F:
    """Compile a function to machine code on first use and keep it on disk.

    The kernel releases the interpreter lock, so samples can be verified on several threads.
    Floating-point operations are neither reordered nor fused: predictions must be bit-equal.
    """
    # Any: the compiled function is called exactly like the one it was made from.
    kernel: Any = numba.njit(cache=True, nogil=True, fastmath=False)(function)
    return kernel  # type: ignore[no-any-return]
