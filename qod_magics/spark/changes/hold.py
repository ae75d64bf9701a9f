"""Stopping a query between two micro-batches: the next one is held before it reads."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from qod_magics.errors import TaskManagerError
from qod_magics.spark.cluster.cluster import Cluster
from qod_magics.spark.plans.dial import MOST_S
from qod_magics.spark.queries.instance import Instance

#: For how long a micro-batch is held, seconds: longer than it takes to stop its query.
HOLD_S = 4.0
#: How long the end of a micro-batch is waited for, as a multiple of the longest known one; and at most, seconds.
LONG_BATCH, LONGEST_S = 3.0, 60.0
#: Interval of looking for the end of a micro-batch, seconds.
LOOK_S = 0.05


@contextmanager
def held(cluster: Cluster, instance: Instance) -> Iterator[float]:
    """Wait until an instance has ended a micro-batch, with its next one held before it reads. A query that is stopped
    within has read no row that its next run reads again. Yields how long `Instance.stop` is to wait for the end of a
    batch, seconds.

    In real-time mode, and where dials can't be turned, nothing is held: the next run reads again what the batch under
    way has read.
    """
    home, key = instance.task_manager, cluster.board.pace(instance.id)
    if home is None or not instance.is_paced:
        batches_s = 2 * cluster.period_s if instance.mode == "micro-batch" else 0.0  # as long as their rows make them
        patience = cluster.patience
        yield max(patience.batch_s, batches_s, instance.job.trigger_s or 0.0) + patience.late_s
        return
    pace = 1.0 - HOLD_S / MOST_S
    cluster.pause(instance.id, pace)  # a plan that is applied meanwhile does not end it
    try:
        with suppress(TaskManagerError):
            home.turn({key: pace})
        _end_batch(instance, time.time())
        yield 0.0
    finally:
        cluster.go_on(instance.id)
        with suppress(TaskManagerError):
            home.turn({key: cluster.dials.get(key, 1.0)})


def _end_batch(instance: Instance, since: float) -> None:
    """Wait until a micro-batch has ended after `since` (epoch), which is the last that is not held, or none is under
    way. Raises whatever Spark raises."""
    query = instance.query
    took_s = max((batch.end - batch.start for batch in instance.batches), default=0.0)
    deadline = time.monotonic() + min(LONG_BATCH * max(took_s, HOLD_S), LONGEST_S)
    while query is not None and time.monotonic() < deadline and query.isActive:
        with instance.lock:
            instance.poll()
        if any(batch.end >= since for batch in instance.batches[-2:]) or not query.status["isTriggerActive"]:
            return
        time.sleep(LOOK_S)
