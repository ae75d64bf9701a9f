"""Numbers of instances: of a congested operator that gets more, and of an idle one that gives some back. Pure.

Values are rounded to 9 decimals before `ceil` and `floor`: in binary, (0.45 - 0.3) / 0.3 * 10 exceeds 5.
"""

from __future__ import annotations

from math import ceil, floor

from qod_magics.policies.henge.parameters import Parameters

DECIMALS = 9


def added(busy: float, parameters: Parameters) -> int:
    """Instances to add to an operator with this busy fraction (equation 9); 0 unless it is congested (equation 8)."""
    if not busy > parameters.cap_thr:
        return 0
    excess = round((busy - parameters.cap_thr) / parameters.cap_thr * parameters.mult, DECIMALS)
    return max(1, min(parameters.max_extra, ceil(excess)))


def grown(instances: int, busy: float, most: int, parameters: Parameters) -> int:
    """The new number of instances, at most `most`; never fewer than there are."""
    return max(instances, min(most, instances + added(busy, parameters)))


def reduced(instances: int, parameters: Parameters) -> int:
    """Instances that a reduction leaves, 1 or more."""
    return max(1, floor(round(parameters.keep * instances, DECIMALS)))
