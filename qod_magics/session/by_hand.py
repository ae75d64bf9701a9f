"""The part of a session that changes its cluster by hand: task managers, moves, scaling, fusing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from qod_magics.core.plan import ReleaseNode
from qod_magics.errors import UsageProblem
from qod_magics.session import nodes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from qod_magics.controller import Controller, ControllerThread
    from qod_magics.session.resources import TaskManagers
    from qod_magics.spark.runtime import SparkRuntime


class ByHand:
    """What `session.Session` offers to change its cluster. Plans may change it again."""

    runtime: SparkRuntime
    controller: Controller
    thread: ControllerThread
    _managers: TaskManagers

    def add_task_manager(
        self,
        url: str | None = None,
        *,
        spark: SparkSession | None = None,
        cores: int | None = None,
        cpus: Sequence[int] | None = None,
        ui: str | None = None,
        ui_headers: Mapping[str, str] | None = None,
        jit: str | None = None,
        memory: str | None = None,
        slots: int | None = None,
    ) -> str:
        """Start another local task manager, connect to the server at `url`, or use another Spark session of the
        notebook's, `spark`, which asks for its tokens itself; returns its id once it is warmed up.

        Options that are None are the session's. With a budget, the standby is taken if no option is given. Raises
        SetupError, TaskManagerError (also where the budget is used up), UsageProblem.
        """
        return self._managers.add(url, spark, cores, cpus, ui, ui_headers, jit, memory, slots)

    def remove_task_manager(self, id: str, *, kill: bool = False) -> bool:
        """Move its instances to the others, then stop it or, with a budget, keep it as the standby; with `kill`, kill
        it at once: its instances restart on the others as after a crash. Whether it stands by. Raises
        TaskManagerError."""
        return self._managers.remove(id, kill)

    def remove_task_managers(self, count: int) -> list[str]:
        """Let the policy choose this many task managers, move their instances where it says, and remove them as
        `remove_task_manager` does. Returns a line on each. Raises UsageProblem: there are too few, nothing was measured
        yet, or the policy does not choose; TaskManagerError."""
        there = len(self.runtime.task_managers)
        if not 1 <= count < there:
            raise UsageProblem(
                f"count must be from 1 to one less than the {there} task managers that are up, got {count}",
                name="count",
                value=count,
                rule="in range",
            )
        plan = self.thread.ask(partial(self.controller.plan_without, count), "no task manager is removed")
        found = []
        for move in plan.moves:
            self.move(move.instance, move.to)
        for release in plan.actions:
            if isinstance(release, ReleaseNode):
                stands_by = self.remove_task_manager(release.id)
                why = f": {release.why}" if release.why else ""
                found.append(f"{release.id} {'stands by' if stands_by else 'is gone'}{why}")
        return found

    def limit_cpu(self, task_manager: str, share: float) -> None:
        """Limit the CPU that plans use on a task manager to a share of its cores for tasks, from the next cycle on.

        Load is shed and micro-batches are paced to stay within the limit. 1 removes it.

        Utilization counts all processes on the cores. The controller keeps the limit, not the operating system: it is
        exceeded where even the minimum accuracies need more CPU. Raises UsageProblem: no share from 0.05 to 1;
        TaskManagerError: there is no task manager of this id.
        """
        self._managers.limit(task_manager, share)

    def move(self, instance: str, task_manager: str) -> None:
        """Move an instance by hand, and wait until it runs there. The policy may move it again.
        Raises TaskManagerError, also where it runs elsewhere in the end."""
        nodes.move(self.runtime, instance, task_manager)

    def scale(self, task: str, parallelism: int) -> None:
        """Run a task with this many instances, and wait until they run. The policy may rescale it.

        Raises TaskManagerError: the task can't run as this many instances, or its state can't be divided among them.
        """
        self.runtime.scaler.scale(task, parallelism, why="scaled by hand").result()

    def fuse(self, first: str, second: str) -> None:
        """Run two neighbouring tasks as one query, without Kafka between them, and wait until it runs."""
        self.runtime.fuser.fuse((first, second), "fused by hand").result()

    def unfuse(self, first: str, second: str) -> None:
        """Run a task as two queries, with a Kafka topic between these two of its streams, and wait until they run."""
        self.runtime.fuser.unfuse((first, second), "unfused by hand").result()
