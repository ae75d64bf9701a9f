"""One core on which several queries run micro-batches back to back, under the real controller in virtual time.

Batches share the core evenly while they run, or have it one after the other (`fifo`). A batch begins as long after the
last one as its pace says, and takes all rows that wait then. Its CPU is a fixed cost, a part of which Spark does not
charge to tasks, and a cost for each row read and kept. Measurements come from the same meters as on Spark.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import inf

from qod_magics.controller import Controller
from qod_magics.controller.clock import ManualClock
from qod_magics.controller.runtime_calls import InlineWorker
from qod_magics.core.plan import Plan
from qod_magics.core.policy import Policy
from qod_magics.core.runtime import Count, Dials, Observation
from qod_magics.core.snapshot import TaskManager
from qod_magics.spark.cluster.observation import InstanceView, TaskView, observation
from qod_magics.spark.queries.meter import Meter, gap_s
from qod_magics.spark.queries.progress import Batch, FeedCount
from qod_magics.spark.queries.slot_time import Run as BatchesOfOne
from qod_magics.spark.queries.slot_time import shared_out
from qod_magics.spark.servers.cpu import TaskTime

PERIOD_S = 5.0
CORES = 0.9  #: those that plans may use
CHARGED = 0.5  #: part of a batch's fixed cost that Spark charges to its tasks
IDLE_S = 0.05  #: until a query without rows looks again
READ_SHARE = 0.15  #: of the cost of a row kept


@dataclass
class Query:
    """One query.

    - `rate`: rows/s that arrive
    - `fixed_s`: CPU seconds of a batch without rows
    - `row_us`: microseconds of CPU for each row kept
    - `starts_s`: when it is declared
    - `cold`: factor of the CPU of its first three batches
    """

    name: str
    rate: float
    fixed_s: float
    row_us: float
    priority: int = 1
    minimum: float = 0.3
    starts_s: float = 0.0
    cold: float = 1.0
    planning_s: float = 0.0  #: before each batch, in a driver that has cores of its own
    planned_s: float = 0.0  #: of the batch under way, with its delay
    plans_s: float = 0.0  #: left of that
    sink_s: float = 0.0  #: behind each batch's CPU, time in which its sink is waited for, and microseconds for each row
    sink_us: float = 0.0
    waits_s: float = 0.0  #: left of both
    meter: Meter = field(default_factory=Meter)
    turned: tuple[float, float] = (0.0, 0.0)  #: when its rate was last changed, and the rows that had arrived then
    position: float = 0.0  #: rows read by ended batches
    dropped: float = 0.0
    ended: int = 0
    #: of the batch under way: begin, rows, rows kept, CPU seconds, CPU seconds left
    begun: float = inf
    rows: float = 0.0
    kept: float = 0.0
    work_s: float = 0.0
    left_s: float = 0.0
    asked_s: float = 0.0  #: when its tasks asked for the core
    worked: dict[int, float] = field(default_factory=dict)  #: by ended batch: CPU seconds of its tasks
    gap_s: float = 0.0  #: delay of the next batch
    due_s: float = 0.0  #: when the next batch may begin
    longest_s: float = 0.0

    def arrived(self, now: float) -> float:
        """Rows that have arrived since it started."""
        since, rows = self.turned
        return rows + self.rate * max(now - max(since, self.starts_s), 0.0)

    def turn(self, now: float, rate: float) -> None:
        """Have its rows arrive at another rate from now on."""
        self.turned, self.rate = (now, self.arrived(now)), rate


class OneCore:
    """The runtime: see `core.runtime.Runtime`.

    With `by_slots`, it is a slot of somebody else's cluster: its CPU is not measured, batches are charged with their
    slot time, and a batch under way keeps the probability with which it began.

    With `fifo`, the tasks of the batch that asked first have the slot, as by Spark's default scheduler, and Spark tells
    how long they ran.
    """

    supports: frozenset[type] = frozenset()

    def __init__(
        self, queries: Sequence[Query], clock: ManualClock, *, by_slots: bool = False, fifo: bool = False
    ) -> None:
        self.by_slots, self.fifo = by_slots, fifo
        self.queries, self.clock, self.now = queries, clock, 0.0
        self.busy: deque[tuple[float, float]] = deque(maxlen=4)  #: CPU seconds in all, and of tasks, by period
        self.used = self.charged = 0.0
        self.keep: dict[str, float] = {}
        self.neighbour = 0.0  #: share of the core that another program takes
        self.share = 1.0  #: of the core for tasks, that the user allows
        self.utilization: list[float] = []  #: by period

    def run_until(self, end: float) -> None:
        """Let the batches run until `end`, seconds."""
        while self.now < end:
            planning, active, writing = list[Query](), list[Query](), list[Query]()
            now, step = self.now, min(end - self.now, IDLE_S)
            for query in self.queries:
                if now < query.starts_s:
                    continue
                if query.begun == inf:
                    if query.due_s > now:
                        step = min(step, query.due_s - now)
                        continue
                    if query.arrived(now) - query.position < 1.0:
                        continue
                    self._begin(query)
                if query.plans_s > 0.0:
                    planning.append(query)
                    step = min(step, query.plans_s)
                elif query.left_s > 0.0:
                    active.append(query)
                else:
                    writing.append(query)
                    step = min(step, query.waits_s)
            running = [min(active, key=lambda query: query.asked_s)] if self.fifo and active else active
            slower = max(len(running), 1) / (1.0 - self.neighbour)
            for query in running:
                step = min(step, query.left_s * slower)
            step = max(step, 1e-6)
            self.now += step
            for query in planning:
                query.plans_s -= step
                query.asked_s = self.now
            for query in running:
                query.left_s -= step / slower
                if query.left_s <= 1e-9:
                    query.left_s = 0.0
                    query.waits_s = query.sink_s + 1e-6 * query.sink_us * query.kept
                    if query.waits_s <= 0.0:
                        self._end(query)
            for query in writing:
                query.waits_s -= step
                if query.waits_s <= 1e-9:
                    self._end(query)
            self.used += step if active else step * self.neighbour

    def _begin(self, query: Query) -> None:
        query.begun = query.asked_s = self.now
        query.plans_s = query.planned_s = self._planning_s(query)
        query.rows = query.arrived(self.now) - query.position
        query.kept = query.rows * self.keep.get(query.name, 1.0)
        cold = query.cold if query.ended < 3 else 1.0
        row_s = 1e-6 * query.row_us * (READ_SHARE * query.rows + (1.0 - READ_SHARE) * query.kept)
        query.work_s = query.left_s = cold * (query.fixed_s + row_s)

    def _planning_s(self, query: Query) -> float:
        """Return how long the next batch is planned: a server of others' delays it then, behind its offsets."""
        return query.planning_s + (query.gap_s if self.by_slots else 0.0)

    def _thin(self, query: Query) -> None:
        """Apply a changed keep probability to the rows that a batch under way has not read yet."""
        if self.by_slots or query.begun == inf or query.left_s <= 0.0:
            return
        left = query.left_s / query.work_s
        kept = (1.0 - left) * query.kept + left * query.rows * self.keep.get(query.name, 1.0)
        if abs(kept - query.kept) < 1e-6 * query.rows:
            return
        saved_s = 1e-6 * query.row_us * (1.0 - READ_SHARE) * (query.kept - kept)
        query.left_s = max(query.left_s - saved_s, 1e-6)
        query.work_s = max(query.work_s - saved_s, query.left_s)
        query.kept = kept

    def _end(self, query: Query) -> None:
        first, last = round(query.position), round(query.position + query.rows)
        feed = FeedCount(query.name, {0: first}, {0: last}, last - first, min(round(query.kept), last - first))
        planning_s = query.planned_s
        batch = Batch(f"run-{query.name}", query.ended, query.begun, self.now, planning_s, (feed,), 20, {})
        query.longest_s = max(query.longest_s, self.now - query.begun)
        query.meter.add(batch)
        query.worked[batch.batch_id] = query.work_s
        charged = query.work_s - (1.0 - CHARGED) * query.fixed_s
        if not self.by_slots:
            query.meter.charge(batch.run_id, batch.batch_id, TaskTime(charged, self.now - query.begun))
        self.charged += charged
        query.position += query.rows
        query.dropped += query.rows - query.kept
        query.ended += 1
        query.begun, query.due_s = inf, self.now + (0.0 if self.by_slots else query.gap_s)

    def observe(self) -> Observation:
        """Measure as on Spark: from the reports of ended batches."""
        here = [query for query in self.queries if self.now >= query.starts_s]
        if self.by_slots:
            self._share_slots(here)
        views = []
        tasks_cpu = 0.0
        for query in here:
            reading = query.meter.reading(PERIOD_S, f"run-{query.name}")
            age = self.now - reading.at if reading is not None else self.now
            fields = {"mode": "micro-batch", "state": "running"}
            if reading is not None:
                fields["batches_per_s"] = reading.batch_rate
                fields["at_work"] = reading.at_work
                tasks_cpu += reading.cpu or 0.0
            views.append(
                InstanceView(f"{query.name}.1", query.name, "tm1", reading, True, age, fields, came=query.rate)
            )
        self.busy.append((self.used, self.charged))
        self.used = self.charged = 0.0
        others = [max(100.0 * (used - charged) / PERIOD_S, 0.0) for used, charged in self.busy]
        cpu = tasks_cpu if self.by_slots else min(tasks_cpu + sum(others) / len(others), 100.0)
        self.utilization.append(self.busy[-1][0] / PERIOD_S)
        dials = "batch" if self.by_slots else "row"
        neighbours = None if self.by_slots else 100.0 * self.neighbour
        limit = self.share if self.share < 1.0 else None
        tasks = [TaskView(q.name, (), q.priority, q.minimum, {q.name: q.name}, (), q.rate, q.rate) for q in here]
        waiting = {query.name: int(query.arrived(self._known_at(query)) - query.position) for query in here}
        return observation(
            [TaskManager("tm1", CORES * self.share, cpu, neighbours_cpu=neighbours, cpu_limit=limit, dials=dials)],
            tasks,
            views,
            lag=waiting,
            input_rate={query.name: query.rate for query in here},
            counts={
                query.name: Count(
                    round(query.arrived(self.now)),
                    round(query.position - query.dropped),
                    round(query.dropped),
                    waiting[query.name],
                )
                for query in here
            },
            dropped_sending={},
            fresh_for_s=2.5 * PERIOD_S,
            events=(),
        )

    def _known_at(self, query: Query) -> float:
        """Return the second of which the backlog of a slot's query is: that of the last report, unless the next one is
        late."""
        reading = query.meter.reading(PERIOD_S, f"run-{query.name}") if self.by_slots else None
        return self.now if reading is None or self.now - reading.at >= 2 * PERIOD_S else reading.at

    def _share_slots(self, here: Sequence[Query]) -> None:
        batches = {query.name: [batch for _, batch in query.meter.spans] for query in here}
        told = {
            (f"run-{query.name}", number): TaskTime(seconds, seconds)
            for query in here
            for number, seconds in query.worked.items()
            if self.fifo
        }
        taken = shared_out([BatchesOfOne(each, 1.0) for each in batches.values()], 1.0, told)
        for query in here:
            query.meter.take({key: times for key, times in taken.items() if key[0] == f"run-{query.name}"})

    def apply(self, plan: Plan, dials: Dials) -> None:
        """Take the keep probabilities and the pace of a plan."""
        self.keep = {reader: keep for (source, reader), keep in dials.keep.items() if source is None}
        pace_s = plan.pace_s.get("tm1", 0.0)
        for query in self.queries:
            self._thin(query)
            delayed_s = query.gap_s if self.by_slots else 0.0
            query.gap_s = gap_s(pace_s, [batch for _, batch in query.meter.spans], 0.0, delayed_s)


