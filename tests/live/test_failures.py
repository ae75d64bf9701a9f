"""What breaks: task managers killed or frozen, queries that fail, a broker that goes away. Nothing is lost silently."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil
import pytest

from qod_magics.core.plan import Plan
from qod_magics.core.runtime import Dials
from qod_magics.errors import TaskManagerError
from qod_magics.session import Session
from qod_magics.spark import supervisor
from qod_magics.spark.instance import State
from qod_magics.spark.task_manager import TaskManager
from tests.live.conftest import eventually, new_topic
from tests.live.steady import SCHEMA, Steady
from tests.live.watching import Events, books, counted, declare_counts, home, running, settled


@pytest.fixture
def pair() -> Iterator[Session]:
    """Two task managers of the test's own, which may be killed; plans are not applied and nothing is shed."""
    with Session.up(task_managers=2, cores=1, period_s=3.0) as session:
        session.pause(open_shedders=True)
        yield session


def manager(session: Session, id: str) -> TaskManager:
    return session.runtime.task_managers[id]


def pid(session: Session, id: str) -> int:
    server = manager(session, id).server
    assert server is not None
    return server.child.pid


def kill(session: Session, id: str) -> None:
    os.kill(pid(session, id), signal.SIGKILL)


@contextmanager
def frozen(session: Session, id: str) -> Iterator[None]:
    """A task manager that neither answers nor ends."""
    process = psutil.Process(pid(session, id))
    process.suspend()
    try:
        yield
    finally:
        process.resume()


def ordinal(session: Session) -> int:
    return 0 if session.last is None else session.last.number


def seen(session: Session, instance: str) -> Any:
    """The instance in the last snapshot."""
    cycle = session.last
    if cycle is None or cycle.snapshot is None:
        return None
    return next((i for i in cycle.snapshot.instances if i.id == instance), None)


def fresh(session: Session, instance: str) -> bool:
    """Whether the last snapshot has measured values of it."""
    found = seen(session, instance)
    return found is not None and not {"stale", "missing"} & found.extra.keys()


def check_nothing_is_lost(session: Session, rows: int) -> None:
    """All rows are in the books of the source, and all that reached the counting query are in its counts, once."""
    found = settled(session, "src", rows, "src>counts")
    source, stream = found["src"], found["src>counts"]
    assert source.processed + source.unreported == rows
    assert source.dropped == stream.dropped == 0
    assert source.unreported >= 0
    assert stream.arrived >= rows  # at least once
    assert stream.processed + stream.unreported == stream.arrived
    eventually(lambda: counted(session) >= stream.arrived, 60, every_s=1, what="the last results")
    assert counted(session) == stream.arrived


def test_a_killed_task_manager_s_instances_go_on_elsewhere(pair: Session) -> None:
    session, topic = pair, new_topic(pair)
    with Steady(session, topic) as steady, Events(session) as events:
        declare_counts(session, topic)
        eventually(lambda: counted(session) > 0, 60, every_s=1, what="first results")
        lost = home(session, "counts.1")
        orphans = {id for id in session.runtime.instances if home(session, id) == lost}
        kill(session, lost)
        event = events.first("task-manager-lost", task_manager=lost)
        assert set(event["instances"]) == orphans
        assert event["why"] == "its process ended"
        for id in orphans:
            moved = events.first("move", instance=id)
            assert moved["from"] == lost
            assert moved["to"] != lost
            assert moved["why"] == f"{lost} was lost"
        eventually(lambda: running(session), 30, what="all run")
        assert lost not in session.runtime.task_managers
        check_nothing_is_lost(session, steady.stop())


