"""Range checks: a number that is out of range becomes one sentence with name, value, range and remedy."""

from __future__ import annotations

import math

from outpace.errors import UsageError


def fraction(name: str, value: float, remedy: str = "give a share of 1, for example 0.8") -> float:
    """Returns `value`; raises UsageError unless it is in [0, 1]."""
    if not 0.0 <= value <= 1.0:
        raise UsageError(f"{name} must be in [0, 1], got {value}: {remedy}")
    return float(value)


def positive(name: str, value: float, unit: str) -> float:
    """Returns `value`; raises UsageError unless it is finite and above 0."""
    if not (value > 0.0 and math.isfinite(value)):
        raise UsageError(f"{name} must be a positive number of {unit}, got {value}")
    return float(value)


def not_negative(name: str, value: float, unit: str) -> float:
    """Returns `value`; raises UsageError unless it is finite and at least 0."""
    if not (value >= 0.0 and math.isfinite(value)):
        raise UsageError(f"{name} must be 0 or a positive number of {unit}, got {value}")
    return float(value)


def count(name: str, value: int, least: int, unit: str) -> int:
    """Returns `value`; raises UsageError unless it is a whole number of at least `least`."""
    if value != math.floor(value) or value < least:
        raise UsageError(f"{name} must be a whole number of {unit}, {least} or more, got {value}")
    return int(value)
