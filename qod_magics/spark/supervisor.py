"""The lives of instances: start, move, restart with back-off after a failure, elsewhere after a lost task manager."""

from __future__ import annotations

import time
from concurrent.futures import wait
from contextlib import suppress

from qod_magics.errors import TaskManagerError
from qod_magics.spark.bounded import begin
from qod_magics.spark.cluster import Cluster
from qod_magics.spark.instance import REALTIME_BATCH_S, Instance, Move, State, finds_remains, refuses_realtime
from qod_magics.spark.realtime import not_realtime
from qod_magics.spark.reason import reason
from qod_magics.spark.stillness import share
from qod_magics.spark.task_manager import TaskManager

#: Waits between the restarts of a failing query, seconds; after the last it stays stopped.
BACK_OFF_S = (1.0, 2.0, 4.0, 8.0, 16.0)
#: A query that ran for so long has recovered: its failures are forgotten.
RECOVERED_AFTER_S = 60.0
#: So long a query may take from its start to its first tasks; one that is still planning then is taken for settled.
SETTLED_S = 60.0
#: The same where its task manager does not tell whether it has tasks.
UNTOLD_S = 8.0
#: In real-time mode a batch ends every few seconds, rows or none: after so long without one a query stands still.
STILL_S = 60.0
#: Over how long the cores of a task manager are looked at, to tell whether they had time for it.
BUSY_OVER_S = 10.0
#: Report a stop that takes longer than this, in seconds.
STOP_S = 20.0
#: A remote task manager that did not answer for so long is lost.
SILENCE_S = 15.0


