"""Names of version 0.1 that have others now: they warn for one release."""

import warnings
from collections.abc import Callable, Mapping
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def find_renamed(module: Mapping[str, object], new: Mapping[str, str], name: str) -> object:
    """Look up what a module calls by another name now.

    Args:
        module: its globals.
        new: the names of today by those of version 0.1.
        name: what was asked for.

    Raises:
        AttributeError: it never had such a name.
    """
    where = module["__name__"]
    if name not in new:
        raise AttributeError(f"module {where!r} has no attribute {name!r}")
    warn_renamed(f"{where}.{name}", f"{where}.{new[name]}", level=4)
    return module[new[name]]


def keyword_renamed(old: str, new: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function take a keyword argument under its old name."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            if old in kwargs:
                warn_renamed(f"argument {old} of {function.__name__}", new)
                kwargs[new] = kwargs.pop(old)
            return function(*args, **kwargs)

        return call

    return decorate


def warn_renamed(old: str, new: str, *, level: int = 3) -> None:
    """Say that something has another name; ``level`` frames up is who used the old one."""
    text = f"{old} is called {new} now; the old name goes with the next release"
    warnings.warn(text, DeprecationWarning, stacklevel=level)
