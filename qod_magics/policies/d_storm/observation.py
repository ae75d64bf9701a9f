"""One window as D-Storm sees it: mean figures of its snapshots, demands, nodes, channels, and the analyser's state."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

from qod_magics.core.dag import Dag
from qod_magics.core.load import load_of
from qod_magics.core.runtime import takes_instances
from qod_magics.core.snapshot import Instance, Snapshot, Stream, Task, TaskManager, column, replace
from qod_magics.policies.d_storm.packing import (
    DEFAULTS,
    Channel,
    Demand,
    Node,
    Parameters,
    Problem,
    Requirement,
    growth,
    planned,
    requirement,
    share,
)

_Row = TypeVar("_Row", TaskManager, Task, Stream, Instance)


def is_measured(instance: Instance) -> bool:
    """Return whether its metrics count: it is not warming up, and none of them is missing."""
    return not instance.warming_up and "cpu" not in instance.missing and "in_rate" not in instance.missing


def mean(snapshots: Sequence[Snapshot]) -> Snapshot:
    """Return the newest of one or more snapshots with the mean of each metric, over the snapshots where it was
    measured."""
    newest = snapshots[-1]
    if len(snapshots) == 1:
        return newest
    return replace(
        newest,
        task_managers=_means([s.task_managers for s in snapshots], lambda row: row.id, ("cpu",)),
        tasks=_means(
            [s.tasks for s in snapshots], lambda row: row.id, ("external_rate", "latency_p50_s", "latency_p95_s")
        ),
        streams=_means(
            [s.streams for s in snapshots], lambda row: (row.source, row.target), ("out_rate", "bytes_per_s")
        ),
        instances=_means(
            *([s.instances for s in snapshots], lambda row: row.id, ("in_rate", "cpu", "memory_mb")),
            counts=is_measured,
        ),
    )


def _means(
    tables: Sequence[Sequence[_Row]],
    key: Callable[[_Row], Hashable],
    names: Sequence[str],
    counts: Callable[[_Row], bool] = lambda _: True,
) -> tuple[_Row, ...]:
    """Return the rows of the last table, with means of these fields."""
    values: dict[tuple[Hashable, str], list[float]] = defaultdict(list)
    for table in tables:
        for row in table:
            if counts(row):
                for name in names:
                    if (value := getattr(row, name)) is not None:
                        values[key(row), name].append(value)
    found = []
    for row in tables[-1]:
        changed: dict[str, Any] = {}
        for name in names:
            if there := values.get((key(row), name)):
                changed[name] = sum(there) / len(there)
        found.append(replace(row, **changed))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Monitor:
    """One window: it is reset when an instance comes, goes or moves, since metrics of two placements do not mix."""

    began_s: float
    seen: tuple[tuple[float, Snapshot], ...] = ()  #: each with its time, s; those of the last window

    def seeing(self, snapshot: Snapshot, now_s: float, parameters: Parameters) -> Monitor:
        """Return the window with one snapshot more."""
        if self.seen and _placement(self.seen[-1][1]) != _placement(snapshot):
            return Monitor(now_s, ((now_s, snapshot),))
        kept = tuple((at_s, old) for at_s, old in self.seen if now_s - at_s < parameters.window_s)
        return Monitor(self.began_s, (*kept, (now_s, snapshot)))

    def is_full(self, now_s: float, parameters: Parameters) -> bool:
        """Return whether the window is over, nothing warms up, and every instance was measured in it."""
        if now_s - self.began_s < parameters.window_s:
            return False
        newest = self.seen[-1][1]
        if any(instance.warming_up for instance in newest.instances):
            return False
        measured = {each.id for _, snapshot in self.seen for each in snapshot.instances if is_measured(each)}
        return measured.issuperset(column(newest.instances, "id"))

    @property
    def mean(self) -> Snapshot:
        """Return the window's means."""
        return mean([snapshot for _, snapshot in self.seen])


def _placement(snapshot: Snapshot) -> dict[str, str]:
    ids, managers = column(snapshot.instances, "id"), column(snapshot.instances, "task_manager")
    return dict(zip(ids, managers, strict=True))


class State(Enum):
    """The state of the cluster in one window."""

    PERFORMANCE = "performance"  #: throughput or latency misses its target
    CONSOLIDATE = "consolidate"  #: most of the used nodes are under-used
    NORMAL = "normal"


@dataclass(frozen=True, slots=True)
class Window:
    """Means over one observation window."""

    throughput: float  #: T, rows/s
    workload: float  #: L, rows/s
    latency_s: float | None  #: l; None: unknown
    usage: Mapping[str, float]  #: by used node, u(k): the larger of its shares of CPU and memory, fractions of 1
    max_latency_s: float | None = None  #: the target for `latency_s`; None: that of the parameters


