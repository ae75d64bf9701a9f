"""The job as Stela sees it: a DAG of operators with rates and numbers of instances, measured or projected. Pure.

Rates are means over the last snapshots of one configuration (section 2.2.2). `Options` holds the readings where the
source leaves a choice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from graphlib import TopologicalSorter
from statistics import fmean
from sys import float_info
from typing import Annotated, Literal, TypeAlias, TypeVar

from qod_magics.core.snapshot import Snapshot
from qod_magics.policies.parameters import Parameter, check

Mode = Literal["set", "paths"]
Projection = Literal["measured", "capacity"]

CONGESTION_RATE = Fraction(6, 5)  #: section 2.2.3


@dataclass(frozen=True, slots=True)
class Options:
    """The readings of Stela. Raises UsageProblem, one line, for other values."""

    congestion_rate: Annotated[
        Fraction | float, Parameter("input / processing rate above which an operator is congested", least=1)
    ] = CONGESTION_RATE
    #: Eq. 2.1, or Algorithm 2.1
    mode: Annotated[Mode, Parameter("set: a sink counts once however many paths lead to it; paths: once for each")] = (
        "set"
    )
    #: "measured": the processing rate, literally; "capacity": that rate / the share of the time at work, where it is
    #: known, so that a child with idle capacity is not congested by a projection (R10)
    projection: Annotated[
        Projection, Parameter("what input is compared with: the processing rate, or what it would be at full use")
    ] = "measured"
    #: R11
    cap_at_input: Annotated[bool, Parameter("whether a projected processing rate is at most the input")] = False

    def __post_init__(self) -> None:
        check(self)

    @property
    def threshold(self) -> Fraction:
        """Return the congestion rate as it is written: 1.2 is 6/5, not the binary number next to it."""
        rate = self.congestion_rate
        return rate if isinstance(rate, Fraction) else Fraction(str(rate))


DEFAULT = Options()


Edge = tuple[str, str]  #: (from, to)


@dataclass(frozen=True)
class Graph:
    """A DAG of operators (Stela, section 2.2). The declared order settles ties."""

    ops: tuple[str, ...]
    edges: tuple[Edge, ...]

    @cached_property
    def children(self) -> Mapping[str, tuple[str, ...]]:
        """Readers of each operator; () for a sink."""
        return _neighbours(self.ops, self.edges)

    @cached_property
    def parents(self) -> Mapping[str, tuple[str, ...]]:
        """Return inputs of each operator; () for a source."""
        return _neighbours(self.ops, [(target, source) for source, target in self.edges])

    @cached_property
    def sources(self) -> tuple[str, ...]:
        """Return the operators without parents, in declared order."""
        return tuple(op for op in self.ops if not self.parents[op])

    @cached_property
    def sinks(self) -> tuple[str, ...]:
        """Return the operators without children, in declared order."""
        return tuple(op for op in self.ops if not self.children[op])

    @cached_property
    def parents_first(self) -> tuple[str, ...]:
        """Return the operators in topological order."""
        return tuple(TopologicalSorter(self.parents).static_order())


def _neighbours(ops: Sequence[str], edges: Iterable[Edge]) -> Mapping[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {op: [] for op in ops}
    for source, target in edges:
        found[source].append(target)
    return {op: tuple(names) for op, names in found.items()}


Rate: TypeAlias = Fraction | float  #: rows/s; exact where it is a Fraction, so that equal ETPs are ties


@dataclass(frozen=True)
class Job:
    """Rates of a job's operators, rows/s, and their instances."""

    graph: Graph
    processed: Mapping[str, Rate]  #: P_o, rows that an operator reads, of all its instances
    emitted: Mapping[Edge, Rate]  #: e, by edge
    offered: Mapping[str, Rate] = field(default_factory=dict)  #: input of sources; absent: as processed (R5)
    instances: Mapping[str, int] = field(default_factory=dict)  #: k_o >= 1; absent: 1
    most: Mapping[str, int] = field(default_factory=dict)  #: K_o; absent: no limit
    capacity: Mapping[str, Rate] = field(default_factory=dict)  #: P_o / share of the time at work; absent: P_o

    def input(self, op: str) -> Rate:
        """Return I_o: what its parents emit to it; of a source what is offered, or else what it processes (R5)."""
        parents = self.graph.parents[op]
        if not parents:
            return self.offered.get(op, self.processed[op])
        return sum(self.emitted[parent, op] for parent in parents)

    @cached_property
    def throughput(self) -> Rate:
        """T, the sum of what the sinks process."""
        return sum(self.processed[sink] for sink in self.graph.sinks)

    def parallelism(self, op: str) -> int:
        """Return k_o."""
        return self.instances.get(op, 1)

    def has_room(self, op: str) -> bool:
        """Return whether k_o < K_o."""
        return op not in self.most or self.parallelism(op) < self.most[op]

    def grown(self, op: str, *, cap_at_input: bool = False) -> Job:
        """Return the job with one more instance of `op`, projected: it processes and emits (k+1)/k as much (section
        2.2.5).

        Its children receive more, but are taken to process what they did. `cap_at_input`: it processes no more than its
        input (R11).
        """
        k = self.parallelism(op)
        factor = Fraction(k + 1, k)
        before = self.processed[op]
        after: Rate = before * factor
        if cap_at_input:
            after = max(before, min(after, self.input(op)))
        emitted = dict(self.emitted)
        for child in self.graph.children[op]:
            emitted[op, child] = emitted[op, child] * after / before if before else emitted[op, child] * factor
        capacity = {**self.capacity, op: self.capacity[op] * factor} if op in self.capacity else self.capacity
        return replace(
            self,
            processed={**self.processed, op: after},
            emitted=emitted,
            instances={**self.instances, op: k + 1},
            capacity=capacity,
        )


