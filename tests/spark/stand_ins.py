"""Servers and queries by hand, with gates in the place of what freezes, and clusters of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from qod_magics.lifecycle.events import StartAsked, Started
from qod_magics.spark.changes.lifecycle import Lifecycle
from qod_magics.spark.changes.mover import Mover
from qod_magics.spark.changes.recovery import Recovery
from qod_magics.spark.cluster.cluster import Cluster, Patience
from qod_magics.spark.cluster.deployment import Deployment
from qod_magics.spark.metrics.collector import Collector
from qod_magics.spark.plans import dial
from qod_magics.spark.plans.pipeline import Job
from qod_magics.spark.queries.instance import Instance
from qod_magics.spark.servers.task_manager import TaskManager
from tests.kafka.fakes import FakeKafka

BOARD = dial.DialBoard("s")


class Spark:
    """Answers as a local session would, but only while its gate is open."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.asked: list[str] = []
        self.conf = self.streams = self
        self.queries: list[Query] = []

    @property
    def active(self) -> list[Query]:
        self.gate.wait(30)
        return self.queries

    def get(self, key: str) -> str | None:
        return {"spark.master": "local[4]", "spark.driver.host": "localhost"}.get(key)

    def sql(self, text: str) -> Spark:
        self.gate.wait(30)
        self.asked.append(text)
        return self

    def collect(self) -> list[dict[str, Any]]:
        return [{"value": 0.25}]


class Query:
    """A streaming query that runs; `stop` waits for the gate."""

    runId = "r"

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.isActive = True
        self.lastProgress = None
        self.why: Exception | None = None

    def exception(self) -> Exception | None:
        return self.why

    def stop(self) -> None:
        self.gate.wait(30)


class Home(TaskManager):
    """A task manager on such a session, of which a test says whether its process lives, and what CPU that has used."""

    lives = True
    ended: bool | None = None
    spent_s: Callable[[], float | None] | None = None

    def alive(self) -> bool:
        return self.lives and super().alive()

    def gone(self) -> bool:
        return super().gone() if self.ended is None else self.ended

    def used_s(self) -> float | None:
        return super().used_s() if self.spent_s is None else self.spent_s()

    def kill(self) -> None:
        """It has no process."""


def manager(id: str = "tm1") -> Home:
    return Home(id, Spark(), kind="attached", cores=1.0, board=BOARD)  # type: ignore[arg-type]


def instance(
    home: TaskManager | None = None, query: Query | None = None, make: Callable[..., Instance] = Instance
) -> Instance:
    job = Job("T", "T.1", 0, (), lambda spark, inputs: None, (), (), None, None, None)  # type: ignore[arg-type, return-value]
    one = make(job, "/nowhere", task_manager=home, query=query)
    if query is not None:
        runs(one, query)
    return one


def runs(one: Instance, query: Query, run_id: str = "r", realtime: bool = False) -> None:
    """Have an instance run this query, since the clock began."""
    for event in (StartAsked(), Started(one.life.run + 1, realtime)):
        one.life.handle(event, 0.0)
    one.query, one.run_id = query, run_id  # type: ignore[assignment]


class Parts:
    """What of the runtime looks after the instances of a cluster."""

    def __init__(self, made: Cluster, clock: Callable[[], float] = time.monotonic) -> None:
        self.cluster = made
        self.lifecycle = Lifecycle(made)
        self.mover = Mover(made, self.lifecycle)
        self.collector = Collector(made)
        self.recovery = Recovery(made, self.lifecycle, clock)


def cluster(
    *managers: TaskManager, instances: tuple[Instance, ...] = (), kind: Callable[..., Cluster] = Cluster
) -> Cluster:
    def place(unplaced: Any, there: Any, running: Any) -> Mapping[str, str]:
        return {one.instance: there[0].id for one in unplaced}

    made = kind(Deployment(FakeKafka(), "s"), BOARD, {}, place, 5.0)
    made.patience = Patience(batch_s=0.0, late_s=0.0)  # no report is waited for
    made.task_managers.update({m.id: m for m in managers})
    made.instances.update({i.id: i for i in instances})
    return made


def kinds(made: Cluster) -> list[str]:
    return [event.kind for event in made.events]


def soon(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
