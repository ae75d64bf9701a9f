"""How popular the functions of a skewed load are, and what static binding can take of it (5). Pure."""

from __future__ import annotations

from math import inf


def popularity(number: int, exponent: float) -> list[float]:
    """Shares of `number` objects, proportional to k^-exponent, the most popular first; infinite: it alone."""
    if exponent == inf:
        return [1.0] + [0.0] * (number - 1)
    weights = [(k + 1) ** -exponent for k in range(number)]
    total = sum(weights)
    return [weight / total for weight in weights]


def static_limit(number: int, exponent: float) -> float:
    """Mean utilisation of the workers, one per object, at which static binding saturates the hottest one."""
    return 1 / (number * popularity(number, exponent)[0])
