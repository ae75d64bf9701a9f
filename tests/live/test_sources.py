"""Sources other than topics: their rows are shed and counted, and go on elsewhere after a move and a failure."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet
from pyspark.sql import functions as F

from qod_magics.core.runtime import Count
from qod_magics.session.session import Session
from qod_magics.spark.queries.instance import Instance
from tests.live.applications import all_read, cell, count, instances, rows, turn
from tests.live.conftest import eventually, produce

ZONES = 5


def put(directory: Path, name: str, ids: range) -> None:
    """Have a file with these rows appear, of the format that its name ends with."""
    part = directory / f".{name}"
    if name.endswith(".parquet"):
        table = pa.table({"id": list(ids), "zone": [i % ZONES for i in ids], "more": [str(i) for i in ids]})
        parquet.write_table(table, part)
    elif name.endswith(".csv"):
        part.write_text("".join(f"{line}\n" for line in ["id,zone", *(f"{i},{i % ZONES}" for i in ids), "x,y"]))
    else:
        part.write_text("".join(f"{json.dumps({'id': i, 'zone': i % ZONES})}\n" for i in ids))
    os.rename(part, directory / name)


def moved(session: Session, instance: Instance) -> None:
    """Move it to the other of two task managers."""
    assert instance.task_manager is not None
    session.move(instance.id, {"tm1": "tm2", "tm2": "tm1"}[instance.task_manager.id])


def test_files_are_shed_counted_and_read_on_elsewhere(recommending: Session, tmp_path: Path) -> None:
    qod = recommending
    put(tmp_path, "a.json", range(1_000))
    put(tmp_path, "b.json", range(1_000, 2_000))
    cell(
        qod,
        f'counts --source json:{tmp_path} --schema "id LONG, zone INT" --starting earliest -p 1 -a 0.1',
        "source.groupBy('zone').agg(F.count('*').alias('n'), F.sum('_weight').alias('w'))",
        F=F,
    )
    eventually(lambda: all_read(qod, "counts", 2_000), what=lambda: str(count(qod, "counts")))
    assert count(qod, "counts") == Count(2_000, 2_000)
    turn(qod, {(None, "counts"): 0.25})
    put(tmp_path, "c.json", range(2_000, 10_000))
    eventually(lambda: all_read(qod, "counts", 10_000), what=lambda: str(count(qod, "counts")))
    shed = count(qod, "counts")
    assert 1_700 < shed.processed - 2_000 < 2_300
    (instance,) = instances(qod, "counts")
    moved(qod, instance)
    put(tmp_path, "d.json", range(10_000, 14_000))
    eventually(lambda: all_read(qod, "counts", 14_000), what=lambda: str(count(qod, "counts")))
    assert instance.query is not None
    instance.query.stop()  # as a query that fails
    put(tmp_path, "e.json", range(14_000, 15_000))
    eventually(lambda: all_read(qod, "counts", 15_000), what=lambda: str(count(qod, "counts")))
    books = count(qod, "counts")
    assert books.unreported == 0
    assert sum(row["n"] for row in newest(qod, "counts")) == books.processed
    assert 0.9 * 15_000 < sum(row["w"] for row in newest(qod, "counts")) < 1.1 * 15_000


def test_other_kinds_are_read_and_counted(recommending: Session, tmp_path: Path) -> None:
    qod, body = recommending, "source.groupBy('zone').agg(F.count('*').alias('n'))"
    put(tmp_path, "a.csv", range(100))
    put(tmp_path, "a.parquet", range(100))
    schema = '--schema "id LONG, zone INT"'
    cell(qod, f"lines --source csv:{tmp_path}/*.csv {schema} --starting earliest --sink memory", body, F=F)
    cell(qod, f"columns --source parquet:{tmp_path}/*.parquet --starting earliest --sink memory", body, F=F)
    cell(
        qod,
        "made --source rate:500 --sink memory",
        "source.select(F.expr('value % 5 AS zone')).groupBy('zone').count()",
        F=F,
    )
    eventually(lambda: all_read(qod, "lines", 102), what=lambda: str(count(qod, "lines")))
    assert count(qod, "lines") == Count(102, 102, malformed=1)  # the names of its columns are a line, too
    eventually(lambda: all_read(qod, "columns", 100), what=lambda: str(count(qod, "columns")))
    for name in ("lines", "columns"):
        eventually(lambda name=name: sum(row["n"] for row in newest(qod, name)) == 100)  # type: ignore[misc]
    eventually(lambda: count(qod, "made").processed >= 1_000, what=lambda: str(count(qod, "made")))
    turn(qod, {(None, "made"): 0.0})
    eventually(lambda: count(qod, "made").dropped >= 1_000, what=lambda: str(count(qod, "made")))
    books = count(qod, "made")
    assert books.unreported == 0
    assert books.arrived == books.processed + books.dropped + books.waiting
    assert books.waiting < 500 * 20


def test_a_table_beside_a_stream_is_read_again_as_often_as_asked_also_after_a_move(
    brief: Session, topic: str, tmp_path: Path
) -> None:
    """Spark lists the files of a table when a query starts: without being asked for, those that come later are not
    read."""
    qod, where = brief, tmp_path / "zones"
    where.mkdir()
    sent = 0

    def named(zone: int) -> None:
        parquet.write_table(pa.table({"zone": [zone], "name": [f"n{zone}"]}), where / f"{zone}.parquet")

    def send(zone: int) -> None:
        nonlocal sent
        produce(qod, topic, [{"zone": zone}])
        sent += 1

    def joined(name: str) -> set[tuple[int, str | None]]:
        return {(row["zone"], row["name"]) for row in rows(qod, name)}

    def reads(zone: int) -> None:
        """Send rows of a zone until both queries that are to read its name have it."""

        def both() -> bool:
            send(zone)
            return all((zone, f"n{zone}") in joined(name) for name in ("python", "view"))

        eventually(both, every_s=1.0, what=lambda: f"{qod.status()}\n{joined('python')} {joined('view')}")

    named(0)
    qod.spark.read.parquet(str(where)).createOrReplaceTempView("zone_names")
    line = f"{{}} --topic {topic} --schema 'zone INT' --starting earliest -p 1"
    body = f"source.join(spark.read.parquet('{where}'), 'zone', 'left')"
    cell(qod, line.format("once"), body)
    cell(qod, f"{line.format('python')} --refresh 5s", body)
    cell(
        qod,
        f"{line.format('view')} --refresh 5s",
        "SELECT source.zone, name FROM source LEFT JOIN zone_names ON source.zone = zone_names.zone",
    )
    reads(0)
    named(1)
    reads(1)
    for name in ("python", "view"):
        (instance,) = instances(qod, name)
        moved(qod, instance)
    named(2)
    reads(2)
    eventually(lambda: all(all_read(qod, name, sent) for name in ("once", "python", "view")), what=qod.status)
    for name in ("once", "python", "view"):  # a move may end a micro-batch that has read rows
        assert replace(count(qod, name), read_again=0) == Count(sent, sent)
    assert joined("once") == {(0, "n0"), (1, None), (2, None)}
    assert [instances(qod, name)[0].mode for name in ("once", "view")] == ["real-time", "micro-batch"]
    eventually(lambda: "restarts for its tables every 5 s" in qod.status(), what=qod.status)


def newest(session: Session, name: str) -> list[dict[str, int]]:
    """The newest row of each zone."""
    found: dict[int, dict[str, int]] = {}
    for row in rows(session, name):
        found[row["zone"]] = max(row, found.get(row["zone"], row), key=lambda each: each["n"])
    return list(found.values())
