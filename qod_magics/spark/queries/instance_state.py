"""The state of one task instance: its job, where it runs, and how its batches have gone. Nothing here changes it."""

from __future__ import annotations

import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from statistics import median
from typing import TYPE_CHECKING

from qod_magics.lifecycle.events import State
from qod_magics.lifecycle.query import OngoingMove, QueryLife
from qod_magics.sources.registry import kind_of
from qod_magics.spark.plans.job import Job, PlanFacts
from qod_magics.spark.queries.meter import Meter, MeterReading
from qod_magics.spark.queries.modes import (
    TOO_FEW_SLOTS,
    against_realtime,
    wants_realtime,
)
from qod_magics.spark.queries.progress import Batch
from qod_magics.spark.servers.connection import reason
from qod_magics.spark.servers.task_manager import TaskManager

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

#: How many times as long as one in real-time mode a micro-batch may take before it counts as stalled.
SLOW_BATCH = 3
#: Assumed minimum duration of batches in a new run, seconds.
SHORT_BATCH_S = 0.5


# --- Stalls -----------------------------------------------------------------------------------------------------------
# In real-time mode, batches end every few seconds, rows or none; micro-batches end as long as rows wait. One that takes
# longer may still make progress, on overloaded cores; then it ends later, and a restart would only add load. So only
# time counts in which a batch could have ended: while its broker and its task manager answer, and while cores are free,
# or other queries' batches end. Long gaps between looks (a suspended computer) do not count.
#
# A real-time batch ends by its time also where Spark's consumer gets no row of those that wait. So there is a second
# measure in this mode: how long no batch has read a row. Its time counts on busy cores, too, as batches end. Not all
# offsets are rows that a consumer gets. After a transaction, the last one of a partition is its marker: one for each
# partition does not count as waiting. A consumer that reads what is committed gets no row of a transaction that is open
# or was aborted either: a query restarts once, and not again before it has read a row.

#: Below this utilization, a fraction of 1, cores count as free.
FREE = 0.5
#: Share of the time that counts on busy cores where batches end, and on cores of unknown utilization.
BESIDE_OTHERS, UNKNOWN = 1 / 2, 1 / 3
#: Maximum time that one look adds, seconds.
LONGEST_LOOK_S = 2.0


def counted_share(busy: float | None, batches_end: bool) -> float:
    """Return the share of the time since the last look that counts.

    Args:
        busy: utilization of the task manager's cores, a fraction of 1; None if unknown.
        batches_end: whether batches of other queries on it end; or its own, where they read no row.

    """
    if busy is not None and busy < FREE:
        return 1.0
    if batches_end:
        return BESIDE_OTHERS
    return UNKNOWN if busy is None else 0.0


@dataclass(slots=True)
class StallDetector:
    """Measures for one instance how long no batch has ended, or read a row, since its last one that did or the start of
    its present run."""

    counted_s: float = 0.0  #: time in which it could have ended one
    watched_s: float = 0.0  #: total time
    tried: bool = False  #: whether a restart was tried since then
    _since: tuple[str | None, int] | None = None  #: the run, and the id of its last ended batch
    _looked_at: float = 0.0

    def reset(self) -> None:
        """Begin again, as nothing waits."""
        self.counted_s = self.watched_s = 0.0
        self._since, self.tried = None, False

    def try_once(self) -> bool:
        """Return whether a restart is to be tried; it is tried once."""
        tried, self.tried = self.tried, True
        return not tried

    def look(self, now: float, run_id: str | None, ended: int, share: float) -> None:
        """Update at `now` (monotonic seconds) with the run, the id of its last batch that ended or read a row, and the
        share of the time since the last look that counts."""
        if self._since == (run_id, ended):
            passed = min(now - self._looked_at, LONGEST_LOOK_S)
            self.watched_s += passed
            self.counted_s += share * passed
        else:
            self.counted_s = self.watched_s = 0.0
            self._since, self.tried = (run_id, ended), self.tried and ended < 0
        self._looked_at = now


