"""A cluster that the live tests share: real Kafka, two real task managers, the controller."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import pytest
from confluent_kafka import Producer

from qod_magics.kafka.topics import create_topics
from qod_magics.session import Session
from tests.live.standalone import LEAST_BATCH

T = TypeVar("T")
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Session]:
    """Kafka and two local task managers of one core each (tm1, tm2), for all tests that do not break it."""
    with Session.up(task_managers=2, cores=1, period_s=5.0) as session:
        yield session


@pytest.fixture
def qod(cluster: Session) -> Iterator[Session]:
    """The shared cluster without streams, and the controller deciding; streams of the test are stopped after it."""
    cluster.resume()
    yield cluster
    cluster.stop_all()
    cluster.resume()


@pytest.fixture
def recommending(qod: Session) -> Session:
    """The same with the controller only recommending, all dials at 1: the test turns dials itself."""
    qod.pause(open_shedders=True)
    return qod


@pytest.fixture
def brief(recommending: Session, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """The same, where real-time batches last one second."""
    monkeypatch.setattr("qod_magics.spark.instance.REALTIME_BATCH_S", 1.0)
    sessions = [manager.spark for manager in recommending.runtime.task_managers.values()]
    for spark in sessions:
        spark.conf.set(LEAST_BATCH, "1000")
    yield recommending
    for spark in sessions:
        spark.conf.unset(LEAST_BATCH)


@pytest.fixture
def topic(cluster: Session) -> str:
    """The name of a new topic with one partition."""
    return new_topic(cluster)


def new_topic(session: Session, partitions: int = 1) -> str:
    """Make a topic that no other test uses."""
    name = f"t{next(_numbers)}"
    create_topics(session.kafka, {name: partitions})
    return name


def produce(session: Session, topic: str, rows: Iterable[Mapping[str, Any]], partitions: int = 1) -> int:
    """Send rows as JSON, taking turns among the partitions; returns how many were acknowledged."""
    sent = 0

    def acknowledged(error: Any, _: Any) -> None:
        nonlocal sent
        sent += error is None

    producer = Producer({**session.kafka.client_config(), "linger.ms": 5})
    for i, row in enumerate(rows):
        producer.produce(topic, json.dumps(row).encode(), partition=i % partitions, on_delivery=acknowledged)
        if i % 1000 == 0:
            producer.poll(0)
    producer.flush(30)
    return sent


def eventually(
    condition: Callable[[], T], timeout_s: float = 60.0, every_s: float = 0.25, what: str | Callable[[], str] = ""
) -> T:
    """The first true value of `condition`; fails the test when there is none within `timeout_s` seconds, and says
    `what` is missing: a function is asked then."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            pytest.fail(f"not within {timeout_s:g} s: {what() if callable(what) else what or condition}")
        time.sleep(every_s)
