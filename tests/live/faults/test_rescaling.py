"""Task managers that are killed in the middle of a rescaling with state. Each row is counted once, by one instance."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from qod_magics.errors import QodError
from qod_magics.session.session import Session
from qod_magics.spark.changes import scaler
from qod_magics.spark.queries.instance import Instance
from tests.live.applications import rows, written
from tests.live.conftest import eventually, kafka_of, new_topic, pause
from tests.live.faults.breaking import PERIOD_S, kill
from tests.live.steady import SCHEMA, Steady
from tests.live.watching import Events, home, running, settled


class Point(Enum):
    """Where in a rescaling a task manager is killed."""

    STOPPED = "all instances that change have stopped, and no state is assigned"
    COPYING = "their state is being assigned"
    COPIED = "it is assigned, and the new instances have not taken over"
    STARTS = "the new instances have taken over, and none runs"
    STARTED = "one of them has just started"


#: Rescalings to this number of instances, each with a kill: at which point, and whether it takes the task manager of
#: the first instance, else the one of the sender.
SHORT = ((2, Point.COPYING, True), (1, Point.STARTS, True))
LONG = (
    (2, Point.STARTED, False),
    (1, Point.COPIED, False),
    (2, Point.STARTS, True),
    (1, Point.STOPPED, True),
    (1, Point.STARTED, True),
)


def by_key(src: DataFrame) -> DataFrame:
    """Rows by window and key, all of which are kept: each group is in the state of one instance."""
    groups = src.withWatermark("at", "1 hour").groupBy(F.window("at", "2 seconds"), "k")
    return groups.agg(F.count("*").alias("n"), F.sum("n").alias("total"))


@contextmanager
def killed(session: Session, lost: str, point: Point) -> Iterator[None]:
    """Kill this task manager when the next rescaling of q has come to this point."""
    assign, start, done = scaler.assign_state, Instance.start, threading.Event()

    def at(here: Point) -> None:
        if here is point and not done.is_set():
            done.set()
            kill(session, lost)

    def assigning(*args: Any) -> set[str]:
        at(Point.STOPPED)
        timer = threading.Timer(0.3, at, (Point.COPYING,))
        timer.start()
        try:
            found = assign(*args)
        finally:
            timer.join()
        at(Point.COPIED)
        return found

    def starting(self: Instance, *args: Any) -> None:
        if self.job.task == "q":
            at(Point.STARTS)
        start(self, *args)
        if self.job.task == "q":
            at(Point.STARTED)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scaler, "assign_state", assigning)
        patch.setattr(Instance, "start", starting)
        yield
        assert done.is_set()


def instances(session: Session) -> dict[str, Instance]:
    return {id: each for id, each in session.runtime.instances.items() if each.job.task == "q"}


def state_rows(session: Session) -> int | None:
    """How many groups the instances of q keep together, by their last reports."""
    last = [None if i.query is None else i.query.lastProgress for i in instances(session).values()]
    if any(each is None for each in last):
        return None
    return sum(of.numRowsTotal for each in last for of in each.stateOperators)  # type: ignore[union-attr]


def sent_to(session: Session, stream: str) -> list[tuple[int, int, str]]:
    """All records of a stream: n, k and the time."""
    workshop, topic = session.runtime.workshop(), session.runtime.deployment.pipes[stream].topic
    reader = workshop.spark.read.format("kafka").options(**workshop.kafka).option("subscribe", topic)
    value = F.col("value").cast("string")
    columns = [F.get_json_object(value, f"$.{name}") for name in ("n", "k", "at")]
    return [(int(n), int(k), at) for n, k, at in reader.load().select(*columns).collect()]


@pytest.fixture
def losing(cluster: Session) -> Iterator[Session]:
    """A session of its own, whose two task managers may be lost."""
    with Session.up(task_managers=2, cores=1, period_s=PERIOD_S, jit="c1", **kafka_of(cluster)) as session:
        pause(session)
        yield session


def settle(session: Session) -> None:
    """Wait until all run, the row accounting is where the checkpoints of q are, and src is elsewhere than q.1."""
    eventually(lambda: running(session), what=session.status)
    eventually(lambda: not any(i.books_differ for i in instances(session).values()), what="offsets are reported")
    if home(session, "src.1") == home(session, "q.1"):
        session.move("src.1", next(id for id in session.runtime.task_managers if id != home(session, "q.1")))
    eventually(lambda: running(session), what=session.status)


@pytest.mark.parametrize(
    "changes", [pytest.param(SHORT, id="short"), pytest.param(LONG, id="long", marks=pytest.mark.slow)]
)
def test_state_is_exact_whatever_is_killed_in_a_rescaling(
    losing: Session, changes: tuple[tuple[int, Point, bool], ...]
) -> None:
    session, topic = losing, new_topic(losing)
    with Steady(session, topic, 100.0) as steady, Events(session) as events:
        options: dict[str, Any] = {"mode": "microbatch", "fuse": False}
        session.stream("src", topic=topic, schema=SCHEMA, starting="earliest", **options)
        session.stream("q", by_key, from_="src", key="k", priority=1, max_parallelism=4, **options)
        eventually(lambda: written(session, "q") > 0, what="first results")
        for to, point, first in changes:
            settle(session)
            if len(instances(session)) == to:  # the one before was not made
                session.scale("q", 3 - to)
                settle(session)
            lost = home(session, "q.1" if first else "src.1")
            with killed(session, lost, point), suppress(QodError):
                session.scale("q", to)
            events.first("task-manager-lost", task_manager=lost)
            session.add_task_manager(cores=1)
            eventually(lambda: running(session), what=session.status)
            before = written(session, "q")
            eventually(lambda: written(session, "q") > before + 10, what=session.status)  # noqa: B023
        sent = steady.stop()
        stream = settled(session, "src", sent, "src>q")["src>q"]
        assert stream.processed + stream.unreported == stream.arrived
        assert stream.dropped == 0
        assert events.of("state-begins-anew") == events.of("late-rows") == events.of("query-failed", gave_up=True) == []
        records = sent_to(session, "src>q")
        assert {n for n, _, _ in records} == set(range(sent))  # src may have sent some twice
        groups = {(n // 200, k) for n, k, _ in records}
        eventually(lambda: state_rows(session) == len(groups), what=lambda: f"{state_rows(session)} of {len(groups)}")
        assert running(session)
    expected = Counter[tuple[int, int]]()
    totals = Counter[tuple[int, int]]()
    for n, k, _ in records:
        expected[n // 200, k] += 1
        totals[n // 200, k] += n
    starts = sorted({str(row["window"]["start"]) for row in rows(session, "q")})
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for row in rows(session, "q"):
        group = starts.index(str(row["window"]["start"])), row["k"]
        found[group] = max(found.get(group, (0, 0)), (row["n"], row["total"]))
    assert found == {group: (expected[group], totals[group]) for group in groups}