# --- The instance -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class InstanceState:
    """At any time `query` is running on `task_manager` iff `state` is RUNNING."""

    job: Job
    checkpoint: str
    mode_wanted: str = "auto"  #: auto, realtime, microbatch
    life: QueryLife = field(default_factory=QueryLife)  #: changed while `changing` is held
    task_manager: TaskManager | None = None
    query: StreamingQuery | None = None
    run_id: str | None = None
    mode: str | None = None  #: "real-time" or "micro-batch"
    mode_why: str = ""
    running: Job | None = None  #: the job of its present run; differs from `job` once that has changed
    facts: PlanFacts | None = None  #: from its plan; None: not analysed yet
    meter: Meter = field(default_factory=Meter)
    reported: deque[Batch] = field(default_factory=deque)  #: finished batches that are not in the books yet
    missed: int = 0  #: finished batches whose reports Spark discarded before a poll, not in an event yet
    last_reading: MeterReading | None = None  #: the previous run's, while the new run has none
    no_realtime: str = ""  #: why real-time mode was refused
    begun: bool = False  #: whether its checkpoint has a finished batch
    shuffles: int = 1  #: into how many partitions its present run shuffles, as far as is known
    books_differ: bool = False  #: whether the books may be elsewhere than its checkpoint: until its next report
    stall: StallDetector = field(default_factory=StallDetector)  #: of its present run
    #: in real-time mode, for how long its batches have read no row, though rows wait
    unread: StallDetector = field(default_factory=StallDetector)
    told_stalled: bool = False  #: whether its present run was reported as stalled
    python_cpu: float = 0.0  #: its share of its task manager's Python workers, % of one core; 0 in real-time mode
    unended: StreamingQuery | None = None  #: a run that could not be stopped: it may still write
    interrupted: bool = False  #: whether its last run ended within a batch, which the next one reads again
    ended_run: tuple[str, str] | None = None  #: a run that was found to have ended by itself, and why
    polled_at: float = 0.0  #: monotonic: when its reports were last asked for
    lock: threading.RLock = field(default_factory=threading.RLock)  #: held while it is started or stopped
    #: held while its state changes, or what it is attached to
    changing: threading.Lock = field(default_factory=threading.Lock)

    @property
    def id(self) -> str:
        """Return its name in snapshots: "TDSnk1.2"."""
        return self.job.instance

    @property
    def state(self) -> State:
        """Return where it is in its life."""
        return self.life.state

    @property
    def failures(self) -> int:
        """Return how often it has failed without a long run in between."""
        return self.life.failures

    @property
    def failure(self) -> str:
        """Return why it failed last; "" if it has not."""
        return self.life.failure

    @property
    def move(self) -> OngoingMove | None:
        """Return its move that is under way."""
        return self.life.move

    @property
    def started_at(self) -> float:
        """Return when its present run began, monotonic seconds; 0 once its failure was counted."""
        return self.life.started_at

    @property
    def width(self) -> float:
        """Task slots that one of its batches can use at a time: one for each partition that it reads."""
        return float(max(sum(len(feed.partitions) for feed in self.job.feeds), 1))

    @property
    def widest(self) -> float:
        """Task slots that its batches can use at a time once their rows are shuffled."""
        return float(self.shuffles) if self.facts is not None and self.facts.keeps_state else 0.0

    @property
    def is_paced(self) -> bool:
        """Return whether its plan has a dial that delays its micro-batches."""
        manager = self.task_manager
        batches = self.mode == "micro-batch" and bool(self.job.feeds)
        return batches and manager is not None and manager.reading.reflects

    @property
    def pauses_on_read(self) -> bool:
        """Return whether it is paced by the reader of its topic, before a batch's offsets are settled, and not by its
        plan."""
        manager, first = self.task_manager, next(iter(self.job.feeds), None)
        reads = first is not None and not first.stream and not first.shed_by and kind_of(first.topic).sheds_on_read
        return reads and manager is not None and manager.sheds_on_read

    @property
    def takes_turns(self) -> bool:
        """Return whether its batches can take turns with others: its reader holds them until they are due. Where a
        trigger spaces them, nothing tells in time that one has ended."""
        return self.is_paced and self.pauses_on_read and not self.job.batches_every_s

    @property
    def may_run_realtime(self) -> bool:
        """Return whether its present run is in real-time mode or, without a run, whether the next one may be."""
        if self.query is not None:
            return self.mode == "real-time"
        if self.mode_wanted == "microbatch" or self.job.only_microbatch is not None:
            return False
        if self.mode_wanted == "realtime" or self.facts is None or TOO_FEW_SLOTS in self.no_realtime:
            return True
        return not self._against_realtime(self.facts)

    def _against_realtime(self, facts: PlanFacts, free_slots: float = inf) -> str:
        """Return why real-time mode is impossible here (`modes.against_realtime`), also if its task manager refuses
        it."""
        refused = self.no_realtime or (self.task_manager.no_realtime if self.task_manager is not None else "")
        kind = "local" if self.task_manager is None else self.task_manager.kind
        against = against_realtime(self.job, facts, self.mode_wanted, refused, free_slots, kind)
        if against or self.mode_wanted != "auto" or wants_realtime(self.job) or self.task_manager is None:
            return against
        return self.task_manager.prefers_batches

    @property
    def writes_row_by_row(self) -> bool:
        """Return whether it writes each row when it is processed, not at the end of its batch: to Kafka, without
        state."""
        return self.job.writes_row_by_row and self.facts is not None and not self.facts.keeps_state

    @property
    def batches(self) -> list[Batch]:
        """Return the known batches of its present run, the newest last."""
        return [batch for _, batch in list(self.meter.spans) if batch.run_id == self.run_id]

    @property
    def wrote_nothing_at(self) -> float:
        """Return when its last batch began, seconds since the epoch, if the result of that batch had no row; else 0."""
        last = next((batch for _, batch in reversed(list(self.meter.spans))), None)
        return last.start if last is not None and last.rows and not last.out else 0.0

    def unpolled(self) -> float:
        """Return how many batches it may have ended since the last poll."""
        lengths = [batch.end - begin for begin, batch in list(self.meter.spans) if batch.run_id == self.run_id][-8:]
        each_s = sum(lengths) / len(lengths) if lengths else SHORT_BATCH_S
        return (time.monotonic() - max(self.polled_at, self.started_at)) / each_s

    def reading(self, period_s: float) -> MeterReading | None:
        """Return the reading of the present run; None while it has reported nothing."""
        return self.meter.reading(period_s, self.run_id)

    def busy_s(self, since: float) -> float:
        """Return the seconds after `since` (epoch) in which its present run had a batch under way."""
        batches = [batch for _, batch in list(self.meter.spans) if batch.run_id == self.run_id and batch.end > since]
        busy = sum(batch.end - max(batch.start, since) for batch in batches)
        query = self.query
        with suppress(Exception):
            if query is not None and query.status["isTriggerActive"]:  # a batch not reported yet
                busy += max(time.time() - max([since, *(batch.end for batch in batches)]), 0.0)
        return busy

    def stalled_s(self) -> float:
        """Return the seconds since its present run last ended a batch, or since its start if it has not ended one."""
        last = next((batch for _, batch in reversed(list(self.meter.spans)) if batch.run_id == self.run_id), None)
        return time.monotonic() - self.started_at if last is None else time.time() - last.end

    def patience_s(self, least_s: float) -> float:
        """Return after how many seconds without the end of a batch it counts as stalled: `least_s` plus the trigger
        interval, or more where batches have been taking long. The rows and the sink of a micro-batch decide how long
        it takes: it may take three times as long, and twice as long after each restart, so that a slow one ends at
        last."""
        took = [batch.end - batch.start for _, batch in list(self.meter.spans)]
        if self.mode != "real-time":
            least_s *= SLOW_BATCH * 2**self.failures
        return max(least_s + (self.job.trigger_s or 0.0), 3 * median(took) if took else 0.0)

    def ended(self) -> int:
        """Return the id of the last batch that its present run reported as ended, with rows or without; -1 before the
        first. While it stays the same, no batch ends."""
        return -1 if self.run_id is None else self.meter.last.get(self.run_id, -1)

    def last_read(self) -> int:
        """Return the id of the last batch of its present run that read a row, or whose rows were not counted; -1 before
        the first."""
        read = (b for b in reversed(self.batches) if not b.feeds or any(feed.read != 0 for feed in b.feeds))
        return next((batch.batch_id for batch in read), -1)

    def failed(self) -> str | None:
        """Return why the query ended by itself; None while it runs."""
        query = self.query
        if query is None or query.isActive:
            return None
        error = query.exception()
        return reason(error) if error is not None else "the query ended by itself"
