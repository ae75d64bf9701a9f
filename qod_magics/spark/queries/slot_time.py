"""Slot time of batches: how busy a task manager is where its CPU can't be measured, and what batches wait for. Pure.

A batch that runs its tasks asks for slots. Batches that ask for more than there are share them, so what one of them
took follows from when each of them ran. Rows per second of slot time are the *true processing rate* (DS2, Flink's
autoscaler): what a query could carry if it had the slots for itself. CPU time, which the Spark UI tells, leaves out
scheduling, waiting for the driver, garbage collection and the sink, and reads as idle what no row can use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import NamedTuple

from qod_magics.spark.queries.progress import Batch
from qod_magics.spark.servers.cpu import TaskTime

Key = tuple[str, int]  #: run id and batch id

#: Batches that ended longer ago than this and the longest batch have been shared out for good, seconds.
RECENT_S = 90.0
#: A batch under way counts for at most this multiple of the longest one before it: its query may have become idle.
LONGEST = 2.0
#: Latest batches whose mean says where their time goes.
BATCHES_TOLD = 5
#: What takes less than this share of a batch's time is not reported.
TELLING = 0.15
#: A batch shorter than this waits for nothing worth telling, seconds.
SHORT_S = 1.0
#: Tasks that compute for less than this share of the time in which they have a slot wait for something else.
COMPUTING = 0.5


class Work(NamedTuple):
    """The tasks of a batch: from `begin` to `end` (seconds since the epoch) they can use `width` slots at a time.

    Where several share the slots, each gets a part in proportion to its `weight`.
    """

    begin: float
    end: float
    width: float
    weight: float


def slot_seconds(works: Sequence[Work], slots: float) -> list[float]:
    """Return the slot time of each: at any time all of them together get `slots`, and none more than it can use."""
    found = [0.0] * len(works)
    times = sorted({each.begin for each in works} | {each.end for each in works})
    starts = sorted(range(len(works)), key=lambda i: works[i].begin)
    active: list[int] = []
    for begin, end in pairwise(times):
        while starts and works[starts[0]].begin <= begin:
            active.append(starts.pop(0))
        active = [i for i in active if works[i].end > begin]
        for i, share in zip(active, _shares([works[i] for i in active], slots), strict=True):
            found[i] += share * (end - begin)
    return found


def _shares(works: Sequence[Work], slots: float) -> list[float]:
    """Divide the slots by weight; what one can't use goes to the others."""
    shares = [0.0] * len(works)
    left, waiting = slots, list(range(len(works)))
    while waiting and left > 1e-9:
        weights = sum(works[i].weight for i in waiting)
        part = {i: left * (works[i].weight / weights if weights > 0.0 else 1.0 / len(waiting)) for i in waiting}
        full = [i for i in waiting if part[i] >= works[i].width]
        if not full:
            for i in waiting:
                shares[i] = part[i]
            break
        for i in full:
            shares[i] = works[i].width
            left -= works[i].width
        waiting = [i for i in waiting if i not in full]
    return shares


@dataclass(frozen=True, slots=True)
class Run:
    """The micro-batches of one instance, the newest last, and the slots that they can use at a time: those of the tasks
    that read, and at most those of the tasks behind a shuffle, where these are more."""

    batches: Sequence[Batch]
    width: float
    widest: float = 0.0

    def used(self, batch: Batch, known: TaskTime | None) -> float:
        """Return the slots that a batch can use: the most where it is known to have used more than its readers can."""
        lasted_s = batch.end - min(batch.start + batch.planning_s, batch.end)
        wide = known is not None and known.run_s > self.width * lasted_s
        return max(self.width, self.widest) if wide else self.width


