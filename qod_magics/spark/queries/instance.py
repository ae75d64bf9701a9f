"""One task instance: a streaming query that is started, watched, stopped at a batch's end, and started elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf

from qod_magics.errors import QodError, TaskManagerError
from qod_magics.lifecycle.events import (
    BatchEnded,
    CauseGone,
    DropRun,
    Event,
    Failed,
    Follows,
    Instructions,
    NotStarted,
    RetryDue,
    RunEnded,
    ServerLost,
    StallEnded,
    StartAsked,
    Started,
    StartQuery,
    State,
    StopUndone,
    Suspended,
)
from qod_magics.sources.registry import Sources
from qod_magics.spark.plans.dial import DialBoard
from qod_magics.spark.plans.job import Job
from qod_magics.spark.plans.pipeline import Workshop
from qod_magics.spark.plans.timing import AGE_WHEN_READ, WHEN_WRITTEN
from qod_magics.spark.queries.checkpoints import is_new, read_topics, shuffle_partitions
from qod_magics.spark.queries.instance_state import InstanceState
from qod_magics.spark.queries.meter import MeterReading
from qod_magics.spark.queries.modes import (
    TOO_FEW_SLOTS,
    not_realtime,
    output_modes,
    refuses_realtime,
)
from qod_magics.spark.queries.progress import Batch, batch_of, report_json
from qod_magics.spark.servers.connection import begin, reason
from qod_magics.spark.servers.task_manager import STARTS_S, TaskManager

#: Spark's minimum duration of a real-time batch, seconds.
REALTIME_BATCH_S = 5.0
#: Maximum records of a topic per micro-batch and core: for catching up from old offsets, where a batch would read hours
#: of input. Under an overload it must not bind: plans assume batches as long as their fixed costs ask for, and shorter
#: ones pay more often for planning and for searching their state.
MOST_RECORDS = 2_000_000


@dataclass(slots=True)
class Instance(InstanceState):
    """Starts, polls and stops the query of a task instance."""

    def assign(self, job: Job) -> None:
        """Give it another job on its checkpoint. Its next run takes it."""
        self.job = job

    def found_ended(self, run_id: str, why: str) -> None:
        """Note that a run has ended by itself, for `take_ended`."""
        self.ended_run = (run_id, why)

    def take_ended(self) -> tuple[str, str] | None:
        """Return the run that was found to have ended by itself, and why, once."""
        ended, self.ended_run = self.ended_run, None
        return ended

    def take_reported(self) -> Iterator[Batch]:
        """Return the ended batches that are not in the row accounting yet, each once."""
        while self.reported:
            yield self.reported.popleft()

    @property
    def has_ended(self) -> bool:
        """Return whether no run of it is under way."""
        return self.query is None and self.unended is None

    def take_interrupted(self) -> bool:
        """Return whether its last run ended within a batch, once."""
        interrupted, self.interrupted = self.interrupted, False
        return interrupted

    def take_missed(self) -> int:
        """Return the number of batches whose reports were missed since the last call."""
        missed, self.missed = self.missed, 0
        return missed

    def use_python_cpu(self, percent: float) -> None:
        """Note its share of its task manager's Python workers, % of one core."""
        self.python_cpu = percent

    def note_slow(self) -> bool:
        """Note that its present run was reported as stalled; return whether it was not before."""
        told, self.told_stalled = self.told_stalled, True
        return not told

    def handle(self, event: Event) -> Instructions:
        """Report an event to its life; return what is to be done. Any thread may call it."""
        with self.changing:
            return self.life.handle(event, time.monotonic())

    def retry(self) -> Instructions:
        """Report that time has passed while it backs off."""
        with self.changing:
            return self.life.handle(RetryDue(placed=self.task_manager is not None), time.monotonic())

    def try_anew(self) -> Instructions:
        """Reset its failure count; return an instruction if it was given up and is tried again."""
        with self.changing:
            return self.life.handle(CauseGone(placed=self.task_manager is not None), time.monotonic())

    def reinstate(
        self, *, runs: bool = False, why: str | None = None, differs: bool = False, interrupted: bool = False
    ) -> None:
        """Undo its stop, as the deployment that should replace it has failed: it restarts where it ran, or goes on
        there if it still `runs`. It reports `why` as its failure. `differs`: the instances that replaced it may have
        read further; `interrupted`: one of them was stopped within a batch."""
        with self.changing:
            self.books_differ = self.books_differ or differs
            self.interrupted = self.interrupted or interrupted
            runs = runs and self.query is not None
            self.life.handle(StopUndone(self.task_manager is not None, runs, why), time.monotonic())

    def fail(self, event: Failed | StallEnded, manager: TaskManager, *, ended: bool) -> Instructions:
        """Report a failure on `manager`. Unless its run is known to have `ended`, the next start stops it first."""
        with self.changing:
            query = self.query
            writes_on = self.unended is not None or (query is not None and not ended)
            instructions = self.life.handle(replace(event, writes_on=writes_on), time.monotonic())
            if DropRun() in instructions:
                if finds_remains(event.why):
                    self.start_afresh()
                if query is not None and not ended:  # it may write on, and end batches that nobody asks for
                    self.unended, self.books_differ = query, True
                self.interrupted = self.interrupted or query is not None
                self.query, self.task_manager = None, manager
                self.hold()
            return instructions

    def not_started(self, why: str, on: str) -> Instructions:
        """Report that it could not be started on the task manager that it moves to. It is detached from there, unless
        its earlier run could not be stopped."""
        with self.changing:
            if self.task_manager is None:  # detached meanwhile
                return ()
            event = NotStarted(why, on, writes_on=self.unended is not None)
            instructions = self.life.handle(event, time.monotonic())
            if DropRun() in instructions:
                self._let_go()
            return instructions

    def _let_go(self) -> None:
        """Forget task manager and query."""
        if self.query is not None or self.unended is not None:
            self.books_differ = self.interrupted = True
        self.query = self.unended = None
        self.task_manager = None
        self.hold()

    def inherit_state(self, before: Instance, *, begun: bool, same_files: bool) -> None:
        """Continue from a copy of another instance's checkpoint; `begun`: it has a batch. Files of a sink stay in their
        directory, whose log has the numbers of the batches."""
        self.begun = begun
        if same_files:
            self.job = replace(self.job, run=before.job.run)

    def take_over(self, checkpoint: str, run: str, begun: bool, no_realtime: str) -> None:
        """Go on from the checkpoint of an instance of an earlier kernel, and in its output."""
        self.checkpoint, self.begun, self.no_realtime = checkpoint, begun, no_realtime
        self.job = replace(self.job, run=run)

    def replaces(self, before: Iterable[Instance], why: str) -> None:
        """Take over the stories of the instances that it replaces in a change of tasks."""
        self.handle(Follows(why=why, steps=tuple(step for each in before for step in each.life.steps)))

    def follow(self, before: Instance, afresh: bool, home: TaskManager | None, why: str) -> None:
        """Succeed the previous instance of this name, on `home`: take over its measurements and, unless this one starts
        on a new checkpoint (`afresh`), its checkpoint and output."""
        self.task_manager = home
        self.meter, self.last_reading, self.unended = before.meter, before.last_reading, before.unended
        self.handle(Follows(before.unended is not None, why, tuple(before.life.steps)))
        if not afresh:
            self.job = replace(self.job, run=before.job.run)  # the files of a checkpoint are in one directory
            self.no_realtime = before.no_realtime
            self.checkpoint, self.begun = before.checkpoint, before.begun
            self.books_differ, self.interrupted = before.books_differ, before.interrupted

    def start(
        self,
        task_manager: TaskManager,
        board: DialBoard,
        kafka: Mapping[str, str],
        dials: Mapping[str, float],
        free_slots: float = inf,
        sources: Sources | None = None,
        run_ended: Callable[[], object] = lambda: None,
        shuffle: int | None = None,
        starts_s: float = STARTS_S,
    ) -> None:
        """Build the job on this task manager and start it from its checkpoint, in the mode with the higher throughput
        per core: real-time mode if it keeps no state, Spark supports it and `free_slots` are enough for it, else
        micro-batches. `run_ended` is called once no earlier run is under way. If its first batch is one of these, it
        shuffles into `shuffle` partitions, by default into as many as the task manager says. It waits `starts_s`
        seconds for starts that shuffle into another number.

        Raises:
            QodError: it can't be built or started there.

        """
        lock = self.lock
        with lock:
            if self.state is State.STOPPED:  # meanwhile, by a new deployment
                return
            if lock is not self.lock:
                raise TaskManagerError(f"{self.id} was detached while its start on {task_manager.id} waited.")
            start = next((each for each in self.handle(StartAsked()) if isinstance(each, StartQuery)), None)
            if start is None:
                return
            if task_manager is not self.task_manager and TOO_FEW_SLOTS in self.no_realtime:
                self.no_realtime = ""  # another one may have enough
            self.task_manager = task_manager
            self._stop_previous_run(task_manager)
            run_ended()
            task_manager.turn(dials)
            workshop = task_manager.workshop(board, kafka, sources)
            try:
                if self.facts is None:
                    self.facts = workshop.plan_facts(self.job)
                refusal = self._against_realtime(self.facts, free_slots)
            except QodError:
                raise
            except Exception as error:
                raise TaskManagerError(f"{self.id} can't start on {task_manager.id}: {reason(error)}") from error
            if not refusal:
                try:
                    self._begin(start, task_manager, workshop, shuffle, starts_s, realtime=True)
                    return
                except QodError:
                    raise
                except Exception as error:
                    if self.mode_wanted == "realtime" or not refuses_realtime(error):
                        if refuses_realtime(error):
                            refused = not_realtime(reason(error), task_manager.kind)
                            why = f"{self.id} can't run in real-time mode: {refused}."
                            raise TaskManagerError(why, name=self.id, rule="real-time") from error
                        raise TaskManagerError(
                            f"{self.id} can't start on {task_manager.id}: {reason(error)}"
                        ) from error
                    refusal = self.no_realtime = reason(error)
            try:
                self._begin(start, task_manager, workshop, shuffle, starts_s, realtime=False, why=refusal)
            except QodError:
                raise
            except Exception as error:
                raise TaskManagerError(f"{self.id} can't start on {task_manager.id}: {reason(error)}") from error

    def _shuffle_on(self, manager: TaskManager, asked: int | None, *, realtime: bool) -> int:
        """Return into how many partitions it shuffles if its first batch runs there: one in real-time mode, where each
        of them would hold a slot, and one where the order of its whole result counts, which one task writes then."""
        if realtime or self.job.whole:
            return 1
        return manager.shuffle if asked is None else asked

    def _check_order(self, manager: TaskManager, partitions: int) -> None:
        """Raise TaskManagerError where several tasks would write a result whose order counts, as on a server that fixes
        its settings."""
        if "ORDER BY" in self.job.whole and partitions != 1:
            raise TaskManagerError(
                f"{self.id} must shuffle into 1 partition on {manager.id} to keep its {self.job.whole}, got "
                f"{partitions}; set spark.sql.shuffle.partitions to 1 there, or declare it on another task manager",
                name=self.id,
                value=partitions,
                rule="order",
            )

    def _stop_previous_run(self, task_manager: TaskManager) -> None:
        """Stop a previous run that has not ended, also one that another call has started meanwhile: two runs at once
        would write rows twice."""
        try:
            if self.query is not None:
                self.stop()
            if self.unended is not None:
                self.unended.stop()
                self.interrupted = True
        except Exception as error:
            raise TaskManagerError(
                f"{self.id} can't start on {task_manager.id}: its previous run could not be stopped: {reason(error)}",
                name=self.id,
                rule="stoppable",
            ) from error
        self.unended = None
        self.handle(RunEnded())

    def _begin(
        self,
        start: StartQuery,
        task_manager: TaskManager,
        workshop: Workshop,
        shuffle: int | None = None,
        starts_s: float = STARTS_S,
        *,
        realtime: bool,
        why: str = "",
    ) -> None:
        job = self.job  # it may change meanwhile
        if job.sink is not None and is_new(self.checkpoint, begun=self.begun):
            job.sink.check_new()
        if job.feeds and (pattern := job.feeds[0].pattern) is not None:
            read_topics(self.checkpoint, {feed.topic: feed.starting_here for feed in job.feeds}, pattern)
        trigger = job.trigger_s
        read = self.facts.read if self.facts is not None else {}
        timing = AGE_WHEN_READ if realtime or self.writes_row_by_row else WHEN_WRITTEN
        most = round(MOST_RECORDS * max(task_manager.cores, 1.0))
        last: Exception | None = None
        for output_mode in output_modes(job, realtime):
            try:
                with workshop.result(job, None if realtime else most, read, timing, checks=True) as rows:
                    writer = workshop.writer(job, rows, start.row_limit)
                    writer = writer.queryName(self.id).option("checkpointLocation", self.checkpoint)
                    writer = writer.outputMode(output_mode)
                    if realtime:
                        writer = writer.trigger(realTime=f"{max(trigger or 0.0, REALTIME_BATCH_S):g} seconds")
                    else:
                        writer = writer.trigger(processingTime=f"{job.batches_every_s:g} seconds")
                    chosen = self._shuffle_on(task_manager, shuffle, realtime=realtime)
                    with task_manager.shuffling(chosen, starts_s) as chosen:
                        self._check_order(task_manager, shuffle_partitions(self.checkpoint) or chosen)
                        query = writer.start() if job.sink is None else job.sink.begin(writer, job.table)
                break
            except QodError:
                raise
            except Exception as error:
                if "utput mode" not in str(error) and "OUTPUT_MODE" not in str(error):
                    raise
                last = error
        else:
            assert last is not None
            raise last
        run_id, begun_at = str(query.runId), time.monotonic()
        with self.changing:
            attached = self.task_manager is task_manager and self.life.run == start.run
            if attached:
                self.query, self.run_id, self.running = query, run_id, job
                self.mode, self.mode_why = (
                    ("real-time" if realtime else "micro-batch"),
                    not_realtime(why, task_manager.kind),
                )
                self.told_stalled = False
                self.shuffles = shuffle_partitions(self.checkpoint) or (self.shuffles if self.begun else chosen)
                self.life.handle(Started(start.run, realtime), begun_at)
        if not attached:  # before the answer arrived
            begin(query.stop, f"stopping-{self.id}")
            raise TaskManagerError(
                f"{self.id} was detached from {task_manager.id} while it started.", name=self.id, rule="attached"
            )

    def fall_back(self, why: str) -> None:
        """Use micro-batches from the next start on: Spark refused real-time mode after the query had started. If no
        batch was finished, they get a new checkpoint: for a first batch, Spark refuses a state store that is not
        empty."""
        self.no_realtime = why
        if not self.begun:
            self.checkpoint = f"{self.checkpoint}-micro-batches"

    def start_afresh(self) -> None:
        """Restart at the same offsets on a new checkpoint: the old one holds no batch, only remains of one that a kill
        interrupted, and Spark takes them for another query's."""
        self.checkpoint = f"{self.checkpoint}-afresh"

    def poll(self) -> bool:
        """Collect the reports since the last call; return whether a batch was finished. Raises whatever the connection
        raises.

        Each batch is added to `reported` at once, so a call that fails later loses no row counts.
        """
        query = self.query
        if query is None:
            return False
        asked = time.monotonic()
        last = report_json(query.lastProgress)
        self.polled_at = asked
        if last is None:
            return False
        reports = [last]
        if int(last["batchId"]) > self.meter.last.get(last["runId"], -1) + 1:
            reports = [r for r in map(report_json, query.recentProgress) if r is not None]
        if self.query is not query and self.ended() >= 0:  # the run that followed has read those rows again by now
            return False
        fresh = False
        for report in reports:
            batch = batch_of(report)
            if batch is None:
                continue
            # a run resumed from a checkpoint may begin with any id
            before = self.meter.last.get(batch.run_id, batch.batch_id - 1 if self.begun else -1)
            if self.meter.add(batch):
                self.missed += batch.batch_id - before - 1
                self.reported.append(batch)
                fresh = True
                self.begun = True
                if batch.run_id == self.run_id:  # it tells where that run began
                    self.books_differ = False
                    self.handle(BatchEnded())
        return fresh

    def stop(self, at_batch_end_s: float = 0.0, *, ended: bool = False) -> None:
        """Stop the query, just after its next report if one comes within `at_batch_end_s` seconds. A run that could not
        be stopped before is stopped at once.

        The next run reads an interrupted batch again, so downstream of Kafka at most one batch is read twice. `ended`:
        the caller has seen that its batch has ended, and holds the next one, which has read nothing.
        """
        with self.lock:
            query = self.query or self.unended
            if query is None:
                return
            if self.query is None:
                at_batch_end_s, ended = 0.0, False
            deadline = time.monotonic() + at_batch_end_s
            self.unended = query
            try:
                if at_batch_end_s > 0:  # collect earlier reports: wait for the next one
                    self.poll()
                while not ended and time.monotonic() < deadline and query.isActive:
                    ended = self.poll()
                    time.sleep(0.0 if ended else 0.1)
                query.stop()
                self.interrupted = self.interrupted or not ended
                self.handle(RunEnded())
                if self.unended is query:
                    self.unended = None
                try:
                    self.poll()
                except BaseException:
                    self.books_differ = True
                    raise
            finally:
                if self.query is query:  # not detached meanwhile
                    self.query = None
                    self.hold()

    def detach(self, why: str = "", source: str | None = None) -> None:
        """Detach from a task manager that is gone, and the query with it; `source` names one that was lost or removed.
        If a hanging call holds the lock, the lock is replaced."""
        lock = self.lock
        if not lock.acquire(timeout=0.5):
            self.lock = threading.RLock()
        try:
            with self.changing:  # a start whose answer arrives now finds itself attached, or not
                self._let_go()
                self.life.handle(ServerLost(why, source), time.monotonic())
        finally:
            if lock is self.lock:
                lock.release()

    def let_go(self) -> Instructions:
        """Forget its task manager, as a plan has stopped it, unless a deployment stops it, too; return what is to be
        done."""
        with self.changing:
            if self.life.suspending and self.life.state is State.SUSPENDED:
                self._let_go()
            return self.life.handle(Suspended(), time.monotonic())

    def hold(self, reading: MeterReading | None = None) -> None:
        """Keep this reading, by default the last one, until the next run has one."""
        self.last_reading = reading or self.meter.reading(REALTIME_BATCH_S, self.run_id) or self.last_reading
        self.run_id = None


def finds_remains(error: str) -> bool:
    """Return whether Spark says that a checkpoint without a batch is not empty."""
    return "CHECKPOINT_LOCATION_NOT_EMPTY" in error
