"""Overload, and plain Spark, on a standalone cluster with two workers: `python -m benchmarks.own_cluster`.

The cluster is that of the live tests: a master, two workers with an executor of one slot each, and a Connect server in
front. The workers have the last core of this machine for themselves; the server (the driver), Kafka, the sender and the
controller share the first. Rows come in two partitions.

- `overload` (default): two queries of one recipe, of priority 2 ("major") and 1 ("minor"), at 2 and at 4 times the rate
  that plain Spark carries. Of the cycles after the first half minute at each rate are kept: the accuracies, the share
  of cycles in which their order was that of the priorities, the largest backlog in periods of the controller, and CPU
  of the workers, % of their core: in all cycles, and in those in which the major query lost rows.
- `quiet`: one query, of plain Spark and then ours, in turns, at shares of the rate that plain Spark carries: accuracy,
  and the median age of rows when their batch ends.
- `start`: seconds from `Session.up` to its return, and to a first row: on a server that has just started, which loads
  and compiles its classes meanwhile, and again on the same one.

`--no-ui` starts the server without a Spark UI. `results/scripts/own_cluster.csv` keeps the figures. A run takes less
than eleven minutes, `overload` six.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from statistics import fmean
from typing import Any

import psutil

from benchmarks._live import Sender, sending
from benchmarks.many_queries import times
from qod_magics.controller import Cycle
from qod_magics.core.snapshot import Snapshot
from qod_magics.kafka.reading import end_offsets
from qod_magics.kafka.topics import create_topics
from qod_magics.session.session import Session
from qod_magics.spark.queries.progress import Batch, batch_of
from qod_magics.spark.servers.connection import beside
from tests.live.standalone import Standalone

RESULTS = Path(__file__).parent / "results" / "scripts" / "own_cluster.csv"
TOPIC, SCHEMA, SLOTS = "visits", "k INT, v DOUBLE, at TIMESTAMP", 2
_OF_WINDOWS = "SELECT window(at, '10 seconds') AS w, k, count(*) AS n, {} FROM {{}} GROUP BY 1, 2"
#: By name, SQL with {} for its table.
RECIPES: Mapping[str, str] = {
    "hashes": _OF_WINDOWS.format("max(sha2(repeat(CAST(v AS STRING), 10000), 512)) AS most"),
    "percentiles": _OF_WINDOWS.format(
        ", ".join(f"percentile_approx(pow(v, {i}) + k, 0.9, 2000) AS p{i}" for i in range(1, 13))
    ),
}
PRIORITIES = {"minor": 1, "major": 2}
#: Rows that wait before the capacity is measured, seconds of input in one of its batches, and seconds for which it is
#: measured after the first ones.
PRELOADED, BATCH_S, CAPACITY_WARM_S, CAPACITY_S = 400_000, 2.0, 20.0, 25.0
ENOUGH, LATE_S = 5, 90.0  #: full batches that each query must have had, and for how much longer they are waited for
FIRST_ROWS = 4_000  #: in each batch, before the capacity is known
#: For how long queries run at half of it before an overload, seconds: until then they count as new.
WARM_S = 65.0
#: An accuracy from which on nothing counts as lost, and by how much accuracies may be out of order.
WHOLE, SAME = 0.995, 0.02
FIELDS = (
    *("kind", "recipe", "ui", "capacity", "load", "rate", "engine", "accuracy", "major", "minor", "in_order"),
    *("backlog_periods", "age_s", "interval_s", "cpu", "cpu_at_loss", "first_core", "server", "up_s", "row_s"),
)


@dataclass
class Sample:
    """What a cycle of the controller told, and CPU since the one before, % of a core."""

    at: float
    accuracy: Mapping[str, float | None]
    waiting: Mapping[str, int]
    cpu: float
    first_core: float
    believed: str  #: what the plan was made with


@dataclass
class Run:
    """A session on the cluster."""

    session: Session
    cluster: Standalone
    folder: str
    queries: int = 0  #: plain ones so far
    samples: list[Sample] = field(default_factory=list)

    def sending(self, rate: float, rows: float = inf) -> AbstractContextManager[Sender]:
        """Send rows at this rate meanwhile, from the first core."""
        return sending(self.session.kafka, TOPIC, rate, rows)

    @contextmanager
    def plain(self, recipe: str, queries: int, starting: str, bound: int | None = None) -> Iterator[Sequence[Any]]:
        """Run plain queries on the server meanwhile, as one would start them who knows the number of slots."""
        (manager,) = self.session.runtime.task_managers.values()
        spark = beside(manager.spark)
        spark.conf.set("spark.sql.shuffle.partitions", str(SLOTS))
        options = dict(self.session.kafka.spark_options())
        if bound is not None:
            options["maxOffsetsPerTrigger"] = str(bound)
        running = []
        try:
            for _ in range(queries):
                n = self.queries = self.queries + 1
                reader = spark.readStream.format("kafka").options(**options).option("startingOffsets", starting)
                rows = reader.option("subscribe", TOPIC).load()
                rows = rows.selectExpr(f"from_json(CAST(value AS STRING), '{SCHEMA}') AS r").select("r.*")
                rows.createOrReplaceTempView(f"t{n}")
                found = spark.sql(RECIPES[recipe].format(f"t{n}")).selectExpr("to_json(struct(*)) AS value")
                writer = found.writeStream.format("kafka").options(**options).option("topic", "plain")
                writer = writer.outputMode("update").option("checkpointLocation", f"{self.folder}/plain-{n}")
                running.append(writer.start())
            yield running
        finally:
            for query in running:
                query.stop()

    def capacity(self, recipe: str, queries: int) -> float:
        """Return the input rate, rows/s, that this number of plain queries just keeps up with, where a batch reads at
        most two seconds of rows."""
        with self.sending(1e9, PRELOADED) as sender:
            sender.wait()
        rates = self._drained(recipe, queries, FIRST_ROWS, CAPACITY_WARM_S)
        rates = self._drained(recipe, queries, round(BATCH_S * min(rates)), CAPACITY_S)
        return queries / sum(1.0 / max(rate, 1.0) for rate in rates)

    def _drained(self, recipe: str, queries: int, bound: int, seconds: float) -> list[float]:
        with self.plain(recipe, queries, "earliest", bound) as running:
            ends, deadline = time.monotonic() + seconds, time.monotonic() + seconds + LATE_S
            while True:
                time.sleep(1.0)
                batches = [[b for b in _batches(query) if _read(b) >= 0.9 * bound] for query in running]
                if time.monotonic() > ends and all(len(mine) >= ENOUGH for mine in batches):
                    break
                if time.monotonic() > deadline:
                    had = ", ".join(str(len(mine)) for mine in batches)
                    raise RuntimeError(f"each query must have {ENOUGH} full batches by now, got {had}")
        rates = [_rate(mine[len(mine) // 3 :]) for mine in batches]
        print(f"rows/s of {queries} plain, batches of {bound}:", *map(round, rates), file=sys.stderr, flush=True)
        return rates

    def declare(self, recipe: str, priorities: Mapping[str, int]) -> None:
        """Start our queries with default options, over one topic."""
        sql, options = RECIPES[recipe].format("source"), dict[str, Any](topic=TOPIC, schema=SCHEMA, min_accuracy=0.05)
        for name, priority in priorities.items():
            self.session.stream(name, sql, priority=priority, sink=f"kafka:{name}", **options)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Collect samples meanwhile."""
        before = [(time.time(), self._workers_s(), _core_s())]

        def note(cycle: Cycle) -> None:
            if cycle.measured is None:
                return
            now, (at, workers_s, core_s) = (time.time(), self._workers_s(), _core_s()), before[-1]
            before.append(now)
            lasted = max(now[0] - at, 1e-3)
            cpu, first = (100.0 * (late - early) / lasted for late, early in ((now[1], workers_s), (now[2], core_s)))
            measured = cycle.measured
            believed = "" if cycle.snapshot is None else _believed(cycle.snapshot)
            self.samples.append(Sample(now[0], dict(measured.accuracy), dict(measured.lag), cpu, first, believed))

        close = self.session.controller.subscribe(note)
        try:
            yield
        finally:
            close()

    def _workers_s(self) -> float:
        """Return the CPU of the workers and their executors so far, seconds."""
        used = 0.0
        for worker in self.cluster.workers:
            process = psutil.Process(worker.pid)
            for each in (process, *process.children(recursive=True)):
                try:
                    used += sum(each.cpu_times()[:2])
                except psutil.NoSuchProcess:
                    continue
        return used

    def overload(self, load: float, rate: float, settle_s: float, seconds: float) -> Mapping[str, Any]:
        """Return the figures of the two queries at this rate."""
        with self.sending(rate):
            time.sleep(settle_s)
            begun, self.samples = time.time(), []
            time.sleep(seconds)
            seen = list(self.samples)
        for name in PRIORITIES:
            print(name, self.session.why(name), *self._told(name), sep="\n", file=sys.stderr, flush=True)
        print(self.session.status(), file=sys.stderr, flush=True)
        for each in seen:
            print(each, file=sys.stderr, flush=True)
        known = [each for each in seen if all(each.accuracy.get(name) is not None for name in PRIORITIES)]
        accuracies = {name: [each.accuracy[name] or 0.0 for each in known] for name in PRIORITIES}
        order = [
            major >= minor - SAME for major, minor in zip(*(accuracies[n] for n in ("major", "minor")), strict=True)
        ]
        most = max(max(each.waiting.get(name, 0) for name in PRIORITIES) for each in seen)
        lost = [each.cpu for each in known if (each.accuracy["major"] or 0.0) < WHOLE]
        ages = self._ages(list(PRIORITIES), begun)
        return {
            **{name: fmean(found) if found else None for name, found in accuracies.items()},
            "in_order": fmean(order) if order else None,
            "backlog_periods": most / (rate * self.session.controller.period_s),
            **ages,
            "cpu": fmean(each.cpu for each in seen),
            "cpu_at_loss": fmean(lost) if lost else None,
            "first_core": fmean(each.first_core for each in seen),
        }

    def _told(self, name: str) -> list[str]:
        """Return what the latest batches spent their time on."""
        query = self.session.runtime.instances[f"{name}.1"].query
        reports = [] if query is None else [json.loads(each.json) for each in query.recentProgress[-4:]]
        return [f"{r['timestamp']} {r.get('numInputRows')} rows {r['durationMs']}" for r in reports]

    def _ages(self, names: Sequence[str], begun: float) -> Mapping[str, float]:
        instances = [self.session.runtime.instances[f"{name}.1"] for name in names]
        return times([[b for _, b in list(each.meter.spans) if b.start >= begun] for each in instances])

    def quiet_ours(self, rate: float, settle_s: float, seconds: float) -> Mapping[str, Any]:
        """Return the figures of one query of ours."""
        with self.sending(rate):
            time.sleep(settle_s)
            begun, self.samples = time.time(), []
            time.sleep(seconds)
            seen = list(self.samples)
        print(self.session.why("major"), *self._told("major"), sep="\n", file=sys.stderr, flush=True)
        accuracies = [a for each in seen if (a := each.accuracy.get("major")) is not None]
        return {
            "accuracy": min(accuracies, default=None),
            "backlog_periods": max(e.waiting.get("major", 0) for e in seen) / (rate * self.session.controller.period_s),
            **self._ages(["major"], begun),
            "cpu": fmean(each.cpu for each in seen),
            "first_core": fmean(each.first_core for each in seen),
        }

    def quiet_plain(self, query: Any, rate: float, settle_s: float, seconds: float) -> Mapping[str, Any]:
        """Return the figures of one query of plain Spark."""
        with self.sending(rate):
            time.sleep(settle_s)
            begun, used, first = time.time(), self._workers_s(), _core_s()
            time.sleep(seconds)
            batches = [b for b in _batches(query) if b.start >= begun]
            lasted = time.time() - begun
        return {
            "accuracy": 1.0,
            **times([batches]),
            "cpu": 100.0 * (self._workers_s() - used) / lasted,
            "first_core": 100.0 * (_core_s() - first) / lasted,
        }


