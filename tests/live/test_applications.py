"""Applications on real Kafka and Spark: what is sent arrives, once, as it was, through every shape of application."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import pairwise
from math import inf
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd
import pytest

from qod_magics.core.plan import Plan
from qod_magics.core.runtime import Count, Dials
from qod_magics.errors import QodError
from qod_magics.kafka.topics import grow_topics
from qod_magics.lifecycle.events import State
from qod_magics.machine.releases import without_realtime
from qod_magics.session.session import Session
from qod_magics.session.status import DECLARED
from qod_magics.spark.metrics import collector
from qod_magics.spark.queries.modes import STATE_IN_BATCHES
from qod_magics.spark.servers.conf import REPORTS_KEPT
from tests.live.applications import all_read, cell, count, held, instances, observed, rows, turn, written
from tests.live.conftest import eventually, heard, new_topic, produce
from tests.live.steady import SCHEMA as STEADY
from tests.live.steady import Steady
from tests.raising import breaks
from tests.texts import tells

SCHEMA = (
    "id BIGINT, name STRING, fare DECIMAL(20,6), ratio DOUBLE, paid BOOLEAN, day DATE, at TIMESTAMP, "
    "legs ARRAY<STRUCT<zone: INT, label: STRING>>, `by` STRUCT<rider: STRING, tags: MAP<STRING, INT>>"
)
NAMES = ("Müller", "東京", "🚕 taxi", 'quote " and \\ slash', "line\nbreak", "", None, "\u0000null", "x" * 3000)


REPORTS = "spark.sql.streaming.numRecentProgressUpdates"


def drive(i: int) -> dict[str, Any]:
    """One row with every type, as a recipe should see it; some of it null."""
    return {
        "id": 2**53 + i,
        "name": NAMES[i % len(NAMES)],
        "fare": None if i % 7 == 3 else Decimal(f"-{i}12345678901.{i % 1000000:06d}"),
        "ratio": 1 / (i + 3),
        "paid": (True, False, None)[i % 3],
        "day": date(2026, 1 + i % 12, 1 + i % 28),
        "at": datetime(2026, 3, 29, i % 24, 59, 59, (i * 7919) % 1000000, UTC).astimezone().replace(tzinfo=None),
        "legs": None if i % 5 == 4 else [{"zone": n, "label": None if n == 1 else f"z{n}é"} for n in range(i % 4)],
        "by": None if i % 11 == 5 else {"rider": f"r{i}", "tags": {"a b": i, "ü": None} if i % 2 else {}},
    }


def as_json(row: dict[str, Any]) -> dict[str, Any]:
    """The row as a producer writes it."""
    return {
        **row,
        "fare": None if row["fare"] is None else str(row["fare"]),
        "day": row["day"].isoformat(),
        "at": row["at"].astimezone(UTC).isoformat(timespec="microseconds"),
    }


def by_id(found: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    assert len({row["id"] for row in found}) == len(found), "a row came twice"
    return {row["id"]: row for row in found}


@pytest.mark.smoke
@pytest.mark.versions
def test_two_queries_read_exactly_what_was_sent(brief: Session, topic: str) -> None:
    session = brief
    assert cell(
        session, f"drives --topic {topic} --schema '{SCHEMA}' --starting earliest --no-fuse", "source"
    ).said == (f"drives {DECLARED}")
    cell(session, "in_python -p 2", "drives.withColumn('half', F.col('ratio') / divisor)", divisor=2)
    cell(session, "in_sql -p 1 --sql", "SELECT *, ratio / 2 AS half FROM Drives WHERE id IS NOT NULL")
    sent = {row["id"]: row for row in map(drive, range(300))}
    assert produce(session, topic, map(as_json, sent.values())) == 300
    for query in ("in_python", "in_sql"):
        eventually(lambda q=query: written(session, q) >= 300, what=f"300 rows of {query}")  # type: ignore[misc]
    eventually(lambda: all_read(session, "drives>in_python", 300) and all_read(session, "drives>in_sql", 300))
    for query in ("in_python", "in_sql"):
        found = by_id(rows(session, query))
        assert all(row.pop("half") == row["ratio"] / 2 for row in found.values())
        assert found == sent
        assert session.results(query).schema["fare"].dataType.simpleString() == "decimal(20,6)"
    modes = {i.mode for task in ("drives", "in_python", "in_sql") for i in instances(session, task)}
    assert modes == {"micro-batch" if without_realtime() else "real-time"}
    for feed in ("drives", "drives>in_python", "drives>in_sql"):
        books = count(session, feed)
        assert (books.processed, books.dropped, books.unreported) == (300, 0, 0)


def test_a_chain_is_one_query_and_gives_what_three_would(brief: Session, topic: str) -> None:
    session = brief
    for suffix, option in (("", ""), ("_apart", " --no-fuse")):
        line = f"--schema 'id BIGINT, zone INT' --starting earliest{option}"
        cell(session, f"trips{suffix} --topic {topic} {line}", "source")
        cell(
            session,
            f"zones{suffix} --sql{option}",
            f"SELECT id, zone % 5 AS zone, _weight FROM trips{suffix} WHERE zone > 3",
        )
        cell(session, f"named{suffix} -p 1{option}", f"zones{suffix}.withColumn('name', F.concat(F.lit('z'), 'zone'))")
    produce(session, topic, ({"id": i, "zone": i % 10} for i in range(500)))
    for query in ("named", "named_apart"):
        eventually(lambda q=query: written(session, q) >= 300, what=f"the rows of {query}")  # type: ignore[misc]
    assert session.runtime.deployment.specs["named"].members == ("trips", "zones", "named")
    assert {s for s in session.runtime.deployment.specs if s.endswith("apart")} == {
        "trips_apart",
        "zones_apart",
        "named_apart",
    }
    fused, apart = rows(session, "named"), rows(session, "named_apart")
    expected = {i: {"id": i, "zone": i % 10 % 5, "name": f"z{i % 10 % 5}"} for i in range(500) if i % 10 > 3}
    assert by_id(fused) == by_id(apart) == expected


def test_instances_share_partitions_and_keys_stay_together(brief: Session) -> None:
    session = brief
    topic = new_topic(session, partitions=2)
    line = f"--topic {topic} --schema 'id BIGINT, zone INT' --starting earliest"
    cell(session, f"spread {line} -n 2", "source")
    cell(session, "kept -p 1 -n 2 --key zone", "spread")
    assert len(instances(session, "spread")) == len(instances(session, "kept")) == 2
    produce(session, topic, ({"id": i, "zone": i % 40} for i in range(2000)), partitions=2)
    eventually(lambda: written(session, "kept") >= 2000, what="2000 rows")
    eventually(lambda: all_read(session, "spread>kept", 2000) and all_read(session, "spread", 2000))
    assert len(by_id(rows(session, "kept"))) == 2000
    # instance i writes partition i of the results
    results = session.runtime.deployment.results["kept"]
    where = (
        session.runtime.workshop()
        .spark.read.format("kafka")
        .options(**session.kafka.spark_options())
        .option("subscribe", results)
        .load()
        .selectExpr("partition", "get_json_object(CAST(value AS STRING), '$.zone') AS zone")
        .distinct()
        .collect()
    )
    assert Counter(row["zone"] for row in where) == dict.fromkeys(map(str, range(40)), 1)
    assert len({row["partition"] for row in where}) == 2
    read = [sum(b.rows for _, b in i.meter.spans) for i in instances(session, "spread")]
    assert sum(read) == 2000
    assert min(read) > 0

    before = held(session)
    with pytest.raises(QodError, check=breaks("partitions")):
        cell(session, f"many {line} -n 3 -p 1", "source")
    assert held(session) == before


@pytest.mark.smoke
def test_a_python_function_runs_in_micro_batches_and_its_cpu_is_seen(brief: Session, topic: str) -> None:
    session = brief
    from pyspark.sql import functions as F

    @F.pandas_udf("double")
    def busy(values: pd.Series) -> pd.Series:
        return values.map(lambda value: sum(float(value) / n for n in range(1, 2000)))

    line = f"--topic {topic} --schema 'id BIGINT, x DOUBLE' --starting earliest -p 1"
    before = held(session)
    with pytest.raises(QodError) as refused:
        cell(session, f"felt {line} --mode realtime", "source.withColumn('y', busy('x'))", busy=busy)
    assert tells(refused.value, "felt.1", "real-time", "Python functions")
    assert held(session) == before

    said = cell(session, f"felt {line}", "source.withColumn('y', busy('x'))", busy=busy).said
    assert tells(said, "micro-batch", "Python functions")
    seen: list[float] = []
    sent = 0

    def python_cpu() -> bool:
        nonlocal sent
        sent += produce(session, topic, ({"id": i, "x": float(i)} for i in range(sent, sent + 2000)))
        (instance,) = observed(session).snapshot.instances
        python = instance.python_cpu or 0.0
        assert instance.cpu >= python
        seen.append(python)
        return seen[-1] > 1.0

    eventually(python_cpu, every_s=2.0, what="CPU of Python workers")
    eventually(lambda: written(session, "felt") >= sent, what="all rows")
    found = by_id(rows(session, "felt"))
    assert len(found) == sent
    assert found[7]["y"] == pytest.approx(sum(7 / n for n in range(1, 2000)))
    assert tells(session.status(), "felt.1", "micro-batch", "Python functions")


def test_a_recipe_with_its_own_source_is_shed_too(brief: Session) -> None:
    session = brief
    ticks = "spark.readStream.format('rate').option('rowsPerSecond', 1000).load()"
    cell(session, "ticks -p 1 --trigger 1", f"{ticks}.select('value', '_weight')")
    eventually(lambda: count(session, "ticks").processed > 500, what="rows of the source")
    seen = observed(session)
    assert next(task for task in seen.snapshot.tasks if task.id == "ticks").external_rate is None
    assert seen.measured.counts["ticks"].dropped == 0
    turn(session, {(None, "ticks"): 0.5})
    eventually(lambda: count(session, "ticks").dropped > 0, what="rows dropped")
    begin = count(session, "ticks")  # the batches from here on began after the dial had turned
    eventually(lambda: count(session, "ticks").arrived > begin.arrived + 3000, what="3000 rows more")
    now = count(session, "ticks")
    dropped, arrived = now.dropped - begin.dropped, now.arrived - begin.arrived
    assert abs(dropped - arrived / 2) <= 4 * (arrived / 4) ** 0.5
    turn(session, {(None, "ticks"): 0.0})
    eventually(lambda: observed(session).measured.accuracy["ticks"] == 0.0, what="nothing kept")
    kept = count(session, "ticks").processed
    assert written(session, "ticks") == kept
    weights = Counter(row["_weight"] for row in rows(session, "ticks"))
    assert set(weights) == {1.0, 2.0}
    assert sum(weights.values()) == kept
    session.stop("ticks")
    assert "ticks" not in observed(session).measured.counts


class Missing:
    """Batches that are told of as not counted, from now on."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.batches = 0

    def after_a_look(self, task: str) -> Count:
        """The task's books now."""
        seen = observed(self.session)
        self.batches += sum(event.detail["batches"] for event in seen.events if event.kind == "reports-missing")
        return seen.measured.counts.get(task, Count())


