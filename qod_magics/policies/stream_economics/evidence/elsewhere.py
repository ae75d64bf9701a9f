"""Bottlenecks other than CPU: a backlog that does not fall where plans see idle cores. Pure.

A sink, a web service that a recipe asks, the network, garbage collection: batches wait for them, CPU stays idle, and
costs in CPU never explain the backlog. What explains it is the *true processing rate* (DS2): rows per second of the
time in which tasks of a batch run. Where the backlog of a query does not fall for three cycles, its batches run all the
time, its cores are idle, and at that rate its batches can't carry its input, its accuracy is limited to what they can.

A batch has a fixed time and a time for each row, told apart by the same fit as for CPU. Batches that are long because
of their fixed time carry any input, and nothing is limited.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from qod_magics.core.dag import Topology
from qod_magics.core.load import load_of
from qod_magics.core.snapshot import Instance, Snapshot, Task, is_down, replace
from qod_magics.policies.stream_economics.evidence.limits import REST_S, SCARCE, WAITING_S
from qod_magics.policies.stream_economics.requirements import FULL_CORE, full_rates

#: Cycles in a row with such a backlog that correct the belief in idle CPU; and calm ones that restore it.
CYCLES, CALM_CYCLES = 3, 4
#: From this share of the time on, batches run one after the other.
BUSY = 0.8
#: Rows that take more than the first share of the time can't be carried, however long batches are; estimates are off by
#: less than the excess. Below the second they can.
TOO_MUCH, CARRIED = 1.12, 0.97
#: Share of the time that rows may take: with hardly a backlog, and while one is drained.
FILLED, DRAINED = 0.9, 0.75
#: Batches back to back fill all the time, however cheap a row is, so their times hardly show that rows have become
#: cheaper. So accuracy is probed: with hardly a backlog it rises by `UP` in the first cycle and by up to `FAST` times
#: that later; with a backlog it is multiplied by `DOWN`.
UP, FAST, DOWN = 0.02, 6, 0.8
#: Batches are assumed to be this long at least, seconds, and so long that their fixed time takes this share of it.
SHORTEST_S, FIXED_SHARE = 2.0, 0.15


@dataclass(frozen=True, slots=True)
class Slow:
    """What is known of one task's batches."""

    stays: int = 0  #: cycles in a row with a backlog that its batches can't reduce, and idle CPU
    over: float = 1.0  #: accuracy that is tried / accuracy that its batches carry, by their times
    rises: int = 0  #: cycles in a row in which that grew
    limited: bool = False  #: whether its accuracy is limited
    calm: int = 0  #: cycles in a row in which its batches seem to carry all of its input


Slows = Mapping[str, Slow]  #: by task


def limited(memory: Slows | None) -> frozenset[str]:
    """Return the tasks whose accuracy is limited, by what `limited_elsewhere` remembers."""
    return frozenset(task for task, slow in (memory or {}).items() if slow.limited)


def limited_elsewhere(
    snapshot: Snapshot,
    waiting: Mapping[str, float],
    proved: Mapping[str, bool],
    memory: Slows | None,
) -> tuple[Snapshot, Slows]:
    """Return a snapshot with `keeps_up` in the tasks that something other than CPU limits, and the memory.

    Args:
        snapshot: with learned costs and times.
        waiting: backlog by task, seconds of input.
        proved: by task, whether it has run for a while: times of a query that warms up say nothing.
        memory: what the last call returned.

    """
    before = memory or {}
    if all(task.work_time_us is None for task in snapshot.tasks):
        return snapshot, {}
    topology = Topology.of(snapshot.tasks)
    rates = full_rates(snapshot, topology, load_of(snapshot, topology))
    hosted: dict[str, list[Instance]] = {task.id: [] for task in snapshot.tasks}
    for instance in snapshot.instances:
        hosted[instance.task].append(instance)
    idle = {m.id for m in snapshot.task_managers if m.cpu < SCARCE * FULL_CORE * m.cores}
    found: dict[str, Slow] = {}
    tasks = list(snapshot.tasks)
    for t, task in enumerate(snapshot.tasks):
        here, rate = hosted[task.id], rates[t]
        if task.work_time_us is None or rate is None or not here or not proved.get(task.id):
            continue
        times = _Times.of(task, rate / len(here))
        waits = _waits(task, here, idle) and times.rows > TOO_MUCH
        found[task.id] = slow = _after(before.get(task.id, Slow()), waiting[task.id], waits, times)
        if slow.limited and (carried := slow.over * times.carried(_share(waiting[task.id]))) < 1.0:
            tasks[t] = replace(task, keeps_up=max(carried, 0.0))
    return replace(snapshot, tasks=tuple(tasks)), found


@dataclass(frozen=True, slots=True)
class _Times:
    """Shares of an instance's time that its batches take: without rows, and for rows at accuracy 1."""

    fixed: float
    read: float  #: for rows that are read whatever the accuracy
    work: float

    @classmethod
    def of(cls, task: Task, rate: float) -> _Times:
        """Return those of a task whose instances get this rate at full accuracy, rows/s."""
        batch_s = task.batch_time_s or 0.0
        read, work = (1e-6 * rate * (us or 0.0) for us in (task.read_time_us, task.work_time_us))
        fixed = batch_s / max(SHORTEST_S, batch_s / FIXED_SHARE)
        return cls(fixed, 0.0, read + work) if task.upstream else cls(fixed, read, work)

    @property
    def rows(self) -> float:
        """For all rows at accuracy 1."""
        return self.read + self.work

    def carried(self, share: float) -> float:
        """Return the accuracy at which they take this share; above 1: they never do."""
        return (share - self.fixed - self.read) / self.work if self.work > 0.0 else 1.0


def _waits(task: Task, instances: Sequence[Instance], idle: set[str]) -> bool:
    """Return whether all instances run batch after batch, and leave CPU idle."""
    usable = FULL_CORE * (task.concurrency or 1.0)
    return all(
        not is_down(each)
        and not each.warming_up
        and (each.at_work or 0.0) >= BUSY
        and each.task_manager in idle
        and each.cpu < SCARCE * usable
        for each in instances
    )


def _after(before: Slow, waiting_s: float, waits: bool, times: _Times) -> Slow:
    """Return the state one cycle later. Within a long batch the backlog rises, and falls at its end: that it does not
    fall in the long run is what the times of batches say."""
    stays = before.stays + 1 if waits and waiting_s > WAITING_S else 0
    carries = before.over * times.carried(FILLED) >= 1.0 or times.rows < CARRIED
    calm = before.calm + 1 if carries and waiting_s <= WAITING_S else 0
    if not (before.limited or stays >= CYCLES) or calm >= CALM_CYCLES:
        return Slow(stays, calm=calm)
    over, rises = before.over, 0
    if waiting_s <= REST_S:
        rises = before.rises + 1
        over *= 1.0 + UP * min(rises, FAST)
    elif waiting_s > WAITING_S:
        over = max(over * DOWN, 1.0)
    return Slow(stays, over, rises, True, calm)


def _share(waiting_s: float) -> float:
    return FILLED if waiting_s <= WAITING_S else DRAINED
