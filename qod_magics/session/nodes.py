"""The task managers that a session adds and releases within its budget, for plans and by hand, in the background."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Protocol, TypeVar

from qod_magics.core.plan import Refusal, ReleaseNode
from qod_magics.core.runtime import refused
from qod_magics.core.snapshot import NodeState, Spare
from qod_magics.errors import TaskManagerError
from qod_magics.lifecycle.events import State
from qod_magics.session.pool import LOCAL, Await, Close, Instruction, Join, Node, Pool, StandBy, Start
from qod_magics.spark.queries.instance import Instance
from qod_magics.spark.runtime import SparkRuntime
from qod_magics.spark.servers.connection import begin, reason
from qod_magics.spark.servers.task_manager import TaskManager

T = TypeVar("T")

#: Interval of looking whether one has come up, seconds.
LOOK_S = 0.05
#: Timeout of asking one that was released what still runs on it, seconds.
ASK_S = 5.0


class Maker(Protocol):
    """Starts task managers for a session and connects to them. Each method raises QodError and leaves nothing then."""

    def local(self, id: str) -> TaskManager:
        """Return a local one that is up and warm, with the session's options; it has not joined."""
        ...

    def remote(self, id: str, url: str) -> TaskManager:
        """Return a task manager on the server at `url`; it has not joined."""
        ...

    def url_of(self, id: str) -> str | None:
        """Return the URL of a connected one, once: after it has left, its server is spare again."""
        ...

    def abandon(self, id: str) -> None:
        """End a local one that is still starting."""
        ...

    def track(self, under_way: Future[T]) -> Future[T]:
        """Have the session's end wait for it; return it."""
        ...


