"""Throughput of Taxi Drives on one core at accuracy 1, measured by draining a backlog: ours, and plain Spark on the
same task manager, in turns."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import psutil
from pyspark.sql import functions as F

from benchmarks.evaluation.applications import (
    COLUMNS,
    TOPICS,
    Query,
    clean,
    light_taxi_queries,
    start_taxi_drives,
    taxi_queries,
    trips,
)
from benchmarks.evaluation.cluster import Run, until
from benchmarks.evaluation.plain import records_of, writer_of
from qod_magics.data.spec import trip_schema
from qod_magics.kafka.reading import end_offsets
from qod_magics.kafka.topics import create_topics
from qod_magics.sources.kafka import GATHERING
from qod_magics.spark.plans.writing import GATHERING_WRITER
from qod_magics.spark.servers.task_manager import TaskManager

QUERIES: Mapping[str, Callable[[], dict[str, Query]]] = {"as it is": taxi_queries, "light": light_taxi_queries}
PARTITIONS = 2  #: of each topic: one for each instance of TDSnk1
#: Nothing is ever shed.
RESTRICTIONS = {"TDSnk1": (1, 1.0), "TDSnk2": (1, 1.0)}
DRAIN_S = 10.0  #: least time that draining a turn's backlog takes, at full length
INJECT_S = 3.0  #: time to inject the backlog; a drain that takes no longer measures the injector
WARM_UPS = 2  #: turns that do not count: the first compiles code, and both find how many rows take `DRAIN_S`
FIRST_ROWS = {"as it is": 3_000, "light": 20_000}  #: of both topics together, in the turn that finds the rate
QUIET_S = 1.5  #: longer than the gap between two batches
PATIENCE_S = 240.0
CREDIT_S = 7.0  #: more than a real-time batch: after that the CPU of all batches is known


@dataclass(frozen=True, slots=True)
class Engine:
    """Running queries, and where their results and CPU are found."""

    topics: Mapping[str, str]  #: of the results of each query: a record per row kept
    runs: Mapping[str, str]  #: run id of each Spark query


@dataclass(frozen=True, slots=True)
class Drain:
    """One backlog, from its first row into the topics to the last row out of the last query."""

    rows: int  #: of all topics together
    seconds: float
    jvm_cpu_s: float  #: of the task manager's process
    task_cpu_s: Mapping[str, float] | None  #: of the executor threads of each Spark query

    @property
    def rate(self) -> float:
        """Rows/s."""
        return self.rows / self.seconds


def capacity(run: Run, scale: float) -> dict[str, Any]:
    """The turns of both engines, by variant of the queries."""
    turns = 3 if scale >= 1 else 1
    return {name: _turns(run, name, turns, DRAIN_S * max(scale, 0.3)) for name in QUERIES}


def _turns(run: Run, name: str, turns: int, seconds: float) -> dict[str, Any]:
    engines: dict[str, Callable[[], AbstractContextManager[Engine]]] = {
        "ours": lambda: ours(run, QUERIES[name](), fuse=True),
        "ours, sources apart": lambda: ours(run, QUERIES[name](), fuse=False),
        "plain": lambda: plain(run, QUERIES[name]()),
    }
    rows = FIRST_ROWS[name]
    found: dict[str, list[Drain]] = {engine: [] for engine in engines}
    for turn in range(WARM_UPS + turns):
        rates = []
        for engine, start in list(engines.items()) if turn % 2 == 0 else list(engines.items())[::-1]:
            with start() as at_work:
                drain = drained(run, at_work, rows, credit=turn == WARM_UPS + turns - 1)
            rates.append(drain.rate)
            if turn >= WARM_UPS:
                found[engine].append(drain)
        if turn < WARM_UPS:
            rows = int(seconds * max(rates))
    return {engine: [{**asdict(drain), "rate": drain.rate} for drain in drains] for engine, drains in found.items()}


@contextmanager
def ours(run: Run, queries: Mapping[str, Query], fuse: bool) -> Iterator[Engine]:
    """The queries under the controller, which may shed nothing; fused with their sources, or with these as tasks of
    their own (not `fuse`)."""
    session = run.session
    start_taxi_drives(session, RESTRICTIONS, queries, fuse=fuse)
    try:
        instances = {id: i.run_id for id, i in session.runtime.instances.items()}
        yield Engine(dict(session.runtime.deployment.results), {id: run or "" for id, run in instances.items()})
    finally:
        session.stop_all()


@contextmanager
def plain(run: Run, queries: Mapping[str, Query]) -> Iterator[Engine]:
    """Plain Spark: each query reads, parses and cleans both topics itself. Mode, sink and the settings of readers and
    writers are those of ours."""
    kafka, spark = run.session.kafka, first(run).spark
    options = kafka.spark_options()
    ends = end_offsets(kafka, TOPICS, timeout_s=10.0)
    results = {name: f"plain.{name}" for name in queries}
    create_topics(kafka, dict.fromkeys(results.values(), 1))
    row = F.from_json(F.col("value").cast("string"), trip_schema(COLUMNS)).alias("row")
    started = {}
    with tempfile.TemporaryDirectory() as checkpoints:
        try:
            for name, query in queries.items():
                records = records_of(spark, {**GATHERING, **options}, ends)
                found = query(clean(records.select(row).select("row.*")).withColumn("_weight", F.lit(1.0)))
                writer = writer_of(found, {**GATHERING_WRITER, **options}, results[name], f"{checkpoints}/{name}")
                started[name] = writer.trigger(realTime="5 seconds").start()
            yield Engine(results, {name: str(query.runId) for name, query in started.items()})
        finally:
            for query in started.values():
                query.stop()


def drained(run: Run, at_work: Engine, rows: int, credit: bool) -> Drain:
    """Inject a backlog of `rows`, faster than it can be processed, and wait until every query has drained it."""
    manager = first(run)
    until(lambda: all(manager.works_on(id) for id in at_work.runs.values()), "tasks at work")
    charges = Charges(manager)
    before = counted(run, at_work)
    process = psutil.Process(pid(manager))
    fast = max(rows / INJECT_S, 1_000.0)  # rows/s
    load = run.inject(trips(fast / len(TOPICS), rows / fast, partitions=PARTITIONS))
    begun, cpu = time.monotonic() - load.position(), cpu_s(process)
    last, ended, cpu_then = before, begun, cpu
    while True:
        time.sleep(0.05)
        now, at, cpu_now = counted(run, at_work), time.monotonic(), cpu_s(process)
        if now != last:
            last, ended, cpu_then = now, at, cpu_now
        kept = {name: now[name] - before[name] for name in now}
        if len(set(kept.values())) == 1 and at - ended > QUIET_S and min(kept.values()) > 0:
            break
        if at - begun > PATIENCE_S:
            raise TimeoutError(f"backlog of {rows} rows not drained in {PATIENCE_S:g} s; rows kept: {kept}")
        if credit:
            charges.look()
    load.stop()
    if credit:
        charges.look(CREDIT_S)
    return Drain(rows, ended - begun, cpu_then - cpu, charges.by_query(at_work) if credit else None)


class Charges:
    """CPU of the batches that end from now on. The task manager keeps it only briefly, so it is polled."""

    def __init__(self, manager: TaskManager, every_s: float = 4.0) -> None:
        self._manager = manager
        self._every_s = every_s
        self._before = set(manager.task_times() or {})
        self._cpu: dict[tuple[str, int], float] = {}
        self._looked = time.monotonic()

    def look(self, after_s: float = 0.0) -> None:
        """Poll, if the last time was `every_s` ago; or in any case, `after_s` from now."""
        time.sleep(after_s)
        if after_s or time.monotonic() - self._looked > self._every_s:
            self._looked = time.monotonic()
            self._cpu |= {key: taken.cpu_s for key, taken in (self._manager.task_times() or {}).items()}

    def by_query(self, at_work: Engine) -> dict[str, float]:
        """CPU seconds of the executor threads."""
        return {
            name: sum(cpu for key, cpu in self._cpu.items() if key[0] == id and key not in self._before)
            for name, id in at_work.runs.items()
        }


def counted(run: Run, at_work: Engine) -> dict[str, int]:
    """The records that each query has written so far."""
    ends = end_offsets(run.session.kafka, at_work.topics.values(), timeout_s=10.0)
    return {name: sum(ends[topic].values()) for name, topic in at_work.topics.items()}


def first(run: Run) -> TaskManager:
    """The first task manager."""
    return next(iter(run.session.runtime.task_managers.values()))


def pid(manager: TaskManager) -> int:
    """The process of a local task manager."""
    assert manager.server is not None
    return manager.server.child.pid


def cpu_s(process: psutil.Process) -> float:
    """CPU seconds of a process so far."""
    times = process.cpu_times()
    return float(times.user + times.system)
