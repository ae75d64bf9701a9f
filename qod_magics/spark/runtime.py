"""The live runtime: observes task managers and turns plans into dials and moves."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from qod_magics.application.difference import Difference, difference
from qod_magics.application.tasks import TaskSpec
from qod_magics.core.plan import Plan
from qod_magics.core.runtime import Dials, Observation
from qod_magics.errors import KafkaError, QodError, TaskManagerError, nearest
from qod_magics.kafka.cluster import Kafka
from qod_magics.kafka.topics import delete_topics
from qod_magics.placement import Placer
from qod_magics.spark.bounded import begin, bounded, gather
from qod_magics.spark.cluster import Cluster
from qod_magics.spark.deployment import Deployment
from qod_magics.spark.dial import DialBoard, Reading
from qod_magics.spark.instance import REALTIME_BATCH_S, Instance, State
from qod_magics.spark.metrics import Metrics
from qod_magics.spark.pipeline import Workshop, same_columns
from qod_magics.spark.reason import reason
from qod_magics.spark.supervisor import Supervisor
from qod_magics.spark.task_manager import TaskManager

#: How often a task manager that is removed is looked at anew: what comes to it meanwhile moves on as well.
REMOVAL_ROUNDS = 5
#: How often offsets are sampled and the living are counted, seconds.
WATCH_S = 1.0


class SparkRuntime:
    """Task managers, the instances on them, and the books. All public methods may be called from any thread.

    Args:
        kafka: where streams live.
        session: a name for topics, dials and checkpoints of this kernel.
        checkpoints: a location that every task manager reaches.
        place: decides where an instance starts first, and after its task manager was lost.
        period_s: over which rates are averaged, seconds.

    """

    def __init__(self, kafka: Kafka, session: str, checkpoints: str, place: Placer, period_s: float = 5.0) -> None:
        self.kafka = kafka
        self.checkpoints = checkpoints.rstrip("/")
        self.cluster = Cluster(
            Deployment(kafka, session), DialBoard(session), dict(kafka.spark_options()), place, period_s
        )
        self.supervisor = Supervisor(self.cluster)
        self.metrics = Metrics(self.cluster)
        self._generation: dict[str, int] = {}
        self._moves: dict[str, tuple[TaskManager, Future[None]]] = {}  #: by instance: where to
        self._deploying = threading.Lock()
        self._ended = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="qod-runtime", daemon=True)
        self._watcher.start()

    def __repr__(self) -> str:
        managers, instances = ", ".join(self.task_managers) or "none", ", ".join(self.instances) or "none"
        return f"Spark: task managers {managers}; instances {instances}"

    @property
    def task_managers(self) -> Mapping[str, TaskManager]:
        """The task managers that are up, by id."""
        return self.cluster.task_managers

    @property
    def instances(self) -> Mapping[str, Instance]:
        """All task instances, by id."""
        return self.cluster.instances

    @property
    def deployment(self) -> Deployment:
        """Topics, schemas and books of the tasks that run."""
        return self.cluster.deployment

    @property
    def board(self) -> DialBoard:
        """The names of this session's dials."""
        return self.cluster.board

    @property
    def period_s(self) -> float:
        """Over which rates are averaged, seconds."""
        return self.cluster.period_s

    @period_s.setter
    def period_s(self, seconds: float) -> None:
        self.cluster.period_s = seconds

    # -- task managers ---------------------------------------------------------------------------------------------

    def add_task_manager(self, manager: TaskManager) -> None:
        """Take a (warm) task manager in; instances that wait for one start on it."""
        with self.cluster.lock:
            if self._ended.is_set():
                raise TaskManagerError(f"The session has ended: {manager.id!r} came too late.")
            if manager.id in self.task_managers:
                raise TaskManagerError(f"There is a task manager {manager.id!r} already: take another name.")
            if manager.core_meter is not None:
                manager.core_meter.sample()
            self.cluster.task_managers[manager.id] = manager
            self.cluster.cpu[manager.id] = 0.0
            self.cluster.event("task-manager-up", task_manager=manager.id, cores=manager.cores)
        self.supervisor.place_waiting()

    def remove_task_manager(self, id: str) -> None:
        """Move its instances to the others, then let it go.

        Raises:
            TaskManagerError: there is no such one, or it is the last and has instances.

        """
        manager = self.cluster.manager(id)
        with self.cluster.lock:
            here = [i for i in self.instances.values() if i.task_manager is manager]
            if here and len(self.task_managers) == 1:
                raise TaskManagerError(
                    f"{id} is the last task manager and runs {len(here)} instances: stop them first."
                )
            self.cluster.leaving.add(id)
        try:
            for _ in range(REMOVAL_ROUNDS):
                for target, moved in list(self._moves.values()):
                    if target is manager:  # it was on its way before
                        moved.exception()
                here = [i for i in self.instances.values() if i.task_manager is manager]
                if not here:
                    break
                targets = self.cluster.targets({i.id: {id} for i in here})
                moves = [self.move(i.id, targets[i.id], f"{id} is removed") for i in here if i.id in targets]
                for moved in moves:
                    moved.result()
            with self.cluster.lock:
                self.cluster.task_managers.pop(id, None)
                self.cluster.cpu.pop(id, None)
                self.cluster.event("task-manager-removed", task_manager=id)
        finally:
            with self.cluster.lock:
                self.cluster.leaving.discard(id)
        manager.close()  # what is still there is a stray, which the supervisor starts elsewhere

    def workshop(self, manager: TaskManager | None = None) -> Workshop:
        """For building plans on a task manager, by default the first that is alive."""
        if manager is None:
            manager = next((m for m in self.task_managers.values() if m.alive()), None)
        if manager is None:
            raise TaskManagerError("No task manager is up: `%qod up` starts one, `%qod add-tm` adds one.")
        return Workshop(manager.spark, self.board, manager.reading, manager.dials, self.cluster.kafka_options)

    # -- applications ----------------------------------------------------------------------------------------------

    def deploy(self, specs: Sequence[TaskSpec], modes: Mapping[str, str] | None = None) -> None:
        """Run these tasks and no others: start, stop, restart what the difference to the present ones asks for.

        Recipes are tried first: when one fails, all goes on as it was.

        Raises:
            ApplicationError, KafkaError, TaskManagerError.

        """
        with self._deploying:
            old = tuple(self.deployment.specs.values())
            change = difference(old, specs)
            schemas = self.deployment.check(specs, self.workshop()) if specs else {}
            anew = {t for t in change.replace if t in self.deployment.specs}
            anew |= {
                t
                for t in change.rebuild
                if not all(
                    same_columns(schemas.get(u), self.deployment.schemas.get(u)) for u in self._spec(specs, t).upstream
                )
            }
            again = anew | set(change.rebuild) | set(change.restart)
            before, ran = self.deployment.copy(), dict(self.instances)
            heads = {spec.head.name for spec in specs}  # what goes on elsewhere, and at a batch's end without doubles
            ending = {t for t in change.stop if self.deployment.specs[t].head.name not in heads}
            stopping = [i for i in ran.values() if i.job.task in again or i.job.task in change.stop]
            try:
                self._stop([i for i in stopping if i.job.task in ending])
                self._stop([i for i in stopping if i.job.task not in ending], REALTIME_BATCH_S + 1.0)
                gone, new = self._adopt(specs, schemas, change, anew)
                with suppress(KafkaError):  # a topic just made may not have settled; the watcher asks again
                    self.metrics.sample()
                targets = self.cluster.targets({i.id: set() for i in new if i.task_manager is None})
                self._all(
                    lambda i: self.supervisor.start(i, i.task_manager or self.cluster.manager(targets[i.id])),
                    new,
                    loud=True,
                )
                self._all(lambda i: self.supervisor.settle(i), new, loud=True)
            except BaseException:
                self._go_back(before, ran, stopping)
                raise
            with suppress(KafkaError):  # what can't be deleted now goes with the session
                delete_topics(self.kafka, gone)

    def _adopt(
        self, specs: Sequence[TaskSpec], schemas: Mapping[str, Any], change: Difference, anew: Collection[str]
    ) -> tuple[set[str], list[Instance]]:
        """Take these tasks over: topics that nobody needs any more, and instances to start. A task and its instances
        appear at once: a snapshot is valid at any instant."""
        new: list[Instance] = []
        with self.cluster.lock:
            for task in change.stop:
                self.cluster.forget(task)
                self.cluster.own_source.pop(task, None)
                for key in self._dials_around(task):
                    self.cluster.dials.pop(key, None)
            known = set(self.deployment.pipes)
            gone = self.deployment.adopt(specs, schemas)
            for name, pipe in self.deployment.pipes.items():
                if name not in known:  # rows of a stream that had its name before are none of its
                    self.metrics.history.forget(pipe.topic)
            for spec in specs:
                if spec.id in change.unchanged:
                    continue
                if spec.id in anew or spec.id in change.start:
                    self._generation[spec.id] = self._generation.get(spec.id, 0) + 1
                kept = {i.id: i for i in self.instances.values() if i.job.task == spec.id}
                if spec.id in anew:
                    self.cluster.forget(spec.id)
                for job in self.deployment.jobs(spec, self._generation[spec.id]):
                    where = f"{self.checkpoints}/{spec.id}/{self._generation[spec.id]}/{job.index + 1}"
                    # not WAITING: the watcher would start it too
                    instance = Instance(job, where, spec.mode, State.STARTING)
                    before = kept.get(job.instance)
                    if before is not None:
                        instance.meter, instance.held = before.meter, before.held
                        instance.no_realtime = "" if spec.id in anew else before.no_realtime
                        instance.task_manager = before.task_manager if self.cluster.is_up(before.task_manager) else None
                        if spec.id not in anew:
                            instance.checkpoint, instance.begun = before.checkpoint, before.begun
                            instance.bound = before.bound
                    self.cluster.instances[instance.id] = instance
                    new.append(instance)
        return gone, new

    def _dials_around(self, task: str) -> list[str]:
        """The keys of all dials that a task, or a stream from or to it, has."""
        streams = [p.name for p in self.deployment.pipes.values() if task in (p.source, p.target)]
        return [self.board.source(task), self.board.accept(task), self.board.accuracy(task)] + [
            self.board.send(name) for name in streams
        ]

    def _stop(self, instances: Sequence[Instance], at_batch_end_s: float = 0.0) -> None:
        for instance in instances:
            instance.state = State.STOPPED
        self._all(lambda i: self.cluster.take(i, i.stop(at_batch_end_s)), instances)

    def _go_back(self, before: Deployment, ran: Mapping[str, Instance], stopped: Sequence[Instance]) -> None:
        """After a failed deployment: what ran before runs again, and nothing else does."""
        with self.cluster.lock:
            begun = [i for i in self.instances.values() if ran.get(i.id) is not i]
        self._stop(begun)
        with self.cluster.lock:
            self.cluster.instances.clear()
            self.cluster.instances.update(ran)
            with suppress(KafkaError):
                self.deployment.restore(before)
        for instance in stopped:
            if instance.task_manager is None:
                instance.state = State.WAITING
            elif instance.state is State.STOPPED:
                instance.retry_at, instance.state = 0.0, State.BACKING_OFF
        self.supervisor.retry()

    def restrict(self, specs: Sequence[TaskSpec]) -> None:
        """Take over the priorities and minimum accuracies of these tasks, which are otherwise those that run."""
        with self.cluster.lock:
            self.deployment.specs = {spec.id: spec for spec in specs}

    def stop_all(self) -> None:
        """Stop every query."""
        self._all(lambda i: self.cluster.take(i, i.stop()), list(self.instances.values()))

    # -- the protocol ----------------------------------------------------------------------------------------------

    def observe(self) -> Observation:
        """Poll all task managers at the same time, each within a bound; the silent ones keep their last values."""
        managers = list(self.task_managers.values())
        if not managers:
            raise TaskManagerError("No task manager is up: `%qod add-tm` adds one.")
        timeout_s = max(0.8 * self.period_s, 2.0)
        answers = gather({m.id: (lambda m=m: self.supervisor.poll(m)) for m in managers}, timeout_s)  # type: ignore[misc]
        for manager in managers:
            self.metrics.heard(manager, answers[manager.id])
        self.metrics.sample()
        with self.cluster.lock:
            return self.metrics.observation()

    def arrivals(self, over_s: float) -> Mapping[str, float]:
        """Rows/s that reached each source with a topic of late, from what the watcher sampled once a second."""
        with self.cluster.lock:
            return self.metrics.arrivals(max(over_s, 1.5 * WATCH_S))

    def apply(self, plan: Plan, dials: Dials) -> None:
        """Turn all dials, one call a task manager; begin the moves.

        Raises:
            TaskManagerError: dials of some task manager could not be turned, or a move names one that is not there; all
                else was done.

        """
        values = {self.board.accuracy(task): desired for task, desired in plan.desired.items()}
        values |= {self.board.accept(task): accepted for task, accepted in dials.accept.items()}
        for (source, reader), d in dials.keep.items():
            values[self.board.source(reader) if source is None else self.board.send(f"{source}>{reader}")] = d
        with self.cluster.lock:
            self.cluster.dials |= values
            by_manager = {
                manager: {
                    key: value
                    for i in self.instances.values()
                    if i.task_manager is manager
                    for key, value in self.cluster.dials_of(i).items()
                }
                for manager in self.task_managers.values()
                if manager.alive()
            }
        restarts = [
            i
            for manager, wanted in by_manager.items()
            if manager.reading is Reading.RESTART
            for i in self.instances.values()
            if i.task_manager is manager
            and i.state is State.RUNNING
            and any(abs(manager.dials.get(k, 1.0) - v) > 0.02 for k, v in self.cluster.dials_of(i).items())
        ]
        results = gather(
            {m.id: (lambda m=m, wanted=wanted: m.turn(wanted)) for m, wanted in by_manager.items()},  # type: ignore[misc]
            max(self.period_s, 3.0),
        )
        for instance in restarts:
            self.cluster.event("dial-fallback", instance=instance.id, why="its task manager refuses reflect: restarted")
            begin(lambda i=instance: self.supervisor.restart(i), instance.id)  # type: ignore[misc]
        refused = [
            f"dials of {id} not turned: {error}" for id, error in results.items() if isinstance(error, BaseException)
        ]
        for id in plan.fail:
            target = plan.place.get(id)
            moving = self.instances.get(id)
            if target is None or moving is None or moving.state is not State.RUNNING or target in self.cluster.leaving:
                continue  # what is being removed takes nobody any more: the next plan is made without it
            source = moving.task_manager.id if moving.task_manager else "?"
            try:
                self.move(id, target, f"{source} can't give its tasks their minimum accuracies")
            except TaskManagerError as error:
                refused.append(f"{id} not moved: {error}")
        if refused:
            raise TaskManagerError("The plan is not wholly in force: " + "; ".join(refused))

    def move(self, id: str, target: str, why: str) -> Future[None]:
        """Begin to move an instance: stop at a batch's end, start from the same checkpoint on `target`.

        Raises:
            TaskManagerError: there is no such instance or task manager, or the task manager is being removed.

        """
        with self.cluster.lock:
            if id not in self.instances:
                raise TaskManagerError(f"There is no instance {id!r}.{nearest(id, self.instances)}")
            manager = self.cluster.manager(target)
            if target in self.cluster.leaving:
                raise TaskManagerError(f"{target} is being removed: name another task manager.")
            instance = self.instances[id]
            instance.state = State.MOVING
            moved = begin(lambda: self.supervisor.move(instance, manager, why), f"move-{id}")
            under_way = {i: each for i, each in self._moves.items() if not each[1].done()}
            self._moves = {**under_way, id: (manager, moved)}
            return moved

    def close(self) -> None:
        """Stop all queries, end all task managers of ours, delete the topics of streams."""
        self._ended.set()
        self._watcher.join(5.0)
        with suppress(Exception):
            bounded(self.stop_all, 15.0, "stopping the queries")
        for manager in list(self.task_managers.values()):
            with suppress(Exception):
                manager.close()
        ours = [p.topic for p in self.deployment.pipes.values()] + list(self.deployment.results.values())
        with suppress(KafkaError):
            delete_topics(self.kafka, ours, timeout_s=5.0)
        self.cluster.task_managers.clear()
        self.cluster.instances.clear()

    # -- inside ----------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        while not self._ended.wait(WATCH_S):
            with suppress(Exception):
                self.metrics.sample()
            with suppress(Exception):
                self.supervisor.bury()
            with suppress(Exception):
                self.supervisor.retry()
            with suppress(Exception):
                self.supervisor.adapt()
            with suppress(Exception):
                self.supervisor.notice()

    @staticmethod
    def _spec(specs: Sequence[TaskSpec], task: str) -> TaskSpec:
        return next(spec for spec in specs if spec.id == task)

    def _all(self, call: Callable[[Instance], None], instances: Sequence[Instance], loud: bool = False) -> None:
        """Make a call for all these instances at the same time; `loud` raises the first error."""
        futures = [begin(lambda i=i: call(i), i.id) for i in instances]  # type: ignore[misc]
        errors = []
        for future in futures:
            try:
                future.result(120.0)
            except QodError as error:
                errors.append(error)
            except Exception as error:
                errors.append(TaskManagerError(reason(error)))
        if loud and errors:
            raise errors[0]
