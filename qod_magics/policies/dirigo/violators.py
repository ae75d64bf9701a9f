"""Which queued messages a worker can't execute in time (2.6; A1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

Item = TypeVar("Item")


def violators(
    queue: Iterable[tuple[int, int, Item]], free_at: int, may_offer: Callable[[Item], bool] = lambda _: True
) -> list[Item]:
    """Those that would be late and may be offered, in order of deadlines.

    `queue`: (deadline, cost, message), first to run first, ns; `free_at`: E. The cost of a violator isn't carried on,
    as it will leave; that of a late message that may not leave is.
    """
    found, end = [], free_at
    for deadline, cost, item in queue:
        if end + cost > deadline and may_offer(item):
            found.append(item)
        else:
            end += cost
    return found


def chunks(found: list[Item], number: int) -> list[list[Item]]:
    """Violators dealt out one by one over a number of lessees, for 2RTT-Parallel. Chunks may be empty."""
    return [found[first::number] for first in range(number)]
