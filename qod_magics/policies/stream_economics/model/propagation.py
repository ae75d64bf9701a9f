"""Desired accuracies propagated from queries to sources, and the non-drop probabilities (Eqs. 3.15, 3.16)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from qod_magics.core.columns import Keys, column
from qod_magics.core.dag import Topology
from qod_magics.core.plan import Edge
from qod_magics.core.snapshot import Snapshot


def propagate(desired: list[float], topology: Topology) -> None:
    """Raise `desired` of every task that has consumers (0 so far) to the highest of its consumers (Eq. 3.15)."""
    upstream = topology.upstream
    for t in reversed(topology.order):
        asked = desired[t]
        for source in upstream[t]:
            if asked > desired[source]:
                desired[source] = asked


@dataclass(frozen=True, slots=True)
class Edges:
    """The edges with shedders: at the sources (from None), and on the streams. Positions are those of tasks."""

    keys: Keys[Edge]  #: the inputs of sources, then the streams
    sources: list[int]
    streams_from: list[int]
    streams_to: list[int]

    @classmethod
    def of(cls, starts: Sequence[str], ends: Sequence[str], topology: Topology) -> Edges:
        """The edges of valid tasks; `starts` and `ends` are the source and target tasks of the streams."""
        position, upstream = topology.position, topology.upstream
        keys = Keys[Edge](
            [*((None, task) for task, t in position.items() if not upstream[t]), *zip(starts, ends, strict=True)]
        )
        sources = [t for t, reads_from in enumerate(upstream) if not reads_from]
        return cls(keys, sources, [position[name] for name in starts], [position[name] for name in ends])


def non_drop(snapshot: Snapshot, desired: Mapping[str, float]) -> dict[Edge, float]:
    """The d of every source (from None) and stream: the probability that a row is kept (Eq. 3.16), fraction of 1."""
    topology = Topology.of(snapshot.tasks)
    edges = Edges.of(column(snapshot.streams, "source"), column(snapshot.streams, "target"), topology)
    return kept_shares([desired[task] for task in topology.position], edges)


def kept_shares(desired: Sequence[float], edges: Edges) -> dict[Edge, float]:
    """The same for desired accuracies by task position and known edges."""
    kept = [desired[t] for t in edges.sources]
    ends = zip(edges.streams_from, edges.streams_to, strict=True)
    kept += [desired[b] / desired[a] if desired[a] > 0.0 else 0.0 for a, b in ends]
    return edges.keys.mapping(kept)


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