def shared_out(runs: Sequence[Run], slots: float, known: Mapping[Key, TaskTime]) -> dict[Key, TaskTime]:
    """Find what the batches of a task manager took of its slots, seconds; their run time is as Spark tells, or that.

    A batch that has not been reported yet counts as one that began after the last one at the usual interval.

    Args:
        runs: of all instances there.
        slots: tasks that it can run at the same time.
        known: by batch, the time of its tasks, where the Spark UI tells it: slots that are shared are divided by it.

    Returns:
        The times by batch, without batches beside which others may have run that are too old: they had theirs before.

    """
    everything = [each for run in runs for each in run.batches]
    newest = max((each.end for each in everything), default=0.0)
    recent_since = newest - RECENT_S - max((each.end - each.start for each in everything), default=0.0)
    keys: list[Key | None] = []
    works: list[Work] = []
    for run in runs:
        recent = [each for each in run.batches if each.end > recent_since]
        for each in recent:
            known_others = each.start >= recent_since  # all that ran beside it
            keys.append((each.run_id, each.batch_id) if known_others else None)
            told = known.get((each.run_id, each.batch_id))
            works.append(_work(each, run.used(each, told), told))
        last = recent[-1] if recent else None
        width = run.width if last is None else run.used(last, known.get((last.run_id, last.batch_id)))
        if (ongoing := _ongoing(recent, width, newest)) is not None:
            keys.append(None)
            works.append(ongoing)
    taken = zip(keys, slot_seconds(works, slots), strict=True)
    return {key: TaskTime(seconds, known[key].run_s if key in known else seconds) for key, seconds in taken if key}


def _work(batch: Batch, width: float, known: TaskTime | None) -> Work:
    begin = min(batch.start + batch.planning_s, batch.end)
    lasted_s = batch.end - begin
    weight = width if known is None or lasted_s <= 0.0 else min(known.run_s / lasted_s, width)
    return Work(begin, batch.end, width, weight)


def _ongoing(batches: Sequence[Batch], width: float, until: float) -> Work | None:
    """Return the batch that has begun since the last one, if they follow each other as they did."""
    if len(batches) < 2:
        return None
    before, last = batches[-2:]
    begin = last.end + max(last.start - before.end, 0.0) + last.planning_s
    longest_s = max(each.end - each.start for each in batches[-BATCHES_TOLD:])
    end = min(until, begin + LONGEST * longest_s)
    return Work(begin, end, width, width) if end > begin else None


# --- Where the time of batches goes -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Spent:
    """Where the time of an instance's batches goes: seconds of the mean batch."""

    planning_s: float  #: the driver plans it and writes its logs, without the delay by which batches are paced
    waiting_s: float  #: its tasks wait for slots that others use
    working_s: float  #: its tasks run
    computing: float | None  #: of the time in which they run, the share with CPU; None: unknown

    @property
    def whole_s(self) -> float:
        """Return all of a batch."""
        return self.planning_s + self.waiting_s + self.working_s

    @property
    def bottleneck(self) -> str:
        """Return what takes most of a batch's time, in words; "" where batches are short, or their tasks just
        compute."""
        if self.whole_s < SHORT_S:
            return ""
        parts = []
        if self.waiting_s >= TELLING * self.whole_s:
            parts.append(f"wait {_seconds(self.waiting_s)} for a slot that other batches use")
        if self.planning_s >= TELLING * self.whole_s:
            parts.append(f"spend {self.planning_s / self.whole_s:.0%} of their time on planning and logs in the driver")
        if self.computing is not None and self.computing < COMPUTING and self.working_s >= TELLING * self.whole_s:
            others = 1.0 - self.computing
            parts.append(
                f"have tasks that use no CPU for {others:.0%} of the time in which they run (sink, network, garbage "
                "collection, or a processor that others use)"
            )
        return f"batches of {_seconds(self.whole_s)} {', and '.join(parts)}" if parts else ""


def spent(run: Run, taken: Mapping[Key, TaskTime], told: Mapping[Key, TaskTime], gap_s: float) -> Spent | None:
    """Return where the time of the latest batches goes; None without any.

    Args:
        run: of one instance.
        taken: by batch, slot time.
        told: by batch, the time of its tasks, where the Spark UI tells it.
        gap_s: the delay by which batches are paced.

    """
    latest = [each for each in run.batches[-BATCHES_TOLD:] if (each.run_id, each.batch_id) in taken]
    if not latest:
        return None
    planned, waited, worked = [], [], []
    for each in latest:
        key = each.run_id, each.batch_id
        tasks_s = max(each.end - each.start - each.planning_s, 0.0)
        planned.append(max(each.planning_s - gap_s, 0.0))
        worked.append(min(taken[key].cpu_s / run.used(each, told.get(key)), tasks_s))
        waited.append(tasks_s - worked[-1])
    times = [told[key] for each in latest if (key := (each.run_id, each.batch_id)) in told]
    run_s = sum(each.run_s for each in times)
    computing = sum(each.cpu_s for each in times) / run_s if run_s > 0.0 else None
    return Spent(fmean(planned), fmean(waited), fmean(worked), computing)


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 10.0 else f"{seconds:.0f} s"
