"""Checks of the numbers that a privacy statement is made of."""

import math

from tacit.errors import ConfigError


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


def target_delta(value: float) -> float:
    """Return `value` if it can be the δ of a claim: above 0 and below 1."""
    if not 0 < value < 1:
        raise ConfigError(f"delta must be above 0 and below 1, got {value}")
    return value
