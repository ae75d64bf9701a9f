"""Readings of jobs: juice from row counts, latencies of queries; and their averages. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from statistics import median
from typing import TypeAlias

from qod_magics.core.freshness import is_moving
from qod_magics.core.optional import LATENCY_P95, OLDEST
from qod_magics.core.runtime import Count
from qod_magics.core.snapshot import Snapshot, nothing
from qod_magics.policies.henge.jobs import Jobs
from qod_magics.policies.henge.juice import Link, Upstream, job_juice
from qod_magics.policies.henge.parameters import Average
from qod_magics.policies.henge.utility import current_latency


@dataclass(frozen=True, slots=True)
class Tally:
    """Rows of one source or stream in a window (or rows/s)."""

    sent: float  #: that reached it
    executed: float  #: that its reader took from it, those that a shedder dropped on purpose included


Tallies: TypeAlias = Mapping[str, Tally]  #: by source and by stream "from>to"


@dataclass(frozen=True, slots=True)
class Readings:
    """The last readings, oldest first."""

    at_s: float | None = None  #: of the last one; None: none yet
    counts: Mapping[str, Count] = field(default_factory=nothing)  #: at that time
    juice: Mapping[str, tuple[float, ...]] = field(default_factory=nothing)  #: by job
    latency_s: Mapping[str, tuple[float, ...]] = field(default_factory=nothing)  #: by query

    def after(self, now_s: float, snapshot: Snapshot, counts: Mapping[str, Count], jobs: Jobs, kept: int) -> Readings:
        """With one more reading of each job; `kept`: how many there are at most.

        A job with an instance that is starting has none: that passes, and says nothing about the configuration.
        """
        rows, rates = tallies(counts, self.counts), rate_tallies(snapshot)
        parents = {task.id: task.upstream for task in snapshot.tasks}
        starting = {each.task for each in snapshot.instances if each.warming_up or is_moving(each)}
        resting = {task for tasks in jobs.values() if starting.intersection(tasks) for task in tasks}
        juice: dict[str, tuple[float, ...]] = {}
        for name, tasks in jobs.items():
            if name in resting:
                juice[name] = self.juice.get(name, ())
                continue
            upstream = {task: parents[task] for task in tasks}
            inputs = [name for task, sources in upstream.items() for name in _inputs(task, sources)]
            counted = all(each in counts for each in inputs)
            known = rows if counted else rates
            new = juice_of(upstream, known) if all(each in known for each in inputs) else None
            before = self.juice.get(name, ())
            juice[name] = (*before, new)[-kept:] if new is not None and isfinite(new) else before
        latency = {}
        for task in snapshot.tasks:
            if task.id in resting:
                latency[task.id] = self.latency_s.get(task.id, ())
            elif not snapshot.downstream[task.id]:
                value = current_latency(LATENCY_P95.of(task), OLDEST.of(task))
                latency[task.id] = (*self.latency_s.get(task.id, ()), value)[-kept:]
        return Readings(now_s, counts, juice, latency)

    def without(self, jobs: Mapping[str, tuple[str, ...]]) -> Readings:
        """Without those of jobs (with their tasks) that were just changed."""
        gone = {task for tasks in jobs.values() for task in tasks}
        juice = {name: each for name, each in self.juice.items() if name not in jobs}
        latency = {name: each for name, each in self.latency_s.items() if name not in gone}
        return Readings(self.at_s, self.counts, juice, latency)

    def averages(self, kind: Average) -> tuple[Mapping[str, float], Mapping[str, float]]:
        """Mean or median juice by job, and latency by query, seconds; without those of no reading."""
        of: Callable[[Sequence[float]], float] = median if kind == "median" else _mean
        return _averages(self.juice, of), _averages(self.latency_s, of)


def tallies(now: Mapping[str, Count], before: Mapping[str, Count]) -> Tallies:
    """Rows between two counts. Those without an earlier count, or with a higher one (counting began anew), are left
    out."""
    found = {}
    for name, count in now.items():
        old = before.get(name)
        if old is None:
            continue
        sent, executed = count.arrived - old.arrived, _taken(count) - _taken(old)
        if sent >= 0 and executed >= 0:
            found[name] = Tally(sent, executed)
    return found


def _taken(count: Count) -> int:
    """Rows that are no longer in the queue. Dropped ones are among them: a shedder decided so, and no instance more
    would have processed them."""
    return count.processed + count.dropped + count.unreported


def rate_tallies(snapshot: Snapshot) -> Tallies:
    """The same from a snapshot's rates, where there are no counts: what the instances of a task read, in proportion to
    what its inputs carry. Rows that were shed count as missed here, since rates do not tell them apart."""
    read: dict[str, float] = {task.id: 0.0 for task in snapshot.tasks}
    for instance in snapshot.instances:
        read[instance.task] += instance.in_rate
    carried = dict.fromkeys(read, 0.0)
    for stream in snapshot.streams:
        carried[stream.target] += stream.out_rate
    found = {}
    for stream in snapshot.streams:
        share = stream.out_rate / carried[stream.target] if carried[stream.target] else 0.0
        found[f"{stream.source}>{stream.target}"] = Tally(stream.out_rate, share * read[stream.target])
    for task in snapshot.tasks:
        if not task.upstream:
            rate = task.external_rate
            found[task.id] = Tally(read[task.id] if rate is None else rate, read[task.id])
    return found


def juice_of(upstream: Upstream, known: Tallies) -> float:
    """Juice of a job, as in `juice.job_juice`: each source reads a topic of the outside world, every other task what
    its upstream tasks sent, counted once for each of their readers (H-R1). `upstream`: of each of its tasks."""
    sent: dict[str, float] = dict.fromkeys(upstream, 0.0)
    executed: dict[Link, float] = {}
    entry: dict[str, float] = {}
    for name, parents in upstream.items():
        for parent in parents:
            tally = known[f"{parent}>{name}"]
            sent[parent] += tally.sent
            executed[parent, name] = tally.executed
        if not parents:
            tally = known[name]
            entry[name] = tally.executed / tally.sent if tally.sent else 1.0
    return job_juice(upstream, sent, executed, entry)


def _inputs(task: str, sources: Sequence[str]) -> list[str]:
    """The names of a task's inputs, as counts have them."""
    return [f"{source}>{task}" for source in sources] or [task]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _averages(readings: Mapping[str, tuple[float, ...]], of: Callable[[Sequence[float]], float]) -> Mapping[str, float]:
    return {name: of(each) for name, each in readings.items() if each}
