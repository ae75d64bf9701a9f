"""Moves and restarts of instances, between two batches."""

from __future__ import annotations

import time
from collections.abc import Collection
from functools import partial

from qod_magics.errors import TaskManagerError
from qod_magics.lifecycle.events import MoveNotNeeded, RestartAsked, State
from qod_magics.spark.changes.hold import held
from qod_magics.spark.changes.lifecycle import Lifecycle
from qod_magics.spark.cluster.cluster import Cluster
from qod_magics.spark.queries.instance import Instance, OngoingMove
from qod_magics.spark.servers.connection import begin, reason
from qod_magics.spark.servers.task_manager import TaskManager


class Mover:
    """Carries out moves and restarts. Any thread may call it; each call takes as long as the move does."""

    def __init__(self, cluster: Cluster, lifecycle: Lifecycle) -> None:
        self.cluster = cluster
        self.lifecycle = lifecycle

    def __repr__(self) -> str:
        return f"mover of {len(self.cluster.instances)} instances"

    def restart(self, instance: Instance) -> None:
        """Stop at a batch's end and restart on the same task manager."""
        manager = instance.task_manager
        if manager is None or not instance.handle(RestartAsked()):
            return
        try:
            with held(self.cluster, instance) as wait_s:
                self.lifecycle.stop(instance, wait_s)
            self.lifecycle.start(instance, manager)
        except Exception as error:
            self.lifecycle.fail_on(instance, manager, reason(error))

    def restart_outdated(self) -> None:
        """Begin to restart the instances whose job has changed since their run began."""
        for instance in self.cluster.all_instances:
            outdated = instance.running is not None and instance.running is not instance.job
            if outdated and instance.state is State.RUNNING:
                begin(partial(self.restart, instance), f"restart-{instance.id}")

    def move(self, instance: Instance, target: TaskManager, why: str) -> str:
        """Stop at a batch's end, start from the same checkpoint on `target`; if that fails, on any other. Returns why
        it was not started on `target`; "" if it was.

        It starts only after its old run has ended: two at once would write rows twice.
        """
        source = instance.task_manager
        if source is target and instance.query is not None:
            instance.handle(MoveNotNeeded())
            return ""
        if source is not None and source.alive():
            try:
                if not self.lifecycle.end(instance, source):
                    return f"{source.id} was lost or removed meanwhile"
            except Exception as error:  # it restarts where it is, once it can be stopped
                failed = f"it could not be stopped: {reason(error)}"
                if instance.task_manager is source:
                    self.lifecycle.fail(instance, f"not moved to {target.id}, for {failed}")
                return failed
        return self._start(instance, source, target, why, time.time(), set())

    def _start(
        self,
        instance: Instance,
        source: TaskManager | None,
        target: TaskManager,
        why: str,
        stopped_at: float,
        tried: Collection[str],
    ) -> str:
        """Start an instance that was stopped on `source` at `stopped_at` (epoch) on `target`; if that fails, on any
        other that was not `tried`, else on `source` again. Returns as `move`."""
        left = source.id if source else None
        instance.move = OngoingMove(left, target.id, why, stopped_at)
        try:
            self.lifecycle.start(instance, target)
            return ""
        except Exception as error:
            failed = reason(error)
        self.cluster.event("query-failed", instance=instance.id, task_manager=target.id, why=failed)
        if instance.task_manager is not target:  # detached meanwhile
            return failed
        if instance.unended is not None and source is not None:
            self._put_back(instance, source, failed)
            return failed
        instance.detach(failed)
        tried = {*tried, target.id, *([left] if left else [])}
        try:
            others = self.cluster.targets({instance.id: tried})
        except TaskManagerError:  # none is up: it waits for one
            return failed
        other = self.cluster.task_managers.get(others.get(instance.id, ""))
        if other is not None:
            self._start(instance, source, other, why, stopped_at, tried)
        elif source is not None:
            self._put_back(instance, source, failed)
        else:
            self.lifecycle.fail(instance, failed, target)
        return failed

    def _put_back(self, instance: Instance, source: TaskManager, why: str) -> None:
        """Have an instance that can start nowhere else restart where it was."""
        if source.alive():  # else it moves after all
            instance.move = None
        self.lifecycle.fail(instance, why, source)
