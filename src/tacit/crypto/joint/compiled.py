"""Loops that are compiled on first use: nobody who does not need them waits for Numba."""

from collections.abc import Callable
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar

from tacit.errors import ConfigError

P = ParamSpec("P")
R = TypeVar("R")


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function to machine code when it is first called, and keep that on disk."""

    @cache
    def kernel() -> Any:  # what Numba makes is called like the function
        try:
            import numba
        except ImportError as missing:
            raise ConfigError(
                "two parties without a dealer need Numba; install it with: "
                "pip install 'tacit-ml[he]'"
            ) from missing
        return numba.njit(cache=True, nogil=True)(function)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        result: R = kernel()(*args, **kwargs)
        return result

    return call
