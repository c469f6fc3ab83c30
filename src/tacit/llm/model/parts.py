"""A long prompt is read in parts, between which whoever waits for the answer may leave."""

from collections.abc import Callable

Between = Callable[[], None]
"""Called between two parts of a prompt; what it raises ends the answer there."""


def no_word() -> None:
    """Let reading go on."""
