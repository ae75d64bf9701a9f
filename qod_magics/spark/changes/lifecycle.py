"""Starts and stops single instances, and handles their failures with a back-off."""

from __future__ import annotations

import time
from concurrent.futures import wait

from qod_magics.errors import TaskManagerError
from qod_magics.spark.cluster.cluster import Cluster
from qod_magics.spark.queries.failures import depends_on_rows, explained, final_text, is_certain, limit_of, pattern_of
from qod_magics.spark.queries.instance import REALTIME_BATCH_S, Instance, OngoingMove, State, finds_remains
from qod_magics.spark.queries.realtime import not_realtime, refuses_realtime
from qod_magics.spark.queries.slots import free
from qod_magics.spark.servers.task_manager import TaskManager
from qod_magics.spark.servers.timeouts import begin

#: Back-off before each restart of a failing query, seconds; after the last it stays stopped.
BACK_OFF_S = (1.0, 2.0, 4.0, 8.0, 16.0)
#: The same where the failure depends on the rows: each try writes the rows in front of the failing one once more, so
#: tries are few, and there is time to fix a cause outside of the rows, such as a table that a function reads.
ROWS_BACK_OFF_S = (10.0,)
#: A query that has run for this long, seconds, has recovered: its failure count is reset.
RECOVERED_AFTER_S = 60.0
#: Timeout from a query's start to its first tasks, seconds; one still planning then is taken for settled.
SETTLED_S = 60.0
#: The same where its task manager's REST API does not answer.
UNTOLD_S = 8.0
#: Report a stop that takes longer than this, in seconds.
STOP_S = 20.0


