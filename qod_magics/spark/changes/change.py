"""Changes of running tasks: rescaling, fusing, unfusing. `lifecycle.changes` decides; they go on in the background."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from qod_magics.core.plan import Action, Refusal
from qod_magics.core.runtime import refused
from qod_magics.errors import QodError, TaskManagerError
from qod_magics.lifecycle.changes import ChangeBegins, Drain, RowsLeft, StepEnded, StepFailed, TaskChange
from qod_magics.lifecycle.events import Instruction
from qod_magics.lifecycle.refusals import InstanceFacts, Objection, TaskFacts
from qod_magics.spark.changes.hold import LOOK_S
from qod_magics.spark.cluster.cluster import Cluster
from qod_magics.spark.servers.connection import reason

T = TypeVar("T")

LOG = logging.getLogger(__name__)


def begin_change(cluster: Cluster, action: Action, change: Callable[[], Future[None]]) -> None:
    """Begin what a plan asks for. If it is refused, or fails later, that is an event of the cluster.

    Args:
        cluster: gets the event.
        action: the plan's.
        change: begins it; raises QodError to refuse it.

    """
    try:
        under_way = change()
    except QodError as error:
        cluster.add(refused(Refusal(action, str(error))))
        return

    def tell(change: Future[None]) -> None:
        error = change.exception()
        if error is not None:
            cluster.add(refused(Refusal(action, reason(error))))

    under_way.add_done_callback(tell)


def in_one_line(change: Callable[[], None], undone: str) -> Callable[[], None]:
    """The change, with errors that are not of this package, such as Spark's of many lines, as TaskManagerError;
    `undone` is what becomes of it, as one clause."""

    def run() -> None:
        try:
            change()
        except QodError:
            raise
        except Exception as error:
            raise TaskManagerError(f"{undone}: {reason(error)}.") from error

    return run


def ended(result: T) -> Future[T]:
    """Return a change that has ended with this result."""
    future: Future[T] = Future()
    future.set_result(result)
    return future


def refusal_of(objection: Objection) -> TaskManagerError:
    """Return the error that says why a change can't be made now."""
    return TaskManagerError(f"{objection.why}.", name=objection.name, rule=objection.rule)


def facts_of(cluster: Cluster, task: str) -> TaskFacts:
    """Return what decides whether a task can be changed now."""
    mine = cluster.instances_of(task)
    found = [
        InstanceFacts(i.id, None if i.task_manager is None else i.task_manager.id, i.state, i.books_differ)
        for i in mine
    ]
    keeps_state = any(i.facts is not None and i.facts.keeps_state for i in mine)
    return TaskFacts(task, tuple(found), keeps_state, min((len(i.job.feeds) for i in mine), default=1))


def carry_out(change: TaskChange, do: Callable[[Instruction], int | None]) -> None:
    """Carry out a change of tasks, one instruction after the other.

    Args:
        change: says what is next.
        do: carries out an instruction; returns the rows that are left to read if it is `Drain`. What it raises makes
            the step fail.

    Raises:
        BaseException: what made a step fail, once all was put back.
        TaskManagerError: a task has not read its topics to the end in time.

    """
    left, failed = list(change.handle(ChangeBegins(), time.monotonic())), None
    while left:
        step = left.pop(0)
        try:
            rows = do(step)
        except BaseException as error:
            if failed is not None:
                LOG.warning("%s: %s failed: %s", change, step, error)
            why = reason(error) if isinstance(error, Exception) else str(error)
            failed = failed or error
            left += change.handle(StepFailed(step, why), time.monotonic())
            continue
        if isinstance(step, Drain):
            followed = change.handle(RowsLeft(step, rows or 0), time.monotonic())
            if step in followed:
                time.sleep(LOOK_S)
        else:
            followed = change.handle(StepEnded(step), time.monotonic())
        left += followed
    if failed is not None:
        raise failed
    if change.refusal:
        raise TaskManagerError(f"{change.refusal}.", name=change.reader, value=change.rows_left, rule="drained")
