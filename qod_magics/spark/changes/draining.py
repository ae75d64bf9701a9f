"""Waiting until a task has read its topics to the end, once nothing is sent to them."""

from __future__ import annotations

import time
from collections.abc import Collection

from qod_magics.errors import TaskManagerError
from qod_magics.kafka.reading import end_offsets
from qod_magics.lifecycle.events import State
from qod_magics.spark.changes.hold import LOOK_S
from qod_magics.spark.cluster.books import Account
from qod_magics.spark.cluster.cluster import Cluster


def drain(cluster: Cluster, task: str, accounts: Collection[Account]) -> None:
    """Wait until a task has read its topics to the end.

    Args:
        cluster: where the task runs.
        task: its id; the tasks that send to it have stopped.
        accounts: of the topics.

    Raises:
        TaskManagerError: it is still behind after a minute, or was lost with its task manager.
        KafkaError: the broker does not answer.

    """
    if not accounts:
        return
    topics = [account.topic for account in accounts]
    ends = end_offsets(cluster.deployment.kafka, topics, timeout_s=10.0)
    drain_s = cluster.patience.drain_s
    deadline = time.monotonic() + drain_s
    while True:
        for instance in cluster.instances_of(task):
            home = instance.task_manager
            if home is None or not home.alive() or not cluster.is_up(home):
                why = f"{instance.id} was lost with its task manager."
                raise TaskManagerError(why, name=instance.id, rule="a task manager is up")
            if instance.state is State.RUNNING:
                with instance.lock:
                    instance.poll()
                cluster.take(instance)
        waiting = sum(account.count(ends[account.topic]).waiting for account in accounts)
        if not waiting:
            return
        if time.monotonic() > deadline:
            raise TaskManagerError(
                f"{task} still has {waiting} rows to read after {drain_s:g} s: it is behind.",
                name=task,
                value=waiting,
                rule="drained",
            )
        time.sleep(LOOK_S)
