"""When a batch over past rows is planned again, and where it holds itself to a share of a core."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from qod_magics.errors import ApplicationError
from qod_magics.formats import schema_registry
from qod_magics.formats.avro import Avro
from qod_magics.sources.registry import Sources
from qod_magics.sources.source import Context
from qod_magics.spark.plans import batch
from qod_magics.spark.plans.batch import PLANS, Counts, Reading, hold_sql, pace_sql, planned, records_of
from qod_magics.spark.plans.dial import DialBoard, DialReading
from qod_magics.spark.plans.job import Feed
from qod_magics.spark.plans.pipeline import Workshop
from tests.formats.registry_server import Registry, served
from tests.kafka.fakes import FakeKafka

KEY = "qod.s.exact"
AVRO = {"type": "record", "name": "T", "fields": [{"name": "a", "type": "int"}]}


def feed(registry: Registry) -> Feed:
    form = Avro(json.dumps(AVRO), registry.url, "t-value")
    return Feed("q", ("q",), "t", (0,), {0: 0}, "a INT", False, form)


def test_a_batch_is_planned_again_for_each_schema_that_its_plan_does_not_know() -> None:
    with served() as registry:
        registry.register("t-value", AVRO)
        older = [registry.register(None, AVRO) for _ in range(3)]
        known = schema_registry.written(registry.url, "t-value")
        plans: list[list[int]] = []

        def attempt() -> str:
            known.look()  # as each plan does
            plans.append(list(known.known))
            if missing := [id for id in older if id not in known.known]:
                raise RuntimeError(f"[USER_RAISED_EXCEPTION] no plan for the Avro schema {missing[0]} of t-value")
            return "rows"

        assert planned(attempt, [feed(registry)]) == "rows"
        assert [len(each) for each in plans] == [1, 2, 3, 4]


def test_a_batch_that_always_fails_is_planned_so_often_only() -> None:
    with served() as registry:
        tries = []

        def attempt() -> None:
            tries.append(1)
            raise RuntimeError("[USER_RAISED_EXCEPTION] no plan for the Avro schema 7 of t-value")

        with pytest.raises(RuntimeError):
            planned(attempt, [feed(registry)])
        assert len(tries) == PLANS


def test_another_failure_of_a_batch_is_raised_at_once() -> None:
    tries = []

    def attempt() -> None:
        tries.append(1)
        raise ApplicationError("other")

    with served() as registry, pytest.raises(ApplicationError):
        planned(attempt, [feed(registry)])
    assert len(tries) == 1


class Records:
    """The reader of a topic and the rows that it reads, with the conditions on them."""

    def __init__(self) -> None:
        self.conditions: list[str] = []
        self.given: dict[str, str] = {}

    def where(self, condition: str) -> Records:
        self.conditions.append(condition)
        return self

    def load(self) -> Records:
        return self

    def format(self, *_: Any, **__: Any) -> Records:
        return self

    def options(self, **given: str) -> Records:
        self.given |= given
        return self

    option = coalesce = observe = withColumn = format


class Cluster(FakeKafka):
    """A cluster at this address."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        self.bootstrap = bootstrap

    def spark_options(self) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.bootstrap}


@pytest.mark.parametrize(
    ("two", "topic", "of"),
    [(True, "trips", "user"), (True, "qod.s.trips.1", "session"), (False, "trips", "session")],
)
def test_a_batch_reads_the_cluster_that_has_its_topic(
    monkeypatch: pytest.MonkeyPatch, two: bool, topic: str, of: str
) -> None:
    functions = SimpleNamespace(lit=lambda value: value, count=lambda _: SimpleNamespace(alias=lambda name: name))
    monkeypatch.setattr(batch, "F", functions)
    own, records = Cluster("session"), Records()
    sources = Sources(Context(own, users=Cluster("user") if two else None, session="s"))
    spark: Any = SimpleNamespace(read=records)
    workshop = Workshop(spark, DialBoard("s"), DialReading.TOPIC, {}, own.spark_options(), sources=sources)
    feed = Feed("trips", ("trips",), topic, (0,), {0: 0}, None, stream=False)
    records_of(workshop, Reading(feed, {0: 9}), 1, 1.0, KEY, Counts())
    assert records.given["kafka.bootstrap.servers"] == of


def conditions(
    monkeypatch: pytest.MonkeyPatch, reading: DialReading, share: float, own: bool = False, python: bool = False
) -> list[str]:
    functions = SimpleNamespace(lit=lambda value: value, count=lambda _: SimpleNamespace(alias=lambda name: name))
    monkeypatch.setattr(batch, "F", functions)
    records = Records()
    spark: Any = SimpleNamespace(read=records)
    feed = Feed("trips", ("trips",), "trips", (0,), {0: 0}, None, stream=False)
    workshop = Workshop(spark, DialBoard("s"), reading, {}, {}, sheds_on_read=own)
    records_of(workshop, Reading(feed, {0: 9}), 1, share, KEY, Counts(), python)
    return records.conditions


@pytest.mark.parametrize("reading", list(DialReading))
def test_a_batch_sleeps_where_sql_may_call_methods_of_java_and_nowhere_else(
    monkeypatch: pytest.MonkeyPatch, reading: DialReading
) -> None:
    paced = [pace_sql(f"{KEY}.1", 0.25)] if reading.reflects else []
    assert conditions(monkeypatch, reading, 0.25) == paced
    assert conditions(monkeypatch, reading, 1.0) == []


def test_with_our_jar_the_cpu_time_of_a_batch_counts_unless_it_runs_python(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = next(each for each in DialReading if each.reflects)
    for python in (False, True):
        assert conditions(monkeypatch, reading, 0.25, own=True, python=python) == [hold_sql(0.25, passed=python)]
