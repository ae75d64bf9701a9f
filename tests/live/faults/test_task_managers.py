"""Task managers that are killed, freeze, or do not answer. Nothing is lost silently."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil
import pytest

from qod_magics.core.plan import Plan
from qod_magics.core.runtime import Dials
from qod_magics.errors import TaskManagerError
from qod_magics.session.session import Session
from qod_magics.spark import recovery, runtime, task_manager
from qod_magics.spark.dial import DialReading, read_sql
from tests.live.conftest import eventually, heard, kafka_of, new_topic, pause, server_of
from tests.live.faults.breaking import (
    PERIOD_S,
    Counting,
    check_moved_away,
    check_nothing_is_lost,
    check_waiting,
    fresh,
    frozen,
    kill,
    manager,
    ordinal,
    pid,
    seen,
)
from tests.live.steady import SCHEMA, Steady
from tests.live.watching import Events, books, counted, declare_counts, home, running, settled


def test_a_server_of_the_users_that_is_silent_keeps_its_queries(
    cluster: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are not started a second time elsewhere, on the same checkpoints: they run on, and are seen again."""
    monkeypatch.setattr(recovery, "SILENCE_S", 3.0)
    theirs = server_of(cluster)
    options: dict[str, Any] = {"period_s": PERIOD_S, **kafka_of(cluster)}
    with Session.up(task_managers=1, cores=1, connect=[theirs.url], **options) as session:
        pause(session)
        topic = new_topic(session)
        remote = next(id for id, each in session.runtime.task_managers.items() if each.kind == "connect")
        session.stream("rows", topic=topic, schema=SCHEMA, priority=1, min_accuracy=0.1, sink="memory")
        if home(session, "rows.1") != remote:
            session.move("rows.1", remote)
        run = session.runtime.instances["rows.1"].run_id
        with Steady(session, topic) as steady, Events(session) as events:
            process = psutil.Process(theirs.child.pid)
            process.suspend()
            try:
                assert "%qod remove-tm" in events.first("task-manager-silent", task_manager=remote)["why"]
            finally:
                process.resume()
            events.first("metrics-back", task_manager=remote)
            settled(session, "rows", steady.stop())
            assert events.of("task-manager-lost") == events.of("move") == []
        assert (home(session, "rows.1"), session.runtime.instances["rows.1"].run_id) == (remote, run)


