"""The live runtime: observes task managers and turns plans into dials and moves."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from qod_magics.application.difference import difference
from qod_magics.application.tasks import TaskSpec
from qod_magics.core import snapshot as core
from qod_magics.core.plan import Plan
from qod_magics.core.runtime import Count, Dials, Event, Observation
from qod_magics.errors import KafkaError, QodError, TaskManagerError, nearest
from qod_magics.kafka.cluster import Kafka
from qod_magics.kafka.history import OffsetHistory
from qod_magics.kafka.offsets import end_offsets
from qod_magics.kafka.topics import delete_topics
from qod_magics.spark.bounded import begin, bounded, gather
from qod_magics.spark.deployment import Deployment
from qod_magics.spark.dial import DialBoard, Reading
from qod_magics.spark.instance import REALTIME_BATCH_S, Instance, Move, State, brief
from qod_magics.spark.observation import InstanceView, TaskView, observation
from qod_magics.spark.pipeline import Workshop
from qod_magics.spark.progress import Batch
from qod_magics.spark.task_manager import TaskManager

#: Waits between the restarts of a failing query, seconds; after the last it is given up.
BACK_OFF_S = (1.0, 2.0, 4.0, 8.0, 16.0)
#: A query that ran for so long has recovered: its failures are forgotten.
RECOVERED_AFTER_S = 60.0
#: A remote task manager that did not answer for so long is lost.
SILENCE_S = 15.0
#: How often offsets are sampled and the living are counted.
WATCH_S = 1.0


@dataclass(frozen=True, slots=True)
class Homeless:
    """An instance that needs a task manager."""

    instance: str
    task: str
    estimate: float | None  #: its last CPU, % of one core
    forbidden: frozenset[str]  #: task managers that it must not go to


#: Where instances go: instance -> task manager. The decision is a policy's; the runtime only asks for it.
Placer = Callable[[Sequence[Homeless], Sequence[core.TaskManager], Sequence[core.Instance]], Mapping[str, str]]


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
        self.board = DialBoard(session)
        self.checkpoints = checkpoints.rstrip("/")
        self.period_s = period_s
        self.task_managers: dict[str, TaskManager] = {}
        self.instances: dict[str, Instance] = {}
        self.deployment = Deployment(kafka, session)
        self.history = OffsetHistory()
        self._place = place
        self._kafka_options = dict(kafka.spark_options())
        self._dials: dict[str, float] = {}
        self._cpu: dict[str, float] = {}  #: last CPU of each task manager, % of one core
        self._own_source: dict[str, list[int]] = {}  #: rows kept and dropped of tasks with a source of their own
        self._generation: dict[str, int] = {}
        self._events: list[Event] = []
        self._leaving: set[str] = set()  #: task managers that take no more instances
        self._lock = threading.RLock()
        self._deploying = threading.Lock()
        self._ended = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="qod-runtime", daemon=True)
        self._watcher.start()

    # -- task managers ---------------------------------------------------------------------------------------------

    def add_task_manager(self, manager: TaskManager) -> None:
        """Take a (warm) task manager in; instances that wait for one start on it."""
        with self._lock:
            if manager.id in self.task_managers:
                raise TaskManagerError(f"There is a task manager {manager.id!r} already: take another name.")
            if manager.core_meter is not None:
                manager.core_meter.read()
            self.task_managers[manager.id] = manager
            self._cpu[manager.id] = 0.0
            self._event("task-manager-up", task_manager=manager.id, cores=manager.cores)
        self._place_waiting()

    def remove_task_manager(self, id: str) -> None:
        """Move its instances to the others, then let it go.

        Raises:
            TaskManagerError: there is no such one, or it is the last and has instances.

        """
        manager = self._manager(id)
        with self._lock:
            here = [i for i in self.instances.values() if i.task_manager is manager]
            if here and len(self.task_managers) == 1:
                raise TaskManagerError(
                    f"{id} is the last task manager and runs {len(here)} instances: stop them first."
                )
            self._leaving.add(id)
        try:
            targets = self._targets({i.id: {id} for i in here})
            moves = [self.move(i.id, targets[i.id], f"{id} is removed") for i in here if i.id in targets]
            for moved in moves:
                moved.result()
        finally:
            with self._lock:
                self._leaving.discard(id)
        with self._lock:
            self.task_managers.pop(id, None)
            self._cpu.pop(id, None)
            self._event("task-manager-removed", task_manager=id)
        manager.close()

    def workshop(self, manager: TaskManager | None = None) -> Workshop:
        """For building plans on a task manager, by default the first that is alive."""
        if manager is None:
            manager = next((m for m in self.task_managers.values() if m.alive()), None)
        if manager is None:
            raise TaskManagerError("No task manager is up: `%qod up` starts one, `%qod add-tm` adds one.")
        return Workshop(manager.spark, self.board, manager.reading, manager.dials, self._kafka_options)

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
                if any(schemas.get(u) != self.deployment.schemas.get(u) for u in self._spec(specs, t).upstream)
            }
            again = anew | set(change.rebuild) | set(change.restart)
            stopping = [i for i in self.instances.values() if i.job.task in again or i.job.task in change.stop]
            self._all(lambda i: self._take(i, i.stop(REALTIME_BATCH_S + 1.0)), stopping)
            for instance in stopping:
                instance.state = State.STOPPED
            new: list[Instance] = []
            with self._lock:  # a task and its instances appear at once: a snapshot is valid at any instant
                self.deployment.adopt(specs, schemas)
                for task in change.stop:
                    self._forget(task)
                for spec in specs:
                    if spec.id in change.unchanged:
                        continue
                    if spec.id in anew or spec.id in change.start:
                        self._generation[spec.id] = self._generation.get(spec.id, 0) + 1
                    kept = {i.id: i for i in self.instances.values() if i.job.task == spec.id}
                    if spec.id in anew:
                        self._forget(spec.id)
                    for job in self.deployment.jobs(spec):
                        where = f"{self.checkpoints}/{spec.id}/{self._generation[spec.id]}/{job.index + 1}"
                        instance = Instance(job, where, spec.mode)
                        before = kept.get(job.instance)
                        if before is not None:
                            instance.meter, instance.held = before.meter, before.held
                            instance.no_realtime = "" if spec.id in anew else before.no_realtime
                            instance.task_manager = before.task_manager
                        self.instances[instance.id] = instance
                        new.append(instance)
            with suppress(KafkaError):  # a topic just made may not have settled; the watcher asks again
                self._sample()
            targets = self._targets({i.id: set() for i in new if i.task_manager is None})
            self._all(lambda i: self._start(i, i.task_manager or self._manager(targets[i.id])), new, loud=True)

    def restrict(self, specs: Sequence[TaskSpec]) -> None:
        """Take over the priorities and minimum accuracies of these tasks, which are otherwise those that run."""
        with self._lock:
            self.deployment.specs = {spec.id: spec for spec in specs}

    def stop_all(self) -> None:
        """Stop every query."""
        self._all(lambda i: self._take(i, i.stop()), list(self.instances.values()))

    # -- the protocol ----------------------------------------------------------------------------------------------

    def observe(self) -> Observation:
        """Poll all task managers at the same time, each within a bound; the silent ones keep their last values."""
        managers = list(self.task_managers.values())
        if not managers:
            raise TaskManagerError("No task manager is up: `%qod add-tm` adds one.")
        timeout_s = max(0.8 * self.period_s, 2.0)
        answers = gather({m.id: (lambda m=m: self._poll(m)) for m in managers}, timeout_s)  # type: ignore[misc]
        now = time.monotonic()
        for manager in managers:
            if isinstance(answers[manager.id], BaseException):
                manager.silent_since = manager.silent_since or now
            else:
                manager.silent_since = None
        self._sample()
        with self._lock:
            return self._observation()

    def apply(self, plan: Plan, dials: Dials) -> None:
        """Turn all dials, one call a task manager; begin the moves.

        Raises:
            TaskManagerError: dials of some task manager could not be turned; the others were.

        """
        values = {self.board.accuracy(task): desired for task, desired in plan.desired.items()}
        values |= {self.board.accept(task): accepted for task, accepted in dials.accept.items()}
        for (source, target), d in dials.keep.items():
            values[self.board.source(target) if source is None else self.board.send(f"{source}>{target}")] = d
        with self._lock:
            self._dials |= values
            by_manager = {
                manager: {
                    key: value
                    for i in self.instances.values()
                    if i.task_manager is manager
                    for key, value in self._dials_of(i).items()
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
            and any(abs(manager.dials.get(k, 1.0) - v) > 0.02 for k, v in self._dials_of(i).items())
        ]
        results = gather(
            {m.id: (lambda m=m, wanted=wanted: m.turn(wanted)) for m, wanted in by_manager.items()},  # type: ignore[misc]
            max(self.period_s, 3.0),
        )
        for instance in restarts:
            self._event("dial-fallback", instance=instance.id, why="its task manager refuses reflect: restarted")
            begin(lambda i=instance: self._restart(i), instance.id)  # type: ignore[misc]
        for id in plan.fail:
            target = plan.place.get(id)
            instance = self.instances.get(id)
            if target is not None and instance is not None and instance.state is State.RUNNING:
                self.move(
                    id,
                    target,
                    f"{instance.task_manager.id if instance.task_manager else '?'} "
                    "can't give its tasks their minimum accuracies",
                )
        failures = [f"{id}: {error}" for id, error in results.items() if isinstance(error, BaseException)]
        if failures:
            raise TaskManagerError("Dials not turned: " + "; ".join(failures))

    def move(self, id: str, target: str, why: str) -> Future[None]:
        """Begin to move an instance: stop at a batch's end, start from the same checkpoint on `target`.

        Raises:
            TaskManagerError: there is no such instance or task manager.

        """
        if id not in self.instances:
            raise TaskManagerError(f"There is no instance {id!r}.{nearest(id, self.instances)}")
        manager = self._manager(target)
        instance = self.instances[id]
        instance.state = State.MOVING
        return begin(lambda: self._move(instance, manager, why), f"move-{id}")

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
        self.task_managers.clear()
        self.instances.clear()

    # -- one instance ----------------------------------------------------------------------------------------------

    def _start(self, instance: Instance, manager: TaskManager) -> None:
        instance.start(manager, self.board, self._kafka_options, self._dials_of(instance), self.period_s)

    def _restart(self, instance: Instance) -> None:
        """Stop at a batch's end and start again where it is."""
        manager = instance.task_manager
        if manager is None or instance.state is not State.RUNNING:
            return
        instance.state = State.STARTING
        self._take(instance, instance.stop(REALTIME_BATCH_S + 1.0))
        try:
            self._start(instance, manager)
        except Exception as error:
            self._fail(instance, brief(error))

    def _move(self, instance: Instance, target: TaskManager, why: str) -> None:
        source = instance.task_manager
        if source is target:
            instance.state = State.RUNNING
            return
        if source is not None and source.alive():
            try:
                batches = bounded(lambda: instance.stop(REALTIME_BATCH_S + 1.5), 20.0, f"stopping {instance.id}")
                self._take(instance, batches)
            except Exception as error:
                self._event("query-failed", instance=instance.id, why=f"while stopping: {brief(error)}")
        instance.move = Move(source.id if source else None, target.id, why, time.time())
        try:
            self._start(instance, target)
        except Exception as error:
            self._event("query-failed", instance=instance.id, task_manager=target.id, why=brief(error))
            instance.forsake()
            others = self._targets({instance.id: {target.id, *([source.id] if source else [])}})
            if instance.id in others:
                self._move(instance, self._manager(others[instance.id]), why)
            else:
                self._fail(instance, brief(error), source or target)

    def _fail(self, instance: Instance, why: str, manager: TaskManager | None = None) -> None:
        """A query ended by itself: start again after a while, or give up loudly."""
        if instance.started_at and time.monotonic() - instance.started_at > RECOVERED_AFTER_S:
            instance.failures = 0
        instance.query = None
        instance._hold()
        instance.failure = why
        if manager is not None:
            instance.task_manager = manager
        where = instance.task_manager.id if instance.task_manager else None
        if instance.failures >= len(BACK_OFF_S):
            instance.state = State.GAVE_UP
            self._event(
                "query-failed",
                instance=instance.id,
                task_manager=where,
                why=why,
                gave_up=True,
                failures=instance.failures,
            )
            return
        wait_s = BACK_OFF_S[instance.failures]
        instance.failures += 1
        instance.retry_at = time.monotonic() + wait_s
        instance.state = State.BACKING_OFF
        self._event("query-failed", instance=instance.id, task_manager=where, why=why, retry_in_s=wait_s)

    def _take(self, instance: Instance, batches: Sequence[Batch]) -> None:
        """Enter batches in the books; end a move whose first batch came."""
        with self._lock:
            names = {feed.topic: feed.name for feed in instance.job.feeds}
            for batch in batches:
                for feed in batch.feeds:
                    account = self.deployment.accounts.get(names.get(feed.topic, ""))
                    if account is not None:
                        account.take(feed)
                    elif not instance.job.feeds:
                        own = self._own_source.setdefault(instance.job.task, [0, 0])
                        own[0] += feed.kept or 0
                        own[1] += (feed.read or 0) - (feed.kept or 0)
                for position, name in enumerate(instance.job.outlets):
                    account = self.deployment.accounts.get(name)
                    if account is not None:
                        account.dropped_before += batch.out - batch.sent.get(str(position), 0)
            move = instance.move
            reading = instance.reading(self.period_s)
            if move is not None and instance.state is State.RUNNING and reading is not None:
                instance.move = None
                self._event(
                    "move",
                    instance=instance.id,
                    **{"from": move.source, "to": move.target},
                    took_s=round(max(reading.first_batch_at - move.stopped_at, 0.0), 3),
                    why=move.why,
                )

    def _poll(self, manager: TaskManager) -> None:
        """Take in what happened on one task manager since the last look."""
        for instance in [i for i in self.instances.values() if i.task_manager is manager]:
            if instance.state is not State.RUNNING or not instance.lock.acquire(blocking=False):
                continue
            try:
                self._take(instance, instance.poll())
                why = instance.failed()
                if why is not None and instance.state is State.RUNNING:
                    refused = instance.mode == "real-time" and "REAL_TIME" in why and instance.mode_wanted != "realtime"
                    if refused:
                        instance.no_realtime = why
                    self._fail(instance, why)
                    if refused:
                        instance.retry_at = 0.0
            finally:
                instance.lock.release()
        cpu = manager.stage_cpu()
        if cpu is not None:
            runs = {i.run_id: i for i in self.instances.values() if i.run_id is not None}
            for (run_id, batch_id), seconds in cpu.items():
                if run_id in runs:
                    runs[run_id].meter.charge(run_id, batch_id, seconds)

    # -- the whole -------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        while not self._ended.wait(WATCH_S):
            with suppress(Exception):
                self._sample()
            with suppress(Exception):
                self._bury()
            with suppress(Exception):
                self._retry()
            with suppress(Exception):
                self._adapt()

    def _sample(self) -> None:
        topics = self.deployment.topics()
        if topics:
            offsets = end_offsets(self.kafka, topics, timeout_s=2.0)
            with self._lock:
                self.history.record(time.monotonic(), offsets)

    def _bury(self) -> None:
        """Find task managers that are gone, and start their instances on the others."""
        now = time.monotonic()
        for manager in list(self.task_managers.values()):
            silent = manager.kind == "connect" and now - (manager.silent_since or now) > SILENCE_S
            if manager.alive() and not silent:
                continue
            with self._lock:
                if self.task_managers.pop(manager.id, None) is None:
                    continue
                self._cpu.pop(manager.id, None)
                orphans = [i for i in self.instances.values() if i.task_manager is manager]
                for instance in orphans:
                    instance.move = Move(manager.id, "", f"{manager.id} was lost", time.time())
                self._event(
                    "task-manager-lost",
                    task_manager=manager.id,
                    instances=[i.id for i in orphans],
                    why="it does not answer" if silent else "its process ended",
                )
            for instance in orphans:
                instance.forsake()
            begin(manager.close, f"burying-{manager.id}")
        self._place_waiting()

    def _place_waiting(self) -> None:
        waiting = [i for i in self.instances.values() if i.state is State.WAITING]
        if not waiting or not self.task_managers:
            return
        targets = self._targets({i.id: set() for i in waiting})
        for instance in waiting:
            if instance.id in targets:
                instance.state = State.MOVING
                manager = self._manager(targets[instance.id])
                move = instance.move

                def run(
                    instance: Instance = instance, manager: TaskManager = manager, move: Move | None = move
                ) -> None:
                    if move is not None:
                        instance.move = Move(move.source, manager.id, move.why, move.stopped_at)
                    try:
                        self._start(instance, manager)
                    except Exception as error:
                        self._fail(instance, brief(error), manager)

                begin(run, f"place-{instance.id}")

    def _retry(self) -> None:
        now = time.monotonic()
        for instance in list(self.instances.values()):
            if instance.state is State.BACKING_OFF and now >= instance.retry_at and instance.task_manager is not None:
                instance.state = State.STARTING
                begin(lambda i=instance: self._again(i), f"restart-{instance.id}")  # type: ignore[misc]

    def _again(self, instance: Instance) -> None:
        manager = instance.task_manager
        assert manager is not None
        try:
            self._start(instance, manager)
        except Exception as error:
            self._fail(instance, brief(error))
            return
        self._event(
            "query-restarted",
            instance=instance.id,
            task_manager=manager.id,
            after=instance.failure,
            failures=instance.failures,
        )

    def _adapt(self) -> None:
        """Bound micro-batches so that one lasts no longer than half a period."""
        for instance in list(self.instances.values()):
            if instance.state is State.RUNNING and time.monotonic() - instance.started_at > 2 * self.period_s:
                bound = instance.next_bound(self.period_s)
                if bound is not None:
                    instance.bound = bound
                    begin(lambda i=instance: self._restart(i), f"bound-{instance.id}")  # type: ignore[misc]

    def _targets(self, forbidden: Mapping[str, Collection[str]]) -> Mapping[str, str]:
        if not forbidden:
            return {}
        with self._lock:
            managers = [m for m in self._snapshot_managers() if m.id not in self._leaving]
            views = [v for v in self._views() if v.id not in forbidden and v.task_manager in {m.id for m in managers}]
            running = [
                core.Instance(
                    v.id,
                    v.task,
                    v.task_manager,
                    v.reading.in_rate if v.reading else 0.0,
                    (v.reading.cpu or 0.0) if v.reading else 0.0,
                    v.reading is None,
                )
                for v in views
            ]
            homeless = []
            for id, refused in forbidden.items():
                instance = self.instances.get(id)
                last = (instance.reading(self.period_s) or instance.held) if instance else None
                task = instance.job.task if instance else id.rpartition(".")[0]
                homeless.append(Homeless(id, task, last.cpu if last else None, frozenset(refused)))
        if not managers:
            raise TaskManagerError("No task manager is up: `%qod add-tm` adds one.")
        return self._place(homeless, managers, running)

    def _snapshot_managers(self) -> list[core.TaskManager]:
        return [
            core.TaskManager(m.id, m.cores, self._cpu.get(m.id, 0.0), {"kind": m.kind, "dials": m.reading.value})
            for m in self.task_managers.values()
        ]

    def _views(self) -> list[InstanceView]:
        now = time.time()
        views = []
        for instance in self.instances.values():
            reading = instance.reading(self.period_s)
            current = reading is not None
            reading = reading or instance.held
            manager = instance.task_manager.id if instance.task_manager else None
            if manager is None or manager not in self.task_managers:
                manager = next(iter(self.task_managers), "")
            extra: dict[str, Any] = {"state": instance.state.value}
            if instance.mode:
                extra["mode"] = instance.mode
            views.append(
                InstanceView(
                    instance.id,
                    instance.job.task,
                    manager,
                    reading,
                    current,
                    now - reading.at if reading else 0.0,
                    extra,
                )
            )
        return views

    def _observation(self) -> Observation:
        views = self._views()
        by_manager: dict[str, float] = {}
        for view in views:
            if view.current and view.reading is not None and view.reading.cpu is not None:
                by_manager[view.task_manager] = by_manager.get(view.task_manager, 0.0) + view.reading.cpu
        for manager in self.task_managers.values():
            measured = manager.core_meter.read() if manager.core_meter is not None else None
            if measured is None and manager.core_meter is None:
                measured = by_manager.get(manager.id, 0.0)
            if measured is not None:
                self._cpu[manager.id] = measured
        lag, rate = {}, {}
        counts: dict[str, Count] = {}
        now, wall = time.monotonic(), time.time()
        for name, account in self.deployment.accounts.items():
            ends = {p: int(o) for p, o in self.history.at(account.topic, now).items()}
            counts[name] = account.count(ends)
            arriving = self.history.rate(account.topic, self.period_s)
            if arriving is not None:
                rate[name] = arriving
            task = name.rpartition(">")[2]
            seen = [v for v in views if v.task == task and v.current and v.reading is not None]
            if (
                seen
                and len(seen) == sum(v.task == task for v in views)
                and max(v.age_s for v in seen) < 2 * self.period_s
            ):
                then = self.history.at(account.topic, now - (wall - min(v.reading.at for v in seen if v.reading)))
                lag[name] = sum(max(int(then.get(p, e)) - account.position.get(p, 0), 0) for p, e in ends.items())
            else:
                lag[name] = counts[name].waiting
        for task, (kept, dropped) in self._own_source.items():
            counts[task] = Count(kept + dropped, kept, dropped, 0)
        tasks = [
            TaskView(
                spec.id,
                spec.upstream,
                spec.priority,
                spec.min_accuracy,
                {n: a.topic for n, a in self.deployment.accounts.items() if n.rpartition(">")[2] == spec.id},
                tuple(p.name for p in self.deployment.pipes.values() if p.source == spec.id),
                rate.get(spec.id),
            )
            for spec in self.deployment.specs.values()
        ]
        events, self._events = tuple(self._events), []
        return observation(
            self._snapshot_managers(),
            tasks,
            views,
            lag=lag,
            input_rate=rate,
            counts=counts,
            dropped_sending={n: a.dropped_before for n, a in self.deployment.accounts.items()},
            fresh_for_s=max(2.5 * self.period_s, 2.5 * REALTIME_BATCH_S),
            events=events,
        )

    def _dials_of(self, instance: Instance) -> dict[str, float]:
        task = instance.job.task
        keys = [self.board.accuracy(task)]
        keys += (
            [self.board.accept(task)] if any(feed.stream for feed in instance.job.feeds) else [self.board.source(task)]
        )
        keys += [self.board.send(name) for name in instance.job.outlets]
        return {key: self._dials.get(key, 1.0) for key in keys}

    def _forget(self, task: str) -> None:
        for id in [i.id for i in self.instances.values() if i.job.task == task]:
            del self.instances[id]

    def _event(self, kind: str, **detail: Any) -> None:
        with self._lock:
            self._events.append(Event(kind, {k: v for k, v in detail.items() if v is not None}))

    def _manager(self, id: str) -> TaskManager:
        try:
            return self.task_managers[id]
        except KeyError:
            raise TaskManagerError(f"There is no task manager {id!r}.{nearest(id, self.task_managers)}") from None

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
                errors.append(TaskManagerError(brief(error)))
        if loud and errors:
            raise errors[0]
