"""Libraries of the extra ``tacit-ml[llm]``, imported when they are needed."""

import importlib
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
