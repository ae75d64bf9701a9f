"""Changes of running tasks that plans ask for: rescaling, fusing, parting. They go on in the background."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TypeVar

from qod_magics.core.plan import Action, Refusal
from qod_magics.core.runtime import refused
from qod_magics.errors import QodError, TaskManagerError
from qod_magics.lifecycle.events import State
from qod_magics.spark.cluster.cluster import Cluster
from qod_magics.spark.queries.instance import BOOKS_DIFFER, Instance
from qod_magics.spark.servers.connection import reason

T = TypeVar("T")


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


def check_running(instances: Sequence[Instance], change: str) -> None:
    """Raise TaskManagerError if one of these does not run, or may be elsewhere than the books, by which others would go
    on from where it is; `change` is what to do once it does, as a clause."""
    busy = next((i for i in instances if i.state is not State.RUNNING), None)
    if busy is not None:
        doing = "being moved" if busy.state is State.MOVING else busy.state.value
        raise TaskManagerError(f"{busy.id} is {doing}: {change} once it runs.")
    elsewhere = next((i for i in instances if i.books_differ), None)
    if elsewhere is not None:
        raise TaskManagerError(f"{elsewhere.id} {BOOKS_DIFFER}: {change} then.")
