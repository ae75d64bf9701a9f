"""What failed: found, and started again, on another task manager where its own is gone."""

from __future__ import annotations

import time

from qod_magics.spark.cluster import Cluster
from qod_magics.spark.instance import REALTIME_BATCH_S, Instance, OngoingMove, State, refuses_realtime
from qod_magics.spark.lifecycle import Lifecycle
from qod_magics.spark.reason import reason
from qod_magics.spark.stall import share
from qod_magics.spark.task_manager import TaskManager
from qod_magics.spark.timeouts import begin

#: In real-time mode a batch ends every few seconds, rows or none: after so long without one a query stands still.
STALLED_S = 60.0
#: Over how long the cores of a task manager are looked at, to tell whether they had time for it.
BUSY_OVER_S = 10.0
#: A remote task manager that did not answer for so long is lost.
SILENCE_S = 15.0
#: A local one that did not answer for so long, and did nothing either, is killed, seconds.
HUNG_S = 30.0
#: One that used this share of a core in that time is at work, and too busy to answer.
AT_WORK = 0.02


class Recovery:
    """Each method looks for one kind of failure and begins what it asks for; all are to be called about once a second,
    by one thread."""

    def __init__(self, cluster: Cluster, lifecycle: Lifecycle) -> None:
        self.cluster = cluster
        self.lifecycle = lifecycle
        self._missing: frozenset[str] = frozenset()  #: topics that were missing when last looked at
        #: of silent task managers: since when, when last measured, and CPU seconds used by then
        self._used_s: dict[TaskManager, tuple[float, float, float]] = {}

    def __repr__(self) -> str:
        return f"recovery of {len(self.cluster.instances)} instances"

    def restart_ended(self) -> None:
        """Restart, after a while, the queries that have ended by themselves; one that Spark refuses in real-time mode
        at once, in micro-batches."""
        for instance in self.cluster.all_instances:
            lock = instance.lock  # a forsaken instance has another one from then on
            if instance.ended_run is None or not lock.acquire(blocking=False):
                continue
            try:
                (run_id, why), instance.ended_run = instance.ended_run, None
                # it may have been taken away, or in hand, since its task manager was asked
                if instance.state is State.RUNNING and instance.run_id == run_id and instance.lock is lock:
                    self._ended_by_itself(instance, why)
            finally:
                lock.release()

    def _ended_by_itself(self, instance: Instance, why: str) -> None:
        refused = instance.mode == "real-time" and instance.mode_wanted != "realtime" and refuses_realtime(why)
        if refused:  # some plans are refused only once they run: not a failure, micro-batches take them
            instance.fall_back(why)
        self.lifecycle.fail(instance, why)
        if refused:
            instance.failures = max(instance.failures - 1, 0)
            instance.retry_at = 0.0

    def restart_readers(self) -> None:
        """Restart at once what failed for want of a topic that is back, also what was given up."""
        missing, self._missing = self._missing, frozenset(self.cluster.missing_topics)
        back = missing - self._missing
        for instance in self.cluster.all_instances if back else ():
            if any(feed.topic in back for feed in instance.job.feeds):
                instance.failures, instance.retry_at = 0, 0.0
                instance.become(State.BACKING_OFF, of={State.GAVE_UP})

    def kill_hung(self) -> None:
        """Kill the local task managers that neither answer nor do anything: stopped by a signal, or deadlocked. What
        runs on them starts elsewhere, as after a crash."""
        now = time.monotonic()
        for manager in list(self.cluster.task_managers.values()):
            since, used_s = manager.silent_since, manager.used_s() if manager.silent_since is not None else None
            if since is None or used_s is None or not manager.alive():
                self._used_s.pop(manager, None)
                continue
            begun = self._used_s.get(manager)
            if begun is None or begun[0] != since:
                self._used_s[manager] = (since, now, used_s)
                continue
            measured_s = now - begun[1]
            if measured_s < HUNG_S:
                continue
            if used_s - begun[2] > AT_WORK * measured_s:  # it is at work: measured again over as long
                self._used_s[manager] = (since, now, used_s)
                continue
            self._used_s.pop(manager)
            why = f"it has not answered for {now - since:.0f} s and did nothing: killed"
            self.cluster.event("task-manager-hung", task_manager=manager.id, why=why)
            begin(manager.kill, f"killing-{manager.id}")

    def recover_lost(self) -> None:
        """Find task managers that are lost, and restart their instances on the others; likewise one that arrived
        after the removal."""
        now = time.monotonic()
        for manager in list(self.cluster.task_managers.values()):
            silent = manager.kind != "local" and now - (manager.silent_since or now) > SILENCE_S
            if manager.alive() and not silent:
                continue
            with self.cluster.lock:
                if self.cluster.task_managers.pop(manager.id, None) is None:
                    continue
                self.cluster.cpu.pop(manager.id, None)
                orphans = [i for i in self.cluster.all_instances if i.task_manager is manager]
                for instance in orphans:
                    instance.move = OngoingMove(manager.id, "", f"{manager.id} was lost", time.time())
                self.cluster.event(
                    "task-manager-lost",
                    task_manager=manager.id,
                    instances=[i.id for i in orphans],
                    why="it does not answer" if silent else "its process ended",
                )
            for instance in orphans:
                instance.forsake()
            begin(manager.close, f"closing-{manager.id}")
        for instance in self.cluster.all_instances:
            home = instance.task_manager
            if instance.state is State.RUNNING and home is not None and home.id not in self.cluster.task_managers:
                instance.move = OngoingMove(home.id, "", f"{home.id} was removed", time.time())
                instance.forsake()
        self.place_waiting()

    def place_waiting(self) -> None:
        """Start what waits for a task manager, now that there may be one."""
        waiting = [i for i in self.cluster.all_instances if i.state is State.WAITING]
        if not waiting or not self.cluster.task_managers:
            return
        targets = self.cluster.targets({i.id: set() for i in waiting})
        for instance in waiting:
            if instance.id in targets and instance.become(State.MOVING, of={State.WAITING}):
                manager = self.cluster.manager(targets[instance.id])
                move = instance.move

                def run(
                    instance: Instance = instance, manager: TaskManager = manager, move: OngoingMove | None = move
                ) -> None:
                    if move is not None:
                        instance.move = OngoingMove(move.source, manager.id, move.why, move.stopped_at)
                    try:
                        self.lifecycle.start(instance, manager)
                    except Exception as error:
                        self.lifecycle.fail_on(instance, manager, reason(error))

                begin(run, f"place-{instance.id}")

    def retry(self) -> None:
        """Start again the failed ones whose time has come."""
        now = time.monotonic()
        for instance in self.cluster.all_instances:
            due = now >= instance.retry_at and instance.task_manager is not None
            if due and instance.become(State.STARTING, of={State.BACKING_OFF}):
                begin(lambda i=instance: self._again(i), f"restart-{instance.id}")  # type: ignore[misc]

    def _again(self, instance: Instance) -> None:
        manager = instance.task_manager
        assert manager is not None
        try:
            self.lifecycle.start(instance, manager)
        except Exception as error:
            self.lifecycle.fail_on(instance, manager, reason(error))
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
        running = [i for i in self.cluster.all_instances if i.state is State.RUNNING and i.mode == "real-time"]
        for instance in running:
            manager = instance.task_manager
            if manager is None or manager.silent_since is not None or not broker_answers:
                continue  # nobody could tell of a batch, or end one
            beside = [i for i in running if i.task_manager is manager and i is not instance]
            others_end = any(i.stalled_s() < 2 * REALTIME_BATCH_S + self.cluster.period_s for i in beside)
            still, patience_s = instance.stall, instance.patience_s(STALLED_S + self.cluster.period_s)
            still.look(now, instance.run_id, instance.ended(), share(manager.busy(BUSY_OVER_S), others_end))
            if still.counted_s > patience_s:
                instance.retry_at = float("inf")
                if not instance.become(State.BACKING_OFF, of={State.RUNNING}):
                    continue
                begin(lambda i=instance, m=manager: self._revive(i, m), f"revive-{instance.id}")  # type: ignore[misc]
            elif still.watched_s > 2 * patience_s and still.counted_s < patience_s / 2 and not instance.told_stalled:
                instance.told_stalled = True
                why = f"no batch has ended for {still.watched_s:.0f} s: {manager.id} has too much to do, or it hangs"
                self.cluster.event("query-stalled", instance=instance.id, task_manager=manager.id, why=why)

    def _revive(self, instance: Instance, manager: TaskManager) -> None:
        """Stop a query that stands still; then it goes the way of one that failed. A batch may have ended that nobody
        has asked for yet: then it goes on."""
        stalled_s = instance.stall.watched_s
        why = f"no batch has ended for {stalled_s:.0f} s, and it had the time"

        def ours() -> bool:  # nobody else has taken it in hand meanwhile
            return instance.state is State.BACKING_OFF and instance.retry_at == float("inf")

        try:
            with instance.lock:
                batch = instance.poll()
            self.cluster.take(instance)
            if batch:
                if ours():
                    instance.become(State.RUNNING, of={State.BACKING_OFF})
                return
            if not self.lifecycle.end(instance, manager, 0.0, "query-stalled"):
                return
        except Exception as error:  # it starts again as soon as it can be stopped
            why = f"{why}; then {reason(error)}"
        if ours():
            self.lifecycle.fail(instance, why, manager, stalled_s=stalled_s)
