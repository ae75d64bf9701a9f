"""State of a task that is rescaled: whether other instances can take it over, and how they do.

The session's own sender chooses the partition of a row by its key. An instance that gets other partitions therefore
takes over the groups of the keys that are sent there, from the checkpoints of all instances that had one of these
partitions. It goes on from a checkpoint of its own, at the offsets of the row accounting.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle

from qod_magics.application.tasks import TaskSpec
from qod_magics.errors import TaskManagerError
from qod_magics.lifecycle.admission import StateFacts
from qod_magics.spark.cluster.cluster import Cluster
from qod_magics.spark.cluster.feeds import Pipe
from qod_magics.spark.plans.dial import DialReading
from qod_magics.spark.plans.job import feeds_of
from qod_magics.spark.queries.checkpoints import (
    Left,
    inherit,
    local_path,
    shuffle_partitions,
    why_not_divided,
    why_not_transplanted,
)
from qod_magics.spark.queries.instance import Instance
from qod_magics.spark.servers.connection import gather
from qod_magics.spark.servers.task_manager import ASSIGNING_S, TaskManager


def state_facts(cluster: Cluster, task: str) -> StateFacts:
    """Return what decides whether the state of a task can be assigned to other instances."""
    mine, spec = cluster.instances_of(task), cluster.deployment.specs.get(task)
    columns = [i.facts.state_columns for i in mine if i.facts is not None]
    return StateFacts(
        frozenset.intersection(*columns) if columns else frozenset(),
        None if spec is None else spec.key,
        all(len(i.job.feeds) == 1 and i.job.feeds[0].stream for i in mine),
        _obstacle(cluster, spec, mine),
        spec is not None and spec.lends,
    )


def _obstacle(cluster: Cluster, spec: TaskSpec | None, mine: Sequence[Instance]) -> str:
    """Return why no state of this task can be assigned here, as a clause; "" if it can."""
    for instance in mine:
        if refusal := why_not_transplanted(instance.checkpoint):
            return refusal
        if instance.mode == "real-time":
            return "real-time mode keeps it in a format of its own: declare it with --mode microbatch"
    if spec is not None and spec.sink is not None and spec.sink.appends:
        return "it writes files or a table, whose log has the numbers of one query's batches"
    if spec is not None and (whole := cluster.deployment.checked.whole.get(spec.id)):
        return f"{whole} over groups: each instance would write a whole result"
    managers = [each for each in list(cluster.task_managers.values()) if each.alive()]
    if managers and all(each.no_state_jar for each in managers):
        return f"no task manager can write it, since {managers[0].no_state_jar}"
    if spec is None or spec.key is None:  # it can't be assigned anyhow
        return ""
    return why_not_divided(instance.checkpoint for instance in mine)


def shuffle_for(cluster: Cluster, instance: Instance, home: TaskManager) -> int:
    """Return into how many partitions an instance shuffles if its first batch runs in micro-batches on `home`.

    All instances of a task with a key have the same number, or its state could not be rescaled. It is that of their
    checkpoints; else the one of its first start: that of the home of a single instance, or of several the smallest of
    all task managers that are up, since each of them may run any of them.
    """
    deployment, task = cluster.deployment, instance.job.task
    spec = deployment.specs.get(task)
    if spec is None or spec.key is None:
        return home.shuffle
    found = {shuffle_partitions(each.checkpoint) for each in cluster.instances_of(task)} - {None}
    if len(found) == 1 and (kept := found.pop()) is not None:
        return kept
    with cluster.lock:
        homes = [home]
        if deployment.instances(spec) > 1:
            homes += [each for each in cluster.task_managers.values() if each.alive() and cluster.is_up(each)]
        return deployment.shuffle_of(task, min(each.shuffle for each in homes))


@dataclass(frozen=True, slots=True)
class Heir:
    """An instance that takes over state."""

    id: str
    checkpoint: str
    partitions: tuple[int, ...]  #: that it reads from now on
    home: TaskManager | None = None  #: where it will run, if that is known


def assign_state(
    cluster: Cluster, spec: TaskSpec, old: Sequence[Instance], heirs: Sequence[Heir], parts: int
) -> set[str]:
    """Create the checkpoints of these heirs; return the ids of those that have state: none where none has begun.

    Args:
        cluster: where the task ran.
        spec: the task, which reads one stream by key.
        old: the instances that have stopped.
        heirs: those that take over.
        parts: the partitions of the stream, which may be more than before.

    Raises:
        TaskManagerError: a checkpoint can't be read or written; none is left.

    """
    (feed,) = feeds_of(spec)
    account, grown = cluster.deployment.accounts[feed], parts != cluster.deployment.partitions(feed)
    topic = account.topic
    able = [each for each in cluster.answering() if not each.no_state_jar]
    if not able:
        raise TaskManagerError(f"No task manager is up that can assign the state of {spec.id}.", name=spec.id)
    others = cycle(able)

    def at(partitions: Sequence[int]) -> Mapping[str, Mapping[int, int]]:
        return {topic: {partition: account.next_offset(partition) for partition in partitions}}

    def carry(heir: Heir, manager: TaskManager) -> bool:
        had = {i.id: i.job.feeds[0].partitions for i in old}
        sources = [i for i in old if grown or not set(had[i.id]).isdisjoint(heir.partitions)]
        sources.sort(key=lambda i: i.id != heir.id)
        assert spec.key is not None
        assign = partial(manager.assign_state, column=spec.key, partitions=parts, own=heir.partitions)
        left = [Left(i.checkpoint, at(had[i.id])) for i in sources]
        return inherit(left, heir.checkpoint, at(heir.partitions), assign)

    calls = {each.id: partial(carry, each, each.home if each.home in able else next(others)) for each in heirs}
    found = gather(calls, 2 * ASSIGNING_S)
    for error in found.values():
        if isinstance(error, BaseException):
            for heir in heirs:
                if (place := local_path(heir.checkpoint)) is not None:
                    shutil.rmtree(place, ignore_errors=True)
            raise error
    return {id for id, begun in found.items() if begun}


# --- Lending ----------------------------------------------------------------------------------------------------------
# Parts of a group in the state of several instances: which tasks can lend rows, and what their senders read for it.


def can_lend(cluster: Cluster, task: str) -> bool:
    """Return whether a task may lend rows, and all plans that send them read at once which share that is."""
    homes = sender_homes(cluster, task)
    return cluster.deployment.lends(task) and bool(homes) and all(home.reading is DialReading.ROW for home in homes)


def sender_homes(cluster: Cluster, task: str) -> list[TaskManager]:
    """Return the task managers of the instances that send rows to a task, as far as these have one."""
    senders = [instance for pipe in pipes_to(cluster, task) for instance in cluster.instances_of(pipe.source)]
    return [instance.task_manager for instance in senders if instance.task_manager is not None]


def pipes_to(cluster: Cluster, task: str) -> Iterator[Pipe]:
    """Yield the streams that a task reads."""
    yield from (pipe for pipe in cluster.deployment.pipes.values() if pipe.target == task)
