"""What is checked of tasks before they run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from qod_magics.application.recipes.python import PythonRecipe
from qod_magics.application.streams.rules import Rule
from qod_magics.application.streams.sink import KafkaTopic, Memory, Sink, TableFacts
from qod_magics.application.streams.stream import StreamDeclaration
from qod_magics.application.streams.tables import DataSource, Table
from qod_magics.application.streams.topic_input import TopicInput
from qod_magics.application.tasks import tasks
from qod_magics.errors import ApplicationError, KafkaError
from qod_magics.sources.registry import Sources
from qod_magics.sources.source import Context
from qod_magics.spark.plans.checking import Checked, losing_rows
from qod_magics.spark.plans.expressions import Label
from qod_magics.spark.plans.inspection import Inspection, _check_alone, acts_on_rows
from qod_magics.spark.plans.job import Job
from tests.application.frames import application, stream
from tests.kafka.fakes import FakeKafka
from tests.raising import breaks
from tests.spark.fakes import FakeRows

TOPICS = Sources(Context(FakeKafka({"t": 1, "clicks": 1, "orders": 1})))


def test_rows_are_dropped_on_their_way_to_tasks_none_of_whose_queries_needs_all() -> None:
    app = application(
        stream("clicks", topic="clicks"),
        stream("orders", topic="orders"),
        stream("some", "clicks", fuse=False),
        stream("both", "clicks", "orders", fuse=False),
        stream("every", "clicks", min_accuracy=1.0),
        stream("few", "some", min_accuracy=0.1),
        stream("fewer", "some", "both", min_accuracy=0.1),
    )
    assert losing_rows(tasks(app)) == {"orders", "some", "both", "few", "fewer"}


#: By task: a stream that is aggregated by zone, and a query that gives the zone another name.
GROUPED = {
    "trips": "zone: bigint, n: bigint\n~Aggregate [zone#3L], [zone#3L, count(1) AS n#4L]\n"
    "+- ~Generate inline(array(from_json(x, cast(value#7 as string)))), false, [zone#3L]",
    "counts": "place: bigint, twice: bigint\n~Project [zone#3L AS place#8L, (n#4L * 2) AS twice#9L]\n"
    "+- ~Generate inline(array(from_json(x, cast(value#7 as string)))), false, [zone#3L, n#4L]",
}


def checked_keys(sink: Sink) -> Any:
    """The keys of a query's rows, and of the stream that it reads, as they are known from its declaration."""
    app = application(stream("trips", topic="t", fuse=False), stream("counts", "trips", priority=1, sink=sink))
    specs = tasks(app)
    assert [spec.id for spec in specs] == ["trips", "counts"]

    @contextmanager
    def result(job: Any) -> Iterator[Any]:
        yield FakeRows(analyzed=GROUPED[job.task], schema=StructType([StructField("zone", LongType())]))

    workshop = SimpleNamespace(result=result)
    checked = Inspection(TOPICS).check(specs, workshop, {})  # type: ignore[arg-type]
    by_id = {spec.id: spec for spec in specs}
    for task, keys in checked.keys.items():
        assert Inspection(TOPICS).result_keys(task, by_id, checked, None) == keys  # type: ignore[arg-type]
    return checked.keys


def test_what_tells_rows_apart_is_known_before_a_query_writes_them_to_kafka() -> None:
    assert checked_keys(KafkaTopic("out")) == {"trips": ("zone",), "counts": ("place",)}
    assert checked_keys(Memory()) == {}


class Plans:
    """Builds tasks whose analyzed plans are known."""

    def __init__(self, plans: dict[str, str]) -> None:
        self.plans = plans

    @contextmanager
    def result(self, job: Job) -> Iterator[Any]:
        plan = self.plans[job.task]
        names = [item.partition(":")[0] for item in plan.partition("\n")[0].split(", ")]
        yield FakeRows(analyzed=plan, schema=StructType([StructField(name, LongType()) for name in names]))


def checked(plans: dict[str, str], *streams: StreamDeclaration) -> Checked:
    workshop: Any = Plans(plans)
    return Inspection(TOPICS).check(tasks(application(*streams)), workshop, {})


