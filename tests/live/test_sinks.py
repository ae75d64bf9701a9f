"""Each sink on real Kafka and Spark: all rows, once, and readable afterwards by others."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from confluent_kafka import Consumer, TopicPartition

from qod_magics.application.streams.options import parse_stream_line
from qod_magics.errors import ApplicationError
from qod_magics.session.session import Session
from tests.live.applications import all_read, cell, count, instances, rows_in
from tests.live.conftest import eventually, new_topic, produce

LINE = "--topic {} --schema 'id BIGINT, name STRING' --starting earliest -p 1"


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
    assert f"micro-batch mode (real-time mode does not write parquet:{where}" in cell(session, line, "source").said
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
    assert instance.mode_why == "real-time mode does not write foreachBatch:note"
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
