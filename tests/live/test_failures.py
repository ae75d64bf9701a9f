"""What breaks: task managers killed or frozen, queries that fail, a broker that goes away. Nothing is lost silently."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from qod_magics.core.plan import Plan
from qod_magics.core.runtime import Dials
from qod_magics.errors import TaskManagerError
from qod_magics.kafka.offsets import end_offsets
from qod_magics.kafka.topics import create_topics, delete_topics
from qod_magics.session.session import Session
from qod_magics.spark import lifecycle, recovery, stall
from qod_magics.spark.dial import DialReading, read_sql
from qod_magics.spark.instance import State
from qod_magics.spark.task_manager import TaskManager
from tests.live.conftest import brief_batches, eventually, heard, kafka_of, new_topic, pause, server_of
from tests.live.steady import SCHEMA, Steady
from tests.live.watching import Events, books, counted, declare_counts, home, running, settled

PERIOD_S = 2.0  #: of the controller: what breaks is noticed by its looking


@dataclass(frozen=True)
class Counting:
    """An application that counts steady input, on a cluster that the controller only watches."""

    session: Session
    topic: str
    steady: Steady


@pytest.fixture(scope="module")
def counting(cluster: Session) -> Iterator[Counting]:
    """`src` and `counts` on the shared cluster, and their input, for all tests here that leave both task managers."""
    topic, slow = new_topic(cluster), cluster.runtime.period_s
    pause(cluster)
    cluster.runtime.period_s = cluster.thread.period_s = PERIOD_S
    with Steady(cluster, topic) as steady, brief_batches(cluster):
        declare_counts(cluster, topic)
        eventually(lambda: counted(cluster) > 0, every_s=0.5, what=cluster.status)
        steady.rest()
        yield Counting(cluster, topic, steady)
    cluster.stop_all()
    cluster.runtime.period_s = cluster.thread.period_s = slow
    cluster.resume()


@pytest.fixture
def flowing(counting: Counting) -> Iterator[Counting]:
    """The same with rows coming in, and both queries at work."""
    pause(counting.session)
    eventually(lambda: running(counting.session), what=counting.session.status)
    counting.steady.go()
    yield counting
    counting.steady.rest()


@pytest.fixture
def resting(counting: Counting) -> Iterator[Session]:
    """The same without rows, none of them under way any more, so that dials may be turned and nothing is shed."""
    pause(counting.session)
    eventually(lambda: running(counting.session), what=counting.session.status)
    settled(counting.session, "src", counting.steady.rest(), "src>counts")
    yield counting.session
    pause(counting.session)


@pytest.fixture
def poisoned(flowing: Counting) -> Iterator[Callable[[str], None]]:
    """Declares a query beside them that fails at the row 300, where the condition holds as well."""
    session = flowing.session

    def declare(condition: str = "true") -> None:
        sick = f"n = 300 AND {condition}"
        session.stream(
            "poisoned",
            f"SELECT CASE WHEN {sick} THEN CAST(raise_error('a poisoned row') AS LONG) ELSE n END AS n FROM source",
            topic=flowing.topic,
            schema=SCHEMA,
            starting="earliest",
            priority=1,
            min_accuracy=0.1,
            sink="memory",
        )

    yield declare
    session.stop("poisoned")


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


def processed(session: Session, feed: str) -> int:
    """Rows of a feed that were processed, by the last cycle."""
    cycle = session.last
    return 0 if cycle is None or cycle.measured is None else cycle.measured.counts[feed].processed


def check_nothing_is_lost(session: Session, rows: int) -> None:
    """All rows are in the books of the source, and all that reached the counting query are in its counts, once."""
    found = settled(session, "src", rows, "src>counts")
    source, stream = found["src"], found["src>counts"]
    assert source.processed + source.unreported == rows
    assert source.dropped == stream.dropped == 0
    assert source.unreported >= 0
    assert stream.arrived >= rows  # at least once
    assert stream.processed + stream.unreported == stream.arrived
    eventually(lambda: counted(session) >= stream.arrived, every_s=0.5, what="the last results")
    assert counted(session) == stream.arrived


def check_moved_away(session: Session, events: Events, lost: str, orphans: set[str]) -> None:
    """What was on a killed task manager runs on the others, and it was told."""
    event = events.first("task-manager-lost", task_manager=lost)
    assert set(event["instances"]) == orphans
    assert event["why"] == "its process ended"
    for id in orphans:
        moved = events.first("move", instance=id)
        assert moved["from"] == lost
        assert moved["to"] != lost
        assert moved["why"] == f"{lost} was lost"
    eventually(lambda: running(session), what=session.status)
    assert lost not in session.runtime.task_managers


def check_waiting(session: Session, topic: str) -> None:
    """No task manager is left: declared streams wait for one, and the status says so."""
    eventually(lambda: not session.runtime.task_managers, what="all are missed")
    eventually(lambda: {i.state for i in session.runtime.instances.values()} == {State.WAITING}, what="all wait")
    assert "no task manager is up: declared streams wait for one" in session.status()
    assert "waiting" in session.status()
    with pytest.raises(TaskManagerError, match="add-tm"):
        session.stream("more", topic=topic, schema=SCHEMA, priority=1, min_accuracy=0.1)
    assert "more" not in session.application


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


def test_what_a_kill_left_of_a_first_batch_stops_nobody(resting: Session, counting: Counting) -> None:
    """Spark refuses a checkpoint with remains of a batch that was never recorded: another one is taken."""
    with Events(resting) as events:
        checkpoint = Path(resting.runtime.checkpoints) / "cut_off" / "1" / "1"
        (checkpoint / "offsets").mkdir(parents=True)
        (checkpoint / "offsets" / ".0.5f0c.tmp").write_text("v1")
        statement = "SELECT n % 7 AS rest, count(*) AS rows FROM source GROUP BY 1"
        options = {"topic": counting.topic, "schema": SCHEMA, "starting": "earliest", "sink": "memory"}
        resting.stream("cut_off", statement, priority=1, min_accuracy=0.1, **options)  # type: ignore[arg-type]
        try:
            assert "NOT_EMPTY" in events.first("query-failed", instance="cut_off.1")["why"]
            found = settled(resting, "cut_off", counting.steady.rest())
            assert found["cut_off"].processed == counting.steady.rest()
            assert not events.of("query-failed", instance="cut_off.1")[1:]
        finally:
            resting.stop("cut_off")


def test_a_query_that_fails_is_given_up_loudly_and_alone(
    flowing: Counting, poisoned: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = flowing.session
    monkeypatch.setattr(lifecycle, "BACK_OFF_S", (0.5, 1.0))
    with Events(session) as events:
        poisoned()
        final = events.first("query-failed", instance="poisoned.1", gave_up=True)
        tries = events.of("query-failed", instance="poisoned.1")
        assert [event.get("retry_in_s") for event in tries] == [0.5, 1.0, None]
        assert all("a poisoned row" in event["why"] for event in tries)
        assert final["failures"] == 2
        assert "poisoned.1 is given up" in session.status()
        assert "a poisoned row" in session.status()
        eventually(lambda: running(session, "src.1", "counts.1"), what=session.status)
        check_nothing_is_lost(session, flowing.steady.rest())
        assert events.of("query-failed", instance="counts.1") == events.of("query-failed", instance="src.1") == []


def test_a_query_that_can_go_on_goes_on_where_it_was(
    flowing: Counting, poisoned: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row is poison until somebody heals the task managers."""
    session = flowing.session
    monkeypatch.setattr(lifecycle, "BACK_OFF_S", (0.5, *[1.0] * 60))
    healed = f"qod.test.healed.{flowing.topic}"
    with Events(session) as events:
        poisoned(f"reflect('java.lang.System', 'getProperty', '{healed}') <> 'yes'")
        events.first("query-failed", instance="poisoned.1")
        for id in session.runtime.task_managers:
            manager(session, id).spark.sql(
                f"SELECT reflect('java.lang.System', 'setProperty', '{healed}', 'yes')"
            ).collect()
        rows = flowing.steady.rest()
        found = settled(session, "poisoned", rows)
        assert found["poisoned"].processed == rows
        assert events.of("query-restarted", instance="poisoned.1")
        results = session.results("poisoned").toPandas()["n"]
        assert set(results) == set(range(rows))


