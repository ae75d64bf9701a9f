"""Measure rates and CPU of one task instance from its batches.

A batch's rows and CPU are spread from the end of the previous batch to its own end, so that idle time counts and a long
batch does not look like a burst. All means are over the last period before the last report.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from statistics import median

from qod_magics.spark.plans.dial import MOST_S
from qod_magics.spark.queries.progress import Batch
from qod_magics.spark.servers.cpu import TaskTime

#: Resolution of reports, seconds: no batch is shorter.
SHORTEST_S = 1e-3
#: Latest runs whose last batch id is remembered.
RUNS_KEPT = 16
#: Share of a batch that must lie in the window for its rows to count there as kept or dropped. They count in full: a
#: batch of former dials, which the window hardly touches, would show for one batch longer.
HALF = 0.5
#: Latest batches whose median duration says how long the next ones take.
BATCHES_TIMED = 5
#: Batches further apart than this multiple of their pace wait for something else: a delay is a part of the pace.
FAR_APART = 2.0


@dataclass(frozen=True, slots=True)
class MeterReading:
    """The last measurement of one instance. Rates in rows/s, CPU in % of one core."""

    in_rate: float
    read_rate: float
    out_rate: float
    cpu: float | None  #: None: the batches' CPU time is not known yet
    since: float  #: start of the window of the means, seconds since the epoch
    at: float  #: end of the window: of the last batch
    first_batch_at: float  #: when this run's first batch had its first task
    kept: Mapping[str, int]  #: rows after the shedder, by topic, of the batches at least half of which is in the window
    read: Mapping[str, int]  #: rows before it
    out: int  #: rows of the output before any shedder
    sent: Mapping[str, int]  #: rows sent, by position of the outgoing stream
    batch_rate: float = 0.0  #: batches/s
    at_work: float = 0.0  #: share of the time in which tasks of its batches ran, or waited to
    eviction: float = 0.0  #: part of the CPU: searching state for expired rows
    cpu_held: bool = False  #: whether the CPU predates the window, none of whose batches is charged yet
    busy: float | None = None  #: share of the time in which a batch was under way; None: unknown
    state_bytes: int = 0  #: memory of its state stores
    row_bytes: Mapping[str, float] = field(default_factory=dict)  #: mean size of a row read, by topic of a stream

    def without_rows(self, at: float, period_s: float) -> MeterReading:
        """Return the same instance in a period without batches, which ends at `at`, seconds since the epoch."""
        return MeterReading(
            *(0.0, 0.0, 0.0, 0.0, at - period_s, at, self.first_batch_at, {}, {}, 0, {}),
            busy=0.0,
            state_bytes=self.state_bytes,
            row_bytes=self.row_bytes,
        )


def shared(readings: Iterable[MeterReading | None], instances: int) -> MeterReading | None:
    """Return the mean reading per instance of work that so many instances share evenly; None if none is known."""
    known = [reading for reading in readings if reading is not None]
    if not known:
        return None

    def total(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
        summed = sum(map(Counter, counts), Counter[str]())
        return {name: round(rows / instances) for name, rows in summed.items()}

    cpu = [reading.cpu for reading in known if reading.cpu is not None]
    return MeterReading(
        in_rate=sum(reading.in_rate for reading in known) / instances,
        read_rate=sum(reading.read_rate for reading in known) / instances,
        out_rate=sum(reading.out_rate for reading in known) / instances,
        cpu=sum(cpu) / instances if cpu else None,
        since=min(reading.since for reading in known),
        at=max(reading.at for reading in known),
        first_batch_at=min(reading.first_batch_at for reading in known),
        kept=total(reading.kept for reading in known),
        read=total(reading.read for reading in known),
        out=round(sum(reading.out for reading in known) / instances),
        sent=total(reading.sent for reading in known),
        batch_rate=sum(reading.batch_rate for reading in known) / len(known),
        eviction=sum(reading.eviction for reading in known) / instances,
        cpu_held=True,
        state_bytes=round(sum(reading.state_bytes for reading in known) / instances),
    )


def in_a_row(first: MeterReading | None, second: MeterReading | None) -> MeterReading | None:
    """Return the reading that one query for two tasks, the second of which reads the first, would have at the CPU of
    both; None if one of them is unknown."""
    if first is None or second is None:
        return None
    cpu = None if first.cpu is None or second.cpu is None else first.cpu + second.cpu
    late = replace(first, out_rate=second.out_rate, out=second.out, sent=second.sent, busy=None)
    state_bytes = first.state_bytes + second.state_bytes
    eviction = first.eviction + second.eviction
    return replace(late, cpu=cpu, eviction=eviction, cpu_held=True, state_bytes=state_bytes)


@dataclass(slots=True)
class Meter:
    """Collects the batches of one instance; survives moves (the runs follow each other). Threads read `spans` while one
    adds to it: they iterate over copies, as a deque can't be changed meanwhile."""

    spans: deque[tuple[float, Batch]] = field(default_factory=lambda: deque(maxlen=256))  #: (begin of span, batch)
    times: dict[tuple[str, int], TaskTime] = field(default_factory=dict)  #: by run and batch
    #: the same as the Spark UI tells, where `times` are slot time
    told: dict[tuple[str, int], TaskTime] = field(default_factory=dict)
    #: By run, latest runs only: id of the last batch added. A run reports its batches in order, so all up to that one
    #: are known; reports of an earlier run may still arrive from a call that hung while the run ended.
    last: dict[str, int] = field(default_factory=dict)

    def add(self, batch: Batch) -> bool:
        """Add a batch; return False if it was known. Batches of one run must be added in order of their ids."""
        if batch.batch_id <= self.last.get(batch.run_id, -1):
            return False
        self.last[batch.run_id] = batch.batch_id
        while len(self.last) > RUNS_KEPT:
            del self.last[next(iter(self.last))]
        begin = batch.start
        if self.spans and self.spans[-1][1].run_id == batch.run_id:
            begin = min(begin, self.spans[-1][1].end)
        self.spans.append((min(begin, batch.end - SHORTEST_S), batch))
        return True

    def charge(self, run_id: str, batch_id: int, times: TaskTime) -> None:
        """Record the tasks' time of a batch: of those of its stages that are still kept, which are fewer later on."""
        self.times[run_id, batch_id] = max(times, self.times.get((run_id, batch_id), times))
        _forget(self.times)

    def tell(self, run_id: str, batch_id: int, times: TaskTime) -> None:
        """Record the tasks' time of a batch as the Spark UI tells it, where batches are charged with slot time."""
        self.told[run_id, batch_id] = max(times, self.told.get((run_id, batch_id), times))
        _forget(self.told)

    def take(self, slot_times: Mapping[tuple[str, int], TaskTime]) -> None:
        """Charge batches with their slot time, in place of what was known of it before."""
        self.times.update(slot_times)
        _forget(self.times)

    def reading(self, period_s: float, run_id: str | None) -> MeterReading | None:
        """Return the means over the last period before the last report of run `run_id`; None while it has reported
        nothing."""
        spans = list(self.spans)
        last = next((batch for _, batch in reversed(spans) if batch.run_id == run_id), None)
        if last is None:
            return None
        begun, first = next(each for each in spans if each[1].run_id == run_id)
        since = last.end - period_s
        rows = read = out = seconds = batches = 0.0
        cpu = cpu_seconds = eviction = worked = at_work = 0.0
        kept_by: dict[str, list[int]] = {}
        sizes: dict[str, list[int]] = {}  #: bytes and rows of the batches that counted bytes
        sent: dict[str, int] = {}
        out_rows = 0
        for begin, batch in spans:
            if batch.end <= since or batch.run_id != run_id:
                continue
            length = batch.end - begin
            share = min((batch.end - max(begin, since)) / length, 1.0)
            seconds += share * length
            batches += share
            worked += max(batch.end - max(batch.start, since), 0.0)
            at_work += share * max(batch.end - batch.start - batch.planning_s, 0.0)
            rows += share * batch.rows
            read += share * sum(feed.read or 0 for feed in batch.feeds)
            out += share * batch.out
            charged = self.times.get((batch.run_id, batch.batch_id))
            if charged is not None:
                cpu += share * charged.cpu_s
                eviction += share * _eviction(batch, charged)
                cpu_seconds += share * length
            if share < HALF and batch is not last:
                continue
            out_rows += batch.out
            for feed in batch.feeds:
                counts = kept_by.setdefault(feed.topic, [0, 0])
                counts[0] += feed.kept or 0
                counts[1] += feed.read or 0
                if feed.size is not None:
                    sized = sizes.setdefault(feed.topic, [0, 0])
                    sized[0] += feed.size
                    sized[1] += feed.read or 0
            for name, n in batch.sent.items():
                sent[name] = sent.get(name, 0) + n
        held = None if cpu_seconds else self._last_cpu()
        return MeterReading(
            in_rate=rows / seconds,
            read_rate=read / seconds,
            out_rate=out / seconds,
            cpu=100.0 * cpu / cpu_seconds if cpu_seconds else held,
            batch_rate=batches / seconds,
            at_work=min(at_work / seconds, 1.0),
            eviction=100.0 * eviction / cpu_seconds if cpu_seconds else 0.0,
            cpu_held=not cpu_seconds and held is not None,
            since=max(begun, since),
            at=last.end,
            first_batch_at=first.start + first.planning_s,
            kept={topic: counts[0] for topic, counts in kept_by.items()},
            read={topic: counts[1] for topic, counts in kept_by.items()},
            out=out_rows,
            sent=sent,
            busy=min(worked / seconds, 1.0),
            state_bytes=last.state_bytes,
            row_bytes={topic: size / rows for topic, (size, rows) in sizes.items() if rows},
        )

    def _last_cpu(self) -> float | None:
        """% of one core in the last batch, of any run, whose CPU is known; None if there is none."""
        for begin, batch in reversed(list(self.spans)):
            charged = self.times.get((batch.run_id, batch.batch_id))
            if charged is not None:
                return 100.0 * charged.cpu_s / (batch.end - begin)
        return None