def test_without_task_managers_instances_wait_for_one(pair: Session) -> None:
    session, topic = pair, new_topic(pair)
    with Steady(session, topic) as steady, Events(session) as events:
        declare_counts(session, topic)
        eventually(lambda: counted(session) > 0, 60, every_s=1, what="first results")
        both = list(session.runtime.task_managers)
        for id in both:
            kill(session, id)
        eventually(lambda: not session.runtime.task_managers, 30, what="both are missed")
        eventually(
            lambda: {i.state for i in session.runtime.instances.values()} == {State.WAITING}, 30, what="all wait"
        )
        assert "no task manager is up: what was declared waits for one" in session.status()
        assert "waiting" in session.status()
        with pytest.raises(TaskManagerError, match="add-tm"):
            session.stream("more", topic=topic, schema=SCHEMA, priority=1, min_accuracy=0.1)
        assert "more" not in session.application
        added = session.add_task_manager(cores=1)
        eventually(lambda: running(session), 60, what="all run")
        assert {home(session, id) for id in session.runtime.instances} == {added}
        for id in both:
            events.first("task-manager-lost", task_manager=id)
        check_nothing_is_lost(session, steady.stop())


def test_a_query_that_fails_is_given_up_loudly_and_alone(
    recommending: Session, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = recommending
    monkeypatch.setattr(supervisor, "BACK_OFF_S", (0.5, 1.0))
    with Steady(session, topic) as steady, Events(session) as events:
        declare_counts(session, topic)
        session.stream(
            "poisoned",
            "SELECT CASE WHEN n = 300 THEN CAST(raise_error('a poisoned row') AS LONG) ELSE n END AS n FROM source",
            topic=topic,
            schema=SCHEMA,
            starting="earliest",
            priority=1,
            min_accuracy=0.1,
            sink="memory",
        )
        final = events.first("query-failed", 120, instance="poisoned.1", gave_up=True)
        tries = events.of("query-failed", instance="poisoned.1")
        assert [event.get("retry_in_s") for event in tries] == [0.5, 1.0, None]
        assert all("a poisoned row" in event["why"] for event in tries)
        assert final["failures"] == 2
        assert "poisoned.1 is given up" in session.status()
        assert "a poisoned row" in session.status()
        assert running(session, "src.1", "counts.1")
        check_nothing_is_lost(session, steady.stop())
        assert events.of("query-failed", instance="counts.1") == events.of("query-failed", instance="src.1") == []


def test_a_query_that_can_go_on_goes_on_where_it_was(
    recommending: Session, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row is poison until somebody heals the task managers."""
    session = recommending
    monkeypatch.setattr(supervisor, "BACK_OFF_S", (0.5, *[1.0] * 60))
    healed = f"qod.test.healed.{topic}"
    sick = f"n = 300 AND reflect('java.lang.System', 'getProperty', '{healed}') IS NULL"
    with Steady(session, topic) as steady, Events(session) as events:
        session.stream(
            "poisoned",
            f"SELECT CASE WHEN {sick} THEN CAST(raise_error('a poisoned row') AS LONG) ELSE n END AS n FROM source",
            topic=topic,
            schema=SCHEMA,
            starting="earliest",
            priority=1,
            min_accuracy=0.1,
            sink="memory",
        )
        events.first("query-failed", 90, instance="poisoned.1")
        for id in session.runtime.task_managers:
            manager(session, id).spark.sql(
                f"SELECT reflect('java.lang.System', 'setProperty', '{healed}', 'yes')"
            ).collect()
        rows = steady.stop()
        found = settled(session, "poisoned", rows)
        assert found["poisoned"].processed == rows
        assert events.of("query-restarted", instance="poisoned.1")
        results = session.results("poisoned").toPandas()["n"]
        assert set(results) == set(range(rows))


def test_a_broker_that_restarts_under_load_loses_nothing(recommending: Session, topic: str) -> None:
    session = recommending
    with Steady(session, topic) as steady, Events(session) as events:
        declare_counts(session, topic)
        eventually(lambda: counted(session) > 0, 60, every_s=1, what="first results")
        before = steady.acknowledged
        session.kafka.restart()  # type: ignore[attr-defined]
        eventually(lambda: steady.acknowledged > before + 400, 60, what="the producer goes on")
        check_nothing_is_lost(session, steady.stop())
        eventually(lambda: running(session), 60, what=f"all run: {events.all}")
        assert not events.of("query-failed", gave_up=True)


def test_a_frozen_task_manager_holds_nobody_up(recommending: Session, topic: str) -> None:
    session = recommending
    with Steady(session, topic) as steady, Events(session) as events:
        declare_counts(session, topic)
        began = ordinal(session)
        eventually(lambda: counted(session) > 0, 60, every_s=1, what="first results")
        cold = home(session, "counts.1")
        eventually(lambda: ordinal(session) > began + 1 and fresh(session, "counts.1"), 60, what="its first report")
        with frozen(session, cold):
            began = ordinal(session)
            eventually(
                lambda: (i := seen(session, "counts.1")) is not None and i.extra.get("stale"), 60, what="it is stale"
            )
            stale = seen(session, "counts.1")
            assert stale.in_rate > 0  # the last known, not a made-up 0
            assert stale.extra["age_s"] > 0
            eventually(lambda: ordinal(session) >= began + 3, 60, what="the loop goes on")
            books(session)
            assert cold in session.runtime.task_managers  # frozen is not dead
        eventually(lambda: fresh(session, "counts.1"), 60, what="fresh again")
        check_nothing_is_lost(session, steady.stop())
        assert events.of("task-manager-lost") == []
        assert running(session)


def test_dials_that_a_frozen_task_manager_missed_are_turned_later(recommending: Session, topic: str) -> None:
    session = recommending
    session.stream("src", topic=topic, schema=SCHEMA, fuse=False)
    session.stream("counts", "SELECT k FROM src", priority=1, min_accuracy=0.1, fuse=False)
    eventually(lambda: running(session), 30, what="both run")
    cold, warm = "tm1", "tm2"
    for task, id in (("src", cold), ("counts", warm)):
        if home(session, f"{task}.1") != id:
            session.move(f"{task}.1", id)
    key = session.runtime.board.source("src")

    def told(keep: float) -> None:
        edges = {(None, "src"): keep, ("src", "counts"): keep}
        plan = Plan({"src": 1.0, "counts": 1.0}, {"src": 1.0, "counts": keep}, edges)
        session.runtime.apply(plan, Dials(edges, {"src": 1.0, "counts": keep}))

    def held(id: str, key: str) -> str | None:
        spark = manager(session, id).spark
        row = spark.sql(f"SELECT reflect('java.lang.System', 'getProperty', '{key}') AS value").collect()[0]
        value: str | None = row["value"]
        return value

    told(0.75)
    assert held(cold, key) == "0.75"
    with frozen(session, cold):
        with pytest.raises(TaskManagerError, match=cold):
            told(0.5)
        assert held(warm, session.runtime.board.accept("counts")) == "0.5"  # the other heard it
        with pytest.raises(TaskManagerError, match=cold):
            told(0.75)  # what it held before: the 0.5 may be under way still

    def applied() -> bool:
        try:
            told(0.75)
        except TaskManagerError:
            return False
        return True

    eventually(applied, 60, what="it listens again")
    assert held(cold, key) == "0.75"
    assert held(warm, session.runtime.board.accept("counts")) == "0.75"
    told(1.0)


def test_the_loop_survives_an_apply_that_fails(recommending: Session, topic: str) -> None:
    """The controller itself decides here, and its call to a frozen task manager fails or is slow."""
    session = recommending
    with Steady(session, topic), Events(session) as events:
        declare_counts(session, topic)
        eventually(lambda: running(session) and seen(session, "counts.1") is not None, 60, what="both run and are seen")
        cold = home(session, "counts.1")
        eventually(lambda: session.controller.dials is not None or session.controller.paused, 30)
        with frozen(session, cold):
            for dials in manager(session, cold).dials, session.runtime.cluster.dials:
                dials.clear()  # so that every plan has something to turn
            session.resume()
            began = ordinal(session)
            eventually(
                lambda: events.of("apply-failed") or events.of("apply-slow"), 60, what=f"it is said: {events.all}"
            )
            eventually(lambda: ordinal(session) >= began + 3, 60, what="the loop goes on")
        eventually(lambda: session.last is not None and session.last.applied, 60, what="plans are applied again")
        assert running(session)
