"""Stopping all instances of a change at the ends of their batches, or none."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from qod_magics.errors import TaskManagerError
from qod_magics.lifecycle.events import State, StopAsked
from qod_magics.lifecycle.refusals import ACCOUNTING_DIFFERS
from qod_magics.spark.changes.hold import LONGEST_S, held
from qod_magics.spark.changes.lifecycle import Lifecycle
from qod_magics.spark.cluster.cluster import Cluster
from qod_magics.spark.queries.instance import Instance
from qod_magics.spark.servers.connection import gather, reason


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
        undone: what becomes of the change if one can't be stopped, as one clause.
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
    with held(cluster, instance) as wait_s:
        if not lifecycle.end(instance, home, wait_s, waits):
            raise TaskManagerError(f"{home.id} was lost")
