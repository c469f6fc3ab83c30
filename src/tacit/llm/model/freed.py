"""Memory that was freed and is still ours."""

import ctypes
import sys


def give_back_freed() -> None:
    """Give freed memory back to the system, wherever it lies between what is in use.

    The C library keeps it for the next tensors; behind a large model that was read layer by layer
    it is as much as the model. Where the C library cannot do that, nothing happens.
    """
    if sys.platform.startswith("linux"):
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
