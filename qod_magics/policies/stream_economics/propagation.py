"""Desired accuracies from queries up to the sources, and the probabilities that make them true (Eqs. 3.15, 3.16)."""

from __future__ import annotations

from collections.abc import Mapping

from qod_magics.core.plan import Edge
from qod_magics.core.snapshot import Snapshot
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


def non_drop(snapshot: Snapshot, desired: Mapping[str, float]) -> dict[Edge, float]:
    """The d of every source (from None) and stream: the probability that a row is kept (Eq. 3.16), fraction of 1."""
    kept: dict[Edge, float] = {(None, task.id): desired[task.id] for task in snapshot.tasks if not task.upstream}
    for stream in snapshot.streams:
        sending = desired[stream.source]
        kept[stream.source, stream.target] = desired[stream.target] / sending if sending > 0.0 else 0.0
    return kept


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