def _believed(snapshot: Snapshot) -> str:
    """Return the learned costs of batches, and how far they are trusted."""
    (manager,) = snapshot.task_managers
    seconds = {name: getattr(manager, name) for name in ("batch_s", "interval_s", "paced_s", "open_s", "round_s")}
    costs = [f"{t.id}: {t.batch_time_s} s, {t.read_time_us} + {t.work_time_us} us" for t in snapshot.tasks]
    return f"cpu {manager.cpu:.0f} trust {manager.trust} {seconds} {costs}"


def _core_s() -> float:
    """Return the seconds for which the first core has not been idle."""
    found = psutil.cpu_times(percpu=True)[min(os.sched_getaffinity(0))]
    return float(sum(found) - found.idle - getattr(found, "iowait", 0.0) - getattr(found, "guest", 0.0))


def _batches(query: Any) -> list[Batch]:
    if (error := query.exception()) is not None:
        raise RuntimeError(f"plain Spark ended: {error}")
    return [b for each in query.recentProgress if (b := batch_of(json.loads(each.json))) is not None]


def _read(batch: Batch) -> int:
    """Return the rows between a batch's offsets."""
    return sum(sum(feed.end.values()) - sum((feed.start or feed.end).values()) for feed in batch.feeds)


def _rate(batches: Sequence[Batch]) -> float:
    """Rows/s of these batches; 0 without."""
    if len(batches) < 2:
        return 0.0
    return sum(map(_read, batches[1:])) / (batches[-1].end - batches[0].end)