def test_a_source_of_its_own_that_was_idle_is_counted_from_its_first_row_on(brief: Session, tmp_path: Path) -> None:
    """An idle trigger is reported too, under the number of the batch that comes next."""
    session = brief
    cell(session, "filed -p 1 --trigger 1", f"spark.readStream.schema('id BIGINT').json('{tmp_path}')")
    (filed,) = instances(session, "filed")
    eventually(lambda: filed.query is not None and filed.query.lastProgress is not None, what="an idle report")
    missing = Missing(session)
    assert missing.after_a_look("filed").arrived == 0
    (tmp_path / "first.json").write_text("".join(f'{{"id": {i}}}\n' for i in range(100)))
    eventually(lambda: written(session, "filed") == 100, what="the rows of the first file")
    eventually(lambda: missing.after_a_look("filed").processed == 100, what="their count")
    before = filed.run_id
    session.runtime.mover.restart(filed)
    assert filed.run_id != before
    eventually(lambda: filed.query is not None and filed.query.lastProgress is not None, what="an idle report")
    missing.after_a_look("filed")
    (tmp_path / "second.json").write_text("".join(f'{{"id": {i}}}\n' for i in range(100, 150)))
    eventually(lambda: written(session, "filed") == 150, what="the rows of the second file")
    eventually(lambda: missing.after_a_look("filed").processed == 150, what="their count")
    assert missing.batches == 0