def reading(columns: str, operator: str) -> str:
    parsed = "from_json(StructField(a,LongType,true), cast(value#7 as string), Some(UTC))"
    source = f"~Generate inline(array({parsed})), false, [{columns}]\n      +- ~StreamingRelationV2 kafka, [value#7]"
    return f"~{operator}\n+- ~Project [{columns}]\n   +- {source}"


def test_a_task_calls_no_column_exact_of_a_stream_of_which_nothing_is_known() -> None:
    plans = {
        "clicks": f"user: bigint\n{reading('user#1L', 'Project [concat(user#1L, ), c) AS user#2L, x#3]')}",
        "some": f"user: bigint\n{reading('user#1L', 'Filter (user#1L > 3)')}",
        "few": f"user: bigint\n{reading('user#1L', 'Filter (user#1L > 4)')}",
    }
    streams = (
        stream("clicks", topic="clicks", fuse=False),
        stream("some", "clicks", fuse=False),
        stream("few", "some", min_accuracy=0.1),
    )
    assert checked(plans, *streams).labels == {}
    plans["clicks"] = plans["some"]
    assert [*checked(plans, *streams).labels] == ["clicks", "some", "few"]


def test_a_column_of_several_inputs_is_no_better_than_the_worst() -> None:
    counted = "Aggregate [user#1L], [user#1L, count(1) AS n#2L]"
    plans = {
        "clicks": f"user: bigint, n: bigint\n{reading('user#1L', counted)}",
        "orders": f"user: bigint, n: bigint\n{reading('user#1L, n#2L', 'Filter (n#2L > 3)')}",
        "both": f"user: bigint, n: bigint\n{reading('user#1L, n#2L', 'Filter (n#2L > 3)')}",
    }
    streams = (stream("clicks", topic="clicks", fuse=False), stream("orders", topic="orders", fuse=False))
    found = checked(plans, *streams, stream("both", "clicks", "orders", min_accuracy=0.1))
    assert [column.label for column in found.labels["both"].columns] == [Label.EXACT, Label.KEPT]


@pytest.mark.parametrize(
    ("settings", "acts"),
    [
        ({}, False),
        ({"expect": (Rule("n > 0"),)}, True),
        ({"malformed": "topic:r"}, True),
        ({"malformed": "keep"}, False),
    ],
)
def test_what_is_done_once_for_each_row_is_left_to_one_task(settings: dict[str, Any], acts: bool) -> None:
    source = TopicInput("t", "n INT", malformed=settings.get("malformed"))
    first = StreamDeclaration("a", PythonRecipe("source"), source, expect=settings.get("expect", ()))
    assert acts_on_rows([first, stream("b", "a")]) is acts


class TwoManagers(Plans):
    """Builds tasks on a task manager whose own catalog has the table `d.t`, or on one that lacks it."""

    def __init__(self, has_it: bool) -> None:
        super().__init__({"q": "id: bigint", "other": "id: bigint", "again": "id: bigint"})
        self.asked: list[str] = []
        self.spark = SimpleNamespace(
            sql=self._sql,
            table=self._table,
            conf=SimpleNamespace(get=lambda name, default: default),
        )
        self.has_it = has_it

    def _table(self, name: str) -> Any:
        if not self.has_it:
            raise ValueError(f"[TABLE_OR_VIEW_NOT_FOUND] {name}")
        return SimpleNamespace(schema=StructType([StructField("id", LongType())]))

    def _sql(self, text: str) -> Any:
        self.asked.append(text)
        self.has_it = self.has_it or text.startswith("CREATE TABLE")
        details = {"Catalog": "spark_catalog", "Type": "EXTERNAL", "Location": "file:/x", "Provider": "parquet"}
        shown = [("CREATE TABLE d.t (id BIGINT)",)]
        return SimpleNamespace(collect=lambda: shown if text.startswith("SHOW") else [*details.items()])


