"""Texts that are read in parts: between two of them whoever waits for the answer may leave."""

from collections.abc import Callable, Sequence

Between = Callable[[], None]
"""Called between two parts of a prompt; what it raises ends the answer there."""


def no_word() -> None:
    """Let reading go on."""


def common(first: Sequence[int], second: Sequence[int]) -> int:
    """Return how many tokens two texts begin with alike."""
    pairs = zip(first, second, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))