class Supervisor:
    """Carries out what is decided for single instances, and what their failures ask for."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def __repr__(self) -> str:
        return f"supervisor of {len(self.cluster.instances)} instances"

    def start(self, instance: Instance, manager: TaskManager) -> None:
        """Start an instance on a task manager. Raises QodError."""
        instance.start(
            manager,
            self.cluster.board,
            self.cluster.kafka_options,
            self.cluster.dials_of(instance),
        )

    def stop(self, instance: Instance, at_batch_end_s: float = 0.0) -> None:
        """Stop its query as `Instance.stop` does; what it reported is in the books, also where that raises."""
        try:
            instance.stop(at_batch_end_s)
        finally:
            self.cluster.take(instance)

    def settle(self, instance: Instance) -> None:
        """Wait until the first real-time batch of a query that was just started is at work: Spark refuses some plans
        only then. Those run in micro-batches, unless real-time mode was asked for.

        Raises:
            TaskManagerError: real-time mode was asked for, and is refused.

        """
        begun, told = time.monotonic(), False
        while instance.mode == "real-time" and instance.state is State.RUNNING:
            with instance.lock:
                manager, run_id = instance.task_manager, instance.run_id
                why = instance.failed()
                if manager is None or run_id is None:
                    return
                if why is None:
                    works = manager.works_on(run_id)
                    told = told or works is not None
                    if works or time.monotonic() - begun >= (SETTLED_S if told else UNTOLD_S):
                        return
                elif not refuses_realtime(why):
                    return  # a failure like any other: found at the next poll
                elif instance.mode_wanted == "realtime":
                    raise TaskManagerError(f"{instance.id} can't run in real-time mode: {not_realtime(why)}.")
                else:
                    instance.fall_back(why)
                    self.start(instance, manager)
                    return
            time.sleep(0.1)

    def restart(self, instance: Instance) -> None:
        """Stop at a batch's end and start again where it is."""
        manager = instance.task_manager
        if manager is None or instance.state is not State.RUNNING:
            return
        instance.state = State.STARTING
        longest = REALTIME_BATCH_S if instance.mode == "real-time" else max(REALTIME_BATCH_S, 2 * self.cluster.period_s)
        try:
            self.stop(instance, longest + 1.0)
            self.start(instance, manager)
        except Exception as error:
            self.fail_on(instance, manager, reason(error))

    def move(self, instance: Instance, target: TaskManager, why: str) -> None:
        """Stop at a batch's end, start from the same checkpoint on `target`; if that fails, on any other.

        It starts nowhere before its run has ended: two at once would write their rows twice.
        """
        source = instance.task_manager
        if source is target and instance.query is not None:
            instance.state = State.RUNNING
            return
        if source is not None and source.alive():
            try:
                if not self._ended(instance, source):
                    return
            except Exception as error:  # where it is, it starts again as soon as it can be stopped
                if instance.task_manager is source:
                    self.fail(instance, f"not moved to {target.id}, for it could not be stopped: {reason(error)}")
                return
        instance.move = Move(source.id if source else None, target.id, why, time.time())
        try:
            self.start(instance, target)
        except Exception as error:
            self.cluster.event("query-failed", instance=instance.id, task_manager=target.id, why=reason(error))
            if instance.task_manager is not target:  # it was taken away meanwhile
                return
            if instance.unended is not None and source is not None:
                self.fail(instance, reason(error), source)
                return
            instance.forsake()
            try:
                others = self.cluster.targets({instance.id: {target.id, *([source.id] if source else [])}})
            except TaskManagerError:  # none is up: it waits for one
                return
            if instance.id in others:
                self.move(instance, self.cluster.manager(others[instance.id]), why)
            else:
                self.fail(instance, reason(error), source or target)

    def _ended(
        self,
        instance: Instance,
        source: TaskManager,
        at_batch_end_s: float = REALTIME_BATCH_S + 1.5,
        kind: str = "move-waits",
    ) -> bool:
        """Stop its run and wait until it has ended, however long that takes. False: it went with its task manager, and
        waits for another. Raises whatever stopping raises."""
        stopping = begin(lambda: self.stop(instance, at_batch_end_s), f"stopping-{instance.id}")
        begun, told = time.monotonic(), False
        while not stopping.done():
            wait((stopping,), 0.25)
            removed = self.cluster.task_managers.get(source.id) is not source
            if not source.alive() or (removed and source.kind == "connect"):  # its session ends with it
                if removed and instance.task_manager is source:
                    instance.move = Move(source.id, "", f"{source.id} was removed", time.time())
                    instance.forsake()
                return False  # one that was lost is found by `recover_lost`
            if not told and time.monotonic() - begun > STOP_S:
                told = True
                why = f"it has not ended on {source.id} for {STOP_S:g} s, and starts nowhere else before"
                self.cluster.event(kind, instance=instance.id, task_manager=source.id, why=why)
        stopping.result()
        return instance.task_manager is source

    def fail_on(self, instance: Instance, manager: TaskManager, why: str) -> None:
        """It could not be started on `manager`. Nothing to do when it was taken away from there meanwhile."""
        if instance.task_manager is manager:
            self.fail(instance, why)

    def fail(
        self, instance: Instance, why: str, manager: TaskManager | None = None, *, still_s: float | None = None
    ) -> None:
        """A query ended by itself, or was stopped after it had stood still for `still_s` seconds: start again after a
        while, or give up loudly. One whose task manager is gone did not fail: it waits for another."""
        manager = manager or instance.task_manager
        if manager is None or not manager.alive() or self.cluster.task_managers.get(manager.id) is not manager:
            instance.forsake()
            return
        kind = "query-failed" if still_s is None else "query-still"
        if instance.started_at and time.monotonic() - instance.started_at - (still_s or 0.0) > RECOVERED_AFTER_S:
            instance.failures = 0
        if finds_remains(why):
            instance.start_afresh()
        instance.query = None
        instance.hold()
        instance.failure = why
        instance.task_manager = manager
        where = manager.id
        if instance.failures >= len(BACK_OFF_S):
            instance.state = State.GAVE_UP
            self.cluster.event(
                kind,
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
        self.cluster.event(kind, instance=instance.id, task_manager=where, why=why, retry_in_s=wait_s)

    def poll(self, manager: TaskManager) -> None:
        """Take in what happened on one task manager since the last look. Raises what an instance's poll raised last.

        Raises:
            TaskManagerError: it has not answered the poll before this one.

        """
        if not manager.polling.acquire(blocking=False):
            raise TaskManagerError(f"{manager.id} has not answered the last poll yet.")
        try:
            self._poll(manager)
        finally:
            manager.polling.release()

    def keep_up(self) -> None:
        """Poll task managers on which a query may soon let go of reports that nobody has asked for: its batches are
        many for one period."""
        due = {
            i.task_manager for i in list(self.cluster.instances.values()) if i.state is State.RUNNING and i.overdue()
        }
        for manager in due:
            if manager is not None and not manager.polling.locked():
                begin(lambda m=manager: self.poll(m), f"keeping-up-{manager.id}")  # type: ignore[misc]

    def _poll(self, manager: TaskManager) -> None:
        problem: Exception | None = None
        here = [i for i in self.cluster.instances.values() if i.task_manager is manager]
        if not any(i.state is State.RUNNING for i in here):
            manager.ping()
        for instance in here:
            lock = instance.lock  # a forsaken instance has another one from then on
            if instance.state is not State.RUNNING or not lock.acquire(blocking=False):
                continue
            try:
                instance.poll()
                why = instance.failed()
                if why is not None:  # a batch may have ended between the two looks
                    with suppress(Exception):
                        instance.poll()
                self.cluster.take(instance)
                # it may have been taken away while the answer was on its way
                if why is not None and instance.task_manager is manager and instance.state is State.RUNNING:
                    self._ended_by_itself(instance, why)
            except Exception as error:  # the others are asked all the same; what it reported waits for the next time
                problem = error
            finally:
                lock.release()
        cpu = manager.stage_cpu()
        if cpu is not None:
            runs = {i.run_id: i for i in self.cluster.instances.values() if i.run_id is not None}
            for (run_id, batch_id), seconds in cpu.items():
                if run_id in runs:
                    runs[run_id].meter.charge(run_id, batch_id, seconds)
        self._charge_python(manager)
        if problem is not None:
            raise problem

    def _charge_python(self, manager: TaskManager) -> None:
        """Split the CPU of a task manager's Python workers, which is in no stage's, among the instances that can have
        some: those in micro-batch mode, by the time that their batches took since the last look."""
        if manager.python_meter is None:
            return
        here = [i for i in self.cluster.instances.values() if i.task_manager is manager and i.mode == "micro-batch"]
        for instance in self.cluster.instances.values():
            if instance.task_manager is manager:
                instance.python_cpu = 0.0
        if not here:
            return
        cpu, seconds = manager.python_meter.read()
        if cpu > 0.0:
            since = time.time() - seconds
            busy = [instance.busy_s(since) if len(here) > 1 else 1.0 for instance in here]
            for instance, part in zip(here, busy, strict=True):
                instance.python_cpu = cpu * (part / sum(busy) if sum(busy) else 1.0 / len(here))

    def _ended_by_itself(self, instance: Instance, why: str) -> None:
        refused = instance.mode == "real-time" and instance.mode_wanted != "realtime" and refuses_realtime(why)
        if refused:  # some plans are refused only once they run: not a failure, micro-batches take them
            instance.fall_back(why)
        self.fail(instance, why)
        if refused:
            instance.failures = max(instance.failures - 1, 0)
            instance.retry_at = 0.0

    def recover_lost(self) -> None:
        """Find task managers that are gone, and start their instances on the others; also what came to one that was
        just removed."""
        now = time.monotonic()
        for manager in list(self.cluster.task_managers.values()):
            silent = manager.kind != "local" and now - (manager.silent_since or now) > SILENCE_S
            if manager.alive() and not silent:
                continue
            with self.cluster.lock:
                if self.cluster.task_managers.pop(manager.id, None) is None:
                    continue
                self.cluster.cpu.pop(manager.id, None)
                orphans = [i for i in self.cluster.instances.values() if i.task_manager is manager]
                for instance in orphans:
                    instance.move = Move(manager.id, "", f"{manager.id} was lost", time.time())
                self.cluster.event(
                    "task-manager-lost",
                    task_manager=manager.id,
                    instances=[i.id for i in orphans],
                    why="it does not answer" if silent else "its process ended",
                )
            for instance in orphans:
                instance.forsake()
            begin(manager.close, f"closing-{manager.id}")
        for instance in list(self.cluster.instances.values()):
            home = instance.task_manager
            if instance.state is State.RUNNING and home is not None and home.id not in self.cluster.task_managers:
                instance.move = Move(home.id, "", f"{home.id} was removed", time.time())
                instance.forsake()
        self.place_waiting()

    def place_waiting(self) -> None:
        """Start what waits for a task manager, now that there may be one."""
        waiting = [i for i in self.cluster.instances.values() if i.state is State.WAITING]
        if not waiting or not self.cluster.task_managers:
            return
        targets = self.cluster.targets({i.id: set() for i in waiting})
        for instance in waiting:
            if instance.id in targets:
                instance.state = State.MOVING
                manager = self.cluster.manager(targets[instance.id])
                move = instance.move

                def run(
                    instance: Instance = instance, manager: TaskManager = manager, move: Move | None = move
                ) -> None:
                    if move is not None:
                        instance.move = Move(move.source, manager.id, move.why, move.stopped_at)
                    try:
                        self.start(instance, manager)
                    except Exception as error:
                        self.fail_on(instance, manager, reason(error))

                begin(run, f"place-{instance.id}")

    def retry(self) -> None:
        """Start again the failed ones whose time has come."""
        now = time.monotonic()
        for instance in list(self.cluster.instances.values()):
            if instance.state is State.BACKING_OFF and now >= instance.retry_at and instance.task_manager is not None:
                instance.state = State.STARTING
                begin(lambda i=instance: self._again(i), f"restart-{instance.id}")  # type: ignore[misc]

    def _again(self, instance: Instance) -> None:
        manager = instance.task_manager
        assert manager is not None
        try:
            self.start(instance, manager)
        except Exception as error:
            self.fail_on(instance, manager, reason(error))
            return
        self.cluster.event(
            "query-restarted",
            instance=instance.id,
            task_manager=manager.id,
            after=instance.failure,
            failures=instance.failures,
        )

    def notice(self, broker_answers: bool = True) -> None:
        """Restart each query in real-time mode that stands still, though Spark calls it active: no failure comes, and
        its rows wait. One that may only be slow is reported, once. To be called about once a second."""
        now = time.monotonic()
        running = [i for i in self.cluster.instances.values() if i.state is State.RUNNING and i.mode == "real-time"]
        for instance in running:
            manager = instance.task_manager
            if manager is None or manager.silent_since is not None or not broker_answers:
                continue  # nobody could tell of a batch, or end one
            beside = [i for i in running if i.task_manager is manager and i is not instance]
            others_end = any(i.still_s() < 2 * REALTIME_BATCH_S + self.cluster.period_s for i in beside)
            still, patience_s = instance.stillness, instance.patience_s(STILL_S + self.cluster.period_s)
            still.look(now, instance.run_id, instance.ended(), share(manager.busy(BUSY_OVER_S), others_end))
            if still.counted_s > patience_s:
                instance.state, instance.retry_at = State.BACKING_OFF, float("inf")
                begin(lambda i=instance, m=manager: self._revive(i, m), f"revive-{instance.id}")  # type: ignore[misc]
            elif still.watched_s > 2 * patience_s and still.counted_s < patience_s / 2 and not instance.told_still:
                instance.told_still = True
                why = f"no batch has ended for {still.watched_s:.0f} s: {manager.id} has too much to do, or it hangs"
                self.cluster.event("query-still", instance=instance.id, task_manager=manager.id, why=why)

    def _revive(self, instance: Instance, manager: TaskManager) -> None:
        """Stop a query that stands still; then it goes the way of one that failed. A batch may have ended that nobody
        has asked for yet: then it goes on."""
        still_s = instance.stillness.watched_s
        why = f"no batch has ended for {still_s:.0f} s, and it had the time"

        def ours() -> bool:  # nobody else has taken it in hand meanwhile
            return instance.state is State.BACKING_OFF and instance.retry_at == float("inf")

        try:
            with instance.lock:
                batch = instance.poll()
            self.cluster.take(instance)
            if batch:
                if ours():
                    instance.state = State.RUNNING
                return
            if not self._ended(instance, manager, 0.0, "query-still"):
                return
        except Exception as error:  # it starts again as soon as it can be stopped
            why = f"{why}; then {reason(error)}"
        if ours():
            self.fail(instance, why, manager, still_s=still_s)