def test_a_table_is_known_where_only_a_lost_task_manager_had_it() -> None:
    """Its query runs on, is declared again and goes, and other streams come."""
    found, table = Inspection(TOPICS), Table("d.t")
    q = stream("q", topic="t", priority=1, sink=table)
    other = stream("other", topic="t", priority=1, sink=Memory())
    first, second, third = TwoManagers(True), TwoManagers(False), TwoManagers(False)
    told = found.check(tasks(application(q)), first, {}).tables["q"]  # type: ignore[arg-type]
    assert found.check(tasks(application(q, other)), second, {}).tables == {"q": told}  # type: ignore[arg-type]
    edited = replace(q, recipe=PythonRecipe("source.limit(1)"))
    assert found.check(tasks(application(edited)), third, {}).tables == {"q": told}  # type: ignore[arg-type]
    assert [text for text in first.asked if text.startswith("CREATE")] == []
    assert second.has_it
    assert third.has_it
    stopped = tasks(application(other))
    found.check(stopped, TwoManagers(False), {})  # type: ignore[arg-type]
    with pytest.raises(ApplicationError, check=breaks("exists", name="d.t")):  # nothing is known of it any more
        found.check(tasks(application(q)), TwoManagers(False), {})  # type: ignore[arg-type]


def test_one_instance_of_one_query_inserts_into_a_table() -> None:
    (spec,) = tasks(application(stream("q", topic="t", sink=Table("fares"), parallelism=2)))
    table = TableFacts("parquet", (), "file:/x", by_insert=True)
    with pytest.raises(ApplicationError, check=breaks("one writer", option="--parallelism")):
        _check_alone(spec, table, {})
    _check_alone(spec, replace(table, by_insert=False), {"p": table})
    (alone,) = tasks(application(stream("q", topic="t", sink=Table("fares"))))
    _check_alone(alone, table, {"p": replace(table, location="file:/y")})
    with pytest.raises(ApplicationError, check=breaks("one writer", option="--sink")):
        _check_alone(alone, table, {"p": table})


def test_one_instance_of_one_query_writes_where_batches_are_logged_by_number() -> None:
    store = DataSource("org.acme.Store", "/data/out")

    def check(*declared: StreamDeclaration) -> None:
        workshop: Any = SimpleNamespace(spark=Formats(), result=Plans({"q": "id: bigint", "p": "id: bigint"}).result)
        Inspection(Sources(Context(FakeKafka({"t": 2})))).check(tasks(application(*declared)), workshop, {})

    one = stream("q", topic="t", priority=1, sink=store)
    with pytest.raises(ApplicationError, check=breaks("one writer", option="--parallelism", name="q")):
        check(replace(one, parallelism=2))
    with pytest.raises(ApplicationError, check=breaks("one writer", option="--sink")):
        check(one, stream("p", topic="t", priority=1, sink=replace(store, place="file:///data/out/")))
    check(one, stream("p", topic="t", priority=1, sink=replace(store, place="/data/other")))
    check(replace(one, sink=replace(store, place=""), parallelism=2))


class Formats:
    """A session that has each format."""

    schema = None

    @property
    def read(self) -> Formats:
        return self

    def format(self, name: str) -> Formats:
        return self

    def load(self) -> Formats:
        return self


def test_a_deleted_topic_of_a_pattern_is_not_counted_and_refuses_no_cell() -> None:
    def check(kafka: FakeKafka, pattern: str | None, parallelism: int) -> None:
        topic = TopicInput("trips-1,trips-2", "id BIGINT", pattern=pattern)
        declared = StreamDeclaration("q", PythonRecipe("source"), topic, priority=1, parallelism=parallelism)
        plans = Plans({"q": "id: bigint"})
        checks: Any = SimpleNamespace(result=plans.result, check_schema=lambda *_: None, check_format=lambda *_: None)
        Inspection(Sources(Context(kafka))).check(tasks(application(declared)), checks, {})

    left = FakeKafka({"trips-2": 2})
    check(left, "trips-.*", 2)
    check(FakeKafka({}), "trips-.*", 2)
    with pytest.raises(ApplicationError, check=breaks("partitions")):
        check(left, "trips-.*", 3)
    with pytest.raises(KafkaError):
        check(left, None, 1)
