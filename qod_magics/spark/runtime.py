"""Put the live runtime together: task managers that come and go, observations of them, and plans put in force."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from functools import partial
from typing import Protocol

from qod_magics.application.streams.rules import RuleCount
from qod_magics.core.plan import (
    Action,
    AddNode,
    Fuse,
    Lend,
    Move,
    Plan,
    Refusal,
    ReleaseNode,
    Scale,
    SetBatch,
    Stop,
    Unfuse,
)
from qod_magics.core.runtime import Dials, FeedRows, Observation, Placer, fewest_first, refused
from qod_magics.core.snapshot import NodeState, Spare, replace
from qod_magics.errors import KafkaError, QodError, TaskManagerError
from qod_magics.kafka.cluster import Kafka
from qod_magics.kafka.names import own_topic
from qod_magics.kafka.topics import delete_topics
from qod_magics.lifecycle.events import RoomCame, StopAsked
from qod_magics.named.manifest import Manifest
from qod_magics.sources.registry import Sources
from qod_magics.sources.source import Context
from qod_magics.spark.changes.deployer import Deployer
from qod_magics.spark.changes.fuser import Fuser
from qod_magics.spark.changes.keep_probabilities import LEAST_CHANGE, KeepProbabilities
from qod_magics.spark.changes.lifecycle import Lifecycle
from qod_magics.spark.changes.mover import Mover
from qod_magics.spark.changes.new_input import NewInput
from qod_magics.spark.changes.recovery import Recovery
from qod_magics.spark.changes.resuming import Resuming
from qod_magics.spark.changes.scaler import Scaler
from qod_magics.spark.cluster.books import Incomplete
from qod_magics.spark.cluster.cluster import Cluster
from qod_magics.spark.cluster.deployment import Deployment
from qod_magics.spark.cluster.reports import rule_counts
from qod_magics.spark.cluster.views import bottleneck
from qod_magics.spark.metrics.collector import Collector
from qod_magics.spark.metrics.metrics import Metrics
from qod_magics.spark.metrics.peeks import Peeks
from qod_magics.spark.plans.dial import DialBoard, DialReading
from qod_magics.spark.plans.pipeline import Workshop
from qod_magics.spark.queries.checkpoints import local_path
from qod_magics.spark.queries.instance import Instance
from qod_magics.spark.servers.connection import gather, reason
from qod_magics.spark.servers.task_manager import TaskManager
from qod_magics.spark.watcher import WATCH_S, Watcher

#: Timeout until a killed task manager is noticed, seconds.
KILLED_WITHIN_S = 30.0


class SparkRuntime:
    """Task managers, the instances on them, and the books. All public methods may be called from any thread.

    Args:
        kafka: where streams live.
        session: a name for topics, dials and checkpoints of this kernel.
        checkpoints: a location that every task manager reaches.
        period_s: averaging window of rates, seconds.
        named: whether topics and checkpoints stay when it is closed, for a later kernel.
        manifest: what an earlier kernel left; None: nothing.
        users: the cluster that has the topics which cells name; None: `kafka`.

    """

    supports: frozenset[type[Action]] = frozenset({Move, Stop, Scale, SetBatch, Lend, Fuse, Unfuse})

    def __init__(
        self,
        kafka: Kafka,
        session: str,
        checkpoints: str,
        period_s: float = 5.0,
        *,
        named: bool = False,
        manifest: Manifest | None = None,
        users: Kafka | None = None,
    ) -> None:
        self.kafka = kafka
        self.checkpoints = checkpoints.rstrip("/")
        place = local_path(self.checkpoints)
        sources = Sources(Context(kafka, None if place is None else place / "sources", users, session))
        self.cluster = Cluster(
            Deployment(kafka, session, given=sources),
            DialBoard(session),
            dict(kafka.spark_options()),
            fewest_first,
            period_s,
        )
        self.lifecycle = Lifecycle(self.cluster)
        self.mover = Mover(self.cluster, self.lifecycle)
        self.keep_probabilities = KeepProbabilities(self.cluster, self.mover)
        self.collector = Collector(self.cluster)
        self.recovery = Recovery(self.cluster, self.lifecycle)
        self.metrics = Metrics(self.cluster)
        self.peeks = Peeks(self.cluster, self.metrics.history)
        self.resuming = Resuming(self.cluster, manifest, self.checkpoints)
        self.deployer = Deployer(self.cluster, self.lifecycle, self.metrics, self.checkpoints, self.resuming)
        self.named = named
        self.at_close: Callable[[], object] = lambda: None  #: called once its queries have stopped
        self.scaler = Scaler(self.cluster, self.lifecycle, self.deployer)
        self.fuser = Fuser(self.cluster, self.lifecycle, self.deployer)
        self.nodes: Nodes | None = None  #: adds and releases task managers as plans ask; see `use_nodes`
        self._node_actions = NodeActions(self.cluster)
        self.unstopped: list[str] = []  #: after the end: queries that may still run, one line each
        self.undeleted: list[str] = []  #: after the end: topics that are still there, one line
        self.finish_s = 0.0  #: seconds within which `close` lets batches end that are under way
        self._ended = threading.Event()
        self.watcher = Watcher(
            self.cluster,
            self.metrics,
            self.collector,
            self.peeks,
            NewInput(self.deployer, self.metrics.history),
            self.mover,
            self.recovery,
            self._ended,
        )
        self.watcher.start()

    def __repr__(self) -> str:
        managers, instances = ", ".join(self.task_managers) or "none", ", ".join(self.instances) or "none"
        return f"Spark: task managers {managers}; instances {instances}"

    @property
    def task_managers(self) -> Mapping[str, TaskManager]:
        """Return the task managers that are up, by id: a copy."""
        return dict(self.cluster.task_managers)

    @property
    def instances(self) -> Mapping[str, Instance]:
        """Return all task instances, by id: a copy."""
        return dict(self.cluster.instances)

    @property
    def missing_topics(self) -> Mapping[str, str]:
        """Return topics of the application that have no offsets now, and why."""
        return self.cluster.missing_topics

    @property
    def silent_kafka(self) -> Mapping[str, str]:
        """Return the addresses of the Kafka clusters that do not answer now, and why."""
        return self.cluster.silent_kafka

    @property
    def incomplete(self) -> Incomplete:
        """Return what the results of tasks lack though no shedder dropped it."""
        return self.cluster.incomplete

    @property
    def rule_counts(self) -> Sequence[RuleCount]:
        """Return how many rows have broken each rule of the deployed streams."""
        return rule_counts(self.cluster)

    @property
    def deployment(self) -> Deployment:
        """Return topics, schemas and books of the tasks that run."""
        return self.cluster.deployment

    @property
    def board(self) -> DialBoard:
        """Return the names of this session's dials."""
        return self.cluster.board

    @property
    def period_s(self) -> float:
        """Averaging window of rates, seconds."""
        return self.cluster.period_s

    @period_s.setter
    def period_s(self, seconds: float) -> None:
        self.cluster.average_over(seconds)

    def bottleneck(self, instance: Instance) -> str:
        """Return what takes most of the time of an instance's batches, in words; "" where nothing stands out."""
        return bottleneck(self.cluster, instance)

    # -- task managers ---------------------------------------------------------------------------------------------

    def use_nodes(self, nodes: Nodes) -> None:
        """Carry out plans that add and release task managers, from now on."""
        self.nodes = nodes
        self.watcher.tend_nodes = nodes.tend
        self.supports = self.supports | {AddNode, ReleaseNode}

    def add_task_manager(self, manager: TaskManager, why: str | None = None, took_s: float | None = None) -> None:
        """Add a (warm) task manager; instances that wait for one start on it. `why` and `took_s` are for the event."""
        with self.cluster.lock:
            if self._ended.is_set():
                raise TaskManagerError(
                    f"The session has ended: {manager.id!r} came too late.", name=manager.id, rule="running"
                )
            if manager.id in self.task_managers:
                raise TaskManagerError(f"There is a task manager {manager.id!r} already: take another name.")
            manager.sample_cpu()
            self.cluster.join(manager)
            self.cluster.event("task-manager-up", task_manager=manager.id, cores=manager.cores, took_s=took_s, why=why)
            if manager.reading is DialReading.RESTART:
                limit = f"a change by more than {LEAST_CHANGE:g} restarts them"
                told = f"its queries can't read new keep probabilities, so {limit}"
                self.cluster.event("dial-fallback", task_manager=manager.id, why=told)
        for instance in self.cluster.all_instances:
            instance.handle(RoomCame(f"{manager.id} has joined"))
        # it is up whatever becomes of these: the watcher tries again each second
        self.watcher.attempt("starting what waits for a task manager", self.recovery.place_waiting)

    def remove_task_manager(self, id: str) -> None:
        """Move its instances to the others, then close it.

        Raises:
            TaskManagerError: it does not exist, or it is the last and has instances.

        """
        self.withdraw(id).close()  # `recovery` restarts elsewhere what still runs on it

    def withdraw(self, id: str, why: str | None = None) -> TaskManager:
        """Move its instances to the others and take it out of the cluster. Returns it, still open: a query that did not
        end in time may still run on it.

        Raises:
            TaskManagerError: it does not exist, or it is the last and has instances.

        """
        manager, begun = self.cluster.manager(id), time.monotonic()
        with self.cluster.lock:
            here = [i for i in self.cluster.all_instances if i.task_manager is manager]
            if here and len(self.task_managers) == 1:
                raise TaskManagerError(
                    f"{id} is the last task manager and runs {len(here)} instances: stop them first."
                )
            self.cluster.begin_leaving((id,))
        try:
            with suppress(TimeoutError):  # a query that does not end there ends with its task manager
                self.mover.evacuate(manager, time.monotonic() + self.cluster.patience.removal_s)
            with self.cluster.lock:
                self.cluster.part_from(id)
                took_s = round(time.monotonic() - begun, 3)
                self.cluster.event("task-manager-removed", task_manager=id, took_s=took_s, why=why)
        finally:
            with self.cluster.lock:
                self.cluster.end_leaving(id)
        return manager

    def limit_cpu(self, id: str, share: float) -> None:
        """Let plans use this share of a task manager's cores for tasks, 0..1, from the next observation on.

        Raises TaskManagerError: it does not exist.
        """
        cores = self.cluster.manager(id).limit(share)
        self.cluster.event("cpu-limited", task_manager=id, cores=cores, share=share)

    def kill_task_manager(self, id: str) -> None:
        """Kill a local one without moving its instances: they restart on the others, as after a crash.

        Raises:
            TaskManagerError: it does not exist, is not local, or has not ended in time.

        """
        manager = self.cluster.manager(id)
        manager.kill()
        deadline = time.monotonic() + KILLED_WITHIN_S
        while self.cluster.has(manager):  # until the watcher notices
            if time.monotonic() > deadline:
                raise TaskManagerError(f"{id} has not ended for {KILLED_WITHIN_S:g} s after it was killed.")
            time.sleep(0.1)

    def workshop(self, manager: TaskManager | None = None) -> Workshop:
        """Builds plans on a task manager, by default the first that answers. Raises TaskManagerError."""
        return self.cluster.workshop(manager)

    # -- the protocol ----------------------------------------------------------------------------------------------

    def observe(self) -> Observation:
        """Poll all task managers concurrently, with a timeout; silent ones keep their last values."""
        managers = list(self.task_managers.values())
        if not managers:
            lost, why = self._last_loss()
            since = f" since {lost} was lost ({why})" if lost else ""
            raise TaskManagerError(
                f"No task manager is up{since}: `%qod add-tm` adds one.",
                name=lost,
                value=why,
                rule="a task manager is up",
            )
        timeout_s = max(0.8 * self.period_s, 2.0)
        answers = gather({m.id: partial(self.collector.poll, m, timeout_s) for m in managers}, timeout_s)
        for manager in managers:
            self.metrics.heard(manager, answers[manager.id])
        self.metrics.sample()
        with self.cluster.lock:
            seen = self.metrics.observation()
        return seen if self.nodes is None else with_nodes(seen, self.nodes)

    def _last_loss(self) -> tuple[str | None, str | None]:
        """Return the task manager that went last, where it was lost, and why. The events wait for an observation, which
        there is none of before another is up."""
        with self.cluster.lock:
            went = [e for e in self.cluster.events if e.kind in ("task-manager-lost", "task-manager-removed")]
        if not went or went[-1].kind == "task-manager-removed":
            return None, None
        lost = went[-1].detail
        return lost["task_manager"], lost["why"]

    def place_by(self, placer: Placer) -> None:
        """Ask `placer` where an instance starts, initially and after the loss of its task manager."""
        self.cluster.place_by(placer)

    def input_rates(self, over_s: float) -> Mapping[str, float]:
        """Recent input rate of each source with a topic, rows/s, from the watcher's samples once a second."""
        with self.cluster.lock:
            return self.metrics.input_rates(max(over_s, 1.5 * WATCH_S))

    def rows(self) -> tuple[FeedRows, ...]:
        """Return the row accounting of each input of each task, all at one instant. Asks no task manager."""
        with self.cluster.lock:
            return self.metrics.rows()

    def apply(self, plan: Plan, dials: Dials) -> None:
        """Set all keep probabilities, with one call per task manager, and begin the plan's actions.

        Raises:
            TaskManagerError: those of some task manager could not be set; all else was done.

        """
        failed = self.keep_probabilities.set(plan, dials)
        self._begin_actions(plan)
        if failed:
            raise TaskManagerError("The plan is only partly in force: " + "; ".join(failed))

    def _begin_actions(self, plan: Plan) -> None:
        for action in plan.actions:
            if isinstance(action, Move | Stop):
                self.mover.begin(action)
        for scaling in (action for action in plan.actions if isinstance(action, Scale)):
            self.scaler.begin(scaling)
        for fusing in (action for action in plan.actions if isinstance(action, Fuse | Unfuse)):
            self.fuser.begin(fusing)
        if self.nodes is not None:
            self._node_actions.begin(self.nodes, plan.actions)

    def move(self, id: str, target: str, why: str) -> Future[str]:
        """Begin to move an instance: stop at a batch's end, start from the same checkpoint on `target`. The result
        says why it was not started there, as that of `Mover.carry_out`.

        Raises:
            TaskManagerError: there is no such instance or task manager, the task manager is being removed, or the
                instance is being moved already or was stopped by a deployment.

        """
        return self.mover.begin_move(id, target, why)

    def close(self) -> None:
        """Stop all queries, close all task managers, delete the topics of streams. What fails is in `unstopped` and
        `undeleted`."""
        self._ended.set()
        self.recovery.close()
        with self.cluster.lock:  # nothing is started any more, whatever change is under way
            self.cluster.begin_leaving(self.cluster.task_managers)
            for instance in self.cluster.all_instances:
                instance.handle(StopAsked())
        # last first: queries stop, then task managers close; each is done, also if the user interrupts one before it
        with ExitStack() as then:
            then.callback(self.deployment.sources.close)
            then.callback(self.cluster.clear)
            then.callback(self._delete_topics)
            then.callback(self.at_close)
            for manager in reversed(list(self.task_managers.values())):
                then.callback(_close, manager)
            self.watcher.join(5.0)
            self._stop_queries()

    def _stop_queries(self) -> None:
        ending = {i.id: i for i in self.cluster.all_instances}
        # runs that no deployment could stop, beside those that took their places
        ending |= {f"{i.id} (earlier run {at})": i for at, i in enumerate(self.cluster.lingering, 1)}
        homes = {id: i.task_manager for id, i in ending.items()}
        wait_s = self.cluster.patience.batch_s + 1.0 if self.named else 0.0  # so that few rows are read twice later
        stops = {id: partial(self.lifecycle.stop, i, max(wait_s, self._finish_s(i))) for id, i in ending.items()}
        stopped = gather(stops, 15.0 + self.finish_s)
        # a local one will have ended, and its queries with it
        left = {id: home for id, home in homes.items() if home is not None and home.kind != "local"}
        self.unstopped = [
            f"{id} may still run on {home.id}: {reason(error)}"
            for id, home in left.items()
            if isinstance(error := stopped[id], BaseException)
        ]

    def _finish_s(self, instance: Instance) -> float:
        """Return how long an instance's batch is waited for: of micro-batches without rows to read, none is under
        way."""
        idle = instance.mode == "micro-batch" and instance.job.feeds and not self.metrics.rows_waiting(instance)
        return 0.0 if idle else self.finish_s

    def _delete_topics(self) -> None:
        topics = self.cluster.take_leftover() | (set() if self.named else self.deployment.own_topics())
        try:
            delete_topics(self.kafka, topics, timeout_s=5.0)
        except KafkaError as error:
            session, broker = self.deployment.session, self.kafka.bootstrap
            own = own_topic(self.kafka.prefix, session, "*")
            self.undeleted = [f"{len(topics)} topics {own} stay on {broker}: {reason(error)}"]


