"""The tasks of a simulation as arrays, and counters over them. Pure.

`Wiring` numbers edges, instances, channels (a partition of an edge) and outlets. `Totals` holds cumulative counters by
instance, channel and outlet; `Column` turns mappings by name into arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import numpy as np

from qod_magics.core.plan import Edge
from qod_magics.simulator.rates.components import joined
from qod_magics.simulator.rates.simulation import MICRO_BATCH, SimulatedTask

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Wiring:
    """The structure of a run, static but for who reads what. Indices: t task, e edge, i instance, c channel, o outlet.

    Edges are the inputs of sources first, then the streams. A task has as many instances as partitions, of which the
    first `parallelism` run. Channels are in the order of tasks and their partitions: while each instance reads one
    partition, in the order of instances. Channel p of an edge belongs to instance p modulo the parallelism, as live.
    """

    tasks: tuple[SimulatedTask, ...]
    edges: tuple[Edge, ...]
    edge_names: tuple[str, ...]  #: a source's id, or "from>to"
    sources: int  #: number of edges from outside
    edge_target: Array  #: task by edge
    edge_source: Array  #: task by edge, -1 outside
    instances: tuple[str, ...]
    instance_task: Array
    instance_number: Array  #: within its task, 0 is the first
    first_instance: Array  #: by task
    first_channel: Array  #: by instance, while each reads one partition
    scales: bool  #: whether any task has more partitions than instances at the start
    channel_task: Array
    channel_partition: Array
    channel_instance: Array  #: who reads it
    channel_edge: Array
    channel_share: Array  #: of the rows of its edge
    pairs: bool  #: no task reads more than two others
    outlet_instance: Array  #: an outlet is an instance's sending end of a stream
    outlet_edge: Array
    levels: tuple[Array, ...]  #: stream edges, by the depth of their reader
    fixed: Array  #: by instance, cores
    overhead: Array  #: by instance, cores
    read_s: Array  #: by channel, CPU seconds a row
    work_s: Array  #: by channel, CPU seconds a row
    selectivity: Array  #: by instance
    micro: Array  #: instances that run in micro-batches
    trigger_s: Array  #: by instance
    latency_s: Array  #: by edge
    loses_weight: Array  #: instances whose output rows take their probability from the task's accuracy
    within: Mapping[int, tuple[str, ...]] = field(default_factory=dict)  #: by task: the streams that it was fused of

    @classmethod
    def of(cls, tasks: Sequence[SimulatedTask]) -> Wiring:
        """Return the wiring of these tasks, inputs before their readers."""
        number = {task.id: t for t, task in enumerate(tasks)}
        partitions = [task.partitions for task in tasks]
        of_task = np.repeat(np.arange(len(tasks)), partitions)
        first = np.concatenate(([0], np.cumsum(partitions)[:-1])).astype(int)
        return cls(
            tasks=tuple(tasks),
            pairs=all(len(task.upstream) <= 2 for task in tasks),
            scales=any(task.partitions > task.parallelism for task in tasks),
            first_instance=first,
            **_edge_columns(tasks, number, first),
            **_channel_columns(tasks, _edges(tasks), of_task, first),
            **_instance_columns(tasks, of_task, first),
        )

    def with_parallelism(self, task: int, parallelism: int) -> Wiring:
        """Return this wiring with the partitions of a task assigned to this many of its instances."""
        owner = self.channel_instance.copy()
        mine = self.channel_task == task
        owner[mine] = self.first_instance[task] + self.channel_partition[mine] % parallelism
        return replace(self, channel_instance=owner, scales=True)

    def refitted(self, fused: Iterable[int], parallelism: Mapping[int, int]) -> Wiring:
        """Return this wiring with these streams (edges, in their order) fused, and other numbers of instances."""
        found = self
        for task, count in parallelism.items():
            if count != self.tasks[task].parallelism:
                found = found.with_parallelism(task, count)
        for edge in fused:
            found = found.joined(edge)
        return found

    def joined(self, edge: int) -> Wiring:
        """Return this wiring with the two tasks of a stream fused into one.

        The fused task has the index of the second: it reads the channels of the first, at the costs of both without
        those of the hop. The first has the channels of the stream, which no row reaches.
        """
        first, second = int(self.edge_source[edge]), int(self.edge_target[edge])
        one = joined(self.tasks[first], self.tasks[second])
        ins, outs = self.channel_task == first, self.channel_edge == edge
        task, owner, target = self.channel_task.copy(), self.channel_instance.copy(), self.edge_target.copy()
        task[ins], task[outs] = second, first
        further = int(self.first_instance[second] - self.first_instance[first])
        owner[ins] += further
        owner[outs] -= further
        target[self.edge_target == first], target[edge] = second, first
        ends = zip(self.edges, self.edge_target.tolist(), strict=True)
        edges = tuple((source, one.id if reader == first else name) for (source, name), reader in ends)
        mine = self.instance_task == second
        changed = {"work_s": (ins, one.work_us * 1e-6), "selectivity": (mine, one.selectivity)}
        changed |= {"fixed": (mine, one.fixed), "overhead": (mine, one.overhead)}
        changed |= {"loses_weight": (mine, not one.keeps_weight)}
        columns: dict[str, Any] = {name: np.where(at, to, getattr(self, name)) for name, (at, to) in changed.items()}
        inner = (*self.within.get(first, ()), self.edge_names[edge], *self.within.get(second, ()))
        return replace(
            self,
            tasks=(*self.tasks[:second], one, *self.tasks[second + 1 :]),
            edges=edges,
            edge_names=tuple(name if source is None else f"{source}>{name}" for source, name in edges),
            edge_target=target,
            channel_task=task,
            channel_instance=owner,
            scales=True,
            within={**self.within, second: inner},
            **columns,
        )

    def channels_of(self, instance: int) -> Array:
        """Return the channels of an instance."""
        if self.scales:
            return np.flatnonzero(self.channel_instance == instance)
        after = instance + 1
        end = int(self.first_channel[after]) if after < len(self.instances) else len(self.channel_edge)
        return np.arange(int(self.first_channel[instance]), end)

    def by_instance(self, channels: Array) -> Array:
        """Return sums of the channels' values by instance."""
        if self.pairs or self.scales:  # faster; more than two would be summed in another order
            return np.bincount(self.channel_instance, channels, len(self.instances))
        return np.add.reduceat(channels, self.first_channel)

    def by_edge(self, channels: Array) -> Array:
        """Return sums of whole numbers by edge."""
        return np.bincount(self.channel_edge, channels, len(self.edges)).astype(np.int64)


