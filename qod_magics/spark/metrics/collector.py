"""Polls queries for their batch reports and CPU times, and enters them in the books."""

from __future__ import annotations

import time
from contextlib import suppress

from qod_magics.errors import TaskManagerError
from qod_magics.lifecycle.events import State
from qod_magics.spark.cluster.cluster import Cluster
from qod_magics.spark.cluster.reports import take_reports
from qod_magics.spark.cluster.views import batching_on, slot_times
from qod_magics.spark.servers.conf import REPORTS_KEPT, STAGES_KEPT
from qod_magics.spark.servers.connection import begin
from qod_magics.spark.servers.task_manager import TaskManager

#: Stages of a batch, at most as a rule: of a query with one shuffle, and of its sink.
STAGES = 3


class Collector:
    """Polls task managers. A query that has ended by itself is noted on its instance (`Instance.ended_run`), for
    `recovery` to handle."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def __repr__(self) -> str:
        return f"collector of the reports of {len(self.cluster.instances)} instances"

    def poll(self, manager: TaskManager, timeout_s: float = 2.0) -> None:
        """Collect the reports of one task manager since the last poll. Raises the last error of an instance's poll.

        Raises:
            TaskManagerError: another poll of it is under way, and has not ended after `timeout_s` seconds.

        """
        if not manager.polling.acquire(timeout=timeout_s):
            raise TaskManagerError(f"{manager.id} has not answered the last poll yet.")
        try:
            self._poll(manager)
        finally:
            manager.polling.release()

    def keep_up(self) -> None:
        """Poll task managers that may soon discard reports or stages not collected yet: queries with many batches per
        period make more than Spark keeps."""
        batches: dict[TaskManager, list[float]] = {}
        for instance in self.cluster.all_instances:
            if instance.state is State.RUNNING and instance.task_manager is not None:
                batches.setdefault(instance.task_manager, []).append(instance.unpolled())
        for manager, ended in batches.items():
            due = max(ended) > REPORTS_KEPT / 2 or sum(ended) * STAGES > STAGES_KEPT / 2
            if due and not manager.polling.locked():
                begin(lambda m=manager: self.poll(m), f"keeping-up-{manager.id}")  # type: ignore[misc]

    def _poll(self, manager: TaskManager) -> None:
        problem: Exception | None = None
        here = [i for i in self.cluster.all_instances if i.task_manager is manager]
        active = manager.active_runs()
        for instance in here:
            lock = instance.lock  # `detach` may replace it
            if instance.state is not State.RUNNING or not lock.acquire(blocking=False):
                continue
            run_id = instance.run_id
            try:
                instance.poll()
                why = None if run_id in active else instance.failed()
                if why is not None:  # a batch may have ended between the two calls
                    with suppress(Exception):
                        instance.poll()
                take_reports(self.cluster, instance)
                if why is not None and run_id is not None:
                    instance.found_ended(run_id, why)
            except Exception as error:  # poll the others all the same; its reports are entered next time
                problem = error
            finally:
                lock.release()
        runs = {i.run_id: i for i in self.cluster.all_instances if i.run_id is not None}
        by_slots = manager.cpu_meter is None
        for (run_id, batch_id), seconds in (manager.task_times() or {}).items():
            if run_id in runs:
                one = runs[run_id]
                record = one.meter.tell if by_slots and one.mode == "micro-batch" else one.meter.charge
                record(run_id, batch_id, seconds)
        if by_slots:
            begin(manager.recount, f"cores-{manager.id}")
            self._charge_slots(manager)
        self._charge_python(manager)
        if problem is not None:
            raise problem

    def _charge_slots(self, manager: TaskManager) -> None:
        """Charge micro-batches with their slot time, where the CPU of a task manager can't be measured."""
        here = batching_on(self.cluster, manager)
        taken = slot_times(self.cluster, manager) if here else {}
        for instance in here:
            mine = {key: times for key, times in taken.items() if key[0] == instance.run_id}
            instance.meter.take(mine)

    def _charge_python(self, manager: TaskManager) -> None:
        """Split the CPU of a task manager's Python workers, which stages do not include, among its instances that run
        Python, by their batch time since the last call: among those whose plans tell that they do, or, where none does,
        all in micro-batch mode (no others can)."""
        if manager.python_meter is None:
            return
        here = [i for i in self.cluster.all_instances if i.task_manager is manager and i.mode == "micro-batch"]
        for instance in self.cluster.all_instances:
            if instance.task_manager is manager:
                instance.use_python_cpu(0.0)
        if not here:
            return
        here = [i for i in here if i.facts is not None and i.facts.runs_python] or here
        cpu, seconds = manager.python_meter.read()
        if cpu > 0.0:
            since = time.time() - seconds
            busy = [instance.busy_s(since) if len(here) > 1 else 1.0 for instance in here]
            for instance, part in zip(here, busy, strict=True):
                instance.use_python_cpu(cpu * (part / sum(busy) if sum(busy) else 1.0 / len(here)))