_Key = TypeVar("_Key")

WINDOW = 20  #: samples that a mean is taken over (R6)


@dataclass(frozen=True, slots=True)
class Sample:
    """The rates of one snapshot, rows/s, and the shares of the time at work."""

    processed: Sequence[float]  #: by task
    emitted: Sequence[float]  #: by stream
    offered: Sequence[float | None]  #: by task; None: no source, or unknown
    busy: Sequence[float | None]  #: by task: mean of its instances, fraction of 1; None: unknown

    @classmethod
    def of(cls, snapshot: Snapshot) -> Sample:
        """Return the rates of a snapshot. P_o: what its instances read; e: what the streams carry; I_o of sources:
        their external rate (R5)."""
        position = {task.id: i for i, task in enumerate(snapshot.tasks)}
        processed = [0.0] * len(position)
        at_work: list[list[float | None]] = [[] for _ in position]
        for instance in snapshot.instances:
            t = position[instance.task]
            processed[t] += instance.in_rate
            at_work[t].append(instance.busy)
        return cls(
            tuple(min(rate, float_info.max) for rate in processed),
            tuple(stream.out_rate for stream in snapshot.streams),
            tuple(task.external_rate for task in snapshot.tasks),
            tuple(map(_mean_share, at_work)),
        )


@dataclass(frozen=True, slots=True)
class Samples:
    """The last `WINDOW` samples of one configuration, one for each cycle of the controller (the source: each 10 s).

    When tasks or streams are declared again, or a task's number of instances changes, the window is reset: rates from
    before describe another configuration.
    """

    configuration: tuple[object, ...] = ()
    rows: tuple[Sample, ...] = ()

    def with_(self, snapshot: Snapshot) -> Samples:
        """Return the window with this snapshot's rates as the last sample."""
        configuration = _configuration(snapshot)
        rows = self.rows if configuration == self.configuration else ()
        return Samples(configuration, (*rows[1 - WINDOW :], Sample.of(snapshot)))

    def job(self, snapshot: Snapshot) -> Job:
        """Return the job of a snapshot, which is the last sample, with mean rates.

        They are exact, so that equal ones compare as equal. K_o is `max_parallelism`; without it there is no limit,
        and the runtime refuses what it can't start. A task whose state can't be assigned keeps its instances.
        """
        tasks = [task.id for task in snapshot.tasks]
        edges = tuple((stream.source, stream.target) for stream in snapshot.streams)
        instances = Counter(instance.task for instance in snapshot.instances)
        most = {}
        for task in snapshot.tasks:
            limit = task.max_parallelism
            if task.keeps_instances:
                most[task.id] = instances[task.id]
            elif limit is not None:
                most[task.id] = int(limit)
        processed = _means(tasks, (row.processed for row in self.rows))
        busy = _means(tasks, (row.busy for row in self.rows))
        return Job(
            Graph(tuple(tasks), edges),
            processed,
            _means(edges, (row.emitted for row in self.rows)),
            _means(tasks, (row.offered for row in self.rows)),
            instances,
            most,
            {task: processed[task] / share for task, share in busy.items() if share},
        )


NO_SAMPLES = Samples()


def job_of(snapshot: Snapshot) -> Job:
    """Return the job of one snapshot alone."""
    return NO_SAMPLES.with_(snapshot).job(snapshot)


def _configuration(snapshot: Snapshot) -> tuple[object, ...]:
    instances = Counter(instance.task for instance in snapshot.instances)
    return (
        tuple((task.id, instances[task.id]) for task in snapshot.tasks),
        tuple((stream.source, stream.target) for stream in snapshot.streams),
    )


def _mean_share(shares: Sequence[float | None]) -> float | None:
    known = [min(share, 1.0) for share in shares if share is not None]
    return fmean(known) if known and len(known) == len(shares) else None


def _means(keys: Sequence[_Key], rows: Iterable[Sequence[float | None]]) -> Mapping[_Key, Fraction]:
    """Return the mean of each key's known values; without any it is left out."""
    known: dict[_Key, list[Fraction]] = {}
    for row in rows:
        for key, value in zip(keys, row, strict=True):
            if value is not None:
                known.setdefault(key, []).append(Fraction(value))
    return {key: sum(values, Fraction(0)) / len(values) for key, values in known.items()}


