"""Desired accuracies from queries up to the sources, and the probabilities that make them true (Eqs. 3.15, 3.16)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from qod_magics.core.keyed import Keyed, Keys
from qod_magics.core.plan import Edge
from qod_magics.core.snapshot import Snapshot
from qod_magics.core.table import column
from qod_magics.policies.stream_economics.topology import Topology


def propagate(desired: list[float], topology: Topology) -> None:
    """Fill in `desired` of every task that has consumers: the highest that one of them asks for (Eq. 3.15)."""
    downstream = topology.downstream
    for t in reversed(topology.order):
        consumers = downstream[t]
        if len(consumers) == 1:
            desired[t] = desired[consumers[0]]
        elif consumers:
            desired[t] = max([desired[consumer] for consumer in consumers])


@dataclass(frozen=True, slots=True)
class Edges:
    """Where shedders are: at the sources (from None), and on the streams. Positions are those of tasks."""

    keys: Keys[Edge]  #: the inputs of sources, then the streams
    sources: list[int]
    streams: list[tuple[int, int]]

    @classmethod
    def of(cls, snapshot: Snapshot, topology: Topology) -> Edges:
        """Those of a valid snapshot, whose tasks have this topology."""
        sources = [t for t, upstream in enumerate(topology.upstream) if not upstream]
        ids = column(snapshot.tasks, "id")
        ends = list(zip(column(snapshot.streams, "source"), column(snapshot.streams, "target"), strict=True))
        position = topology.position
        keys = Keys[Edge]([*((None, ids[t]) for t in sources), *ends])
        return cls(keys, sources, [(position[a], position[b]) for a, b in ends])


def non_drop(snapshot: Snapshot, desired: Mapping[str, float]) -> dict[Edge, float]:
    """The d of every source (from None) and stream: the probability that a row is kept (Eq. 3.16), fraction of 1."""
    topology = Topology.of(snapshot.tasks)
    return dict(kept_shares([desired[task] for task in topology.position], Edges.of(snapshot, topology)).items())


def kept_shares(desired: Sequence[float], edges: Edges) -> Keyed[Edge, float]:
    """The same of tasks by position, whose edges are known already."""
    kept = [desired[t] for t in edges.sources]
    kept += [desired[b] / desired[a] if desired[a] > 0.0 else 0.0 for a, b in edges.streams]
    return Keyed(edges.keys, kept)


def actual_accuracy(snapshot: Snapshot, kept: Mapping[Edge, float]) -> dict[str, float]:
    """ac(t) of every task under these probabilities, fraction of 1 (model item 8, Eq. 3.3).

    The share of the application's input that the shedders let through to the task: the mean over its upstream tasks,
    where the outside world counts as 1.
    """
    topology = Topology.of(snapshot.tasks)
    tasks = snapshot.tasks
    actual: dict[str, float] = {}
    for t in topology.order:
        task = tasks[t]
        if task.upstream:
            reaching = sum(actual[upstream] * kept[upstream, task.id] for upstream in task.upstream)
            actual[task.id] = reaching / len(task.upstream)
        else:
            actual[task.id] = kept[None, task.id]
    return actual
