"""What this machine has for language models: optional libraries, and memory."""

import ctypes
import importlib
import os
import sys
from pathlib import Path
from typing import Any

from tacit.errors import ConfigError


def extra(module: str) -> Any:  # a module of a library without types
    """Import a module of an optional library.

    Raises:
        ConfigError: it is not installed; says how to install it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as missing:
        raise ConfigError(
            f"language models need {missing.name}; install it with: pip install 'tacit-ml[llm]'"
        ) from missing


def free_memory_bytes() -> int:
    """Return how much memory the system can still give, as far as it says."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = next(line for line in lines if line.startswith("MemAvailable:"))
        return int(free.split()[1]) << 10
    except (OSError, StopIteration):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def give_back_freed() -> None:
    """Give freed memory back to the system, wherever it lies between what is in use.

    The C library keeps it for the next tensors; behind a large model that was read layer by layer
    it is as much as the model. Where the C library cannot do that, nothing happens.
    """
    if sys.platform.startswith("linux"):
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
