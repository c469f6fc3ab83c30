"""Checks of the numbers that a privacy statement is made of."""

import math

from tacit.errors import ConfigError

_SMALL = 0.1  # the largest δ · n without a warning


def positive(name: str, value: float) -> float:
    """Return `value` if it is a finite number above zero, or say what came instead."""
    if not (math.isfinite(value) and value > 0):
        raise ConfigError(f"{name} must be a finite number above 0, got {value}")
    return value


def budget(name: str, value: float) -> float:
    """Return `value` if it is an ε that means anything: above 0 and at most 200."""
    if positive(name, value) > 200:
        raise ConfigError(f"{name} = {value} protects nothing; it must be at most 200")
    return value


def at_least_one(name: str, value: int) -> int:
    """Return `value` if it is a whole number of at least one."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"{name} must be a whole number of at least 1, got {value!r}")
    return value


def probability(name: str, value: float) -> float:
    """Return `value` if it lies in (0, 1]."""
    if not 0 < value <= 1:  # False for NaN as well
        raise ConfigError(f"{name} must be above 0 and at most 1, got {value}")
    return value


def delta_among(delta: float, count: int, unit: str) -> str | None:
    """Hold a δ against how many it is about; return a warning where δ · n is no small chance.

    A mechanism that shows all data of one unit, chosen at random, with probability n · δ in a run
    is (0, δ)-private: from δ = 1/n on, no ε says anything.

    Raises:
        ConfigError: δ is 1/n or more.
    """
    if at_least_one(f"the number of {unit}s", count) * target_delta(delta) >= 1:
        raise ConfigError(
            f"δ = {delta:g} is 1/n or more for n = {count} {unit}s: to show one of them whole in "
            f"every run would keep such a claim; wanted less than {1 / count:.3g}, better "
            f"{_few(count)} or less"
        )
    if count * delta <= _SMALL * (1 + 1e-9):
        return None
    return (
        f"δ = {delta:g} is near 1/n for n = {count} {unit}s: to show one of them whole in "
        f"{count * delta:.0%} of all runs would keep this claim; {_few(count)} or less is usual"
    )


def target_delta(value: float) -> float:
    """Return `value` if it can be the δ of a claim: above 0 and below 1."""
    if not 0 < value < 1:
        raise ConfigError(f"delta must be above 0 and below 1, got {value}")
    return value


def _few(count: int) -> str:
    return f"{_SMALL / count:.3g}"