@pytest.mark.parametrize("mode", ["microbatch", "realtime"])
def test_a_run_on_a_host_that_vanished_ends_once_another_writes_to_its_checkpoint(
    cluster: Session, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """Nobody could stop it: its host neither answered nor refused connections, until the user removed it. When the host
    is back, Spark ends the run at its next batch: the checkpoint has that batch already."""
    monkeypatch.setattr(recovery, "HUNG_S", 600.0)
    monkeypatch.setattr(runtime, "REMOVAL_S", 2.0)
    monkeypatch.setattr(task_manager, "let_go", lambda *_: None)  # the request to end its session is lost, too
    theirs = server_of(cluster)
    options: dict[str, Any] = {"period_s": PERIOD_S, **kafka_of(cluster)}
    with Session.up(task_managers=1, cores=1, connect=[theirs.url], **options) as session:
        pause(session)
        topic = new_topic(session)
        remote = next(id for id, each in session.runtime.task_managers.items() if each.kind == "connect")
        wanted: dict[str, Any] = {"priority": 1, "min_accuracy": 0.1, "sink": "memory", "mode": mode}
        session.stream("rows", topic=topic, schema=SCHEMA, **wanted)
        if home(session, "rows.1") != remote:
            session.move("rows.1", remote)
        with Steady(session, topic) as steady:
            eventually(lambda: session.runtime.instances["rows.1"].begun, what="its first batch")
            left, process = session.runtime.instances["rows.1"].query, psutil.Process(theirs.child.pid)
            assert left is not None
            process.suspend()
            try:
                session.remove_task_manager(remote)
                eventually(lambda: running(session), what=session.status)
                reported = session.runtime.instances["rows.1"].ended
                before = reported()
                eventually(lambda: reported() > before + 1, what="batches elsewhere")
            finally:
                process.resume()
            eventually(lambda: not left.isActive, what="the run that was left ends")
            assert "CONCURRENT_STREAM_LOG_UPDATE" in str(left.exception())
            settled(session, "rows", steady.stop())
            assert running(session)


def test_instances_of_hung_and_killed_task_managers_go_on_elsewhere_or_wait(
    cluster: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On two of the test's own, beside the shared broker: the one with the state hangs, then the one left is killed."""
    monkeypatch.setattr(recovery, "HUNG_S", 10.0)
    options: dict[str, Any] = {"period_s": PERIOD_S, **kafka_of(cluster)}
    # the shared server, where the state ends, writes its last snapshot within a minute, also after the session's end
    with Session.up(task_managers=2, cores=1, checkpoints=str(tmp_path), **options) as session:
        pause(session)
        topic = new_topic(session)
        with Steady(session, topic) as steady, Events(session) as events:
            declare_counts(session, topic)
            eventually(lambda: counted(session) > 0, every_s=0.5, what=session.status)
            lost = home(session, "counts.1")
            orphans = {id for id in session.runtime.instances if home(session, id) == lost}
            psutil.Process(pid(session, lost)).suspend()
            events.first("metrics-missing", task_manager=lost)
            session.stream("beside", "SELECT n FROM source", topic=topic, schema=SCHEMA, priority=1, min_accuracy=0.1)
            assert home(session, "beside.1") != lost  # nobody waits for the one that hangs
            session.stop("beside")
            assert "did nothing: killed" in events.first("task-manager-hung", task_manager=lost)["why"]
            check_moved_away(session, events, lost, orphans)

            (last,) = session.runtime.task_managers
            kill(session, last)
            check_waiting(session, topic)
            server = manager(cluster, "tm1").server
            assert server is not None
            added = session.add_task_manager(server.url, ui=server.ui)
            eventually(lambda: running(session), what=session.status)
            assert {home(session, id) for id in session.runtime.instances} == {added}
            assert set(events.first("task-manager-lost", task_manager=last)["instances"]) == {"src.1", "counts.1"}
            check_nothing_is_lost(session, steady.stop())


def test_a_frozen_task_manager_holds_nobody_up(flowing: Counting) -> None:
    session = flowing.session
    with Events(session) as events:
        began, cold = ordinal(session), home(session, "counts.1")
        eventually(
            lambda: (
                ordinal(session) > began + 1 and fresh(session, "counts.1") and seen(session, "counts.1").in_rate > 0
            ),
            what="its report of these rows",
        )
        with frozen(session, cold):
            began = ordinal(session)
            missing = events.first("metrics-missing", task_manager=cold)
            assert "has not answered" in missing["why"] or "did not answer" in missing["why"]
            eventually(
                lambda: (i := seen(session, "counts.1")) is not None and i.extra.get("stale"), what="it is stale"
            )
            stale = seen(session, "counts.1")
            assert stale.in_rate > 0  # the last known, not a made-up 0
            assert stale.extra["age_s"] > 0
            eventually(lambda: ordinal(session) >= began + 3, what="the loop goes on")
            books(session)
            assert cold in session.runtime.task_managers  # frozen is not dead
        eventually(lambda: fresh(session, "counts.1"), what="fresh again")
        events.first("metrics-back", task_manager=cold)
        check_nothing_is_lost(session, flowing.steady.rest())
        assert events.of("task-manager-lost") == []
        eventually(lambda: running(session), what=session.status)


def test_dials_that_a_frozen_task_manager_missed_are_turned_later(resting: Session) -> None:
    session = resting
    cold, warm = "tm1", "tm2"
    for task, id in (("src", cold), ("counts", warm)):
        if home(session, f"{task}.1") != id:
            session.move(f"{task}.1", id)
    key = session.runtime.board.source("src")

    def told(keep: float) -> None:
        edges = {(None, "src"): keep, ("src", "counts"): keep}
        plan = Plan({"src": 1.0, "counts": keep}, edges)
        session.runtime.apply(plan, Dials(edges, {"src": 1.0, "counts": keep}))

    def held(id: str, key: str) -> float:
        spark = manager(session, id).spark
        value: float = spark.sql(f"SELECT {read_sql(key, DialReading.BATCH)} AS value").collect()[0]["value"]
        return value

    heard(lambda: told(0.75))
    assert held(cold, key) == 0.75
    with frozen(session, cold):
        with pytest.raises(TaskManagerError, match=cold):
            told(0.5)
        accept = session.runtime.board.accept("counts")
        eventually(lambda: held(warm, accept) == 0.5, what="the other heard it")
        with pytest.raises(TaskManagerError, match=cold):
            told(0.75)  # what it held before: the 0.5 may be under way still

    heard(lambda: told(0.75))  # it listens again
    assert held(cold, key) == 0.75
    assert held(warm, accept) == 0.75
    heard(lambda: told(1.0))


def test_the_loop_survives_an_apply_that_fails(resting: Session) -> None:
    """The controller itself decides here, and its call to a frozen task manager fails or is slow."""
    session = resting
    with Events(session) as events:
        eventually(lambda: seen(session, "counts.1") is not None, what="it is seen")
        cold = home(session, "counts.1")
        with frozen(session, cold):
            for dials in manager(session, cold).dials, session.runtime.cluster.dials:
                dials.clear()  # so that every plan has something to turn
            session.resume()
            began = ordinal(session)
            eventually(
                lambda: events.of("apply-failed") or events.of("apply-slow"),
                what=lambda: f"it is said: {events.all}",
            )
            eventually(lambda: ordinal(session) >= began + 3, what="the loop goes on")
        eventually(lambda: session.last is not None and session.last.applied, what="plans are applied again")
        eventually(lambda: running(session), what=session.status)  # the plan may have moved one
