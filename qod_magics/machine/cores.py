"""The machine's cores and their assignment to task managers."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection
from math import ceil

from qod_magics.errors import UsageProblem
from qod_magics.machine.core_claims import claimed
from qod_magics.machine.quota import cpu_quota


def can_pin() -> bool:
    """Whether this system can pin processes to cores. Linux can."""
    return hasattr(os, "sched_setaffinity")


def every_core() -> list[int]:
    """The numbers of the cores that this process may use."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def usable_cores() -> list[int]:
    """The cores covered by a container's quota, rounded up: with 1.5 CPUs, two."""
    quota = cpu_quota()
    return every_core() if quota is None else every_core()[: max(ceil(quota), 1)]


def is_limited() -> bool:
    """Whether a quota allows fewer CPUs than there are cores.

    It limits CPU on whichever core: pinned to some, a process would share them with those of other containers that
    chose alike, while other cores are idle.
    """
    return len(usable_cores()) < len(every_core())


def planned_cpus(cores: int) -> float:
    """The CPU capacity of this number of cores, in cores: less than their number under a quota."""
    quota = cpu_quota()
    return float(cores) if quota is None else min(cores * quota / max(ceil(quota), 1), quota)


def core_sets(count: int, cores: int | None) -> list[frozenset[int] | None]:
    """The cores of each of `count` local task managers: disjoint while the machine has enough, else shared; those that
    another session holds last."""
    every = _unclaimed_first()
    if cores is not None and cores < 1:
        raise UsageProblem(f"a task manager needs 1 core or more, not {cores}")
    if count == 0:
        return []
    each = cores or max(len(every) // count, 1)
    if each > len(every):
        raise UsageProblem(f"{each} cores for each task manager, but {_has(every)}: take fewer")
    return [frozenset(every[(i * each + j) % len(every)] for j in range(each)) for i in range(count)]


def _unclaimed_first() -> list[int]:
    usable = usable_cores()
    held = claimed(usable)
    return sorted(usable, key=lambda cpu: cpu in held)


def check_cores(cpus: Collection[int] | None) -> None:
    """Raise UsageProblem for cores that this machine lacks, and for none."""
    every = every_core()
    wrong = sorted(set(cpus or ()) - set(every))
    if wrong or (cpus is not None and not cpus):
        named = ", ".join(map(str, wrong)) or "none"
        raise UsageProblem(f"cores {named}: this machine has {', '.join(map(str, every))}")


def free_cores(cores: int | None, taken: Collection[int]) -> frozenset[int] | None:
    """`cores` cores for one more task manager, those `taken` or held by another session last, and among these the ones
    `taken` most often; None: all free ones, at least one.

    Raises UsageProblem when the machine has fewer cores.
    """
    every = usable_cores()
    if cores is not None and not 1 <= cores <= len(every):
        raise UsageProblem(f"a task manager of {cores} cores: {_has(every)}, take 1 or more of them")
    shares = Counter(taken)
    held = claimed(every) | shares.keys()
    free = [cpu for cpu in every if cpu not in held]
    shared = sorted((cpu for cpu in reversed(every) if cpu in held), key=lambda cpu: max(shares[cpu], 1))
    return frozenset((free + shared)[: cores or max(len(free), 1)])


def _has(usable: Collection[int]) -> str:
    """The number of cores, and how many of them a quota leaves, as a clause."""
    every = len(every_core())
    return f"this machine has {every}" + (f", and its quota allows {len(usable)}" if len(usable) < every else "")