def _edges(tasks: Sequence[SimulatedTask]) -> list[Edge]:
    """Return the inputs of sources, then the streams between tasks."""
    edges: list[Edge] = [(None, task.id) for task in tasks if not task.upstream]
    return edges + [(name, task.id) for task in tasks for name in task.upstream]


def _edge_columns(tasks: Sequence[SimulatedTask], number: Mapping[str, int], first: Array) -> dict[str, Any]:
    """Return the fields of `Wiring` by edge and by outlet; `number`: of each task by its id."""
    edges = _edges(tasks)
    streams = [(e, number[a]) for e, (a, _) in enumerate(edges) if a is not None]
    outlets = [(i, e) for e, t in streams for i in range(first[t], first[t] + tasks[t].partitions)]
    return {
        "edges": tuple(edges),
        "edge_names": tuple(b if a is None else f"{a}>{b}" for a, b in edges),
        "sources": len(edges) - len(streams),
        "edge_target": _whole(number[b] for _, b in edges),
        "edge_source": _whole(-1 if a is None else number[a] for a, _ in edges),
        "latency_s": _real(tasks[number[b]].latency_s for _, b in edges),
        "levels": tuple(_whole(level) for level in _levels(tasks, edges, number)),
        "outlet_instance": _whole(i for i, _ in outlets),
        "outlet_edge": _whole(e for _, e in outlets),
    }


def _levels(tasks: Sequence[SimulatedTask], edges: Sequence[Edge], number: Mapping[str, int]) -> list[list[int]]:
    """Return the streams between tasks, by the depth of their reader."""
    depth = [0] * len(tasks)
    for t, task in enumerate(tasks):
        depth[t] = max((depth[number[name]] + 1 for name in task.upstream), default=0)
    by_level: list[list[int]] = [[] for _ in range(max(depth, default=0))]
    for e, (a, b) in enumerate(edges):
        if a is not None:
            by_level[depth[number[b]] - 1].append(e)
    return by_level


def _channel_columns(
    tasks: Sequence[SimulatedTask], edges: Sequence[Edge], of_task: Array, first: Array
) -> dict[str, Any]:
    """Return the fields of `Wiring` by channel, and the first channel of each instance."""
    edge_number = {edge: e for e, edge in enumerate(edges)}
    channels: list[tuple[int, int, int, float]] = []  #: (task, partition, edge, share)
    first_channel = []
    for i, t in enumerate(of_task.tolist()):
        task = tasks[t]
        p = i - int(first[t])
        share = task.shares[p] if task.shares else 1.0 / task.partitions
        first_channel.append(len(channels))
        channels += [(t, p, edge_number[name, task.id], share) for name in task.upstream or (None,)]
    readers = [tasks[t] for t, _, _, _ in channels]
    return {
        "first_channel": _whole(first_channel),
        "channel_task": _whole(t for t, _, _, _ in channels),
        "channel_partition": _whole(p for _, p, _, _ in channels),
        "channel_instance": _whole(first[t] + p % tasks[t].parallelism for t, p, _, _ in channels),
        "channel_edge": _whole(e for _, _, e, _ in channels),
        "channel_share": _real(share for _, _, _, share in channels),
        "read_s": _real(task.read_us * 1e-6 for task in readers),
        "work_s": _real(task.work_us * 1e-6 for task in readers),
    }