def _forget(times: dict[tuple[str, int], TaskTime]) -> None:
    """Drop the oldest of too many."""
    if len(times) > 1024:
        for key in list(times)[:512]:
            del times[key]


def _eviction(batch: Batch, charged: TaskTime) -> float:
    """Return CPU seconds in which a batch searched state for expired rows: its tasks use the CPU evenly over their
    time."""
    return charged.cpu_s * min(batch.eviction_s / max(charged.run_s, SHORTEST_S), 1.0)


def gap_s(pace_s: float, batches: Sequence[Batch], every_s: float = 0.0, delayed_s: float = 0.0) -> float:
    """Return the seconds by which to delay the next batches, so that they begin at least `pace_s` seconds apart.

    Batches that are as far apart without a delay, as rows are rare or a trigger says so, are not delayed: it would only
    make their rows wait.

    Args:
        pace_s: minimum seconds from the start of one batch to the start of the next.
        batches: of the present run, the newest last; the delay is part of their planning, or comes before their start.
        every_s: their trigger interval, seconds; 0: none.
        delayed_s: the seconds by which they are delayed now.

    """
    latest = list(islice(reversed(batches), BATCHES_TIMED))
    starts = [after.start - before.start for after, before in pairwise(latest)]
    if not latest or every_s >= pace_s or (starts and median(starts) - delayed_s > FAR_APART * pace_s):
        return 0.0
    took = median(max(b.end - b.start - b.planning_s, 0.0) for b in latest)
    return min(max(pace_s - took, 0.0), MOST_S)
