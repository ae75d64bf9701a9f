"""Task managers that freeze or do not answer. Nothing is lost silently."""

from __future__ import annotations

import pytest

from qod_magics.core.plan import Plan
from qod_magics.core.runtime import Dials
from qod_magics.errors import TaskManagerError
from qod_magics.session.session import Session
from qod_magics.spark.plans.dial import DialReading, read_sql
from tests.live.conftest import eventually, heard
from tests.live.faults.breaking import (
    Counting,
    check_nothing_is_lost,
    fresh,
    frozen,
    manager,
    ordinal,
    seen,
)
from tests.live.watching import Events, books, home, running


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
            assert "answer" in missing["why"]
            eventually(lambda: (i := seen(session, "counts.1")) is not None and i.stale, what="it is stale")
            stale = seen(session, "counts.1")
            assert stale.in_rate > 0  # the last known, not a made-up 0
            assert stale.age_s > 0
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