def state_of(window: Window, parameters: Parameters = DEFAULTS) -> State:
    """Return the state of a window. High usage alone is never a reason to act."""
    limit = parameters.max_latency_s if window.max_latency_s is None else window.max_latency_s
    if falls_behind(window, parameters) or (window.latency_s is not None and window.latency_s > limit):
        return State.PERFORMANCE
    under_used = [node for node, usage in window.usage.items() if usage < parameters.consolidation]
    if len(window.usage) > 1 and 2 * len(under_used) > len(window.usage):
        return State.CONSOLIDATE
    return State.NORMAL


def falls_behind(window: Window, parameters: Parameters = DEFAULTS) -> bool:
    """Return whether the throughput does not match the workload."""
    return window.throughput < (1.0 - parameters.tolerance) * window.workload


def is_due(state: State, now_s: float, last_round_s: float, parameters: Parameters = DEFAULTS) -> bool:
    """Return whether the solver runs. A signal within the interval after the last round is dropped, not kept."""
    return state is not State.NORMAL and now_s - last_round_s >= parameters.interval_s


@dataclass(frozen=True, slots=True)
class Observation:
    """What a scheduling round needs to know."""

    problem: Problem  #: the nodes are those that are up and take instances
    spares: tuple[Node, ...]  #: nodes that the cluster could start, the largest of each kind's first
    current: Mapping[str, str]  #: task manager by instance
    known: Mapping[str, Requirement]  #: CPU of each instance, for windows in which it reads nothing
    unit: str  #: of the traffic: "bytes/s", or "rows/s" where a stream's bytes are unknown

    @property
    def needs(self) -> Mapping[str, float]:
        """Return CPU by instance, % of one core."""
        return {demand.id: demand.cpu for demand in self.problem.demands}

    @property
    def fits(self) -> bool:
        """Return whether all nodes together, those that could start too, have the CPU and memory that instances
        demand."""
        nodes, demands = (*self.problem.nodes, *self.spares), self.problem.demands
        return sum(each.cpu for each in demands) <= sum(node.cpu for node in nodes) and (
            sum(each.memory for each in demands) <= sum(node.memory for node in nodes)
        )


def observed(
    snapshot: Snapshot, parameters: Parameters = DEFAULTS, known: Mapping[str, Requirement] | None = None
) -> Observation:
    """Return demands at the workload (section 2.1), capacities and traffic from a valid snapshot, a window's mean.

    An instance demands what it uses, grown with its input where a task on its way falls behind. A task manager offers
    what its other processes leave; its memory where known. A stream's traffic is split evenly over pairs of instances.
    """
    factors = _factors(snapshot, parameters)
    demands, requirements = _demands(snapshot, factors, parameters, known or {})
    channels, unit = _channels(snapshot, factors)
    hosts = {instance.task_manager for instance in snapshot.instances}
    available = load_of(snapshot, Dag.of(snapshot).topology).available
    nodes = tuple(
        Node(manager.id, cpu, *_nominal(manager))
        for manager, cpu in zip(snapshot.task_managers, available, strict=True)
        if manager.id in hosts or takes_instances(manager)
    )
    return Observation(
        Problem(demands, nodes, channels),
        _spare_nodes(snapshot),
        {instance.id: instance.task_manager for instance in snapshot.instances},
        requirements,
        unit,
    )


def usages(demands: Mapping[str, Demand], nodes: Mapping[str, Node], placement: Mapping[str, str]) -> dict[str, float]:
    """Return u(k) of each used node: the larger of its shares of CPU and memory, fractions of 1."""
    used: dict[str, list[float]] = {}
    for instance, node in placement.items():
        both = used.setdefault(node, [0.0, 0.0])
        both[0] += demands[instance].cpu
        both[1] += demands[instance].memory
    return {
        node: max(share(cpu, nodes[node].cpu), share(memory, nodes[node].memory))
        for node, (cpu, memory) in used.items()
    }


