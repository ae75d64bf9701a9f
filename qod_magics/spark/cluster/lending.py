"""Rows of hot keys that another instance counts: which tasks can lend some, and what their senders read for it."""

from __future__ import annotations

from collections.abc import Iterator

from qod_magics.spark.cluster.cluster import Cluster
from qod_magics.spark.cluster.deployment import Pipe
from qod_magics.spark.plans.dial import DialReading


def can_lend(cluster: Cluster, task: str) -> bool:
    """Return whether a task may lend rows, and all plans that send them read at once which share that is."""
    senders = [instance for pipe in pipes_to(cluster, task) for instance in cluster.instances_of(pipe.source)]
    homes = [instance.task_manager for instance in senders if instance.task_manager is not None]
    return cluster.deployment.lends(task) and bool(homes) and all(home.reading is DialReading.ROW for home in homes)


def pipes_to(cluster: Cluster, task: str) -> Iterator[Pipe]:
    """Yield the streams that a task reads."""
    yield from (pipe for pipe in cluster.deployment.pipes.values() if pipe.target == task)
