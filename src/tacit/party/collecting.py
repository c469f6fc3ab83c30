"""Pausing Python's cyclic collector where it would only walk what stays."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collections() -> Iterator[None]:
    """Collect no cycles meanwhile.

    For work that makes very many small objects, which reference counts free, beside many that
    stay, such as plans: the collector walked those again and again, a tenth of all time. Of two
    threads the first one to come switches it on again when it goes.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
