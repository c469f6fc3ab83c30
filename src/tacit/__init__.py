"""tacit: private machine learning between parties that must not show each other their data."""

__version__ = "0.1.0"

__all__ = ["__version__"]
