"""The only place that reads environment variables."""

import os
from pathlib import Path

import tacit
from tacit.data import search_path


def data_folders() -> tuple[Path, ...]:
    """List where data sets are looked for: $TACIT_DATA, beside the checkout, the user's cache."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return search_path(
        os.environ.get("TACIT_DATA"), Path(tacit.__file__).parent, Path(home) / "tacit"
    )
