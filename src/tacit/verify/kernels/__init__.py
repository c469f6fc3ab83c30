"""What is compiled. It imports nothing else of this room: its files alone name the cache."""

from tacit.errors import ConfigError

try:
    import numba  # noqa: F401 - every file of this folder needs it
except ModuleNotFoundError as missing:
    raise ConfigError(
        "tacit.verify needs Numba; install it with: pip install 'tacit-ml[verify]'"
    ) from missing
