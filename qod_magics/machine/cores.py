"""The machine's cores: which there are, and which of them a task manager gets."""

from __future__ import annotations

import os
from collections.abc import Collection

from qod_magics.errors import UsageProblem


def can_pin() -> bool:
    """Whether this system can keep processes on cores. Linux can."""
    return hasattr(os, "sched_setaffinity")


def every_core() -> list[int]:
    """The numbers of the cores that this process may use."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def core_sets(count: int, cores: int | None) -> list[frozenset[int] | None]:
    """The cores of each of `count` local task managers: disjoint while the machine has enough, else shared."""
    every = every_core()
    if cores is not None and cores < 1:
        raise UsageProblem(f"a task manager needs 1 core or more, not {cores}")
    if count == 0:
        return []
    each = cores or max(len(every) // count, 1)
    if each > len(every):
        raise UsageProblem(f"{each} cores for each task manager, but this machine has {len(every)}: take fewer")
    return [frozenset(every[(i * each + j) % len(every)] for j in range(each)) for i in range(count)]


def check_cores(cpus: Collection[int] | None) -> None:
    """Refuse cores that this machine has not, and none at all."""
    every = every_core()
    wrong = sorted(set(cpus or ()) - set(every))
    if wrong or (cpus is not None and not cpus):
        named = ", ".join(map(str, wrong)) or "none"
        raise UsageProblem(f"cores {named}: this machine has {', '.join(map(str, every))}")


def free_cores(cores: int | None, taken: Collection[int]) -> frozenset[int] | None:
    """`cores` cores for one more task manager: those not `taken` first; None, as many as are free, at least one.

    Raises UsageProblem when the machine has fewer cores.
    """
    every = every_core()
    if cores is not None and not 1 <= cores <= len(every):
        raise UsageProblem(f"a task manager of {cores} cores: this machine has {len(every)}, take 1 or more of them")
    free = [cpu for cpu in every if cpu not in taken]
    count = cores or max(len(free), 1)
    return frozenset((free + every[::-1])[:count])