def _close(manager: TaskManager) -> None:
    with suppress(Exception):
        manager.close()


# --- Task managers that plans add and release -------------------------------------------------------------------------
# Carry out the actions of plans that add and release task managers, for a runtime with a way to do so.


class Nodes(Protocol):
    """Task managers that can be added and released. No method waits for a start, a move or an end."""

    def spares(self) -> Sequence[Spare]:
        """Return what `add` can add now."""
        ...

    def states(self) -> Mapping[str, NodeState]:
        """Return the task managers that join, stand by or leave, by id."""
        ...

    def text(self) -> str:
        """Return these, and the budget, in one line."""
        ...

    def add(self, kind: str, why: str) -> None:
        """Begin to add one of this kind. Raises TaskManagerError: none can be added now."""
        ...

    def release(self, id: str, why: str) -> object:
        """Begin to move its instances to the others; then it is closed, or stands by. Raises TaskManagerError: there
        is no such task manager, or it is the last."""
        ...

    def tend(self) -> None:
        """Do what is due without a plan. Called about once a second."""
        ...


class NodeActions:
    """Begins the `AddNode` and `ReleaseNode` of plans; failures become events of the cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._refused: frozenset[tuple[Action, str]] = frozenset()  #: of the last plan: reported once

    def begin(self, nodes: Nodes, actions: Iterable[Action]) -> None:
        """Begin these actions of a plan; other actions are left alone. One that is refused as in the plan before is no
        event."""
        refusals = set()
        for action in actions:
            try:
                if isinstance(action, AddNode):
                    nodes.add(action.kind, action.why)
                elif isinstance(action, ReleaseNode):
                    nodes.release(action.id, action.why)
            except QodError as error:
                refusals.add((action, str(error)))
        for action, why in refusals - self._refused:
            self._cluster.add(refused(Refusal(action, why)))
        self._refused = frozenset(refusals)


def with_nodes(seen: Observation, nodes: Nodes) -> Observation:
    """Return the observation with what can be added, joins, stands by or leaves."""
    spare_nodes = tuple(spare for spare in nodes.spares() if spare.count > 0)
    return replace(seen, snapshot=replace(seen.snapshot, spare_nodes=spare_nodes, node_states=nodes.states()))
