"""Each sink on real Kafka and Spark: all rows, once, and readable afterwards by others."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from confluent_kafka import Consumer, TopicPartition

from qod_magics.application.streams.options import parse_stream_line
from qod_magics.errors import ApplicationError, QodError
from qod_magics.machine.releases import installed_spark, numbers
from qod_magics.results.slices import committed
from qod_magics.session.session import Session
from tests.live.applications import all_read, cell, count, instances, rows, rows_in
from tests.live.conftest import eventually, new_topic, produce
from tests.raising import breaks
from tests.texts import tells

LINE = "--topic {} --schema 'id BIGINT, name STRING' --starting earliest -p 1"


#: Of files that are given a time: a whole minute.
BEGAN_S = 1_767_225_600


def numbered(first: int, last: int) -> list[dict[str, Any]]:
    return [{"id": i, "name": f"é{i}"} for i in range(first, last)]


@pytest.mark.smoke
def test_a_kafka_topic_is_made_if_need_be_and_stays(brief: Session, topic: str) -> None:
    session, out = brief, f"{topic}-out"
    cell(session, f"copied {LINE.format(topic)} --sink kafka:{out}", "source")
    produce(session, topic, numbered(0, 200))
    eventually(lambda: rows_in(session, out) >= 200, what="rows in the topic")
    session.stop("copied")
    consumer = Consumer({**session.kafka.client_config(), "group.id": "reader"})
    try:
        consumer.assign([TopicPartition(out, 0, 0)])
        records: list[dict[str, Any]] = []
        eventually(lambda: records.extend(_values(consumer)) or len(records) >= 200, every_s=0.0)  # type: ignore[func-returns-value]
    finally:
        consumer.close()
    assert sorted(records, key=lambda row: row["id"]) == numbered(0, 200)


def _values(consumer: Consumer) -> list[dict[str, Any]]:
    return [json.loads(record.value() or b"") for record in consumer.consume(500, 0.5) if record.error() is None]


@pytest.mark.parametrize("parallelism", [1, 2])
def test_parquet_files_can_be_read_by_all_and_outlive_the_stream(
    brief: Session, tmp_path: Path, parallelism: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, where = brief, tmp_path / "out"
    topic = new_topic(session, partitions=2)
    monkeypatch.chdir(tmp_path)
    line = f"filed {LINE.format(topic)} --sink parquet:{'out' if parallelism == 1 else where} -n {parallelism}"
    assert tells(cell(session, line, "source").said, "micro-batch", f"parquet:{where}")
    produce(session, topic, numbered(0, 200), partitions=2)
    eventually(lambda: all_read(session, "filed", 200), what="the first rows")
    # another recipe starts its batches at 0 again: none of them may be taken for one that was written
    cell(session, line, "source.withColumn('name', F.upper('name'))")
    produce(session, topic, numbered(200, 400), partitions=2)
    eventually(lambda: all_read(session, "filed", 400), what="all rows")
    session.stop("filed")
    spark = session.runtime.workshop().spark
    expected = {i: f"é{i}" if i < 200 else f"É{i}" for i in range(400)}
    found = [row.asDict() for row in spark.read.parquet(str(where)).collect()]
    assert len(found) == 400
    assert {row["id"]: row["name"] for row in found} == expected
    assert len({row["run"] for row in found}) == 2 * parallelism
    frame = pd.read_parquet(where)
    assert dict(zip(frame["id"], frame["name"], strict=True)) == expected


def test_a_table_gets_each_row_wherever_its_query_runs(brief: Session, topic: str, tmp_path: Path) -> None:
    session, spark = brief, brief.runtime.workshop().spark
    spark.sql("CREATE SCHEMA taxi")
    spark.sql(f"CREATE TABLE taxi.fares (name STRING, id BIGINT, more INT) USING parquet LOCATION '{tmp_path}/fares'")
    spark.sql("CREATE TABLE managed (id BIGINT) USING parquet")
    line = f"filed {LINE.format(topic)} --sink"
    try:
        assert "at least once" in cell(session, f"{line} table:taxi.fares", "source").said
        produce(session, topic, numbered(0, 200))
        eventually(lambda: all_read(session, "filed", 200), what="the first rows")
        for sink, body, rule in (
            ("table:taxi.faers", "source", "exists"),
            ("iceberg:taxi.fares", "source", "format"),
            ("nope:/x", "source", "format"),
            ("table:managed", "source.select('id')", "external"),
            ("table:taxi.fares", "source.withColumn('x', source.id)", "columns"),
        ):
            with pytest.raises(ApplicationError, check=breaks(rule)):
                cell(session, f"{line} {sink}", body)
        (instance,) = instances(session, "filed")
        here = instance.task_manager
        session.move("filed.1", next(id for id, each in session.runtime.task_managers.items() if each is not here))
        eventually(lambda: instances(session, "filed")[0].task_manager is not here, what="the move")
        produce(session, topic, numbered(200, 400))
        eventually(lambda: all_read(session, "filed", 400), what="all rows")
        session.stop("filed")
        frame = pd.read_parquet(tmp_path / "fares")
        assert sorted(zip(frame["id"], frame["name"], strict=True)) == [(i, f"é{i}") for i in range(400)]
        assert frame["more"].isna().all()
        for name, sink, body in (
            ("unseen", "noop:", "source"),
            ("lines", f"text:{tmp_path}/lines", "source.select('name')"),
            ("marked", f"xml:{tmp_path}/marked", "source"),
        ):
            cell(session, f"{name} {LINE.format(topic)} --sink {sink}", body)
            eventually(lambda name=name: all_read(session, name, 400), what=sink)  # type: ignore[misc]
            session.stop(name)
        logged = f"unseen {LINE.format(topic)} --sink org.apache.spark.sql.execution.datasources.json.JsonFileFormat:"
        cell(session, f"{logged}{tmp_path}/logged", "source")
        eventually(lambda: all_read(session, "unseen", 400), what="a format with Spark's log")
        with pytest.raises(ApplicationError, check=breaks("own directory")):  # another recipe, whose batches begin at 0
            cell(session, f"{logged}{tmp_path}/logged", "source.select('id')")
        assert all_read(session, "unseen", 400), "it runs as before"
        session.stop("unseen")
        assert spark.read.json(f"{tmp_path}/logged").count() == 400
        assert spark.read.text(f"{tmp_path}/lines").count() == 400
        assert spark.read.option("rowTag", "ROW").schema("id BIGINT").xml(f"{tmp_path}/marked").count() == 400
    finally:
        session.stop_all()
        for each in list(session.runtime.task_managers.values()):
            each.spark.sql("DROP SCHEMA IF EXISTS taxi CASCADE")
            each.spark.sql("DROP TABLE IF EXISTS managed")


#: The newest Delta and Iceberg, by the Spark that they are made for: neither runs with Spark 4.3.
DELTA, ICEBERG = "io.delta:delta-spark_4.2_2.13:4.4.0", "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
SPARK = numbers(installed_spark())


@pytest.mark.skipif(SPARK not in ((4, 2), (4, 1)), reason="Delta is made for Spark 4.2, Iceberg for Spark 4.1")
@pytest.mark.parametrize(
    ("moves", "kills"), [pytest.param(2, 1, marks=pytest.mark.versions), pytest.param(10, 2, marks=pytest.mark.slow)]
)
def test_a_table_that_knows_its_batches_gets_each_row_once_through_moves_and_kills(
    tmp_path: Path, moves: int, kills: int
) -> None:
    if SPARK == (4, 2):
        conf = {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.databricks.delta.snapshotPartitions": "1",  # of 50 by default, each a task
        }
        package, create = (
            DELTA,
            [f"CREATE TABLE fares (id BIGINT, name STRING) USING delta LOCATION '{tmp_path}/fares'"],
        )
        sinks = {"one": f"delta:{tmp_path}/path", "two": "table:fares"}
        tables = {"one": f"delta.`{tmp_path}/path`", "two": f"delta.`{tmp_path}/fares`"}
    else:
        lake = "spark.sql.catalog.lake"
        conf = {lake: "org.apache.iceberg.spark.SparkCatalog", f"{lake}.type": "hadoop"}
        conf[f"{lake}.warehouse"] = str(tmp_path)
        conf[f"{lake}.cache-enabled"] = "false"  # or a table is shown as it was, for up to 30 s
        package = ICEBERG
        create = [f"CREATE TABLE lake.taxi.{name} (id BIGINT, name STRING) USING iceberg" for name in ("one", "two")]
        sinks = {"one": "iceberg:lake.taxi.one", "two": "table:lake.taxi.two"}
        tables = {"one": "lake.taxi.one", "two": "lake.taxi.two"}
    with Session.up(task_managers=2, cores=1, period_s=2.0, packages=[package], conf=conf) as session:
        topic = new_topic(session)
        for statement in create:
            session.runtime.workshop().spark.sql(statement)
        for name, sink in sinks.items():
            said = cell(session, f"{name} {LINE.format(topic)} --sink {sink} --trigger 1", "source").said
            assert "exactly once" in said
        sent = 0

        def came(rows: int) -> None:
            nonlocal sent
            produce(session, topic, numbered(sent, sent + rows))
            sent += rows

        def moved(name: str) -> None:
            here, managers = instances(session, name)[0].task_manager, session.runtime.task_managers.items()
            session.move(f"{name}.1", next(id for id, each in managers if each is not here))

        def all_there(name: str) -> bool:
            """Whether each row is entered in the books; one of a batch that is read again arrives again."""
            now = count(session, name)
            return now.waiting == 0 and now.arrived >= sent

        def check(name: str, *, killed: bool = False) -> None:
            """Each row is in the table once, as the row accounting says; only a kill leaves a batch unreported."""
            eventually(lambda: all_there(name), what=session.status)
            books = count(session, name)
            assert killed or books.unreported == 0
            assert books.processed + books.unreported == books.arrived <= sent + books.read_again
            found = session.runtime.workshop().spark.sql(f"SELECT id FROM {tables[name]}").collect()
            assert Counter(row.id for row in found) == Counter(range(sent))

        def check_again() -> None:
            """The reader of the table has each row once, but for those that it has counted as read again."""
            eventually(lambda: all_there("again"), what=session.status)
            books = count(session, "again")
            assert (books.arrived - books.read_again, books.dropped) == (sent, 0)
            found = Counter(row["id"] for row in rows(session, "again"))
            assert found.keys() == set(range(sent))
            assert found.total() - sent <= books.read_again

        for n in range(moves):
            came(50)
            for name in sinks if n < 2 else ("one",):
                moved(name)
            came(50)
            if n % 3 == 1:
                eventually(lambda: all_there("one"), what=session.status)
            if n == 1:
                check("two")
                session.stop("two")
                if SPARK == (4, 2):
                    cell(session, f"again --source {sinks['one']} --starting earliest -p 1", "source")
        if SPARK == (4, 2):
            check_again()
            came(50)
            moved("again")
            check_again()
        for _ in range(kills):
            came(200)
            place = instances(session, "one")[0].task_manager
            assert place is not None
            assert place.server is not None
            came(200)
            place.server.child.kill()
            came(100)
            session.add_task_manager()
            eventually(lambda: all_there("one"), what=session.status)
        check("one", killed=True)
        if SPARK == (4, 2):
            check_again()
        with pytest.raises(QodError):
            cell(session, f"other {LINE.format(topic)} --sink delta:{tmp_path}/o --sink-option mergeSchema=maybe")


def test_the_console_is_a_file_that_the_cell_and_show_name(brief: Session, topic: str) -> None:
    session = brief
    said = cell(session, f"shown {LINE.format(topic)} --sink console", "source.select('name')").said
    (path,) = re.findall(r"its rows are printed to (\S+) \(tm\d\)", said)
    produce(session, topic, numbered(77000, 77020))
    eventually(lambda: all_read(session, "shown", 20), what="the rows")
    eventually(lambda: "é77019" in Path(path).read_text("utf-8"), what="the last row on the console")
    with pytest.raises(ApplicationError, match=re.escape(path)):
        session.show("shown")


@pytest.mark.smoke
def test_a_function_gets_every_batch_and_may_look_at_it_twice(brief: Session, topic: str, tmp_path: Path) -> None:
    session, where = brief, tmp_path / "rows.jsonl"

    def note(batch: Any, number: int) -> None:
        found = batch.count()
        with open(where, "a", encoding="utf-8") as file:
            for row in batch.collect():
                file.write(json.dumps({**row.asDict(), "batch": number, "of": found}) + "\n")

    line = f"noted --topic {topic} --schema 'id BIGINT, name STRING' --starting earliest -p 1 --sink function:note"
    session.cell(parse_stream_line(line), "source.withColumn('even', source.id % 2 == 0)", {"note": note})
    (instance,) = instances(session, "noted")
    assert instance.mode == "micro-batch"
    assert "foreachBatch:note" in instance.mode_why
    for n in range(3):
        produce(session, topic, numbered(100 * n, 100 * n + 100))
        eventually(lambda n=n: all_read(session, "noted", 100 * n + 100), what="a batch")  # type: ignore[misc]
    lines = [json.loads(line) for line in where.read_text(encoding="utf-8").splitlines()]
    assert [row["id"] for row in sorted(lines, key=lambda row: row["id"])] == list(range(300))
    assert all(row["even"] == (row["id"] % 2 == 0) for row in lines)
    sizes = Counter(row["batch"] for row in lines)
    assert all(row["of"] == sizes[row["batch"]] for row in lines)
    books = count(session, "noted")
    assert (books.arrived, books.processed, books.dropped, books.unreported) == (300, 300, 0, 0)


def in_minutes(where: Path, minutes: dict[str, int]) -> None:
    """Let files look as if they had been written in minutes of the past: new ones in the first that has none."""
    following = len(set(minutes.values()))
    for path in where.rglob("part-*.parquet"):
        minute = minutes.setdefault(path.name, following)
        os.utime(path, (BEGAN_S + 60 * minute, BEGAN_S + 60 * minute))


def test_slices_of_files_are_kept_by_task_managers_and_never_stale(
    brief: Session, topic: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    session, where = brief, tmp_path / "kept"
    before = session.controller.policy.name
    request.addfinalizer(lambda: session.set_policy(before))
    line = f"kept --topic {topic} --schema 'id BIGINT, name STRING, at TIMESTAMP' --starting earliest -p 1"
    cell(session, f"{line} --sink parquet:{where}", "source")
    sent, minutes = 0, dict[str, int]()

    def send(count: int) -> None:
        nonlocal sent
        rows = [
            {"id": i, "name": f"n{i % 7}", "at": f"2026-01-01T00:{i // 100:02d}:00Z"} for i in range(sent, sent + count)
        ]
        produce(session, topic, rows)
        sent += count
        eventually(lambda: all_read(session, "kept", sent), what="the rows")
        eventually(lambda: len(committed(str(where))) > len(minutes), what="the files")
        in_minutes(where, minutes)

    def check(sql: str, slices: int | None = None, **args: object) -> None:
        files = session.spark.read.parquet(str(where)).drop("run")
        plain = session.spark.sql(sql.replace("kept", "{kept}"), args or None, kept=files)
        found = session.query(sql, args)
        assert [(each.name, each.dataType) for each in found.schema] == [(e.name, e.dataType) for e in plain.schema]
        assert sorted(map(repr, found.collect())) == sorted(map(repr, plain.collect())), sql
        split = session.status().split("last qod.query: ")[1].splitlines()[0]
        assert ("answered by one task manager" in split) == (slices is None), split
        assert slices is None or split.startswith(f"{slices} slice"), split

    for _ in range(4):
        send(100)
    session.set_policy("getafix")
    session.resume()
    for sql, slices in (
        ("SELECT name, count(*) AS n, sum(id), avg(id) AS mean, min(at), max(id) FROM kept GROUP BY name", 4),
        ("SELECT count(*) FROM kept WHERE at < '2026-01-01 00:01:00'", None),
        ("SELECT id, name FROM kept WHERE id % 3 = 0 ORDER BY id DESC LIMIT 7", 4),
        ("SELECT count(DISTINCT name) FROM kept", None),
        ("SELECT session_window(at, '5 minutes') AS w, count(*) FROM kept GROUP BY 1", None),
        (
            "SELECT window(at, '90 seconds') AS w, if(id > 9, upper(name), 'b') AS b, count(*) FROM kept GROUP BY 1, 2",
            4,
        ),
        ("SELECT extract(MINUTE FROM at) AS m, sum(CAST(id AS DECIMAL(9, 2))) FROM kept GROUP BY 1", 4),
    ):
        check(sql, 1 if "WHERE at" in sql else slices)
    for x in (1, 0.5, 2**40):
        check("SELECT id * :x AS y FROM kept", 4, x=x)
    hot = "SELECT name, max(id) FROM kept WHERE at >= TIMESTAMP '2026-01-01 00:03:00' GROUP BY name"
    for _ in range(4):
        check(hot, 1)
    eventually(lambda: sum(copies for copies, _ in session.slices.figures().values()) >= 4, what="copies")
    assert all(size > 0 for copies, size in session.slices.figures().values() if copies)
    assert "results in memory: " in session.status()
    send(100)  # of another minute
    check(hot, 2)
    for path in where.rglob("part-*.parquet"):
        if minutes[path.name] == 4:  # a slice that is in memory has another file now
            os.utime(path, (BEGAN_S, BEGAN_S))
    check("SELECT name, count(*) FROM kept GROUP BY name", 4)
    request.addfinalizer(lambda: session.spark.conf.unset("spark.sql.ansi.enabled"))
    session.spark.conf.set("spark.sql.ansi.enabled", "false")
    check("SELECT count(*) FROM kept WHERE at < TIMESTAMP 'today'")
    check("SELECT CAST(name AS INT) AS n, at < 'never' AS never FROM kept", 4)
    session.set_policy(before)
    eventually(lambda: not any(copies for copies, _ in session.slices.figures().values()), what="no copies")
    assert session.query(hot).count() == 7
