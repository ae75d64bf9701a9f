"""A cluster that the live tests share: real Kafka, two real task managers, the controller."""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest
from confluent_kafka import Producer

from qod_magics.errors import TaskManagerError
from qod_magics.kafka.broker import EmbeddedBroker
from qod_magics.kafka.topics import create_topics
from qod_magics.policies import PAPER_POLICY
from qod_magics.session.session import Session
from qod_magics.spark.servers.connection import call_within
from qod_magics.spark.servers.server import LocalServer
from tests.live.standalone import LEAST_BATCH

#: What may be waited for: the tests wait no longer than it takes, and a machine may be busy with something else.
PATIENCE_S = 120.0
#: Between two cycles where a test waits for events and books, which cycles bring.
BRIEF_PERIOD_S = 2.0
#: Events of a task manager that is no longer there.
LOSSES = frozenset({"task-manager-lost", "task-manager-hung", "task-manager-removed"})

T = TypeVar("T")
_numbers = itertools.count(1)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What failed on a session is told with the session's state: a machine of others' can't be looked at afterwards."""
    report = yield
    if report.failed:
        given: Iterable[object] = getattr(item, "funcargs", {}).values()
        for session in {id(each): each for each in given if isinstance(each, Session)}.values():
            report.sections.append((f"session {session.id}", state(session)))
    return report


def state(session: Session) -> str:
    """The session's status, the last warnings of its task managers, and those of its broker."""
    try:
        lines = [call_within(session.status, 10.0, "its status")]
    except Exception as error:
        lines = [f"its status can't be told: {error}"]
    for manager in session.runtime.task_managers.values():
        if manager.server is not None:
            logged = manager.server.child.tail(400).splitlines()
            telling = [line for line in logged if re.search(r" (WARN (?!StringUtils)|ERROR )|^\S*Exception\b", line)]
            lines += [f"-- {manager.id}", *(line[:200] for line in telling[-8:])]
    if isinstance(session.kafka, EmbeddedBroker):
        lines += ["-- Kafka", *(line[:200] for line in session.kafka.log(4).splitlines())]
    return "\n".join(lines)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Session]:
    """Kafka and two local task managers of one core each (tm1, tm2), for all tests that do not break it.

    It decides by the paper's policy, whose plans can be told beforehand; sessions of a test's own take the default. Its
    tests last seconds: compiled by C1 alone, they leave each other more of the cores.
    """
    with Session.up(task_managers=2, cores=1, period_s=5.0, policy_name=PAPER_POLICY, jit="c1", warm=True) as session:
        yield session


@pytest.fixture
def whole(cluster: Session) -> Iterator[None]:
    """Fail a test that loses a shared task manager, with the reason and the end of its log."""
    servers = {id: manager.server for id, manager in cluster.runtime.task_managers.items()}
    went: list[str] = []
    close = cluster.controller.subscribe(
        lambda cycle: went.extend(f"{event.kind} {event.detail}" for event in cycle.events if event.kind in LOSSES)
    )
    yield
    gone = servers.keys() - cluster.runtime.task_managers.keys()
    if gone:
        eventually(lambda: went, what=f"why {gone} went")  # the next cycle tells
    close()
    said = [server.child.tail(30) for id in gone if (server := servers[id]) is not None]
    assert not gone, "\n".join([*went, *said])


@pytest.fixture(scope="session")
def broker(cluster: Session) -> EmbeddedBroker:
    """The shared cluster's broker, for tests that leave it as it was but for topics of their own."""
    assert isinstance(cluster.kafka, EmbeddedBroker)
    return cluster.kafka


@pytest.fixture
def qod(cluster: Session, whole: None) -> Iterator[Session]:
    """The shared cluster without streams, and the controller deciding; streams of the test are stopped after it."""
    cluster.resume()
    yield cluster
    cluster.stop_all()
    cluster.resume()


@pytest.fixture
def recommending(qod: Session) -> Session:
    """The same with the controller only recommending, all dials at 1: the test turns dials itself."""
    pause(qod)
    return qod


@pytest.fixture
def brief(recommending: Session) -> Iterator[Session]:
    """The same, where real-time batches last one second, and cycles two."""
    slow = recommending.controller.period_s
    recommending.set_period(BRIEF_PERIOD_S)
    with brief_batches(recommending):
        yield recommending
    recommending.set_period(slow)


@contextmanager
def brief_batches(session: Session) -> Iterator[None]:
    """Real-time batches of queries that start on its task managers of now last one second: less to wait for."""
    managers = dict(session.runtime.task_managers)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("qod_magics.spark.queries.instance.REALTIME_BATCH_S", 1.0)
        for manager in managers.values():
            manager.spark.conf.set(LEAST_BATCH, "1000")
        yield
        for id in managers.keys() & session.runtime.task_managers.keys():  # a test may have ended others
            managers[id].spark.conf.unset(LEAST_BATCH)


def server_of(cluster: Session) -> LocalServer:
    """A Connect server that is up and warm, as if someone else ran it."""
    server = cluster.runtime.task_managers["tm1"].server
    assert server is not None
    return server


def kafka_of(session: Session) -> dict[str, Any]:
    """Options of another session that uses the embedded broker of this one."""
    assert isinstance(session.kafka, EmbeddedBroker)
    return {"kafka": session.kafka.bootstrap, "kafka_options": session.kafka.credentials}


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

    # idempotent: a request that is sent again brings no row twice
    producer = Producer({**session.kafka.client_config(), "linger.ms": 5, "enable.idempotence": True})
    for i, row in enumerate(rows):
        producer.produce(topic, json.dumps(row).encode(), partition=i % partitions, on_delivery=acknowledged)
        if i % 1000 == 0:
            producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0, "rows that the broker did not take"
    return sent


def heard(turn: Callable[[], None]) -> None:
    """Turn dials; a task manager that is too busy to hear it within a period is told again."""
    unheard: list[TaskManagerError] = []

    def turned() -> bool:
        try:
            turn()
        except TaskManagerError as error:
            unheard.append(error)
            return False
        return True

    eventually(turned, what=lambda: f"dials turned: {unheard}")


def pause(session: Session) -> None:
    """Nothing is decided any more, and all dials are at 1."""
    heard(lambda: session.pause(open_shedders=True))


def eventually(
    condition: Callable[[], T], timeout_s: float = PATIENCE_S, every_s: float = 0.25, what: str | Callable[[], str] = ""
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
