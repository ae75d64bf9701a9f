"""What is checked of tasks before they run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from qod_magics.application.streams.sink import KafkaTopic, Memory, Sink
from qod_magics.application.tasks.task import tasks
from qod_magics.spark.plans import inspection
from qod_magics.spark.plans.inspection import Inspection, losing_rows
from tests.application.frames import application, stream


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


def checked_keys(monkeypatch: pytest.MonkeyPatch, sink: Sink) -> Any:
    """The keys of a query's rows, and of the stream that it reads, as they are known from its declaration."""
    app = application(stream("trips", topic="t", fuse=False), stream("counts", "trips", priority=1, sink=sink))
    specs = tasks(app)
    assert [spec.id for spec in specs] == ["trips", "counts"]

    @contextmanager
    def result(job: Any) -> Iterator[Any]:
        yield SimpleNamespace(schema=StructType([StructField("zone", LongType())]), task=job.task)

    monkeypatch.setattr(inspection, "partitions", lambda *_: 1)
    monkeypatch.setattr(inspection, "analyzed_plan_of", lambda rows: rows.task)
    monkeypatch.setattr(inspection, "key_columns", lambda task, inputs: (*(inputs or ()), task))
    workshop = SimpleNamespace(result=result)
    checked = Inspection(None).check(specs, workshop, {})  # type: ignore[arg-type]
    by_id = {spec.id: spec for spec in specs}
    for task, keys in checked.keys.items():
        assert Inspection(None).result_keys(task, by_id, checked, None) == keys  # type: ignore[arg-type]
    return checked.keys


def test_what_tells_rows_apart_is_known_before_a_query_writes_them_to_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    assert checked_keys(monkeypatch, KafkaTopic("out")) == {"trips": ("trips",), "counts": ("trips", "counts")}
    assert checked_keys(monkeypatch, Memory()) == {}
