"""Jobs of a snapshot, and their readings: juice from row counts, latencies of queries, and averages of both. Pure.

A job is a part of the application that no stream connects with the others. *Juice* is the share of its input that was
processed as far as an operator (section 3.3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from math import floor, isfinite
from statistics import median
from typing import TypeAlias

from qod_magics.core.dag import Dag, reachable
from qod_magics.core.runtime import Count, takes_instances
from qod_magics.core.snapshot import Instance, Snapshot, Task, TaskManager, Window, is_moving, nothing
from qod_magics.policies.henge.machine import Job, Operator
from qod_magics.policies.henge.utility import (
    CURVES,
    Average,
    Parameters,
    Utility,
    current_latency,
    hybrid_utility,
    latency_utility,
    throughput_utility,
)
from qod_magics.policies.stream_economics.cost_fit import CostFit
from qod_magics.policies.stream_economics.learning import is_new

# --- Busy fraction of micro-batches -----------------------------------------------------------------------------------

#: An instance is congested if more rows wait than this number of its batches reads. Up to three batches of rows wait in
#: front of one that keeps up: those of the batch under way, and of the next two.
QUEUED = 4.0
#: Readings beyond these teach nothing: thousands of rows/s, and batches/s with their reciprocal.
MOST_ROWS, MOST_BATCHES = 1e6, 1e4
#: The fit tells fixed time from time for rows once the largest batch has had this multiple of the smallest one's rows.
#: Before, its prior decides, which is made for CPU and takes most of the time for fixed time.
SPREAD = 1.25


def busy_with_rows(instance: Instance, batch_time_s: float | None) -> float:
    """Return the share of the time in which an instance works on rows.

    Micro-batches back to back are always under way, however few rows they read: the time that they would take without
    rows (`batch_time_s`, as learned; None: unknown) is no sign of congestion. It counts where more rows wait than
    `QUEUED` batches read: that instance is at its limit, whatever was learned.
    """
    if instance.busy is None:
        return instance.cpu / 100.0
    rate = instance.batches_per_s
    if batch_time_s is None or instance.at_work is None or not rate:
        return instance.busy
    if (instance.waiting or 0) * rate > QUEUED * instance.in_rate:
        return instance.busy
    return max(min(instance.at_work, instance.busy) - rate * batch_time_s, 0.0)


@dataclass(frozen=True, slots=True)
class Batches:
    """What readings have taught about the time of batches, by task, and the last reading of each instance."""

    fits: Mapping[str, CostFit] = field(default_factory=nothing)
    windows: Mapping[str, Window | None] = field(default_factory=nothing)
    rows: Mapping[str, tuple[float, float]] = field(default_factory=nothing)  #: per batch, least and most, by task

    def after(self, snapshot: Snapshot) -> Batches:
        """Return the same with the new readings of a snapshot; tasks that are gone are forgotten."""
        fits = {task.id: self.fits[task.id] for task in snapshot.tasks if task.id in self.fits}
        spread = {task: self.rows[task] for task in fits}
        windows = {}
        for each in snapshot.instances:
            before = self.windows.get(each.id)
            windows[each.id] = each.window or before
            if is_new(each, before) and _teaches(each):
                rows, busy, batches = each.in_rate / 1e3, 100.0 * (each.at_work or 0.0), each.batches_per_s
                known = fits.get(each.task)
                fits[each.task] = (
                    CostFit.first(rows, rows, busy, batches)
                    if known is None
                    else known.after(rows, rows, busy, batches)
                )
                read = each.in_rate / (batches or 1.0)
                least, most = spread.get(each.task, (read, read))
                spread[each.task] = min(least, read), max(most, read)
        return Batches(fits, windows, spread)

    def fixed_s(self, task: str) -> float | None:
        """Return the seconds that a batch of a task takes without rows; None: not known, as where all its batches
        have had about the same number of rows."""
        if task not in self.fits:
            return None
        least, most = self.rows[task]
        return self.fits[task].costs[0] / 100.0 if most >= SPREAD * least else None


def _teaches(instance: Instance) -> bool:
    """Return whether it runs micro-batches with rows, as a machine can."""
    batches = instance.batches_per_s
    return (
        instance.at_work is not None
        and batches is not None
        and 1.0 / MOST_BATCHES <= batches <= MOST_BATCHES
        and 1.0 / MOST_ROWS <= instance.in_rate / 1e3 <= MOST_ROWS
    )


Upstream = Mapping[str, Sequence[str]]  #: the parents of each operator; (): a spout
Link = tuple[str, str]  #: (parent, operator)


def operator_juice(
    upstream: Upstream,
    sent: Mapping[str, float],
    executed: Mapping[Link, float],
    entry: Mapping[str, float] | None = None,
) -> dict[str, dict[str, float]]:
    """Return J_o^s of each operator, by the spouts that feed it (equation 4, Eq. 3.3 of the source).

    Args:
        upstream: the job's DAG.
        sent: T of each operator with children: tuples sent in the window, **counting every copy delivered**, on all
            its out-edges together (H-R1). With tuples emitted instead, juice can exceed the number of spouts.
        executed: E of each edge: tuples from the parent that the operator executed in the window.
        entry: J_s^s of spouts, 1 by default: a spout of Storm fetches what it sends. A source of Spark reads a topic,
            in which rows wait.

    An operator that sent nothing passes its juice on in equal parts, so that the total is preserved. A spout that an
    operator is not fed by has no entry (H-R2). Values above 1 are left as they are: a backlog drains (H-R3).

    """
    children: dict[str, int] = dict.fromkeys(upstream, 0)
    for parents in upstream.values():
        for parent in parents:
            children[parent] += 1
    juice: dict[str, dict[str, float]] = {}
    for operator in TopologicalSorter(upstream).static_order():
        parents = upstream[operator]
        if not parents:
            juice[operator] = {operator: 1 if entry is None else entry.get(operator, 1)}
            continue
        mine: dict[str, float] = {}
        for parent in parents:
            total = sent.get(parent, 0)
            for spout, share in juice[parent].items():
                if total:
                    passed = share * executed.get((parent, operator), 0) / total
                else:
                    passed = share / children[parent]
                mine[spout] = mine.get(spout, 0) + passed
        juice[operator] = mine
    return juice


def job_juice(
    upstream: Upstream,
    sent: Mapping[str, float],
    executed: Mapping[Link, float],
    entry: Mapping[str, float] | None = None,
) -> float:
    """Return J_q: juice of all sinks over the number of spouts (equation 5, Eq. 3.4 of the source); arguments as above.

    Raises ValueError for a job without operators.
    """
    if not upstream:
        raise ValueError("a job without operators has no juice: give its DAG")
    juice = operator_juice(upstream, sent, executed, entry)
    feeding = {parent for parents in upstream.values() for parent in parents}
    spouts = sum(not parents for parents in upstream.values())
    total: float = sum(value for sink in upstream if sink not in feeding for value in juice[sink].values())
    return total / spouts


Jobs = Mapping[str, tuple[str, ...]]  #: tasks by job, both in the order of the snapshot
#: Of a task of which nobody knows how many it can have, whatever the cores.
_MOST_INSTANCES = 1000
#: Priorities beyond count as this one.
HIGHEST = 10**9


def jobs_of(snapshot: Snapshot) -> Jobs:
    """Return the tasks of each job. A job is named after the first of its queries in the snapshot."""
    topology = Dag.of(snapshot).topology
    neighbours = [(*up, *down) for up, down in zip(topology.upstream, topology.downstream, strict=True)]
    found: dict[str, tuple[str, ...]] = {}
    seen: set[int] = set()
    for start in range(len(snapshot.tasks)):
        if start not in seen:
            part = sorted(reachable([start], neighbours))
            seen.update(part)
            query = next(t for t in part if not topology.downstream[t])
            found[snapshot.tasks[query].id] = tuple(snapshot.tasks[t].id for t in part)
    return found


def measured_jobs(
    snapshot: Snapshot,
    jobs: Jobs,
    juice: Mapping[str, float],
    latency_s: Mapping[str, float],
    parameters: Parameters,
    *,
    margin: float = 1.0,
) -> Mapping[str, Job]:
    """Return the jobs as the state machine sees them.

    Args:
        snapshot: the cluster.
        jobs: the tasks of each.
        juice: by job; one without is taken to have all.
        latency_s: by query; likewise.
        parameters: the targets' defaults, the curve.
        margin: multiple of each target of latency to judge by.

    """
    tasks = {task.id: task for task in snapshot.tasks}
    hosted: dict[str, list[Instance]] = {name: [] for name in tasks}
    for instance in snapshot.instances:
        hosted[instance.task].append(instance)
    cores = floor(min(sum(manager.cores for manager in working(snapshot.task_managers)), _MOST_INSTANCES))
    down = snapshot.downstream
    found = {}
    for name, members in jobs.items():
        queries = [
            _utility(tasks[each], juice.get(name), latency_s.get(each), parameters, margin)
            for each in members
            if not down[each]
        ]
        utility = Utility(sum(each.current for each in queries), sum(each.most for each in queries))
        found[name] = Job(utility, {each: _operator(tasks[each], hosted[each], cores) for each in members})
    return found


def working(managers: Sequence[TaskManager]) -> list[TaskManager]:
    """Return the task managers that run instances, without those that stand by."""
    return [manager for manager in managers if takes_instances(manager)]


def loads(snapshot: Snapshot) -> Mapping[str, tuple[float, float]]:
    """Return (cores in use, cores) of each working task manager."""
    return {manager.id: (manager.cpu / 100.0, manager.cores) for manager in working(snapshot.task_managers)}


def maximum_utility(query: Task) -> float:
    """Return U of a query: its `utility`, else its priority. One of priority 0, the default, or less must count, too:
    it has 1 / (2 - priority), which is below 1 and falls with the priority."""
    given = query.utility
    if given is not None:
        return given
    priority = float(max(-HIGHEST, min(query.priority or 0, HIGHEST)))
    return priority if priority >= 1.0 else 1.0 / (2.0 - priority)


def _utility(
    query: Task, juice: float | None, latency_s: float | None, parameters: Parameters, margin: float
) -> Utility:
    """Return equation 2 for a query with a target of its latency, equation 1 for another, or the mean of both
    (`hybrid`, or where it has a target of its juice, too)."""
    most = maximum_utility(query)
    target_s = query.max_latency_s
    target = parameters.juice_target if query.min_juice is None else query.min_juice
    full = juice is None or juice >= target * (1.0 - parameters.juice_slack)
    by_juice = most if full else throughput_utility(juice or 0.0, target, most, CURVES[parameters.curve])
    if target_s is None:
        return Utility(by_juice, most)
    both = parameters.hybrid or query.min_juice is not None
    by_latency = latency_utility(latency_s or 0.0, margin * target_s, most, CURVES[parameters.curve])
    return Utility(hybrid_utility(by_latency, by_juice) if both else by_latency, most)


def _operator(task: Task, instances: Sequence[Instance], cores: int) -> Operator:
    """Return a task as an operator. Its queue is the topic that it reads, so a source is one like any other: the spout,
    which is left alone, is the outside world. Where nobody knows how many instances it can have, it gets no more than
    there are cores. One whose state can't be assigned keeps those that it has."""
    count = len(instances)
    most = count if task.keeps_instances else task.max_parallelism
    busiest = max((busy_with_rows(each, task.batch_time_s) for each in instances), default=0.0)
    return Operator(count, max(count, cores if most is None else int(most)), busiest)


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
        """Return the readings with one more of each job; `kept`: how many there are at most.

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
                value = current_latency(task.latency_p95_s, task.oldest_s)
                latency[task.id] = (*self.latency_s.get(task.id, ()), value)[-kept:]
        return Readings(now_s, counts, juice, latency)

    def without(self, jobs: Mapping[str, tuple[str, ...]]) -> Readings:
        """Return the readings without those of jobs (with their tasks) that were just changed."""
        gone = {task for tasks in jobs.values() for task in tasks}
        juice = {name: each for name, each in self.juice.items() if name not in jobs}
        latency = {name: each for name, each in self.latency_s.items() if name not in gone}
        return Readings(self.at_s, self.counts, juice, latency)

    def averages(self, kind: Average) -> tuple[Mapping[str, float], Mapping[str, float]]:
        """Return the mean or median juice by job, and latency by query, seconds; without those of no reading."""
        of: Callable[[Sequence[float]], float] = median if kind == "median" else _mean
        return _averages(self.juice, of), _averages(self.latency_s, of)


def tallies(now: Mapping[str, Count], before: Mapping[str, Count]) -> Tallies:
    """Return the rows between two counts. Sources and streams without an earlier count, or with a higher one (counting
    started again), are left out."""
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
    """Return rows that are no longer in the queue. Dropped ones are among them: a shedder decided so, and no instance
    more would have processed them."""
    return count.processed + count.dropped + count.unreported


def rate_tallies(snapshot: Snapshot) -> Tallies:
    """Return tallies by a snapshot's rates, where there are no counts: what the instances of a task read, in proportion
    to what its inputs carry. Rows that were shed count as missed here, since rates do not distinguish them."""
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
    """Return the juice of a job, as in `job_juice`: each source reads a topic of the outside world, every other task
    what its upstream tasks sent, counted once for each of their readers (H-R1). `upstream`: of each of its tasks."""
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
    """Return the names of a task's inputs, as counts have them."""
    return [f"{source}>{task}" for source in sources] or [task]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _averages(readings: Mapping[str, tuple[float, ...]], of: Callable[[Sequence[float]], float]) -> Mapping[str, float]:
    return {name: of(each) for name, each in readings.items() if each}