@dataclass(frozen=True)
class Course:
    """How a run went."""

    dropped: float  #: rows of all queries
    arrived: float
    waits_s: float  #: the longest backlog of a query in the second half of the run, seconds of its input
    round_s: float  #: the longest batch in it
    most_s: float  #: the longest backlog in the whole run, seconds of its input
    told_s: float  #: the longest one in its second half as the controller knows it


class Run:
    """A core under the controller, a cycle at a time."""

    def __init__(self, queries: Sequence[Query], policy: Policy, *, by_slots: bool = False, fifo: bool = False) -> None:
        self._clock = ManualClock()
        self.core = OneCore(queries, self._clock, by_slots=by_slots, fifo=fifo)
        self._controller = Controller(self.core, policy, clock=self._clock, worker=InlineWorker)

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self._controller.close()

    def plans(self, cycles: int) -> Iterator[Plan]:
        """Yield the plans of the next cycles."""
        for _ in range(cycles):
            self.core.run_until(self.core.now + PERIOD_S)
            self._clock.advance(PERIOD_S)
            plan = self._controller.step().plan
            assert plan is not None
            yield plan


def course(
    queries: Sequence[Query], policy: Policy | None, seconds: float, *, by_slots: bool = False, fifo: bool = False
) -> Course:
    """Run these queries for so long; without a policy, as plain Spark runs them: nothing is ever shed."""
    clock = ManualClock()
    core = OneCore(queries, clock, by_slots=by_slots, fifo=fifo)
    controller = None if policy is None else Controller(core, policy, clock=clock, worker=InlineWorker)
    waits_s = most_s = told_s = 0.0
    while core.now < seconds:
        core.run_until(core.now + PERIOD_S)
        clock.advance(PERIOD_S)
        measured = None if controller is None else controller.step().measured
        late_s = max((q.arrived(core.now) - q.position) / q.rate for q in queries)
        most_s = max(most_s, late_s)
        if core.now >= seconds / 2:
            if waits_s == 0.0:
                for query in queries:
                    query.longest_s = 0.0
            waits_s = max(waits_s, late_s)
            if measured is not None:
                told_s = max(told_s, *(measured.lag[query.name] / query.rate for query in queries))
    if controller is not None:
        controller.close()
    return Course(
        sum(query.dropped for query in queries),
        sum(query.arrived(core.now) for query in queries),
        waits_s,
        max(query.longest_s for query in queries),
        most_s,
        told_s,
    )
