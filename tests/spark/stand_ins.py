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
from qod_magics.spark.cluster.cluster import Cluster
from qod_magics.spark.cluster.deployment import Deployment
from qod_magics.spark.metrics.collector import Collector
from qod_magics.spark.plans import dial
from qod_magics.spark.plans.pipeline import Job
from qod_magics.spark.queries.instance import Instance
from qod_magics.spark.servers.task_manager import TaskManager

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


def manager(id: str = "tm1") -> TaskManager:
    return TaskManager(id, Spark(), kind="attached", cores=1.0, board=BOARD)  # type: ignore[arg-type]


def instance(home: TaskManager | None = None, query: Query | None = None) -> Instance:
    job = Job("T", "T.1", 0, (), lambda spark, inputs: None, (), (), None, None, None)  # type: ignore[arg-type, return-value]
    one = Instance(job, "/nowhere", task_manager=home, query=query)  # type: ignore[arg-type]
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

    def __init__(self, made: Cluster) -> None:
        self.cluster = made
        self.lifecycle = Lifecycle(made)
        self.mover = Mover(made, self.lifecycle)
        self.collector = Collector(made)
        self.recovery = Recovery(made, self.lifecycle)


def cluster(*managers: TaskManager, instances: tuple[Instance, ...] = ()) -> Cluster:
    def place(unplaced: Any, there: Any, running: Any) -> Mapping[str, str]:
        return {one.instance: there[0].id for one in unplaced}

    made = Cluster(Deployment(None, "s"), BOARD, {}, place, 5.0)  # type: ignore[arg-type]
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