#: Reports of a query that Spark keeps here, so that there are soon more.
FEW = 24


@pytest.fixture
def few_reports(brief: Session, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """The same, where Spark keeps fewer reports of the queries that start now, and the collector knows."""
    managers = [manager.spark for manager in brief.runtime.task_managers.values()]
    kept = {spark.conf.get(REPORTS) for spark in managers}
    assert kept == {str(REPORTS_KEPT)}
    monkeypatch.setattr(collector, "REPORTS_KEPT", FEW)
    for spark in managers:
        spark.conf.set(REPORTS, str(FEW))
    yield brief
    for spark in managers:
        spark.conf.set(REPORTS, str(REPORTS_KEPT))


def test_batches_are_counted_also_where_there_are_many_in_a_period(few_reports: Session) -> None:
    """Spark keeps a few dozen reports of a query, and nobody decides for longer than these are of."""
    session, period_s = few_reports, few_reports.controller.period_s
    session.set_period(600.0)
    try:
        quick = "spark.readStream.format('rate-micro-batch').option('rowsPerBatch', 10).load()"
        cell(session, "quick -p 1 --trigger 0.5", quick)
        eventually(lambda: written(session, "quick") > 10 * (FEW + 8), what="many batches")
        turn(session, {(None, "quick"): 0.0})
        eventually(lambda: count(session, "quick").dropped > 0, what="nothing is written any more")
        assert count(session, "quick").processed == written(session, "quick")
    finally:
        session.set_period(period_s)


@pytest.mark.parametrize("asked_for", [True, False])
def test_every_batch_is_counted_or_told_of(
    few_reports: Session, monkeypatch: pytest.MonkeyPatch, asked_for: bool
) -> None:
    """Where batches are so many that reports may be gone before a busy machine asks for them, or nobody does at all."""
    session, period_s = few_reports, few_reports.controller.period_s
    session.set_period(600.0)
    if not asked_for:
        for most in ("REPORTS_KEPT", "STAGES_KEPT"):
            monkeypatch.setattr(collector, most, inf)
    try:
        quick = "spark.readStream.format('rate-micro-batch').option('rowsPerBatch', 10).load()"
        cell(session, "quick -p 1 --trigger 0.05", quick)
        (instance,) = instances(session, "quick")
        eventually(lambda: written(session, "quick") > 10 * (2 * FEW + 8), what="many batches")
        missing = Missing(session)
        found = missing.after_a_look("quick")
        assert found.arrived + 10 * missing.batches == 10 * (instance.ended() + 1)
        if not asked_for:
            assert missing.batches >= FEW
    finally:
        session.set_period(period_s)


def test_a_batch_ends_in_time_though_its_rows_cost_most_behind_a_shuffle(brief: Session, topic: str) -> None:
    """It ends when all that was read for it is worked on: what is read ahead is bounded."""
    session = brief
    produce(session, topic, ({"id": i} for i in range(100_000)))
    body = """
model = F.expr("aggregate(sequence(1, 20000), 0D, (sum, i) -> sum + sin(i * id))")
wide = source.withColumn("key", F.lpad(F.col("id").cast("string"), 200, "0"))
wide.dropDuplicates(["key"]).select("id", model.alias("y"))
"""
    cell(session, f"dear --topic {topic} --schema 'id BIGINT' --starting earliest -p 1 --mode realtime", body)
    (dear,) = instances(session, "dear")
    assert dear.mode == "real-time"
    eventually(lambda: dear.ended() >= 2, what="three batches")
    _, *batches = [batch for _, batch in dear.meter.spans]  # the first one also compiles
    assert max(batch.rows for batch in batches) < 10_000, "of 100,000 that can be read in its second"
    assert count(session, "dear").waiting > 0


@pytest.mark.smoke
def test_two_streams_are_joined(brief: Session) -> None:
    session = brief
    left, right = new_topic(session), new_topic(session)
    line = "--schema 'id BIGINT, {} at TIMESTAMP' --starting earliest"
    cell(session, f"calls --topic {left} {line.format('zone INT,')}", "source")
    cell(session, f"pickups --topic {right} {line.format('cab STRING,')}", "source")
    body = """
a = calls.withWatermark('at', '1 hour')
b = pickups.withColumnRenamed('at', 'picked').withWatermark('picked', '1 hour')
pairs = a.join(b, 'id').where("picked BETWEEN at AND at + INTERVAL 10 MINUTES")
pairs.select('id', 'zone', 'cab', a['_weight'], b['_weight'])
"""
    said = cell(session, "served -p 1", body).said
    assert f"micro-batch mode ({STATE_IN_BATCHES})" in said
    at = "2026-05-01T10:{:02d}:00.000001Z"
    produce(session, left, ({"id": i, "zone": i % 9, "at": at.format(i % 30)} for i in range(400)))
    # every second call is answered, every tenth too late
    late = range(0, 400, 10)
    answers = [{"id": i, "cab": f"c{i}", "at": at.format(i % 30 + (20 if i in late else 5))} for i in range(0, 400, 2)]
    produce(session, right, answers)
    eventually(lambda: written(session, "served") >= 160, what="the pairs")
    eventually(lambda: all_read(session, "served", 600), what="all read")
    found = by_id(rows(session, "served"))
    assert set(found) == set(range(0, 400, 2)) - set(late)
    assert {row["_weight"] for row in found.values()} == {1.0}
    assert all(row["cab"] == f"c{id}" and row["zone"] == id % 9 for id, row in found.items())


def test_replacing_a_stream_loses_none_of_the_rows_that_wait(brief: Session, topic: str) -> None:
    session = brief
    produce(session, topic, ({"id": i} for i in range(100)))
    # one batch at once, the next one in days
    line = f"paid --topic {topic} --schema 'id BIGINT' --starting earliest -p 1 --mode microbatch --trigger 999999"
    cell(session, line, "source.where('id >= 0')")
    eventually(lambda: all_read(session, "paid", 100), what="the first rows")
    produce(session, topic, ({"id": i} for i in range(100, 400)))
    assert count(session, "paid").waiting == 300
    said = cell(session, line.replace("999999", "1"), "source.withColumn('twice', F.col('id') * 2)").said
    first, *more = said.splitlines()
    assert tells(first, "paid replaced")
    assert [line.partition(":")[0] for line in more] == ["paid"]
    produce(session, topic, ({"id": i} for i in range(400, 500)))
    eventually(lambda: all_read(session, "paid", 500), what="all rows")
    # what the new recipe gave: all that waited and all that came, none of the old recipe's
    found = by_id(rows(session, "paid"))
    assert {id: row["twice"] for id, row in found.items()} == {i: 2 * i for i in range(100, 500)}
    assert count(session, "paid").processed == 500


def test_a_second_consumer_changes_nothing_for_the_first(brief: Session, topic: str) -> None:
    session = brief
    # what is drawn at random is drawn once for all readers
    body = "source.withColumn('drawn', F.rand())"
    cell(session, f"trips --topic {topic} --schema 'id BIGINT' --starting latest", body)
    cell(session, "first -p 1", "trips.withColumn('n', F.lit(1))")
    assert session.runtime.deployment.specs["first"].members == ("trips", "first")
    sent = 0

    def more(n: int) -> None:
        nonlocal sent
        sent += produce(session, topic, ({"id": i} for i in range(sent, sent + n)))

    def received(query: str, begin: int, end: int) -> None:
        eventually(lambda: written(session, query) >= end - begin, what=f"rows of {query}")
        assert set(by_id(rows(session, query))) == set(range(begin, end))

    more(200)
    eventually(lambda: all_read(session, "first", 200), what="rows of the fused pair")
    cell(session, "second -p 1", "trips.withColumn('n', F.lit(2))")  # the pair is taken apart
    assert {s.id: s.members for s in session.runtime.deployment.specs.values()} == {
        "trips": ("trips",),
        "first": ("first",),
        "second": ("second",),
    }
    more(200)
    eventually(lambda: all_read(session, "trips", 400) and all_read(session, "trips>first", 200))
    received("second", 200, 400)
    checkpoint = instances(session, "trips")[0].checkpoint
    with pytest.raises(QodError, check=breaks("read by nobody", name="trips")):
        session.stop("trips")
    session.stop("second")  # `first` stays apart: rows may wait between them
    assert set(session.runtime.deployment.specs) == {"trips", "first"}
    more(200)
    eventually(lambda: all_read(session, "trips", 600), what="rows after the second left")
    cell(session, "third -p 1", "trips.withColumn('n', F.lit(3))")  # the source only writes one stream more
    assert instances(session, "trips")[0].checkpoint == checkpoint
    more(100)
    received("third", 600, 700)
    received("first", 0, 700)


@pytest.mark.smoke
def test_a_dry_run_starts_nothing(brief: Session, topic: str) -> None:
    session = brief
    before = held(session)
    said = cell(session, f"later --topic {topic} --schema 'id BIGINT' -p 1 --dry-run", "source.where('id > 1')").said
    assert tells(said, "later", "dry run")
    with pytest.raises(QodError, match=r"'later'.*no_such_column"):
        cell(session, f"later --topic {topic} --schema 'id BIGINT' -p 1 --dry-run", "source.select('no_such_column')")
    assert held(session) == before


NUMBERS = "--topic {topic} --schema 'id BIGINT'"
NO_TYPE = "--topic {topic} --schema 'id BIGINTT'"
BAD: tuple[tuple[str, str, str], ...] = (
    ("early", "later_on.union(numbers)", "form a cycle: "),
    ("x --from nunbers -p 1", "nunbers", "'x' reads 'nunbers', which is not declared. Did you mean 'numbers'?"),
    (f"numbers {NUMBERS} -p 3", "source", "only a stream that nobody reads has a sink"),
    ("x --from numbers -p 1 -a 1.5", "numbers", "min-accuracy is a fraction between 0 and 1, not 1.5"),
    ("NUMBERS -p 1 --from numbers", "numbers", "differ only in case"),
    ("x -p 1", "numbers.count()", "writeStream"),
    ("x -p 1", "numbers.schema", "gives a StructType, not a DataFrame"),
    ("x -p 1", "numbers and spark.range(3)", "gives a DataFrame that does not stream"),
    ("x -p 1", "numbers.where(", "line 1"),
    ("x --topic {topic}x -p 1", "source", "There is no topic '{topic}x'. Did you mean '"),
    ("x -p 1 --sql", "SELECT idd FROM numbers", "stream 'x': the SQL fails: "),
    ("x -p 1 --sql", "SELEC id FROM numbers", "SELEC"),
    ("x -p 1 --key cab -n 2", "numbers", "--key cab of 'x': its input 'numbers' has no such column; it has id"),
    ("x -p 1", "numbers.select('id', F.col('id').alias('ID'))", "stream 'x' gives two columns 'ID'"),
    (f"x {NO_TYPE} -p 1", "source", "BIGINTT"),
    (f"x {NO_TYPE} -p 1", "", "BIGINTT"),
    # Spark refuses these only when the query starts
    ("x -p 1", "spark.range(3).join(numbers, 'id', 'left')", "x.1 can't start on tm"),
    (f"even {NUMBERS} -p 1", "spark.range(3).join(source, 'id', 'left')", "even.1 can't start on tm"),
    (
        "even -p 1 --mode realtime",
        "numbers.mapInPandas(lambda parts: parts, 'id BIGINT')",
        "can't run in real-time mode",
    ),
)


def test_what_cannot_run_is_one_line_and_leaves_nothing(brief: Session, topic: str) -> None:
    session = brief
    cell(session, f"numbers {NUMBERS}".format(topic=topic), "source")
    cell(session, f"early {NUMBERS}".format(topic=topic), "source")
    cell(session, "later_on", "early")
    cell(session, "even -p 1", "numbers.where('id % 2 = 0')")
    cell(session, "odd -p 1", "numbers.where('id % 2 = 1')")
    before, ran = held(session), {i.id: i.run_id for i in session.runtime.instances.values()}
    for line, body, told in BAD:
        with pytest.raises(QodError) as caught:
            cell(session, line.format(topic=topic), body)
        assert told.format(topic=topic) in str(caught.value)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 500
        eventually(lambda: all(i.state is State.RUNNING for i in session.runtime.instances.values()), what="all runs")
        assert held(session) == before, line
        if "numbers" in body:  # `numbers` got one reader more, or another; else nothing was touched
            assert session.runtime.instances["odd.1"].run_id == ran["odd.1"], line
    produce(session, topic, ({"id": i} for i in range(100)))
    for name, rest in (("even", 0), ("odd", 1)):
        eventually(lambda name=name: written(session, name) >= 50, what=f"rows of {name}")  # type: ignore[misc]
        assert set(by_id(rows(session, name))) == set(range(rest, 100, 2))


def test_micro_batches_begin_as_far_apart_as_a_plan_says_and_no_row_is_lost(brief: Session, topic: str) -> None:
    session = brief
    cell(session, f"paced --topic {topic} --schema '{STEADY}' --starting earliest -p 1 --mode microbatch", "source")
    (instance,) = instances(session, "paced")
    manager = instance.task_manager
    assert manager is not None

    def lengths(pace_s: float) -> list[float]:
        """Seconds from the beginning of a batch to that of the next one, once the pace has shown."""
        heard(lambda: session.runtime.apply(Plan({}, {}, pace_s={manager.id: pace_s}), Dials({}, {})))
        known = {batch.batch_id for batch in instance.batches}
        late = eventually(
            lambda: found if len(found := [b for b in instance.batches if b.batch_id not in known]) > 6 else None,
            what=f"six batches {pace_s:g} s apart",
        )
        return [b.start - a.start for a, b in pairwise(late[2:])]

    with Steady(session, topic) as load:
        eventually(lambda: len(instance.batches) > 3, what="the first batches")
        session.controller.pause()
        at_once = lengths(0.0)
        apart = lengths(4.0)
        again = lengths(0.0)
        sent = load.stop()
    assert median(apart) > 3.0
    assert median(apart) > 2 * max(median(at_once), median(again))
    eventually(lambda: all_read(session, "paced", sent), what=f"{sent} rows in the books")
    assert written(session, "paced") == sent


@pytest.mark.parametrize(
    ("body", "more"), [("source.where('id >= 0')", "-n 1"), ("source.groupBy('zone').count()", "--mode microbatch")]
)
def test_partitions_that_are_added_to_a_topic_are_read_from_their_first_row(
    brief: Session, topic: str, body: str, more: str
) -> None:
    session = brief
    cell(session, f"grown --topic {topic} --schema 'id BIGINT, zone INT' --starting earliest -p 1 {more}", body)
    produce(session, topic, ({"id": i, "zone": 1} for i in range(50)))
    eventually(lambda: all_read(session, "grown", 50), what="the rows of the one partition")
    grow_topics(session.kafka, {topic: 3})
    produce(session, topic, ({"id": i, "zone": i % 3} for i in range(90)), 3)
    eventually(lambda: all_read(session, "grown", 140), what="the rows of the new ones")
    (one,) = instances(session, "grown")
    assert one.running is one.job
    assert one.job.feeds[0].partitions == (0, 1, 2)
    assert one.failures == 0
    books = count(session, "grown")
    assert (books.processed + books.unreported, books.dropped, books.waiting) == (140, 0, 0)
    session.stop("grown")
