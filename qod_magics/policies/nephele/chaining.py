"""Dynamic task chaining: which consecutive tasks may share a thread (section 3.5.2). Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import fsum
from typing import TypeVar

T = TypeVar("T")

#: Sums of CPU use that are nearer to the cap than this are at it: 0.35 + 0.05 + 0.15 + 0.35 is 0.9.
SAME_CORES = 1e-9


@dataclass(frozen=True, slots=True)
class TaskFacts:
    """What decides whether a task may be chained."""

    process: str  #: that it is a thread of
    cpu_cores: float | None  #: use of its thread; None: not known yet, and then it is not chained
    incoming: int  #: channels in the whole runtime graph
    outgoing: int
    is_chained: bool = False
    may_chain: bool = True  #: False: annotated, so that its output stays complete for recovery


def longest_chain(tasks: Sequence[T], facts: Callable[[T], TaskFacts], cap_cores: float) -> tuple[T, ...]:
    """The longest run of two or more tasks that can be chained; of equal ones the first; () without any.

    Args:
        tasks: consecutive tasks of a sequence, each joined to the next by a channel.
        facts: of each task.
        cap_cores: the CPU use of a run is less than this in all.

    """
    known = [facts(task) for task in tasks]
    best: tuple[T, ...] = ()
    for first in range(len(tasks)):
        last = _end_of_run(known, first, cap_cores)
        if last - first >= 1 and last - first + 1 > len(best):
            best = tuple(tasks[first : last + 1])
    return best


def _end_of_run(known: Sequence[TaskFacts], first: int, cap_cores: float) -> int:
    """Index of the last task of the longest run from `first`: `first` itself if it cannot even be joined to one."""
    used: list[float] = []
    for i in range(first, len(known)):
        task = known[i]
        joins = i == first or (
            task.process == known[i - 1].process
            and task.incoming == 1  # inner tasks have one channel in and one out (N13)
            and known[i - 1].outgoing == 1
        )
        if task.is_chained or not task.may_chain or task.cpu_cores is None or not joins:
            return i - 1
        used.append(task.cpu_cores)
        if fsum(used) > cap_cores - SAME_CORES:
            return i - 1
    return len(known) - 1
