"""Waiting until a task has read its topics to the end, once nothing is sent to them."""

from __future__ import annotations

from collections.abc import Collection

from qod_magics.errors import TaskManagerError
from qod_magics.kafka.reading import end_offsets
from qod_magics.lifecycle.events import State
from qod_magics.spark.cluster.books import Account
from qod_magics.spark.cluster.cluster import Cluster


class Draining:
    """A task that reads its topics to the end, while nothing is sent to them.

    Args:
        cluster: where the task runs.
        task: its id; the tasks that send to it have stopped.
        accounts: of the topics.

    Raises KafkaError if the broker does not answer.

    """

    def __init__(self, cluster: Cluster, task: str, accounts: Collection[Account]) -> None:
        self._cluster, self._task, self._accounts = cluster, task, tuple(accounts)
        topics = [account.topic for account in accounts]
        self._ends = end_offsets(cluster.deployment.kafka, topics, timeout_s=10.0) if topics else {}

    def __repr__(self) -> str:
        return f"{self._task} reads {', '.join(self._ends) or 'no topic'} to the end"

    def rows_left(self) -> int:
        """Poll the task, and return the rows that it has not read, or not reported. Raises TaskManagerError if it was
        lost with its task manager."""
        if not self._accounts:
            return 0
        for instance in self._cluster.instances_of(self._task):
            home = instance.task_manager
            if home is None or not home.alive() or not self._cluster.is_up(home):
                why = f"{instance.id} was lost with its task manager."
                raise TaskManagerError(why, name=instance.id, rule="a task manager is up")
            if instance.state is State.RUNNING:
                with instance.lock:
                    instance.poll()
                self._cluster.take(instance)
        return sum(account.count(self._ends[account.topic]).waiting for account in self._accounts)