def window_of(snapshot: Snapshot, parameters: Parameters = DEFAULTS) -> Window:
    """Return the figures for the system analyser, all as measured.

    Throughput and workload are those of the task that reads the smallest share of what arrives, latency and its target
    those of the query that is furthest from it: its own target of the 95th percentile, or else the limit of the
    parameters for the median. Without tasks, both rates are 0.
    """
    read, arriving = _rates(snapshot)
    shares = {task: share(read[task], rate) if rate > 0 else 1.0 for task, rate in arriving.items()}
    worst = min(shares, key=shares.__getitem__, default=None)
    latency_s, limit_s = None, None
    for task in snapshot.tasks:
        target = task.max_latency_s
        p50, p95 = task.latency_p50_s, task.latency_p95_s
        seen = next((s for s in ((p50, p95) if target is None else (p95, p50)) if s is not None), None)
        if seen is not None:
            limit = parameters.max_latency_s if target is None else target
            if latency_s is None or limit_s is None or seen * limit_s > latency_s * limit:
                latency_s, limit_s = seen, limit
    measured = observed(snapshot, replace(parameters, tolerance=1.0))  # nothing grows
    demands = {demand.id: demand for demand in measured.problem.demands}
    nodes = {node.id: node for node in measured.problem.nodes}
    throughput, workload = (0.0, 0.0) if worst is None else (read[worst], arriving[worst])
    return Window(throughput, workload, latency_s, usages(demands, nodes, measured.current), limit_s)


def _rates(snapshot: Snapshot) -> tuple[dict[str, float], dict[str, float]]:
    """Return by task the rows/s that it reads, and the rows/s that arrive for it."""
    read = {task.id: 0.0 for task in snapshot.tasks}
    for instance in snapshot.instances:
        read[instance.task] += instance.in_rate
    arriving = {
        task.id: 0.0 if task.upstream else read[task.id] if task.external_rate is None else task.external_rate
        for task in snapshot.tasks
    }
    for stream in snapshot.streams:
        arriving[stream.target] += stream.out_rate
    return read, arriving


def _factors(snapshot: Snapshot, parameters: Parameters) -> dict[str, float]:
    read, arriving = _rates(snapshot)
    topology = Dag.of(snapshot).topology
    order = [snapshot.tasks[t].id for t in topology.order]
    channels = [Channel(stream.source, stream.target, stream.out_rate) for stream in snapshot.streams]
    outside = {task.id: arriving[task.id] for task in snapshot.tasks if not task.upstream}
    return growth(order, channels, read, outside, parameters.tolerance)


def _demands(
    snapshot: Snapshot, factors: Mapping[str, float], parameters: Parameters, known: Mapping[str, Requirement]
) -> tuple[tuple[Demand, ...], dict[str, Requirement]]:
    fixed = {task.id: task.fixed_cpu or 0.0 for task in snapshot.tasks}
    _, arriving = _rates(snapshot)
    width = Counter(instance.task for instance in snapshot.instances)
    demands, requirements = [], {}
    for instance in snapshot.instances:
        task = instance.task
        rate = instance.in_rate or arriving[task] / width[task]
        of_cpu = requirement(instance.cpu, instance.in_rate, fixed[task], known.get(instance.id))
        held = instance.memory_mb or 0.0
        of_memory = requirement(held, instance.in_rate, parameters.fixed_memory_mb)
        rate *= factors[task]
        demands.append(Demand(instance.id, of_cpu.at(rate), of_memory.at(rate)))
        requirements[instance.id] = of_cpu
    return tuple(demands), requirements


def _channels(snapshot: Snapshot, factors: Mapping[str, float]) -> tuple[tuple[Channel, ...], str]:
    sizes = [stream.bytes_per_s for stream in snapshot.streams]
    in_bytes = bool(sizes) and None not in sizes  # never both in one round
    streams = [
        Channel(stream.source, stream.target, size if in_bytes and size is not None else stream.out_rate)
        for stream, size in zip(snapshot.streams, sizes, strict=True)
    ]
    instances: dict[str, list[str]] = defaultdict(list)
    for instance in snapshot.instances:
        instances[instance.task].append(instance.id)
    channels = []
    for stream in planned(streams, factors):
        senders, readers = instances[stream.source], instances[stream.target]
        traffic = stream.traffic / (len(senders) * len(readers))
        channels += [Channel(a, b, traffic) for a in senders for b in readers]
    return tuple(channels), "bytes/s" if in_bytes else "rows/s"


def _nominal(manager: TaskManager) -> tuple[float, float | None, float]:
    """Return memory, price and cores of a task manager."""
    return _memory(manager.memory_mb), manager.price, manager.cores


def _memory(known: float | None) -> float:
    return float("inf") if known is None else known


def _spare_nodes(snapshot: Snapshot) -> tuple[Node, ...]:
    kinds = sorted(snapshot.spares, key=lambda spare: -spare.cores)
    return tuple(
        Node(f"new {each.kind} {n}", 100.0 * each.cores, _memory(each.memory_mb), each.price, each.cores, each.kind)
        for each in kinds
        for n in range(1, each.count + 1)
    )
