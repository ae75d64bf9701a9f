"""The live runtime: observe task managers, and turn plans into dials and moves."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from functools import partial

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
from qod_magics.errors import KafkaError, TaskManagerError, nearest
from qod_magics.kafka.cluster import Kafka
from qod_magics.kafka.topics import delete_topics
from qod_magics.lifecycle.events import RoomCame, State, StopAsked
from qod_magics.named.manifest import Manifest
from qod_magics.sources.registry import Sources
from qod_magics.sources.source import Context
from qod_magics.spark.changes.change import ended
from qod_magics.spark.changes.deployer import Deployer
from qod_magics.spark.changes.fuser import Fuser
from qod_magics.spark.changes.lender import Lender
from qod_magics.spark.changes.lifecycle import Lifecycle
from qod_magics.spark.changes.mover import Mover
from qod_magics.spark.changes.nodes import NodeActions, Nodes, with_nodes
from qod_magics.spark.changes.recovery import Recovery
from qod_magics.spark.changes.resuming import Resuming
from qod_magics.spark.changes.scaler import Scaler
from qod_magics.spark.cluster.books import Incomplete
from qod_magics.spark.cluster.cluster import Cluster
from qod_magics.spark.cluster.deployment import Deployment
from qod_magics.spark.metrics.collector import Collector
from qod_magics.spark.metrics.metrics import Metrics
from qod_magics.spark.metrics.peeks import Peeks
from qod_magics.spark.plans.dial import MOST_S, DialBoard, DialReading, due_value
from qod_magics.spark.plans.pipeline import Workshop
from qod_magics.spark.queries.checkpoints import local_path
from qod_magics.spark.queries.instance import Instance
from qod_magics.spark.queries.meter import gap_s
from qod_magics.spark.servers.connection import begin, gather, reason
from qod_magics.spark.servers.task_manager import TaskManager

#: Rounds of moving instances off a task manager being removed: more may arrive meanwhile.
REMOVAL_ROUNDS = 5
#: Interval of sampling offsets and detecting failures, seconds.
WATCH_S = 1.0
#: The least change of a dial for which a query restarts that can't read it, a fraction of 1.
LEAST_CHANGE = 0.02


class SparkRuntime:
    """Task managers, the instances on them, and the books. All public methods may be called from any thread.

    Args:
        kafka: where streams live.
        session: a name for topics, dials and checkpoints of this kernel.
        checkpoints: a location that every task manager reaches.
        period_s: averaging window of rates, seconds.
        named: whether topics and checkpoints stay when it is closed, for a later kernel.
        manifest: what an earlier kernel left; None: nothing.
        read: the cluster that has the topics of sources; None: `kafka`.

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
        read: Kafka | None = None,
    ) -> None:
        self.kafka = kafka
        self.checkpoints = checkpoints.rstrip("/")
        place = local_path(self.checkpoints)
        sources = Sources(Context(kafka, None if place is None else place / "sources", read))
        self.cluster = Cluster(
            Deployment(kafka, session, given=sources),
            DialBoard(session),
            dict(kafka.spark_options()),
            fewest_first,
            period_s,
        )
        self.lifecycle = Lifecycle(self.cluster)
        self.mover = Mover(self.cluster, self.lifecycle)
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
        self._moves: dict[str, tuple[TaskManager, Future[str]]] = {}  #: by instance: its target
        self.unstopped: list[str] = []  #: after the end: queries that may still run, one line each
        self.undeleted: list[str] = []  #: after the end: topics that are still there, one line
        self.finish_s = 0.0  #: seconds within which `close` lets batches end that are under way
        self._not_paced: set[str] = set()  #: tasks whose gaps plans ask for in vain
        self.lender = Lender(self.cluster)
        self._failing: dict[str, str] = {}  #: failing steps of the watcher, and why
        self._ended = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="qod-runtime", daemon=True)
        self._watcher.start()

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
    def incomplete(self) -> Incomplete:
        """Return what the results of tasks lack though no shedder dropped it."""
        return self.cluster.incomplete

    @property
    def rule_counts(self) -> Sequence[RuleCount]:
        """Return how many rows have broken each rule of the deployed streams."""
        return self.cluster.rule_counts

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
        return self.cluster.bottleneck(instance)

    # -- task managers ---------------------------------------------------------------------------------------------

    def use_nodes(self, nodes: Nodes) -> None:
        """Carry out plans that add and release task managers, from now on."""
        self.nodes = nodes
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
        self._attempt("starting what waits for a task manager", self.recovery.place_waiting)

    def remove_task_manager(self, id: str) -> None:
        """Move its instances to the others, then close it.

        Raises:
            TaskManagerError: it does not exist, or it is the last and has instances.

        """
        self.withdraw(id).close()  # `recovery` restarts elsewhere what still runs on it

    def withdraw(self, id: str, why: str | None = None) -> TaskManager:
        """The same, without closing it: returns it. A query that did not end in time may still run on it.

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
                self._evacuate(manager, time.monotonic() + self.cluster.patience.removal_s)
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

    def kill_task_manager(self, id: str, timeout_s: float = 30.0) -> None:
        """Kill a local one without moving its instances: they restart on the others, as after a crash.

        Raises:
            TaskManagerError: it does not exist, is not local, or has not ended in time.

        """
        manager = self.cluster.manager(id)
        manager.kill()
        deadline = time.monotonic() + timeout_s
        while self.task_managers.get(id) is manager:  # until the watcher notices
            if time.monotonic() > deadline:
                raise TaskManagerError(f"{id} has not ended for {timeout_s:g} s after it was killed.")
            time.sleep(0.1)

    def _evacuate(self, manager: TaskManager, deadline: float) -> None:
        """Move its instances to the others. Raises TimeoutError after `deadline` (monotonic)."""
        for _ in range(REMOVAL_ROUNDS):
            here = [i for i in self.cluster.all_instances if i.task_manager is manager]
            leaving = {i.id for i in here if i.state is State.MOVING}
            for id, (target, moved) in list(self._moves.items()):
                if target is manager or id in leaving:  # begun before the removal
                    moved.exception(max(deadline - time.monotonic(), 0.0))
            here = [i for i in self.cluster.all_instances if i.task_manager is manager]
            if not here:
                return
            targets = self.cluster.targets({i.id: {manager.id} for i in here})
            moves = [self.move(i.id, targets[i.id], f"{manager.id} is removed") for i in here if i.id in targets]
            for moved in moves:
                moved.result(max(deadline - time.monotonic(), 0.0))

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
        """Set all dials, one call per task manager, and begin the moves.

        Raises:
            TaskManagerError: dials of some task manager could not be set; all else was done.

        """
        self._note_dials(plan, dials)
        by_manager = self._dials_by_manager()
        restarts = self._outdated(by_manager)
        failed = self._set_dials(by_manager)
        for instance in restarts:
            self.cluster.event("dial-fallback", instance=instance.id, why="its task manager refuses reflect: restarted")
            begin(lambda i=instance: self.mover.restart(i), instance.id)  # type: ignore[misc]
        self._begin_actions(plan)
        if failed:
            raise TaskManagerError("The plan is only partly in force: " + "; ".join(failed))

    def _note_dials(self, plan: Plan, dials: Dials) -> None:
        """Note the keep probability, accuracy and pause of each task, edge and instance by the name of its dial."""
        specs = self.cluster.deployment.specs
        within = {member: d for task, d in plan.desired.items() if task in specs for member in specs[task].members}
        values = {self.board.accuracy(name): d for name, d in {**within, **plan.desired}.items()}
        values |= {self.board.accept(task): accepted for task, accepted in dials.accept.items()}
        for (source, reader), d in dials.keep.items():
            values[self.board.source(reader) if source is None else self.board.send(f"{source}>{reader}")] = d
        gaps = {each.task: each for each in plan.actions if isinstance(each, SetBatch)}
        with self.cluster.lock:
            for i in self.cluster.all_instances:
                gap = gaps.get(i.job.task)
                if i.is_paced and i.task_manager is not None:
                    pace_s = max(plan.pace_s.get(i.task_manager.id, 0.0), 0.0 if gap is None else gap.seconds)
                    waits_s = gap_s(pace_s, i.batches, i.job.batches_every_s, self.cluster.delay_s(i))
                    values[self.board.pace(i.id)] = 1.0 - waits_s / MOST_S
                if i.takes_turns:
                    values[self.board.due(i.id)] = due_value(None if gap is None else gap.due_s)
            self._refuse_gaps(gaps)
            values |= self.lender.dials([each for each in plan.actions if isinstance(each, Lend)])
            self.cluster.want(values)

    def _refuse_gaps(self, gaps: Mapping[str, SetBatch]) -> None:
        """Report the tasks whose gaps can't be set, or whose batches can take no turns, once for as long as that is
        so."""
        why: dict[str, str] = {}
        for i in self.cluster.all_instances:
            task = i.job.task
            if i.state is not State.RUNNING or task not in gaps:
                continue
            if not i.is_paced:
                why[task] = (
                    f"{task} runs in real-time mode, or its task manager refuses to set what a running query reads"
                )
            elif gaps[task].due_s is not None and not i.takes_turns:
                why[task] = (
                    f"batches of {task} take no turns: only those of a query without a trigger do that reads a topic "
                    "on a task manager that this session has started"
                )
        for task in sorted(why.keys() - self._not_paced):
            self.cluster.add(refused(Refusal(gaps[task], why[task])))
        self._not_paced = set(why)

    def _dials_by_manager(self) -> dict[TaskManager, dict[str, float]]:
        """Return the dials that the instances of each live task manager read."""
        with self.cluster.lock:
            return {
                manager: {
                    key: value
                    for i in self.cluster.all_instances
                    if i.task_manager is manager
                    for key, value in self.cluster.dials_of(i).items()
                }
                for manager in self.task_managers.values()
                if manager.alive()
            }

    def _outdated(self, by_manager: Mapping[TaskManager, object]) -> list[Instance]:
        """Return the running instances that read new dials only after a restart."""
        return [
            i
            for manager in by_manager
            if manager.reading is DialReading.RESTART
            for i in self.cluster.all_instances
            if i.task_manager is manager
            and i.state is State.RUNNING
            and any(abs(manager.dials.get(k, 1.0) - v) > LEAST_CHANGE for k, v in self.cluster.dials_of(i).items())
        ]

    def _set_dials(self, by_manager: Mapping[TaskManager, Mapping[str, float]]) -> list[str]:
        """Set the dials of all task managers that need no restart for it. Return what failed, in words."""
        results = gather(
            {
                m.id: (lambda m=m, wanted=wanted: m.turn(wanted))  # type: ignore[misc]
                for m, wanted in by_manager.items()
                if m.reading is not DialReading.RESTART  # a restart sets them
            },
            max(self.period_s, 3.0),
        )
        return [f"dials of {id} not set: {error}" for id, error in results.items() if isinstance(error, BaseException)]

    def _begin_actions(self, plan: Plan) -> None:
        for action in plan.actions:
            if isinstance(action, Move | Stop):
                self._begin(action)
        for scaling in (action for action in plan.actions if isinstance(action, Scale)):
            self.scaler.begin(scaling)
        for fusing in (action for action in plan.actions if isinstance(action, Fuse | Unfuse)):
            self.fuser.begin(fusing)
        if self.nodes is not None:
            self._node_actions.begin(self.nodes, plan.actions)

    def _begin(self, action: Move | Stop) -> None:
        """Begin a move or a stop of a plan, unless it is under way or done; a refused one is an event."""
        try:
            if isinstance(action, Move):
                self._move(action.instance, action.to, action.why, only_running=True)
            else:
                self._suspend(action)
        except TaskManagerError as error:
            self.cluster.add(refused(Refusal(action, str(error))))

    def move(self, id: str, target: str, why: str) -> Future[str]:
        """Begin to move an instance: stop at a batch's end, start from the same checkpoint on `target`. The result
        says why it was not started there, as that of `Mover.move`.

        Raises:
            TaskManagerError: there is no such instance or task manager, the task manager is being removed, or the
                instance is being moved already or was stopped by a deployment.

        """
        return self._move(id, target, why)

    def _move(self, id: str, target: str, why: str, *, only_running: bool = False) -> Future[str]:
        with self.cluster.lock:
            if id not in self.instances:
                raise TaskManagerError(f"There is no instance {id!r}.{nearest(id, self.instances)}")
            manager = self.cluster.manager(target)
            if target in self.cluster.leaving:
                raise TaskManagerError(
                    f"{target} is being removed: name another task manager.", name=target, rule="staying"
                )
            instance = self.instances[id]
            asked = self.mover.ask(instance, manager, why, only_running=only_running)
            moved = begin(lambda: self.mover.carry_out(instance, asked), f"move-{id}") if asked else ended("")
            if asked:
                under_way = {i: each for i, each in self._moves.items() if not each[1].done()}
                self._moves = {**under_way, id: (manager, moved)}
            return moved

    def _suspend(self, action: Stop) -> None:
        """Begin to stop an instance where it runs; its state and its rows wait. Raises TaskManagerError."""
        with self.cluster.lock:
            if (instance := self.instances.get(action.instance)) is None:
                raise TaskManagerError(
                    f"There is no instance {action.instance!r}.{nearest(action.instance, self.instances)}"
                )
            stop = self.mover.suspend(instance, action.why)
        if stop is not None:
            begin(stop, f"suspend-{action.instance}")

    def close(self) -> None:
        """Stop all queries, close all task managers, delete the topics of streams. What fails is in `unstopped` and
        `undeleted`."""
        self._ended.set()
        with self.cluster.lock:  # nothing is started any more, whatever change is under way
            self.cluster.begin_leaving(self.cluster.task_managers)
            for instance in self.cluster.all_instances:
                instance.handle(StopAsked())
        with ExitStack() as then:  # each of these is done, also if the user interrupts one before it
            then.callback(self.deployment.sources.close)
            then.callback(self.cluster.clear)
            then.callback(self._delete_topics)
            then.callback(self.at_close)
            for manager in reversed(list(self.task_managers.values())):
                then.callback(_close, manager)
            self._watcher.join(5.0)
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
            self.undeleted = [f"{len(topics)} topics qod.{session}.* stay on {broker}: {reason(error)}"]

    # -- inside ----------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Once a second: sample offsets and CPU, and recover from failures."""
        while not self._ended.wait(WATCH_S):
            # a broker that does not answer is reported by `observe`
            broker_answers = self._attempt("sampling offsets", self.metrics.sample, unless=KafkaError)
            self._attempt("looking after sources", self.metrics.tend_sources)
            self._attempt("reading new partitions", self.deployer.adopt_partitions)
            self._attempt("reading new topics", self.deployer.adopt_topics, unless=KafkaError)
            self._attempt("restarting readers of new partitions", self.mover.restart_outdated)
            self._attempt("restarting ended queries", self.recovery.restart_ended)
            self._attempt("restarting readers of restored topics", self.recovery.restart_readers)
            self._attempt("finding hung task managers", self.recovery.kill_hung)
            self._attempt("finding lost task managers", self.recovery.recover_lost)
            self._attempt("restarting failed queries", self.recovery.retry)
            if self.nodes is not None:
                self._attempt("tending task managers", self.nodes.tend)
            self._attempt("collecting reports", self.collector.keep_up)
            self._attempt("looking at records", self.peeks.look)
            self._attempt(
                "finding stalled queries", partial(self.recovery.notice, broker_answers, self.metrics.rows_waiting)
            )

    def _attempt(self, what: str, call: Callable[[], object], unless: type[Exception] | None = None) -> bool:
        """Return whether this step of the watcher succeeded. An error becomes an event if it is new and not of the type
        `unless`, which is reported elsewhere; the watcher continues."""
        try:
            call()
        except Exception as error:
            if unless is not None and isinstance(error, unless):
                return False
            why = reason(error)
            if self._failing.get(what) != why:
                self._failing[what] = why
                self.cluster.event("watcher-failed", why=f"{what}: {why}")
            return False
        self._failing.pop(what, None)
        return True


def _close(manager: TaskManager) -> None:
    with suppress(Exception):
        manager.close()
