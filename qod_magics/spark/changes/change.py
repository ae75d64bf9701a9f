"""Carry out changes of running tasks in the background: rescaling, fusing, unfusing. `lifecycle.changes` decides."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from typing import TypeVar

from qod_magics.core.plan import Action, Refusal
from qod_magics.core.runtime import refused
from qod_magics.errors import QodError, TaskManagerError
from qod_magics.lifecycle.admission import ACCOUNTING_DIFFERS, InstanceFacts, StateFacts, TaskFacts
from qod_magics.lifecycle.changes import ChangeBegins, Drain, RowsLeft, StepEnded, StepFailed, TaskChange
from qod_magics.lifecycle.events import Instruction, State, StopAsked
from qod_magics.spark.changes.lifecycle import Lifecycle
from qod_magics.spark.cluster.books import Account
from qod_magics.spark.cluster.cluster import Cluster
from qod_magics.spark.cluster.preparing import ends_of
from qod_magics.spark.cluster.reports import take_reports
from qod_magics.spark.cluster.state import state_facts
from qod_magics.spark.plans.dial import MOST_S
from qod_magics.spark.queries.instance import Instance
from qod_magics.spark.servers.connection import gather, reason

# --- Holding sources --------------------------------------------------------------------------------------------------
# Stopping a query between two micro-batches: the next one is held before it reads.

#: For how long a micro-batch is held, seconds: longer than it takes to stop its query.
HOLD_S = 4.0
#: How long the end of a micro-batch is waited for, as a multiple of the longest known one; and at most, seconds.
LONG_BATCH, LONGEST_S = 3.0, 60.0
#: Interval of looking for the end of a micro-batch, seconds.
LOOK_S = 0.05


@contextmanager
def between_batches(cluster: Cluster, instance: Instance, longest_s: float = LONGEST_S) -> Iterator[tuple[float, bool]]:
    """Wait until an instance has ended a micro-batch, at most `longest_s` seconds, with its next one held before it
    reads. Yields what `Instance.stop` is to be told: how long to wait for the end of a batch, seconds, and whether that
    end was seen, with the next batch held. A query that is stopped within has then read no row that its next run reads
    again.

    In real-time mode, and where dials can't be turned, nothing is held: the next run reads again what the batch under
    way has read.
    """
    home, key = instance.task_manager, cluster.board.pace(instance.id)
    if home is None or not instance.is_paced:
        batches_s = 2 * cluster.period_s if instance.mode == "micro-batch" else 0.0  # as long as their rows make them
        patience = cluster.patience
        yield max(patience.batch_s, batches_s, instance.job.trigger_s or 0.0) + patience.late_s, False
        return
    pace = 1.0 - HOLD_S / MOST_S
    cluster.pause(instance.id, pace)  # a plan that is applied meanwhile does not end it
    turned = False
    try:
        with suppress(TaskManagerError):
            home.turn({key: pace})
            turned = True
        yield 0.0, _end_batch(instance, time.time(), longest_s) and turned
    finally:
        cluster.go_on(instance.id)
        with suppress(TaskManagerError):
            home.turn({key: cluster.dials.get(key, 1.0)})


def _end_batch(instance: Instance, since: float, longest_s: float) -> bool:
    """Wait until a micro-batch has ended after `since` (epoch), which is the last that is not held, or none is under
    way. Return whether that was seen in time. Raises whatever Spark raises."""
    query = instance.query
    took_s = max((batch.end - batch.start for batch in instance.batches), default=0.0)
    deadline = time.monotonic() + min(LONG_BATCH * max(took_s, HOLD_S), longest_s)
    while query is not None and time.monotonic() < deadline and query.isActive:
        with instance.lock:
            instance.poll()
        if any(batch.end >= since for batch in instance.batches[-2:]) or not query.status["isTriggerActive"]:
            return True
        time.sleep(LOOK_S)
    return False


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
    """Return the change with errors of other packages, such as Spark's of many lines, turned into TaskManagerError;
    `undone` says as one clause that it was not made."""

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


def facts_of(cluster: Cluster, task: str) -> TaskFacts:
    """Return what decides whether a task can be changed now."""
    mine = cluster.instances_of(task)
    found = [
        InstanceFacts(i.id, None if i.task_manager is None else i.task_manager.id, i.state, i.books_differ)
        for i in mine
    ]
    keeps_state = any(i.facts is not None and i.facts.keeps_state for i in mine)
    state = state_facts(cluster, task) if keeps_state else StateFacts()
    return TaskFacts(task, tuple(found), keeps_state, state, min((len(i.job.feeds) for i in mine), default=1))


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


# --- Draining ---------------------------------------------------------------------------------------------------------
# Waiting until a task has read its topics to the end, once nothing is sent to them.


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
        self._ends = ends_of(cluster.deployment, topics)

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
                take_reports(self._cluster, instance)
        return sum(account.count(self._ends[account.topic]).waiting for account in self._accounts)


# --- Stopping tasks ---------------------------------------------------------------------------------------------------
# Stopping all instances of a change at the ends of their batches, or none.


def stop_all(
    cluster: Cluster, lifecycle: Lifecycle, instances: Sequence[Instance], why: str, undone: str, waits: str
) -> None:
    """Stop these at the ends of their batches. If one can't be stopped, or was lost with its task manager, whose last
    reports are not in the books, all go on as before, from their checkpoints.

    Args:
        cluster: where they run.
        lifecycle: stops them.
        instances: all of which are to run.
        why: the change, as one clause.
        undone: what is said of the change if one can't be stopped, as one clause.
        waits: the kind of the event of a stop that takes long.

    Raises:
        TaskManagerError: they go on as before.

    """
    claimed = [i for i in instances if not i.books_differ and i.handle(StopAsked(only_running=True, why=why))]
    if len(claimed) == len(instances):
        ends = {i.id: partial(_end, cluster, lifecycle, i, waits) for i in instances}
        ended = gather(ends, cluster.patience.step_s + LONGEST_S)
        failed = {id: reason(error) for id, error in ended.items() if isinstance(error, BaseException)}
    else:
        states = {i.id: i.state for i in instances if i not in claimed}
        failed = {
            id: f"it {ACCOUNTING_DIFFERS}" if state is State.RUNNING else f"it is {state.value}"
            for id, state in states.items()
        }
    if failed:
        why = "; ".join(f"{id} could not be stopped: {error}" for id, error in failed.items())
        for instance in claimed:
            if len(claimed) < len(instances):  # none was asked to stop
                instance.reinstate(runs=True)
            else:
                instance.reinstate(why=f"{undone}, for {why}")
        raise TaskManagerError(f"{why}. All instances go on as before.", name=next(iter(failed)), rule="stoppable")


def _end(cluster: Cluster, lifecycle: Lifecycle, instance: Instance, waits: str) -> None:
    """Stop one at the end of its batch. Raises whatever stopping raises, and TaskManagerError if its task manager is
    gone."""
    home = instance.task_manager
    if home is None:
        raise TaskManagerError("its task manager was lost")
    with between_batches(cluster, instance) as (wait_s, ended):
        if not lifecycle.end(instance, home, wait_s, waits, ended=ended):
            raise TaskManagerError(f"{home.id} was lost")
