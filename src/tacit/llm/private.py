"""The old name of `tacit.llm.permuted`; it goes with the next release."""

import warnings

from tacit.llm.permuted import *  # noqa: F403 - every public name, as before
from tacit.llm.permuted import __all__ as __all__

warnings.warn(
    "tacit.llm.private is called tacit.llm.permuted now; the old name goes with the next release",
    DeprecationWarning,
    stacklevel=2,
)