class Lifecycle:
    """Starts and stops instances, and restarts those that fail up to a limit. Any thread may call it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def __repr__(self) -> str:
        return f"lifecycle of {len(self.cluster.instances)} instances"

    def start(self, instance: Instance, manager: TaskManager) -> None:
        """Start an instance on a task manager. Raises QodError."""
        instance.start(
            manager,
            self.cluster.board,
            self.cluster.kafka_options,
            self.cluster.dials_of(instance),
            free([manager], [other for other in self.cluster.all_instances if other is not instance])[manager.id],
        )

    def stop(self, instance: Instance, at_batch_end_s: float = 0.0) -> None:
        """Stop its query as `Instance.stop` does; its reports are entered in the books even if that raises."""
        try:
            instance.stop(at_batch_end_s)
        finally:
            self.cluster.take(instance)

    def settle(self, instance: Instance) -> None:
        """Wait until the first real-time batch of a query that was just started has tasks: Spark refuses some plans
        only then. These fall back to micro-batches, unless real-time mode was requested.

        Raises:
            TaskManagerError: real-time mode was requested and is refused.

        """
        begun, answered = time.monotonic(), False
        while instance.mode == "real-time" and instance.state is State.RUNNING:
            with instance.lock:
                manager, run_id = instance.task_manager, instance.run_id
                why = instance.failed()
                if manager is None or run_id is None:
                    return
                if why is None:
                    works = manager.works_on(run_id)
                    answered = answered or works is not None
                    if works or time.monotonic() - begun >= (SETTLED_S if answered else UNTOLD_S):
                        return
                elif not refuses_realtime(why):
                    return  # a failure like any other: found at the next poll
                elif instance.mode_wanted == "realtime":
                    raise TaskManagerError(
                        f"{instance.id} can't run in real-time mode: {not_realtime(why, manager.kind)}."
                    )
                else:
                    instance.fall_back(why)
                    self.start(instance, manager)
                    return
            time.sleep(0.1)

    def end(
        self,
        instance: Instance,
        source: TaskManager,
        at_batch_end_s: float | None = None,
        kind: str = "move-waits",
    ) -> bool:
        """Stop its run and wait without a timeout until it has ended. False: its task manager is gone, and the instance
        waits for another. Raises whatever stopping raises."""
        wait_s = REALTIME_BATCH_S + 1.5 if at_batch_end_s is None else at_batch_end_s
        stopping = begin(lambda: self.stop(instance, wait_s), f"stopping-{instance.id}")
        begun, reported = time.monotonic(), False
        while not stopping.done():
            wait((stopping,), 0.25)
            removed = self.cluster.task_managers.get(source.id) is not source
            if not source.alive() or (removed and source.kind == "connect"):  # which ends its session
                if removed and instance.task_manager is source:
                    instance.move = OngoingMove(source.id, "", f"{source.id} was removed", time.time())
                    instance.forsake()
                return False  # a lost one is handled by `recover_lost`
            if not reported and time.monotonic() - begun > STOP_S:
                reported = True
                why = f"it has not ended on {source.id} for {STOP_S:g} s, and starts again only once it has"
                self.cluster.event(kind, instance=instance.id, task_manager=source.id, why=why)
        stopping.result()
        return instance.task_manager is source

    def fail_on(self, instance: Instance, manager: TaskManager, why: str) -> None:
        """Handle a failed start on `manager`, unless the instance was detached from it meanwhile."""
        if instance.task_manager is manager:
            self.fail(instance, why)

    def fail(
        self,
        instance: Instance,
        why: str,
        manager: TaskManager | None = None,
        *,
        stalled_s: float | None = None,
        ended: bool = False,
    ) -> None:
        """Handle a query that ended by itself, or was stopped after a stall of `stalled_s` seconds: restart it after a
        back-off or, after too many failures, report that it stays stopped. If its task manager is gone, it waits for
        another. Does nothing if a deployment has stopped it. Unless its run is known to have `ended`, the next start
        stops it first."""
        if instance.state is State.STOPPED:
            return
        manager = manager or instance.task_manager
        if manager is None or not manager.alive() or self.cluster.task_managers.get(manager.id) is not manager:
            instance.forsake()
            return
        kind = "query-failed" if stalled_s is None else "query-stalled"
        if instance.started_at and time.monotonic() - instance.started_at - (stalled_s or 0.0) > RECOVERED_AFTER_S:
            instance.failures = 0
        instance.started_at = 0.0  # that run is over: it resets no later count
        if finds_remains(why):
            instance.start_afresh()
        if instance.has_passed():
            instance.unpassed.clear()
        certain, least_s = (False, 0.0) if stalled_s is not None else self._judged(instance, why)
        why = explained(why, instance)
        query = instance.query
        if query is not None and not ended:  # it may write on, and end batches that nobody asks for
            instance.unended, instance.books_differ = query, True
        instance.query = None
        instance.hold()
        instance.failure = why
        instance.task_manager = manager
        where = manager.id
        leaves = where in self.cluster.leaving  # attempts to move it off there are not its failures
        if (certain or instance.failures >= len(BACK_OFF_S)) and not leaves:
            if certain:
                why = instance.failure = final_text(why, instance.failures + 1)
            if not instance.become(State.GAVE_UP):
                return
            self.cluster.event(
                kind,
                instance=instance.id,
                task_manager=where,
                why=why,
                gave_up=True,
                failures=instance.failures,
            )
            return
        wait_s = max(BACK_OFF_S[min(instance.failures, len(BACK_OFF_S) - 1)], least_s)
        instance.failures += not leaves
        instance.retry_at = time.monotonic() + wait_s
        if not instance.become(State.BACKING_OFF):
            return
        self.cluster.event(kind, instance=instance.id, task_manager=where, why=why, retry_in_s=wait_s)

    def _judged(self, instance: Instance, why: str) -> tuple[bool, float]:
        """Whether a retry would fail as well, and the minimum back-off before one, seconds.

        A row that is too large for Kafka is tried once more, with a plan that says which of its columns is. Rows that
        fail are tried again by `ROWS_BACK_OFF_S`; a try that began sooner, such as by a move, does not count.
        """
        limit, checked = limit_of(why), instance.most
        instance.most = limit if limit is not None and checked is None else None
        if instance.most is not None:
            return False, 0.0
        if is_certain(why):
            return True, 0.0
        if not depends_on_rows(why):
            return False, 0.0
        now, pattern = time.monotonic(), pattern_of(why)
        tries, due = instance.unpassed.get(pattern, (0, 0.0))
        if now < due:
            return False, due - now
        if tries >= len(ROWS_BACK_OFF_S):
            return True, 0.0
        wait_s = ROWS_BACK_OFF_S[tries]
        instance.unpassed[pattern] = tries + 1, now + wait_s
        return False, wait_s