@contextmanager
def standing(ui: bool) -> Iterator[tuple[Standalone, Path]]:
    """Start the cluster; this process, and all that it starts, has the first core alone meanwhile."""
    cpus = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cpus[0]})
    with tempfile.TemporaryDirectory() as folder:
        cluster = Standalone(Path(folder), SLOTS, ui=ui, cpus={cpus[0]}, workers_cpus={cpus[-1]})
        try:
            yield cluster, Path(folder)
        finally:
            cluster.stop()
            os.sched_setaffinity(0, set(cpus))


@contextmanager
def running(cluster: Standalone, folder: Path) -> Iterator[Run]:
    """Start a session on the cluster, with its topics."""
    options: dict[str, Any] = {} if cluster.has_ui else {"cores": SLOTS}
    kafka_cpus = os.sched_getaffinity(0)
    with Session.up(task_managers=0, connect=[cluster.url], kafka_cpus=kafka_cpus, **options) as session:
        create_topics(session.kafka, {TOPIC: SLOTS, "plain": 1, **dict.fromkeys(PRIORITIES, 1)})
        yield Run(session, cluster, str(folder))


def overload(
    recipe: str, ui: bool, loads: Sequence[float], settle_s: float, seconds: float
) -> Iterator[dict[str, Any]]:
    """Yield the figures at these loads."""
    with standing(ui) as place, running(*place) as run:
        capacity = run.capacity(recipe, len(PRIORITIES))
        run.declare(recipe, PRIORITIES)
        with run.sending(0.5 * capacity):
            time.sleep(WARM_S)
        with run.watched():
            for load in loads:
                found = run.overload(load, load * capacity, settle_s, seconds)
                yield {"capacity": capacity, "load": load, "rate": load * capacity, "engine": "ours", **found}