def test_a_query_that_stands_still_is_restarted_and_holds_up_nobody(
    flowing: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic of its sink goes: what it has sent there waits, without a failure for a minute, and no batch ends."""
    session, gone = flowing.session, new_topic(flowing.session)
    monkeypatch.setattr(recovery, "STALLED_S", 5.0)
    monkeypatch.setattr(stall, "FREE", 2.0)  # whatever else the machine does
    options = {"topic": flowing.topic, "schema": SCHEMA, "starting": "earliest", "sink": f"kafka:{gone}"}
    session.stream("stuck", "SELECT n FROM source", priority=1, min_accuracy=0.1, **options)  # type: ignore[arg-type]
    try:
        stuck, beside = session.runtime.instances["stuck.1"], session.runtime.instances["src.1"]
        if home(session, "src.1") != home(session, "stuck.1"):
            session.move("src.1", home(session, "stuck.1"))
        eventually(lambda: stuck.ended() >= 0 and beside.ended() >= 0, what=session.status)
        with Events(session) as events:
            delete_topics(session.kafka, [gone])
            event = events.first("query-stalled", instance="stuck.1")
            assert "no batch has ended for" in event["why"]
            assert event["retry_in_s"] == lifecycle.BACK_OFF_S[0]
            ended = beside.ended()
            eventually(
                lambda: beside.ended() >= ended + 2, 60.0, what="a query beside it goes on, the topic being gone"
            )
            create_topics(session.kafka, {gone: 1})
            assert "no batch has ended for" in events.first("query-restarted", instance="stuck.1")["after"]
            found = settled(session, "stuck", flowing.steady.rest())
            assert found["stuck"].processed == flowing.steady.rest()
            assert end_offsets(session.kafka, [gone], timeout_s=10.0)[gone][0] > 0
    finally:
        session.stop("stuck")


def test_a_broker_that_restarts_under_load_loses_nothing(
    flowing: Counting, handing_on: Callable[[], AbstractContextManager[None]]
) -> None:
    session, steady = flowing.session, flowing.steady
    with Events(session) as events:
        before = steady.acknowledged
        with handing_on():  # the new process is the cluster's
            session.kafka.restart()  # type: ignore[attr-defined]
        eventually(lambda: steady.acknowledged > before + 400, what="the producer goes on")
        check_nothing_is_lost(session, steady.rest())
        eventually(lambda: running(session), what=lambda: f"all run: {events.all}")
        assert not events.of("query-failed", gave_up=True)


def test_a_deleted_topic_is_the_matter_of_its_readers_alone(flowing: Counting) -> None:
    """The others are measured and decided on; its reader is reported, and goes on once the topic is back."""
    session, topic = flowing.session, new_topic(flowing.session)
    options = {"topic": topic, "schema": SCHEMA, "starting": "earliest", "sink": "memory"}
    session.stream("bereft", "SELECT n FROM source", priority=1, min_accuracy=0.1, **options)  # type: ignore[arg-type]
    try:
        with Events(session) as events:
            delete_topics(session.kafka, [topic])
            assert events.first("topic-missing", topic=topic)["task"] == "bereft"
            began = ordinal(session)
            eventually(lambda: ordinal(session) >= began + 3, what="the loop goes on")
            assert session.last is not None
            assert session.last.decision is not None
            assert fresh(session, "src.1")
            assert f"topic {topic}: " in session.status()
            books(session)
            create_topics(session.kafka, {topic: 1})
            events.first("topic-back", topic=topic)
            with Steady(session, topic) as steady:
                eventually(lambda: processed(session, "bereft") > 0, what="its reader goes on")
                steady.stop()
            eventually(lambda: running(session), what=session.status)
    finally:
        session.stop("bereft")


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
