"""How this process treats memory that it has freed."""

import ctypes
import sys

# Numbers of the GNU C library's `mallopt`.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_LARGEST, _CHAT_LARGEST = 256 << 20, 16 << 20
_KEPT, _CHAT_KEPT = 1 << 30, 128 << 20


def keep_freed_memory() -> None:
    """Keep up to a gigabyte of freed memory for the next tensors.

    By default the C library gives large blocks back at once, and a product of a million secrets
    spent a third of its time on getting fresh pages from the system. Blocks above 256 MB still come
    and go by themselves. Where the C library has no such setting, nothing happens.
    """
    _set(_LARGEST, _KEPT)


def keep_small_blocks() -> None:
    """Keep less, for a chat: up to 128 MB, of blocks up to 16 MB.

    Weights come in larger blocks, and are kept for long: between them freed ones would be lost.
    """
    _set(_CHAT_LARGEST, _CHAT_KEPT)


def _set(largest: int, kept: int) -> None:
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # another C library
        return
    mallopt(_MMAP_THRESHOLD, largest)
    mallopt(_TRIM_THRESHOLD, kept)