# --- Effective throughput percentage ----------------------------------------------------------------------------------
# Effective throughput percentage: the share of a job's throughput that an operator can move (Eq. 2.1). Pure.
#
# Congested operators are the candidates for more instances (section 2.2.3); `Gains` ranks them by ETP. `one_more` gives
# the same ranking to policies that decide themselves when to scale; Stela scales only on request.


def is_congested(arriving: Rate, processed: Rate, congestion_rate: Rate = CONGESTION_RATE) -> bool:
    """Return whether arriving / processed > congestion_rate, strictly; where nothing is processed, whether anything
    arrives.

    Rates in rows/s. The input is compared with what is processed, not with what is emitted: a filter is not congested.
    """
    return arriving > congestion_rate * processed if processed else arriving > 0


def congested(job: Job, options: Options = DEFAULT) -> tuple[str, ...]:
    """Return C: the congested operators, in declared order. A source is one where its offered rate exceeds what it
    reads (R5)."""
    by_capacity = options.projection == "capacity"
    threshold = options.threshold
    return tuple(
        op
        for op in job.graph.ops
        if is_congested(
            job.input(op), job.capacity.get(op, job.processed[op]) if by_capacity else job.processed[op], threshold
        )
    )


def etp(job: Job, op: str, congested: Collection[str], mode: Mode = "set") -> Rate:
    """Return the ETP of an operator, a fraction of 1: throughput of the sinks that it reaches / throughput of all
    sinks.

    A sink is reached if some path to it has no congested operator after `op`; a sink reaches itself, even if it is
    congested. 0 while the throughput is 0. O(operators + edges). In mode "paths" (Algorithm 2.1, R1) a sink counts once
    for each such path, and the result may exceed 1.
    """
    throughput = job.throughput
    if not throughput:
        return 0
    reached = _by_sinks(job, op, congested) if mode == "set" else _by_paths(job, op, congested)
    return reached / throughput


def etps(job: Job, congested: Collection[str], mode: Mode = "set") -> Mapping[str, Rate]:
    """Return the ETP of every operator, congested or not, as scale-in needs it (section 2.3)."""
    return {op: etp(job, op, congested, mode) for op in job.graph.ops}


def _by_sinks(job: Job, op: str, congested: Collection[str]) -> Rate:
    children = job.graph.children
    seen, waiting = {op}, [op]
    total: Rate = 0
    while waiting:
        at = waiting.pop()
        if not children[at]:
            total += job.processed[at]
        for child in children[at]:
            if child not in congested and child not in seen:
                seen.add(child)
                waiting.append(child)
    return total


def _by_paths(job: Job, op: str, congested: Collection[str]) -> Rate:
    graph = job.graph
    below: dict[str, Rate] = {}
    for at in reversed(graph.parents_first):
        if graph.children[at]:
            below[at] = sum(below[child] for child in graph.children[at] if child not in congested)
        else:
            below[at] = job.processed[at]
        if at == op:
            break
    return below[op]


@dataclass(frozen=True, slots=True)
class Gain:
    """What one more instance of an operator can move."""

    op: str
    etp: Rate  #: fraction of 1 of the job's throughput


@dataclass(frozen=True, slots=True)
class Gains:
    """The congested operators of a job, and those among them that may have one more instance."""

    congested: tuple[str, ...]  #: in declared order
    ranked: tuple[Gain, ...]  #: the most gain first; of equal ones, the first declared (R9)

    @classmethod
    def of(cls, job: Job, options: Options = DEFAULT) -> Gains:
        """Rank congested operators only (R4), and none that has its maximum of instances (R12)."""
        full = congested(job, options)
        closed = frozenset(full)
        found = [Gain(op, etp(job, op, closed, options.mode)) for op in full if job.has_room(op)]
        return cls(full, tuple(sorted(found, key=lambda gain: -gain.etp)))


@dataclass(frozen=True, slots=True)
class Advice:
    """A task that may have one more instance."""

    task: str
    etp: float  #: fraction of 1 of the job's throughput that it can move
    congested: bool  #: False: a source, given where no congested task may have more; nothing waits for it


def one_more(snapshot: Snapshot) -> tuple[Advice, ...]:
    """Return the tasks that may have one more instance, the one that moves throughput most first; () if none may.

    Congested tasks in the order of their ETPs; where none of them may have more instances, the sources that may, in
    declared order. A task that sheds is congested once it keeps less than 1 / `congestion_rate` of its input: its
    rates in snapshots are those after its shedder, its streams' those before.

    Args:
        snapshot: a valid one.

    """
    job = NO_SAMPLES.with_(snapshot).job(snapshot)
    gains = Gains.of(job)
    if gains.ranked:
        return tuple(Advice(gain.op, float(gain.etp), True) for gain in gains.ranked)
    closed = frozenset(gains.congested)
    return tuple(
        Advice(source, float(etp(job, source, closed, DEFAULT.mode)), False)
        for source in job.graph.sources
        if job.has_room(source)
    )