class SessionNodes:
    """Carries out the instructions of a pool: implements `spark.runtime.Nodes`. Any thread may call it.

    Args:
        pool: states and budget.
        maker: starts task managers.
        runtime: which they join and leave.

    """

    def __init__(self, pool: Pool, maker: Maker, runtime: SparkRuntime) -> None:
        self._pool, self._maker, self._runtime = pool, maker, runtime
        self._lock = threading.RLock()  #: of the pool and the two below; nothing is waited for under it
        self._warm: dict[str, TaskManager] = {}  #: by id: warm ones that the runtime does not have
        self._were_up: set[str] = set()  #: when they were tended last
        self._ended = False

    def __repr__(self) -> str:
        return self.text()

    # -- for the runtime -----------------------------------------------------------------------------------------------

    def spares(self) -> Sequence[Spare]:
        """Return what `add` can add now."""
        return self._ask(self._pool.spares)

    def states(self) -> dict[str, NodeState]:
        """Return the states of task managers that join, stand by or leave, by id."""
        with self._lock:
            return self._pool.states()

    def text(self) -> str:
        """Return the same, and the budget, in one line."""
        return self._ask(self._pool.text)

    def add(self, kind: str, why: str) -> None:
        """Begin to add one of this kind; the standby joins at once. Raises TaskManagerError."""
        self._do(self._ask(partial(self._pool.add, kind, why)))

    def release(self, id: str, why: str) -> Future[bool] | None:
        """Begin to move its instances to the others; then it stands by (True) or is closed (False). None: that is
        under way. Raises TaskManagerError."""
        if not self._ask(partial(self._pool.release, id, why)):
            return None
        return self._maker.track(begin(partial(self._drain, id, why), f"release-{id}"))

    def tend(self) -> None:
        """Replace a standby that has ended, and start the next while the budget allows it, or one if none is up. The
        server of one that was lost is spare again: it may come back."""
        with self._lock:
            up = set(self._runtime.task_managers)
            for id in self._were_up - up - self._pool.nodes.keys():
                self._pool.closed(id, self._maker.url_of(id))
            self._were_up = up
        for id, manager in list(self._warm.items()):
            if manager.alive() or self.states().get(id) is not NodeState.STANDBY:
                continue
            with self._lock:
                is_mine = self._warm.pop(id, None) is not None  # else it has been asked to join meanwhile
            if is_mine:
                begin(manager.close, f"closing-{id}")
                self._failed(id, "it ended while it stood by")
        if not self._ended:
            self._do(self._ask(self._pool.tend))

    # -- by hand -------------------------------------------------------------------------------------------------------

    def admit(self, kind: str, make: Callable[[str], TaskManager], *, plain: bool, url: str | None = None) -> str:
        """Add the one that `make` starts under the id it gets, or connects to at `url`; if it is `plain`, with no
        options of its own, the one that stands by or is being prepared instead. Returns its id once it is up. Raises
        QodError."""
        if plain and {NodeState.STANDBY, NodeState.PREPARING} & set(self.states().values()):
            due = self._ask(partial(self._pool.add, LOCAL, "added by hand"))
            self._do(due)
            return self._awaited(due[-1].node)
        node, due = self._ask(partial(self._pool.reserve, kind, url=url))
        self._do(due)
        try:
            manager = make(node.id)
        except BaseException:
            with self._lock:
                self._pool.cancelled(node.id)
            raise
        with self._lock:
            self._warm[node.id] = manager
        self._join(node)
        return self._awaited(node)

    def remove(self, id: str) -> bool:
        """Release it and wait for that; whether it stands by. Raises TaskManagerError."""
        under_way = self.release(id, "removed by hand")
        if under_way is None:
            raise TaskManagerError(f"{id} is being removed already.")
        return under_way.result()

    def kill(self, id: str) -> bool:
        """Kill the one that stands by, which is replaced after a while; False: it does not."""
        with self._lock:
            manager = self._warm.get(id)
        if manager is not None:
            manager.kill()
        return manager is not None

    def end(self) -> None:
        """Start nothing more, and close what stands by. What is starting ends with its server."""
        with self._lock:
            self._ended = True
            warm, self._warm = self._warm, {}
        for manager in warm.values():
            manager.close()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _ask(self, question: Callable[[Collection[str], float], T]) -> T:
        """Return the pool's answer, given the task managers that are up and the time."""
        with self._lock:
            return question(tuple(self._runtime.task_managers), time.monotonic())

    def _do(self, due: Iterable[Instruction]) -> None:
        for instruction in due:
            node = instruction.node
            match instruction:
                case Start():
                    self._event("task-manager-starting", node, standby=node.state is NodeState.PREPARING or None)
                    self._maker.track(begin(partial(self._bring_up, node), f"start-{node.id}"))
                case Await():
                    self._event("task-manager-starting", node)
                case Join():
                    self._join(node)
                case StandBy():
                    self._event("task-manager-standby", node, took_s=_since(node.begun))
                case Close():
                    self._close(node)

    def _bring_up(self, node: Node) -> None:
        try:
            manager = self._maker.local(node.id) if node.url is None else self._maker.remote(node.id, node.url)
        except Exception as error:
            self._failed(node.id, reason(error))
            return
        with self._lock:
            wanted = node.id in self._pool.nodes and not self._ended
            if wanted:
                self._warm[node.id] = manager
                due = self._pool.warm(node.id)
        if wanted:
            self._do([due])
        else:
            manager.close()

    def _join(self, node: Node) -> None:
        with self._lock:
            manager = self._warm.pop(node.id, None)
        if manager is None:  # the session ends
            return
        try:
            if not manager.alive():
                raise TaskManagerError("it ended while it stood by")
            self._runtime.add_task_manager(manager, node.why, _since(node.asked))
        except BaseException as error:
            if self._runtime.task_managers.get(node.id) is not manager:
                try:
                    manager.close()
                finally:
                    self._failed(node.id, reason(error))
            else:  # interrupted after that
                with self._lock:
                    self._pool.joined(node.id)
            if not isinstance(error, Exception):
                raise
        else:
            with self._lock:
                self._pool.joined(node.id)

    def _failed(self, id: str, why: str) -> None:
        with self._lock:
            if self._ended or id not in self._pool.nodes:
                return
            node = self._pool.nodes[id]
            wait_s = self._pool.failed(id, why, time.monotonic())
        self._runtime.cluster.event(
            "task-manager-failed", task_manager=id, node_kind=node.kind, retry_in_s=wait_s, why=why
        )

    def _close(self, node: Node) -> None:
        with self._lock:
            manager = self._warm.pop(node.id, None)
        if manager is None:
            self._maker.abandon(node.id)
        else:
            self._maker.track(begin(manager.close, f"closing-{node.id}"))

    def _drain(self, id: str, why: str) -> bool:
        try:
            manager = self._runtime.withdraw(id, why)
        except Exception as error:  # it was lost meanwhile
            with self._lock:
                stays = id in self._runtime.task_managers
                self._pool.closed(id, None if stays else self._maker.url_of(id))
            self._runtime.cluster.add(refused(Refusal(ReleaseNode(id, why), reason(error))))
            raise
        reusable = manager.kind == LOCAL and self._hosts_nothing(manager)
        with self._lock:
            stands_by = not self._ended and self._pool.drained(id, reusable, time.monotonic())
            if stands_by:
                manager.silent_since = None
                self._warm[id] = manager
        if stands_by:
            self._runtime.cluster.event("task-manager-standby", task_manager=id, node_kind=LOCAL, why=why)
            return True
        try:
            manager.close()
        finally:
            with self._lock:
                self._pool.closed(id, self._maker.url_of(id))
        return False

    def _hosts_nothing(self, manager: TaskManager) -> bool:
        """Return whether no query runs on it any more."""
        cluster = self._runtime.cluster
        if any(instance.task_manager is manager for instance in (*cluster.all_instances, *cluster.lingering)):
            return False
        try:
            return not manager.ask(manager.active_runs, "its queries", ASK_S)
        except Exception:
            return False

    def _awaited(self, node: Node) -> str:
        """Return its id once it is up. Raises TaskManagerError: it does not come up."""
        while node.id in self.states() and not self._ended:
            time.sleep(LOOK_S)
        if node.id not in self._runtime.task_managers:
            raise TaskManagerError(
                f"{node.id} did not come up{self._pool.why_not(node.kind)}.", name=node.id, rule="comes up"
            )
        return node.id

    def _event(self, kind: str, node: Node, **detail: object) -> None:
        self._runtime.cluster.event(kind, task_manager=node.id, node_kind=node.kind, **detail, why=node.why)


def _since(begun: float) -> float:
    return round(time.monotonic() - begun, 3)


# --- Moves by hand ----------------------------------------------------------------------------------------------------


def move(runtime: SparkRuntime, id: str, target: str) -> None:
    """`Session.move`. Raises TaskManagerError: it can't be moved, or does not run there afterwards."""
    failed = runtime.move(id, target, "moved by hand").result()
    instance = runtime.instances.get(id)
    if instance is None:
        raise TaskManagerError(f"{id} was not moved to {target}: its task was stopped meanwhile.")
    home = instance.task_manager
    if instance.state is State.RUNNING and home is not None and home.id == target:
        return
    why = failed or instance.failure
    raise TaskManagerError(f"{id} does not run on {target}: it {_now(instance)}{f' ({why})' if why else ''}")


def _now(instance: Instance) -> str:
    """Return where it is, and in which state."""
    home, state = instance.task_manager, instance.state
    if state is State.GAVE_UP:
        return "failed too often and stays stopped" + ("" if home is None else f" on {home.id}")
    if home is None:
        return "waits for a task manager" if state is State.WAITING else f"is {state.value}"
    return f"runs on {home.id}" if state is State.RUNNING else f"is {state.value} on {home.id}"
