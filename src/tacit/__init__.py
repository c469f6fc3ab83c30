"""tacit: private machine learning between parties that must not show each other their data."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tacit.learn.private import secure

__version__ = "0.2.0.dev0"

__all__ = ["__version__", "secure"]


def __getattr__(name: str) -> object:
    """Load `secure` when it is first used, so that importing tacit stays light."""
    if name == "secure":
        return import_module("tacit.learn.private").secure
    raise AttributeError(f"module 'tacit' has no attribute {name!r}")