def _instance_columns(tasks: Sequence[SimulatedTask], of_task: Array, first: Array) -> dict[str, Any]:
    """Return the fields of `Wiring` by instance."""
    each = [tasks[t] for t in of_task.tolist()]
    return {
        "instances": tuple(f"{tasks[t].id}.{i - first[t] + 1}" for i, t in enumerate(of_task.tolist())),
        "instance_task": of_task,
        "instance_number": np.arange(len(of_task)) - first[of_task],
        "fixed": _real(task.fixed for task in each),
        "overhead": _real(task.overhead for task in each),
        "selectivity": _real(task.selectivity for task in each),
        "micro": _whole(i for i, task in enumerate(each) if task.mode == MICRO_BATCH),
        "trigger_s": _real(task.trigger_s for task in each),
        "loses_weight": np.array([not task.keeps_weight for task in each], bool),
    }


def _whole(values: Any) -> Array:
    return np.fromiter(values, np.int64)


def _real(values: Any) -> Array:
    return np.fromiter(values, float)


_Name = TypeVar("_Name")


class Column(Generic[_Name]):
    """Turns mappings into arrays in the order of its names."""

    def __init__(self, names: Iterable[_Name]) -> None:
        self._names = tuple(names)

    def __repr__(self) -> str:
        return f"column of {len(self._names)} names"

    def of(self, mapping: Mapping[_Name, float | None], last: Array) -> Array:
        """Return the values of a mapping in the order of the names, NaN for None; from `last` where a name is
        missing."""
        pairs = zip(self._names, last.tolist(), strict=True)
        return np.array([mapping.get(name, was) for name, was in pairs], float)


@dataclass(frozen=True, slots=True)
class Parts:
    """The positions of some instances, and of their channels and outlets."""

    instances: Array
    channels: Array
    outlets: Array

    @classmethod
    def of(cls, instances: Array, wiring: Wiring) -> Parts:
        """Return the positions of these instances, and of their channels and outlets."""
        if len(instances) == 1:
            outlets = np.flatnonzero(wiring.outlet_instance == instances[0])
            return cls(instances, wiring.channels_of(int(instances[0])), outlets)
        chosen = np.zeros(len(wiring.instances), bool)
        chosen[instances] = True
        channels, outlets = chosen[wiring.channel_instance], chosen[wiring.outlet_instance]
        return cls(instances, np.flatnonzero(channels), np.flatnonzero(outlets))


@dataclass(slots=True)
class Totals:
    """Counters at an instant, since the start: by instance, by channel and by outlet."""

    at: Array  #: by instance
    cpu: Array
    out: Array
    came: Array  #: rows that reached its task
    read: Array
    kept: Array
    sent: Array
    unsent: Array

    @classmethod
    def zero(cls, wiring: Wiring) -> Totals:
        """Return the totals before the first row."""
        instances, channels, outlets = len(wiring.instances), len(wiring.channel_edge), len(wiring.outlet_edge)
        whole = np.int64
        return cls(
            np.zeros(instances),
            np.zeros(instances),
            np.zeros(instances, whole),
            np.zeros(instances, whole),
            np.zeros(channels, whole),
            np.zeros(channels, whole),
            np.zeros(outlets, whole),
            np.zeros(outlets, whole),
        )

    def of(self, parts: Parts) -> Totals:
        """Return the totals of some parts, in their order."""
        i, c, o = parts.instances, parts.channels, parts.outlets
        return Totals(
            self.at[i],
            self.cpu[i],
            self.out[i],
            self.came[i],
            self.read[c],
            self.kept[c],
            self.sent[o],
            self.unsent[o],
        )

    def put(self, parts: Parts, found: Totals) -> None:
        """Set the totals of some parts to `found`, in their order."""
        i, c, o = parts.instances, parts.channels, parts.outlets
        self.at[i], self.cpu[i], self.out[i], self.came[i] = found.at, found.cpu, found.out, found.came
        self.read[c], self.kept[c] = found.read, found.kept
        self.sent[o], self.unsent[o] = found.sent, found.unsent
