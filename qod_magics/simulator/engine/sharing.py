"""CPU sharing between the instances of a task manager: max-min fair, as by the operating system. Pure."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


def max_min_fair(demand: Array, group: Array, capacity: Array) -> Array:
    """The grant for each of `demand` (seconds) from its group's `capacity` (seconds).

    A demand up to an even share is met in full; the rest is shared evenly among the others, and so on. No grant exceeds
    its demand, and no group's grants its capacity.
    """
    total = np.bincount(group, demand, len(capacity))
    tight = total > capacity
    if not tight.any():
        return demand
    grant = demand.copy()
    open_ = tight[group].nonzero()[0]
    left = capacity.copy()
    while open_.size:
        groups = group[open_]
        count = np.bincount(groups, minlength=len(capacity))
        level = left / np.maximum(count, 1)
        wants = demand[open_]
        content = wants <= level[groups]
        if not content.any():
            grant[open_] = level[groups]
            break
        left -= np.bincount(groups[content], wants[content], len(capacity))
        np.maximum(left, 0.0, out=left)
        open_ = open_[~content]
    return grant
