"""Detect failures of queries and task managers, and restart what failed, on another task manager if its own is gone."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from weakref import WeakKeyDictionary, WeakSet

from qod_magics.lifecycle.events import (
    Cause,
    PlaceAsked,
    Stalled,
    State,
    WentOn,
)
from qod_magics.spark.changes.lifecycle import Lifecycle
from qod_magics.spark.cluster.cluster import Cluster
from qod_magics.spark.cluster.placing import targets_for
from qod_magics.spark.cluster.reports import take_reports
from qod_magics.spark.queries.checkpoints import local_path
from qod_magics.spark.queries.instance import REALTIME_BATCH_S, Instance
from qod_magics.spark.queries.instance_state import counted_share
from qod_magics.spark.queries.modes import refuses_realtime
from qod_magics.spark.servers.connection import begin, reason
from qod_magics.spark.servers.task_manager import TaskManager

#: Window for the utilization of a task manager's cores in stall detection, seconds.
BUSY_OVER_S = 10.0
#: A silent task manager that used more than this share of a core is not idle, but too busy to answer.
AT_WORK = 0.02
#: For how long a Kafka cluster has to be away for queries to be given up meanwhile, seconds: without an answer for a
#: moment, on a busy machine, it was not away.
AWAY_S = 10.0
#: For how long after its return a try may fail that began before, seconds: Kafka's clients wait up to two minutes.
LATE_S = 150.0
#: Interval of pings to a server that was lost by its lease, seconds.
ASKING_S = 5.0


class Recovery:
    """Each method detects one kind of failure and begins the recovery. One thread calls all of them about once a
    second."""

    def __init__(self, cluster: Cluster, lifecycle: Lifecycle, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.cluster = cluster
        self.lifecycle = lifecycle
        self._missing: frozenset[str] = frozenset()  #: topics that were missing at the last check
        self._away: Mapping[str, float] = {}  #: since when each silent Kafka cluster is, by its address
        #: instances that are tried again if they are given up until `_cut_off_until`, by id
        self._cut_off: set[str] = set()
        self._cut_off_until = 0.0
        self._told_silent: WeakSet[TaskManager] = WeakSet()
        self._leases = Leases(clock)
        self._ended = threading.Event()
        self._pings: WeakKeyDictionary[TaskManager, Future[object]] = WeakKeyDictionary()
        #: of silent task managers: when they answered a ping last or, if they have not, got the first one
        self._heard_at: WeakKeyDictionary[TaskManager, float] = WeakKeyDictionary()
        #: of silent task managers: since when, when last measured, and CPU seconds used by then
        self._used_s: dict[TaskManager, tuple[float, float, float]] = {}
        #: the last attempt to stop each lingering instance, by `id()`
        self._stopping: dict[int, Future[None]] = {}

    def __repr__(self) -> str:
        return f"recovery of {len(self.cluster.instances)} instances"

    def close(self) -> None:
        """Stop asking servers that were lost whether they answer again."""
        self._ended.set()

    def restart_ended(self) -> None:
        """Restart the queries that have ended by themselves, after a back-off. A query that Spark refuses in real-time
        mode restarts at once, in micro-batches."""
        for instance in self.cluster.all_instances:
            lock = instance.lock  # `detach` may replace it
            if instance.ended_run is None or not lock.acquire(blocking=False):
                continue
            try:
                ended = instance.take_ended()
                # it may have been detached or restarted since the poll
                runs = instance.state is State.RUNNING and instance.lock is lock
                if ended is not None and runs and instance.run_id == ended[0]:
                    self._ended_by_itself(instance, ended[1])
            finally:
                lock.release()

    def _ended_by_itself(self, instance: Instance, why: str) -> None:
        refused = instance.mode == "real-time" and instance.mode_wanted != "realtime" and refuses_realtime(why)
        if refused:  # some plans are refused only once they run: not a failure, micro-batches work
            instance.fall_back(why)
        self.lifecycle.fail(instance, why, ended=True, cause=Cause.MODE if refused else None, run=instance.life.run)

    def restart_readers(self) -> None:
        """Restart at once the queries that failed for a missing topic which is back, even after their last retry: those
        that read it, or send to it."""
        missing, self._missing = self._missing, frozenset(self.cluster.missing_topics)
        back = missing - self._missing
        for instance in self.cluster.all_instances if back else ():
            used = {feed.topic for feed in instance.job.feeds} | {topic for topic, *_ in instance.job.topics}
            if used & back:
                instance.try_anew()

    def restart_cut_off(self) -> None:
        """Restart at once, when a Kafka cluster is back, the queries that were given up for a cause that may pass: what
        they write does not show whether they need it. One whose last try began before, and fails later, is restarted
        then, once."""
        now, silent = self._clock(), self.cluster.silent_kafka
        back = [since for address, since in self._away.items() if address not in silent]
        self._away = {address: self._away.get(address, now) for address in silent}
        if any(now - since >= AWAY_S for since in back):
            self._cut_off, self._cut_off_until = {i.id for i in self.cluster.all_instances}, now + LATE_S
        elif now > self._cut_off_until:
            self._cut_off = set()
        for instance in self.cluster.all_instances if self._cut_off else ():
            given_up = instance.state is State.GAVE_UP and not instance.life.final
            if given_up and instance.id in self._cut_off:
                self._cut_off.discard(instance.id)
                instance.try_anew()

    def restart_given_up(self, tasks: Collection[str]) -> tuple[str, ...]:
        """Restart at once the instances of these tasks that were given up, from their checkpoints; return their ids.
        Any thread may call it."""
        given_up = [i for i in self.cluster.all_instances if i.job.task in tasks and i.state is State.GAVE_UP]
        return tuple(instance.id for instance in given_up if instance.try_anew())

    def kill_hung(self) -> None:
        """Kill the local task managers that neither answer nor use CPU: stopped by a signal, or deadlocked. Their
        instances restart elsewhere, as after a crash."""
        now = self._clock()
        for manager in list(self.cluster.task_managers.values()):
            since = self._silent_since(manager)
            used_s = manager.used_s() if since is not None else None
            if since is None or used_s is None or not manager.alive():
                self._used_s.pop(manager, None)
                continue
            begun = self._used_s.get(manager)
            if begun is None or begun[0] != since:
                self._used_s[manager] = (since, now, used_s)
                continue
            measured_s = now - begun[1]
            if measured_s < self.cluster.patience.hung_s:
                continue
            if used_s - begun[2] > AT_WORK * measured_s:  # busy: measure once more, for as long
                self._used_s[manager] = (since, now, used_s)
                continue
            self._used_s.pop(manager)
            why = f"it has not answered for {now - since:.0f} s and did nothing: killed"
            self.cluster.event("task-manager-hung", task_manager=manager.id, why=why)
            begin(manager.kill, f"killing-{manager.id}")

    def _silent_since(self, manager: TaskManager) -> float | None:
        """Return since when a task manager has answered no ping, monotonic seconds; None if it answered the last poll.

        It is pinged from the first failed poll on: polls may be minutes apart, and a poll also fails where only one of
        the queries does not answer.
        """
        if manager.silent_since is None:
            self._pings.pop(manager, None)
            self._heard_at.pop(manager, None)
            return None
        ping, now = self._pings.get(manager), self._clock()
        if ping is None or (ping.done() and ping.exception() is None):
            self._heard_at[manager] = now
        if ping is None or ping.done():
            self._pings[manager] = begin(manager.active_runs, f"ping-{manager.id}")
        return self._heard_at[manager]

    def recover_lost(self, due: Callable[[Instance], bool] = lambda _: False) -> None:
        """Find lost task managers and restart their instances on the others. Do the same with an instance that arrived
        on a task manager after its removal, or could not leave it before.

        Args:
            due: tells whether a running instance should write a batch: its broker answers, and rows wait for it by its
                checkpoint, or it ends batches without any.

        """
        for manager in list(self.cluster.task_managers.values()):
            if not (why := self._loss(manager, due)):
                continue
            with self.cluster.lock:
                if not self.cluster.part_from(manager.id):
                    continue
                orphans = [i for i in self.cluster.all_instances if i.task_manager is manager]
                self.cluster.event(
                    "task-manager-lost",
                    task_manager=manager.id,
                    instances=[i.id for i in orphans],
                    why=why,
                )
            for instance in orphans:
                instance.detach(f"{manager.id} was lost", manager.id)
            begin(partial(self._close, manager), f"closing-{manager.id}")
        for instance in self.cluster.all_instances:
            home, strays = instance.task_manager, instance.state in (State.RUNNING, State.BACKING_OFF, State.STALLED)
            if strays and home is not None and home.id not in self.cluster.task_managers:
                instance.detach(f"{home.id} was removed", home.id)
        self.place_waiting()

    def _loss(self, manager: TaskManager, due: Callable[[Instance], bool]) -> str:
        """Return why a task manager is lost, as one clause; "" if it is not. A silent one of the user's is reported
        once and otherwise left alone until it refuses connections or its lease runs out: its queries may run on, and a
        second run of them would write to the same checkpoints."""
        if manager.kind == "local" or manager.ending:
            return manager.ending
        since = self._silent_since(manager)
        if since is None:
            self._leases.renewed(manager)
        here = [i for i in self.cluster.all_instances if i.task_manager is manager and i.life.writing]
        lease_s = self.cluster.patience.lease_s
        quiet_s = 0.0 if since is None else self._leases.quiet_s(manager, here, due, lease_s)
        silent_s = 0.0 if since is None else self._clock() - since
        if silent_s <= self.cluster.patience.silence_s:
            self._told_silent.discard(manager)
            return ""
        if manager not in self._told_silent:
            self._told_silent.add(manager)
            why = (
                f"it has not answered for {silent_s:.0f} s; its queries may still run, and are not started elsewhere "
                "until it refuses connections, or writes nothing into their checkpoints though rows wait, or is "
                f"removed (%qod remove-tm {manager.id})"
            )
            self.cluster.event("task-manager-silent", task_manager=manager.id, why=why)
        if manager.gone():
            return "it is gone"
        if not quiet_s or silent_s < lease_s:
            return ""
        return (
            f"it has not answered for {silent_s:.0f} s, and for {quiet_s:.0f} s it has written nothing into the "
            "checkpoints of its queries, though rows wait"
        )

    def _close(self, manager: TaskManager) -> None:
        """Close a lost task manager. One that may only stand still is closed once it answers again: only then do its
        queries end."""
        deadline = time.monotonic() + self.cluster.patience.asked_s
        while not manager.gone() and not self._ended.is_set() and time.monotonic() < deadline:
            ping = begin(manager.active_runs, f"ping-{manager.id}")
            while not (ping.done() or self._ended.is_set() or time.monotonic() >= deadline):
                self._ended.wait(1.0)
            if ping.done() and ping.exception() is None:
                break
            self._ended.wait(ASKING_S)
        manager.close()

    def place_waiting(self) -> None:
        """Start the instances that wait for a task manager, if there is one."""
        waiting = [i for i in self.cluster.all_instances if i.state is State.WAITING]
        if not waiting or not self.cluster.task_managers:
            return
        targets = targets_for(self.cluster, {i.id: set() for i in waiting})
        for instance in waiting:
            manager = self.cluster.task_managers.get(targets.get(instance.id, ""))  # it may have left meanwhile
            if manager is not None and instance.handle(PlaceAsked(manager.id)):

                def run(instance: Instance = instance, manager: TaskManager = manager) -> None:
                    try:
                        self.lifecycle.start(instance, manager)
                    except Exception as error:
                        self.lifecycle.fail_on(instance, manager, reason(error))

                begin(run, f"place-{instance.id}")

    def retry(self) -> None:
        """Restart failed instances after their back-off; stop those that a deployment could not stop."""
        self._stop_lingering()
        for instance in self.cluster.all_instances:
            if instance.retry():
                begin(lambda i=instance: self._restart(i), f"restart-{instance.id}")  # type: ignore[misc]

    def _stop_lingering(self) -> None:
        with self.cluster.lock:
            left = self.cluster.keep_lingering(self._lingers)
        self._stopping = {id(i): self._stopping[id(i)] for i in left if id(i) in self._stopping}
        for instance in left:
            tried = self._stopping.get(id(instance))
            if tried is None or tried.done():
                call = partial(self._stop_again, instance)
                self._stopping[id(instance)] = begin(call, f"stop-{instance.id}")

    def _lingers(self, instance: Instance) -> bool:
        """Return whether an instance must still be stopped. It need not once a failed deployment has put it back: its
        restart stops its run."""
        home, tried = instance.task_manager, self._stopping.get(id(instance))
        if instance.state is not State.STOPPED or home is None:
            return False
        if not home.alive() or not self.cluster.has(home):
            return False
        return tried is None or not tried.done() or instance.unended is not None

    def _stop_again(self, instance: Instance) -> None:
        with instance.lock:
            if instance.state is State.STOPPED:  # not put back meanwhile
                self.lifecycle.stop(instance, read_on=False)  # but by the start of what replaces it

    def _restart(self, instance: Instance) -> None:
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

    def notice(self, broker_answers: bool = True, rows_waiting: Callable[[Instance], int] = lambda _: 0) -> None:
        """Restart each query that is stalled though Spark calls it active: it does not fail, and its backlog grows. No
        batch of it ends or, in real-time mode, none reads a row.

        One that may only be slow is reported, once. To be called about once a second.

        Args:
            broker_answers: without it no batch could end.
            rows_waiting: a micro-batch is due only while rows wait, and a real-time batch reads only then.

        """
        now = self._clock()
        running = [i for i in self.cluster.all_instances if i.state is State.RUNNING]
        for instance in running:
            manager = instance.task_manager
            if manager is None or manager.silent_since is not None or not broker_answers:
                continue  # no batch could end, or be reported
            if instance.mode != "real-time" and not rows_waiting(instance):
                instance.stall.reset()
                continue
            others = [i for i in running if i.task_manager is manager and i is not instance]
            recent_s = 2 * REALTIME_BATCH_S + self.cluster.period_s
            others_end = any(i.stalled_s() < recent_s for i in others)
            stalled_s = self.cluster.patience.stalled_s + self.cluster.period_s
            stall, patience_s = instance.stall, instance.patience_s(stalled_s)
            busy = manager.busy(BUSY_OVER_S)
            stall.look(now, instance.run_id, instance.ended(), counted_share(busy, others_end))
            if instance.mode == "real-time" and rows_waiting(instance) > instance.width:
                share = counted_share(busy, others_end or instance.stalled_s() < recent_s)
                instance.unread.look(now, instance.run_id, instance.last_read(), share)
            else:
                instance.unread.reset()
            if stall.counted_s > patience_s:
                self._stalled(instance, manager, unread=False)
            elif instance.unread.counted_s > patience_s and instance.unread.try_once():
                self._stalled(instance, manager, unread=True)
            elif instance.unread.counted_s > patience_s and instance.note_slow():
                why = (
                    f"no batch has read a row for {instance.unread.watched_s:.0f} s, though {rows_waiting(instance):,} "
                    "wait, also after a restart; with kafka.isolation.level=read_committed they may be of a transaction"
                )
                self.cluster.event("query-stalled", instance=instance.id, task_manager=manager.id, why=why)
            elif stall.watched_s > 2 * patience_s and stall.counted_s < patience_s / 2 and instance.note_slow():
                why = f"no batch has ended for {stall.watched_s:.0f} s: {manager.id} is overloaded, or the query hangs"
                self.cluster.event("query-stalled", instance=instance.id, task_manager=manager.id, why=why)

    def _stalled(self, instance: Instance, manager: TaskManager, *, unread: bool) -> None:
        """Begin to restart a stalled query. `unread`: its batches end, and read no row."""
        stall = instance.unread if unread else instance.stall
        why = f"no batch has {'read a row' if unread else 'ended'} for {stall.watched_s:.0f} s"
        read = instance.last_read() if unread else None
        if instance.handle(Stalled(why)):
            begin(partial(self._revive, instance, manager, why, stall.watched_s, read), f"revive-{instance.id}")

    def _revive(self, instance: Instance, manager: TaskManager, why: str, stalled_s: float, read: int | None) -> None:
        """Stop a stalled query, then handle it as one that failed. If a last poll finds that a batch has ended, or has
        read a row, it keeps running. `read`: the last batch that had read a row; None: no batch had ended."""
        why = f"{why}, with CPU to spare" if read is None else f"{why}, though rows wait"
        try:
            with instance.lock:
                polled = instance.poll()
            take_reports(self.cluster, instance)
            if polled if read is None else instance.last_read() != read:
                instance.handle(WentOn())
                return
            if not self.lifecycle.end(instance, manager, 0.0, "query-stalled"):
                return
        except Exception as error:  # it restarts once it can be stopped
            why = f"{why}; then {reason(error)}"
        if instance.state is State.STALLED:  # no other thread has changed it meanwhile
            self.lifecycle.fail(instance, why, manager, stalled_s=stalled_s)


# --- Leases -----------------------------------------------------------------------------------------------------------
# Whether a server that does not answer still works, by what its queries write into their checkpoints.
#
# A driver renews its lease by working: each batch that it plans or ends is an entry in a log of a checkpoint. Behind a
# proxy that stays up, calls to a server that is gone hang or fail like those to a slow one. Its lease has run out if
# rows wait, and for a long time no query there has written anything, though one of them should have.
#
# A driver that only stood still, and wakes up after that, can't go on: Spark refuses the entry of a batch that another
# run has written, and the query ends. The batch that it was in has been read twice, as after a kill. It is not ruled
# out that it writes state files of that batch once more before its query ends.


#: How many times as long as its longest known batch a query may write nothing, beyond the lease.
LONG_BATCHES = 3.0


def written_at(checkpoint: str) -> float | None:
    """Return when a log of a checkpoint has changed last, by the clock of its files; None: there is none, or it is at
    no local path."""
    place = local_path(checkpoint)
    found = []
    for log in ("offsets", "commits") if place is not None else ():
        with suppress(OSError):
            found.append(os.stat(f"{place}/{log}").st_mtime)
    return max(found, default=None)


@dataclass(slots=True)
class _Watch:
    written: float  #: the last change of its logs
    since: float  #: since when it is known, by our clock
    due: float | None = None  #: since when a batch should have been written; None: none should


class Leases:
    """Watches the checkpoints of silent servers. One thread calls it about once a second."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._watched: WeakKeyDictionary[TaskManager, dict[str, _Watch]] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"leases of {len(self._watched)} silent task managers"

    def renewed(self, manager: TaskManager) -> None:
        """Forget a server, as it answers."""
        self._watched.pop(manager, None)

    def quiet_s(
        self, manager: TaskManager, here: Iterable[Instance], due: Callable[[Instance], bool], lease_s: float
    ) -> float:
        """Return for how many seconds nothing has been written there, once the lease of a silent server has run out;
        else 0, also where no checkpoint tells.

        Args:
            manager: the server.
            here: the instances that run there.
            due: tells whether an instance has rows to read, or ends batches without any.
            lease_s: for how long nothing may be written, seconds, beside the time that batches take.

        """
        now, watched = self._clock(), self._watched.setdefault(manager, {})
        quiet: list[float] = []
        over = False
        for instance in here:
            written = written_at(instance.checkpoint)
            if written is None:
                return 0.0
            watch = watched.get(instance.checkpoint)
            if watch is None or watch.written != written:
                watch = watched[instance.checkpoint] = _Watch(written, now)
            if not due(instance):
                watch.due = None
            elif watch.due is None:
                watch.due = now
            quiet.append(now - watch.since)
            over = over or (watch.due is not None and now - watch.due >= lease_s + _longest_s(instance))
        shortest = min(quiet, default=0.0)
        return shortest if over and shortest >= lease_s else 0.0


def _longest_s(instance: Instance) -> float:
    """Return how long an instance that works may write nothing, seconds."""
    longest_s = max((batch.end - batch.start for _, batch in list(instance.meter.spans)), default=0.0)
    return (instance.job.trigger_s or 0.0) + LONG_BATCHES * longest_s
