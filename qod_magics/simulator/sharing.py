"""How the task instances of a task manager share its cores: max-min fair, as the operating system does it. Pure."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


def max_min_fair(demand: Array, group: Array, capacity: Array) -> Array:
    """What each of `demand` (seconds) gets of its group's `capacity` (seconds).

    Who wants no more than an even share gets it; what that leaves over is shared evenly among the others, and so on.
    Nobody gets more than it wants, and no group more than it has.
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
