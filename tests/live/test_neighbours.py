"""Queries that share a core by the default policy: what happens to one takes no row from the others."""

from __future__ import annotations

import _thread
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from qod_magics.core.runtime import Count
from qod_magics.errors import TaskManagerError, UsageProblem
from qod_magics.kafka.topics import create_topics
from qod_magics.lifecycle.events import State
from qod_magics.session.session import Session
from tests.live.conftest import eventually

TOPIC, SCHEMA = "shared", "id INT, ts TIMESTAMP, x DOUBLE"
SQL = "SELECT window(ts, '10 seconds') AS w, id % 20 AS k, count(*) AS n FROM {} GROUP BY 1, 2"
ROWS = {"topics": [{"topic": TOPIC, "data": {"generator": "points"}, "rate": 200}], "duration_s": 900}
CALM = ("q0", "q1")


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session.up(task_managers=1, cores=1) as session:
        create_topics(session.kafka, {TOPIC: 1})
        session.inject(ROWS)
        for i, name in enumerate(CALM):
            declare(session, name, priority=1 + i)
        eventually(lambda: all(count(session, name).processed > 0 for name in CALM))
        yield session


def declare(session: Session, name: str, recipe: str = SQL, **options: int) -> None:
    """Declare a query over the topic, with a source of its own."""
    session.stream(f"rows_{name}", topic=TOPIC, schema=SCHEMA)
    session.stream(name, recipe.format(f"rows_{name}"), **{"priority": 3, "min_accuracy": 0.2, **options})


def count(session: Session, name: str) -> Count:
    """The row accounting of a query, by the last cycle."""
    last = session.last
    measured = None if last is None else last.measured
    return Count() if measured is None else measured.counts.get(name, Count())


def undisturbed(session: Session) -> None:
    """Hold that the calm queries still get all rows, and have dropped none."""
    before = {name: count(session, name).processed for name in CALM}
    eventually(lambda: all(count(session, name).processed > before[name] for name in CALM))
    assert {name: count(session, name).dropped for name in CALM} == dict.fromkeys(CALM, 0)
    last = session.last
    assert last is not None
    assert last.plan is not None
    assert {name: last.plan.desired[name] for name in CALM} == dict.fromkeys(CALM, 1.0)


def test_a_query_that_is_declared_replaced_and_stopped_takes_no_row_from_its_neighbours(session: Session):
    declare(session, "other")
    eventually(lambda: count(session, "other").processed > 0)
    undisturbed(session)
    declare(session, "other", SQL.replace("'10 seconds'", "'5 seconds'"))
    undisturbed(session)
    session.stop("other")
    undisturbed(session)


@pytest.mark.parametrize("after_s", [0.02, 0.3, 1.0])
def test_a_cell_that_is_interrupted_takes_no_row_from_its_neighbours(session: Session, after_s: float):
    """Its query is there as a whole, or not at all, and can be declared again."""
    timer = threading.Timer(after_s, _thread.interrupt_main)
    timer.start()
    with suppress(KeyboardInterrupt):
        try:
            declare(session, "cut")
        finally:
            timer.join()
            time.sleep(0.1)  # the interrupt comes here at the latest
    undisturbed(session)
    there = [name for name in session.runtime.instances if name.startswith("cut")]
    if there:
        eventually(lambda: count(session, "cut").processed > 0)
    declare(session, "cut")
    eventually(lambda: count(session, "cut").processed > 0)
    session.stop("cut")
    undisturbed(session)


def test_a_query_that_fails_and_is_restarted_takes_no_row_from_its_neighbours(session: Session):
    declare(session, "bad", "SELECT id, raise_error('no') AS x FROM {}")
    instance = session.runtime.instances["bad.1"]
    eventually(lambda: instance.failures >= 2 or instance.state is State.GAVE_UP)
    time.sleep(2 * session.controller.period_s)
    undisturbed(session)
    session.stop("bad")


def test_the_cpu_of_a_task_manager_is_limited_while_it_runs(session: Session):
    (manager,) = session.runtime.task_managers.values()

    def cores() -> float | None:
        last = session.last
        return None if last is None or last.snapshot is None else last.snapshot.task_managers[0].cores

    for share in (0.0, 1.5, float("nan")):
        with pytest.raises(UsageProblem):
            session.limit_cpu(manager.id, share)
    with pytest.raises(TaskManagerError):
        session.limit_cpu("tm9", 0.5)
    session.limit_cpu(manager.id, 0.5)
    eventually(lambda: cores() == pytest.approx(0.5 * manager.cores))
    assert "limited to 50%" in session.status()
    session.limit_cpu(manager.id, 1.0)
    eventually(lambda: cores() == pytest.approx(manager.cores))
