"""Stopping a query between two micro-batches: the next one is held before it reads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from qod_magics.errors import TaskManagerError
from qod_magics.spark.cluster import Cluster
from qod_magics.spark.instance import REALTIME_BATCH_S, Instance
from qod_magics.spark.pace import MOST_S

#: How long the end of a micro-batch is waited for, as a multiple of the longest known one; and at most, seconds.
LONG_BATCH, LONGEST_S = 3.0, 60.0
#: How much later than it is due the end of a real-time batch is waited for, seconds.
LATE_S = 1.5


@contextmanager
def held(cluster: Cluster, instance: Instance) -> Iterator[float]:
    """Hold the next micro-batch of an instance before it reads; yields how long to wait for the end of the present one
    before the query is stopped, seconds. So stopped, it reads no row that its next run reads again.

    In real-time mode, and where dials can't be turned, nothing is held: the next run reads again what the batch under
    way has read.
    """
    home, query, key = instance.task_manager, instance.query, cluster.board.pace(instance.id)
    wait_s = max(REALTIME_BATCH_S, instance.job.trigger_s or 0.0) + LATE_S
    if home is None or query is None or not instance.is_paced:
        yield wait_s
        return
    try:
        home.turn({key: 0.0})
    except TaskManagerError:
        yield wait_s
        return
    try:
        took_s = max((batch.end - batch.start for batch in instance.batches), default=0.0)
        wait_s = min(max(LONG_BATCH * took_s, MOST_S - 1.0), LONGEST_S)
        yield wait_s if query.status["isTriggerActive"] else 0.0  # 0: no batch is under way
    finally:
        with suppress(TaskManagerError):
            home.turn({key: cluster.dials.get(key, 1.0)})