def quiet(
    recipe: str, ui: bool, loads: Sequence[float], turns: int, settle_s: float, seconds: float
) -> Iterator[dict[str, Any]]:
    """Yield the figures of both engines at these loads, in turns."""
    with standing(ui) as place, running(*place) as run:
        capacity = run.capacity(recipe, 1)
        of = [{"capacity": capacity, "load": load, "rate": load * capacity} for load in loads]
        for _ in range(turns):
            with run.plain(recipe, 1, "latest") as (query,):
                for row in of:
                    yield {**row, "engine": "plain Spark", **run.quiet_plain(query, row["rate"], settle_s, seconds)}
            run.declare(recipe, {"major": 2})
            with run.watched():
                for row in of:
                    yield {**row, "engine": "ours", **run.quiet_ours(row["rate"], settle_s, seconds)}
            run.session.stop_all()


def start(ui: bool) -> Iterator[dict[str, Any]]:
    """Yield how long a session took to start: on a server that has just started, and on the same one after that."""
    with standing(ui) as place:
        for server in ("cold", "warm"):
            begun = time.monotonic()
            with running(*place) as run:
                up_s = time.monotonic() - begun
                with run.sending(200.0):
                    run.session.stream("first", "SELECT k FROM source", topic=TOPIC, schema=SCHEMA, sink="memory")
                    topic = run.session.runtime.deployment.results["first"]
                    while not any(end_offsets(run.session.kafka, [topic])[topic].values()):
                        time.sleep(0.05)
                yield {"engine": "ours", "server": server, "up_s": up_s, "row_s": time.monotonic() - begun}


def keep(rows: Sequence[Mapping[str, Any]]) -> None:
    """Write the rows to the results, in place of those of the same kind, recipe and UI."""
    replaced = {(row["kind"], row["recipe"], row["ui"]) for row in rows}
    known: list[Mapping[str, Any]] = []
    if RESULTS.exists():
        with RESULTS.open(newline="") as file:
            known = [row for row in csv.DictReader(file) if (row["kind"], row["recipe"], row["ui"]) not in replaced]
    with RESULTS.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        writer.writerows(sorted([*known, *rows], key=lambda row: (row["kind"], row["recipe"], row["ui"])))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", nargs="?", choices=["overload", "quiet", "start"], default="overload")
    parser.add_argument("--recipe", choices=list(RECIPES), default="hashes")
    parser.add_argument("--no-ui", action="store_true")
    parser.add_argument("--loads", type=float, nargs="+", help="multiples of plain Spark's capacity")
    parser.add_argument("--turns", type=int, default=2, help="of `quiet`")
    parser.add_argument("--settle", type=float, default=30.0)
    parser.add_argument("--seconds", type=float, default=40.0)
    given = parser.parse_args()
    ui = not given.no_ui
    if given.kind == "overload":
        found = overload(given.recipe, ui, given.loads or (2.0, 4.0), given.settle, given.seconds)
    elif given.kind == "quiet":
        found = quiet(given.recipe, ui, given.loads or (0.5, 0.9), given.turns, given.settle, given.seconds)
    else:
        found = start(ui)
    rows: list[dict[str, Any]] = []
    for each in found:
        of = {"kind": given.kind, "recipe": "" if given.kind == "start" else given.recipe, "ui": "yes" if ui else "no"}
        row = {name: round(value, 3) if isinstance(value, float) else value for name, value in {**of, **each}.items()}
        rows.append(row)
        print(*(f"{name} {value}" for name, value in row.items()), sep=", ", flush=True)
        keep(rows)


if __name__ == "__main__":
    main()
