"""How this process treats memory that it has freed."""

import ctypes
import sys

# Numbers of the GNU C library's `mallopt`.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_LARGEST = 256 << 20
_KEPT = 1 << 30


def keep_freed_memory() -> None:
    """Keep up to a gigabyte of freed memory for the next tensors.

    By default the C library gives large blocks back at once, and a product of a million secrets
    spent a third of its time on getting fresh pages from the system. Blocks above 256 MB still come
    and go by themselves. Where the C library has no such setting, nothing happens.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # another C library
        return
    mallopt(_MMAP_THRESHOLD, _LARGEST)
    mallopt(_TRIM_THRESHOLD, _KEPT)
