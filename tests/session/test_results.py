"""Which rows of a topic are a query's newest, without a broker."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import ArrayType, BinaryType, LongType, StringType, StructField, StructType

from qod_magics.application.merging import Merge
from qod_magics.application.streams.sink import KafkaTopic, Memory, Sink
from qod_magics.application.tasks import tasks
from qod_magics.kafka.reading import News, Record
from qod_magics.lifecycle.events import State
from qod_magics.session.results import QueryResults
from qod_magics.spark.cluster.books import Incomplete
from qod_magics.spark.cluster.deployment import Deployment
from qod_magics.spark.plans.checking import Checked
from tests.application.frames import application, stream

COUNTS = StructType([StructField("zone", LongType()), StructField("trips", LongType())])


class Tails:
    """In the place of tails: what is read of the topic, one thing after the other, and what they were made with."""

    def __init__(self) -> None:
        self.news: list[News] = []
        self.made: list[tuple[Any, ...]] = []

    def open(self, kafka: Any, *given: Any) -> Any:
        self.made.append(given)
        return self

    def read(self) -> News:
        return self.news.pop(0) if self.news else News(())

    def close(self) -> None:
        pass


@pytest.fixture
def tails() -> Tails:
    return Tails()


def session_of(
    sink: Sink, parallelism: int = 1, schema: StructType = COUNTS, whole: bool = False, lend: bool = False
) -> Any:
    """In the place of a session in which a query counts by zone."""
    more: dict[str, Any] = {"key": "zone", "lend": True} if lend else {}
    app = application(
        stream("trips", topic="trips", parallelism=parallelism),
        stream("counts", "trips", priority=1, sink=sink, parallelism=parallelism, **more),
    )
    specs = {spec.id: spec for spec in tasks(app)}
    deployment = Deployment(None, "s", specs)  # type: ignore[arg-type]
    deployment.checked = Checked(
        {"counts": schema},
        keys={"counts": (schema.names[0],)},
        whole={"counts": "ORDER BY"} if whole else {},
        merges={"counts": {"trips": Merge("sum")}} if lend else {},
    )
    deployment.results, deployment.sinks = {"counts": "qod.s.counts.out.1"}, {"counts": {0: 3, 1: 0, 2: 5}}
    runtime = SimpleNamespace(deployment=deployment, workshop=lambda: None, instances={}, incomplete=Incomplete())
    runtime.kafka = None
    return SimpleNamespace(alive=True, application=app, runtime=runtime, kafka=None, last=None)


def count(partition: int, zone: int, trips: int, at_ms: int, **key: int) -> Record:
    written = json.dumps({"zone": zone, **key}).encode() if key else None
    return Record(partition, json.dumps({"zone": zone, "trips": trips}).encode(), written, at_ms)


def shown(results: QueryResults) -> list[dict[str, Any]]:
    return [dict(row) for row in results.read().rows.values()]


def test_of_a_group_in_several_partitions_the_row_written_last_is_shown(tails: Tails) -> None:
    results = QueryResults(session_of(KafkaTopic("out")), "counts", tails.open)
    tails.news = [
        News((count(0, 1, 9, 30), count(1, 1, 3, 10), count(1, 2, 4, 10), count(2, 1, 6, 20))),
        News((count(1, 2, 8, 50), count(2, 2, 7, 40))),
    ]
    assert shown(results) == [{"zone": 2, "trips": 4}, {"zone": 1, "trips": 9}]
    assert shown(results) == [{"zone": 1, "trips": 9}, {"zone": 2, "trips": 8}]


def test_a_kafka_topic_is_read_from_where_it_was_when_the_query_was_declared(tails: Tails) -> None:
    session = session_of(KafkaTopic("out"))
    results = QueryResults(session, "counts", tails.open)
    tails.news = [News((count(0, 1, 9, 30),))]
    assert len(shown(results)) == 1
    assert tails.made[-1][0] == "out"
    assert tails.made[-1][2] == {0: 3, 1: 0, 2: 5}
    session.runtime.deployment.sinks["counts"] = {0: 4, 1: 0, 2: 5}
    assert shown(results) == [], "declared anew, it begins anew"
    assert tails.made[-1][2] == {0: 4, 1: 0, 2: 5}


def test_rows_that_each_instance_has_of_a_group_are_told_apart_by_their_keys(tails: Tails) -> None:
    results = QueryResults(session_of(KafkaTopic("out"), parallelism=2), "counts", tails.open)
    tails.news = [News((count(0, 1, 4, 10, _instance=1), count(0, 1, 5, 20, _instance=2)))]
    assert shown(results) == [{"zone": 1, "trips": 4, "_instance": 1}, {"zone": 1, "trips": 5, "_instance": 2}]
    others = (Record(0, b'{"zone": 3}', b"no json", 30), Record(0, b'{"zone": 4}', b"[]", 30))
    tails.news = [News(others)]
    result = results.read()
    assert [row for row in result.rows.values() if row["zone"] in (3, 4)] == [{"zone": 4, "_instance": None}]
    assert result.unread == 1


def test_those_of_a_memory_sink_by_their_partitions(tails: Tails) -> None:
    results = QueryResults(session_of(Memory(), parallelism=2), "counts", tails.open)
    tails.news = [News((count(0, 1, 4, 10), count(1, 1, 5, 20)))]
    assert shown(results) == [{"zone": 1, "trips": 4, "_instance": 1}, {"zone": 1, "trips": 5, "_instance": 2}]
    assert tails.made[-1][2] == {}


def test_parts_of_a_group_that_instances_have_counted_for_one_another_are_merged(tails: Tails) -> None:
    session = session_of(Memory(), parallelism=2, lend=True)
    results = QueryResults(session, "counts", tails.open)
    tails.news = [News((count(0, 1, 4, 10), count(1, 1, 5, 20), count(1, 2, 1, 30))), News((count(0, 1, 6, 40),))]
    result = results.read()
    assert [dict(row) for row in result.rows.values()] == [{"zone": 1, "trips": 9}, {"zone": 2, "trips": 1}]
    assert (result.keys, [column.name for column in result.columns]) == (("zone",), ["zone", "trips"])
    assert shown(results) == [{"zone": 2, "trips": 1}, {"zone": 1, "trips": 11}]


def test_records_of_the_users_are_read_as_they_are(tails: Tails) -> None:
    headers = ArrayType(StructType().add("key", StringType()).add("value", BinaryType()))
    records = StructType().add("key", "string").add("value", "binary").add("headers", headers)
    results = QueryResults(session_of(KafkaTopic("out"), schema=records), "counts", tails.open)
    news = (Record(0, b"no json", b"a", 10), Record(1, b"\xff", b"b", 20), Record(1, b"newer", b"a", 30))
    tails.news = [News(news)]
    assert shown(results) == [{"key": "b", "value": "\\xff"}, {"key": "a", "value": "newer"}]
    apart = QueryResults(session_of(KafkaTopic("out"), 2, schema=records), "counts", tails.open)
    tails.news = [News(news)]
    assert len(shown(apart)) == 3, "a record does not tell which instance wrote it"


def placed(batch: int, number: int, zone: int) -> Record:
    headers = {"qod.batch": str(batch).encode(), "qod.run": b"a", "qod.row": str(number).encode()}
    return Record(0, json.dumps({"zone": zone, "trips": 1}).encode(), None, batch, headers)


@pytest.mark.parametrize("sink", [Memory(), KafkaTopic("out")])
def test_of_a_whole_result_only_the_newest_batch_is_shown(tails: Tails, sink: Sink) -> None:
    session = session_of(sink, whole=True)
    results = QueryResults(session, "counts", tails.open)
    tails.news = [News((placed(10, 0, 5), placed(10, 1, 4), placed(20, 0, 4), placed(20, 1, 3)), skipped=7)]
    assert [row["zone"] for row in shown(results)] == [4, 3]
    tails.news = [News((placed(20, 0, 4), placed(20, 1, 3), placed(30, 0, 2), Record(0, b"{}", None, 30)))]
    result = results.read()
    assert [row["zone"] for row in result.rows.values()] == [2]
    assert (result.whole, result.unread, result.keys) == (True, 1, ("zone",))
    instances = {
        "counts.1": SimpleNamespace(job=SimpleNamespace(task="counts"), wrote_nothing_at=0.029, state=State.RUNNING)
    }
    session.runtime.instances = instances
    assert len(shown(results)) == 1
    instances["counts.1"].wrote_nothing_at = 0.031
    assert shown(results) == [], "a later batch has no row"
