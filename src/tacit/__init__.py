"""tacit: private machine learning between parties that must not show each other their data."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tacit import audit, dp, federated, learners, llm, split, text, verify
    from tacit.cli.launch.connect import connect
    from tacit.inference.secure import secure
    from tacit.training.front import train

__version__ = "0.3.0.dev0"

__all__ = [
    "__version__",
    "audit",
    "connect",
    "dp",
    "federated",
    "learners",
    "llm",
    "secure",
    "split",
    "text",
    "train",
    "verify",
]

_FROM = {
    "connect": "tacit.cli.launch.connect",
    "secure": "tacit.inference",
    "train": "tacit.training.front",
}


def __getattr__(name: str) -> object:
    """Load what is named when it is first used, so that importing tacit stays light."""
    if name not in __all__:
        raise AttributeError(f"module 'tacit' has no attribute {name!r}")
    if name not in _FROM:
        return import_module(f"tacit.{name}")
    return getattr(import_module(_FROM[name]), name)


def __dir__() -> list[str]:
    return sorted({*(name for name in globals() if name.startswith("__")), *__all__})
