"""Quantiles of Student's t distribution. Pure."""

from __future__ import annotations

from functools import cache
from math import atan, cos, exp, lgamma, log, pi, sqrt
from statistics import NormalDist

#: Steps of Simpson's rule over the density, which is smooth.
STEPS = 200


def normal_quantile(level: float) -> float:
    """Return the z such that a standard normal value lies within -z..z with probability `level`, 0 < level < 1."""
    return NormalDist().inv_cdf((1.0 + level) / 2.0)


@cache
def student_quantile(level: float, degrees: int) -> float:
    """Return the t such that a value of Student's distribution lies within -t..t with probability `level`.

    Args:
        level: 0 < level < 1.
        degrees: degrees of freedom, 1 or more.

    """
    low = high = normal_quantile(level)  # tails are never lighter than the normal ones
    while _within(high, degrees) < level:
        low, high = high, 2.0 * high
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (middle, high) if _within(middle, degrees) < level else (low, middle)
    return (low + high) / 2.0


def _within(t: float, degrees: int) -> float:
    """Return the probability of -t..t: the density's integral over u, where the value is sqrt(degrees) * tan(u), which
    keeps heavy tails within a bounded range."""
    scale = exp(lgamma((degrees + 1) / 2.0) - lgamma(degrees / 2.0) - 0.5 * log(pi))
    end = atan(t / sqrt(degrees))
    heights = [cos(end * i / STEPS) ** (degrees - 1) for i in range(STEPS + 1)]
    total = heights[0] + heights[-1] + 4.0 * sum(heights[1:-1:2]) + 2.0 * sum(heights[2:-1:2])
    return 2.0 * scale * total * end / STEPS / 3.0
