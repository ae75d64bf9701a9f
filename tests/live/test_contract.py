"""Real Spark and Kafka keep the contract of runtimes: the cases of tests/contract/, with no controller between."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Producer

from qod_magics.session.session import Session
from qod_magics.spark.servers.connection import begin
from tests.contract.cases import BREAKING, GROWING, RuntimeContract
from tests.contract.harness import LEFT, MIN_ACCURACY, PRIORITY, RIGHT, SOURCE, Watch
from tests.live.conftest import PATIENCE_S, new_topic

BROKEN = "qod.test.contract.broken"
FAILS = f"reflect('java.lang.System', 'getProperty', '{BROKEN}') = 'yes'"


class Feed:
    """Rows {"n": 0, 1, 2, ...} on a topic, at a rate that can be turned."""

    def __init__(self, session: Session, topic: str) -> None:
        self._producer = Producer({**session.kafka.client_config(), "linger.ms": 20, "enable.idempotence": True})
        self._topic = topic
        self._turned = threading.Lock()
        self._rate, self._since, self._due = 0.0, time.monotonic(), 0.0
        self._stop = threading.Event()
        self.sent = 0
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)
        self._thread.start()

    def turn(self, rate: float) -> None:
        """Send this number of rows/s from now on; at 0 all that was sent has arrived when this returns."""
        with self._turned:
            now = time.monotonic()
            self._due += self._rate * (now - self._since)
            self._rate, self._since = rate, now
        if rate == 0.0:
            self._send()
            assert self._producer.flush(PATIENCE_S) == 0

    def close(self) -> None:
        """Send no more."""
        self._stop.set()
        self._thread.join(30.0)
        self._producer.flush(30)

    def _run(self) -> None:
        while not self._stop.wait(0.05):
            self._send()

    def _send(self) -> None:
        with self._turned:
            due = int(self._due + self._rate * (time.monotonic() - self._since))
            while self.sent < due:
                self._producer.produce(self._topic, json.dumps({"n": self.sent}))
                self.sent += 1
            self._producer.poll(0)


class LiveHarness:
    """Two task managers of one core each; a topic and a feed for each test."""

    look_s, start_s, rate = 1.0, PATIENCE_S, 300.0

    def __init__(self, session: Session) -> None:
        self.session, self.runtime = session, session.runtime
        self.period_s = session.controller.period_s
        self._topic = new_topic(session)
        self._feed = Feed(session, self._topic)

    def close(self) -> None:
        """Stop the streams and the feed."""
        self._feed.close()
        self.session.stop_all()

    def start(self, meanwhile: Callable[[], object]) -> None:
        """Declare the streams, one Spark query each."""
        starting = begin(self._declare, "declaring")
        while not starting.done():
            meanwhile()
            time.sleep(0.1)
        starting.result()

    def _declare(self) -> None:
        session = self.session
        session.stream(SOURCE, topic=self._topic, schema="n LONG", starting="earliest", fuse=False)
        recipes = {
            LEFT: f"SELECT CASE WHEN {FAILS} THEN CAST(raise_error('it broke') AS LONG) ELSE n END AS n FROM {SOURCE}",
            RIGHT: f"SELECT n FROM {SOURCE}",
        }
        for query, sql in recipes.items():
            limits = {"priority": PRIORITY[query], "min_accuracy": MIN_ACCURACY[query]}
            session.stream(query, sql, fuse=False, sink="memory", **limits)  # type: ignore[arg-type]

    def feed(self, rate: float) -> None:
        """Send this number of rows/s from now on."""
        self._feed.turn(rate)

    @property
    def sent(self) -> int:
        """Rows sent to the topic."""
        return self._feed.sent

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)

    def now(self) -> float:
        """The machine's seconds."""
        return time.monotonic()

    def fail(self, instance: str) -> None:
        """Rows are poison where it is, until it has failed."""
        query = self.runtime.instances[instance]
        assert query.task_manager is not None
        spark, run = query.task_manager.spark, query.run_id
        set_ = f"SELECT reflect('java.lang.System', 'setProperty', '{BROKEN}', '%s')"
        spark.sql(set_ % "yes").collect()
        deadline = time.monotonic() + PATIENCE_S
        while query.run_id == run and query.failed() is None:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        spark.sql(set_ % "no").collect()

    def lose(self, task_manager: str) -> None:
        """Kill its server."""
        server = self.runtime.task_managers[task_manager].server
        assert server is not None
        os.kill(server.child.pid, signal.SIGKILL)

    def add_task_manager(self) -> str:
        """Start another."""
        return self.session.add_task_manager(cores=1)

    def remove_task_manager(self, task_manager: str) -> None:
        """Let it go."""
        self.session.remove_task_manager(task_manager)


@contextmanager
def without_controller(max_task_managers: int | None = None) -> Iterator[Session]:
    """Kafka and two task managers, and nobody who decides."""
    options: dict[str, Any] = {"period_s": 5.0, "max_task_managers": max_task_managers, "jit": "c1"}
    with Session.up(task_managers=2, cores=1, **options) as session:
        session.thread.stop()
        yield session


@pytest.fixture(scope="module")
def shared() -> Iterator[Session]:
    """For all cases that leave the cluster as it was."""
    with without_controller() as session:
        yield session


@pytest.fixture
def session(request: pytest.FixtureRequest) -> Iterator[Session]:
    """The shared cluster, or one of its own: to break, or to grow."""
    case = request.node.originalname
    if case in BREAKING | GROWING:
        with without_controller(3 if case in GROWING else None) as own:
            yield own
    else:
        yield request.getfixturevalue("shared")


class TestSpark(RuntimeContract):
    """The cases."""

    @pytest.fixture
    def watch(self, session: Session) -> Iterator[Watch]:
        """With an application and a topic of its own for each case."""
        there = set(session.runtime.task_managers)
        session.runtime.observe()  # events of before
        harness = LiveHarness(session)
        yield Watch(harness)
        harness.close()
        for joined in set(session.runtime.task_managers) - there:
            session.remove_task_manager(joined)
