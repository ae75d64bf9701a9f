"""What live tests look at: events as they come, books that are settled, results of counting queries."""

from __future__ import annotations

from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from qod_magics.core.runtime import Count, Event
from qod_magics.lifecycle.events import State
from qod_magics.session.session import Session
from tests.live.conftest import eventually
from tests.live.steady import SCHEMA


class Events:
    """The cluster's and the controller's events from now on."""

    def __init__(self, session: Session) -> None:
        self.all: list[Event] = []
        self.close = session.controller.subscribe(lambda cycle: self.all.extend(cycle.events))

    def __enter__(self) -> Events:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def of(self, kind: str, **detail: Any) -> list[dict[str, Any]]:
        """Details of the events of this kind that have these details."""
        return [
            dict(event.detail)
            for event in list(self.all)
            if event.kind == kind and all(event.detail.get(key) == value for key, value in detail.items())
        ]

    def first(self, kind: str, **detail: Any) -> dict[str, Any]:
        """The first such event, waiting for it."""
        return eventually(lambda: self.of(kind, **detail), what=lambda: f"{kind} {detail} in {self.all}")[0]


def by_window(src: DataFrame) -> DataFrame:
    """Rows by window and key: state that a move must carry over."""
    return src.withWatermark("at", "1 hour").groupBy(F.window("at", "10 seconds"), "k").agg(F.count("*").alias("n"))


def declare_counts(session: Session, topic: str) -> None:
    """src, which reads the topic, and counts, which counts its rows by window and key; one Spark query each."""
    session.stream("src", topic=topic, schema=SCHEMA, starting="earliest", fuse=False)
    session.stream("counts", by_window, from_="src", priority=1, min_accuracy=0.1, sink="memory", fuse=False)


def counted(session: Session) -> int:
    """Rows that `counts` has counted so far: the last count of each window and key, added up."""
    found: pd.DataFrame = session.results("counts").toPandas()
    if found.empty:
        return 0
    starts = found["window"].map(lambda window: window["start"])
    return int(found.assign(start=starts).groupby(["start", "k"])["n"].max().sum())


def running(session: Session, *instances: str) -> bool:
    """Whether these (default: all) instances run, and none of them is to be restarted for another job."""
    every = session.runtime.instances
    found = [every[id] for id in instances or every]
    return bool(found) and all(
        each.state is State.RUNNING and (each.running is None or each.running is each.job) for each in found
    )


def home(session: Session, instance: str) -> str:
    """The task manager that an instance is on."""
    manager = session.runtime.instances[instance].task_manager
    assert manager is not None
    return manager.id


def books(session: Session) -> dict[str, Count]:
    """The books of the last cycle; each balances."""
    cycle = session.last
    assert cycle is not None
    if cycle.measured is None:
        return {}
    for name, count in cycle.measured.counts.items():
        accounted = count.processed + count.dropped + count.waiting + count.unreported
        assert count.arrived == accounted, (name, count)
        assert count.waiting >= 0, (name, count)
    return dict(cycle.measured.counts)


def settled(session: Session, source: str, rows: int, *streams: str) -> dict[str, Count]:
    """The books once all of `rows` rows have gone through the source and none waits there or on these streams."""

    def done() -> dict[str, Count]:
        found = books(session)
        there = source in found and found[source].arrived == rows
        return found if there and all(found[name].waiting == 0 for name in (source, *streams)) else {}

    return eventually(done, what=lambda: f"{rows} rows through {source}: {books(session)}\n{session.status()}")
