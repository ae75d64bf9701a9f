"""Dials in a topic: what is written, what is forgotten, and when a task manager reads them there."""

from __future__ import annotations

import json
from concurrent.futures import Future
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from qod_magics.errors import TaskManagerError
from qod_magics.spark.plans.dial import PARTS, DialReading
from qod_magics.spark.servers import dial_topic
from qod_magics.spark.servers.dial_topic import KEPT, DialTopic, read_from_topic
from tests.kafka.fakes import FakeKafka
from tests.raising import breaks
from tests.spark.fakes import BOARD, Home, Spark

NAME = "qod.s.tm1.dials"


class Broker(FakeKafka):
    """Acknowledges records, unless it is `silent`, and deletes those that it is asked to."""

    silent = False

    def __init__(self) -> None:
        super().__init__()
        self.records: list[dict[str, int]] = []
        self.deleted_before: list[int] = []
        self._told: Any = None

    def producer(self, config: Any) -> Any:
        return self

    def admin(self) -> Any:
        return self

    def produce(self, topic: str, value: str, *, partition: int, on_delivery: Any) -> None:
        self.records.append(json.loads(value))
        self._told = on_delivery

    def flush(self, timeout_s: float) -> int:
        if not self.silent:
            self._told(None, SimpleNamespace(offset=lambda: len(self.records) - 1))
        return int(self.silent)

    def delete_records(self, places: Any, **_: float) -> dict[Any, Future[None]]:
        (place,) = places
        self.deleted_before.append(place.offset)
        done: Future[None] = Future()
        done.set_result(None)
        return {place: done}


class Restricted(Spark):
    """A session in which `reflect` is refused; the topic's view shows this value."""

    def __init__(self, read: float | None = None) -> None:
        super().__init__()
        self.shows, self.views = read, list[str]()
        self.read = self

    def format(self, kind: str) -> Restricted:
        return self

    def options(self, **options: str) -> Restricted:
        return self

    def load(self) -> Restricted:
        return self

    def createOrReplaceTempView(self, name: str) -> None:
        self.views.append(name)

    def sql(self, text: str) -> Restricted:
        if "reflect(" in text or self.shows is None:
            raise RuntimeError("not allowed here")
        return self

    def collect(self) -> list[dict[str, Any]]:
        return [{"value": self.shows}]


def home(spark: Spark) -> Home:
    return Home("tm1", spark, kind="connect", cores=1.0, board=BOARD)  # type: ignore[arg-type]


def test_the_newest_record_has_all_dials_and_older_ones_are_deleted_now_and_then() -> None:
    broker = Broker()
    topic = DialTopic(broker, NAME)
    for i in range(2 * KEPT + 3):
        topic.write({"qod.a": 0.5, "qod.b": 1.0, "qod.n": 1.0 if i % 2 else 0.0})
    assert broker.records[-1] == {"qod.a": PARTS // 2, "qod.b": 0, "qod.n": PARTS}
    assert broker.deleted_before == [KEPT + 1, 2 * (KEPT + 1)]


def test_dials_that_kafka_does_not_acknowledge_are_not_set() -> None:
    broker = Broker()
    topic = DialTopic(broker, NAME)
    broker.silent = True
    with pytest.raises(TaskManagerError, check=breaks("answers", name=NAME)):
        topic.write({"qod.a": 0.5})


def test_where_reflect_is_refused_and_the_topic_can_be_read_dials_turn_there() -> None:
    broker, tm = Broker(), home(Restricted(0.25))
    assert tm.reading is DialReading.RESTART
    read_from_topic(tm, broker, NAME)
    assert tm.reading is DialReading.TOPIC
    tm.turn({"qod.a": 0.5})
    tm.turn({"qod.a": 0.5, "qod.b": 0.25})
    assert broker.records[-1] == {"qod.a": PARTS // 2, "qod.b": 3 * PARTS // 4}
    written = len(broker.records)
    tm.turn({"qod.b": 0.25})  # it has that
    assert len(broker.records) == written
    tm.close()
    assert NAME not in broker.topics


def test_a_failed_write_leaves_no_dial_out_of_the_next_record() -> None:
    broker, tm = Broker(), home(Restricted(0.25))
    read_from_topic(tm, broker, NAME)
    tm.turn({"qod.a": 0.5, "qod.b": 0.5})
    broker.silent = True
    with pytest.raises(TaskManagerError):
        tm.turn({"qod.a": 0.25})
    broker.silent = False
    tm.turn({"qod.b": 0.75})
    assert broker.records[-1] == {"qod.a": 3 * PARTS // 4, "qod.b": PARTS // 4}
    written = len(broker.records)
    tm.turn({"qod.a": 0.25, "qod.b": 0.75})  # whether it has the first was not known
    assert len(broker.records) == written + 1


class WithoutConnector(Restricted):
    """A session whose Spark has no source for Kafka."""

    def load(self) -> Restricted:
        raise RuntimeError("Failed to find data source: kafka")


def test_a_spark_without_the_kafka_connector_keeps_restarting_queries_and_no_topic_is_left() -> None:
    broker, tm = Broker(), home(WithoutConnector(0.25))
    read_from_topic(tm, broker, NAME)
    assert tm.reading is DialReading.RESTART
    assert NAME not in broker.topics


class Slow(Restricted):
    """A session that answers only once it is let go on."""

    def __init__(self) -> None:
        super().__init__(0.25)
        self.goes_on = Event()

    def collect(self) -> list[dict[str, Any]]:
        self.goes_on.wait(10.0)
        return super().collect()


def test_no_topic_is_left_of_a_task_manager_that_does_not_answer_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    spark = Slow()
    broker, tm = Broker(), home(spark)
    monkeypatch.setattr(dial_topic, "PROBE_S", 0.05)
    with pytest.raises(TaskManagerError):
        read_from_topic(tm, broker, NAME)
    spark.goes_on.set()
    assert tm.reading is DialReading.RESTART
    assert NAME not in broker.topics


@pytest.mark.parametrize("shows", [1.0, None])
def test_where_the_topic_can_not_be_read_either_only_restarts_are_left(shows: float | None) -> None:
    broker, tm = Broker(), home(Restricted(shows))
    read_from_topic(tm, broker, NAME)
    assert tm.reading is DialReading.RESTART
    assert NAME not in broker.topics


def test_where_reflect_is_allowed_no_topic_is_made() -> None:
    broker, tm = Broker(), home(Spark())
    read_from_topic(tm, broker, NAME)
    assert tm.reading is DialReading.ROW
    assert NAME not in broker.topics
