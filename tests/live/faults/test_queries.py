"""Queries that fail or stand still, and those whose topic or broker goes away. Nothing is lost silently."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from qod_magics.core.runtime import Count
from qod_magics.kafka.reading import end_offsets
from qod_magics.kafka.topics import create_topics, delete_topics
from qod_magics.lifecycle import query
from qod_magics.session.session import Session
from qod_magics.spark.queries import instance_state
from tests.live.conftest import eventually, new_topic, produce
from tests.live.faults.breaking import (
    Counting,
    check_nothing_is_lost,
    fresh,
    manager,
    ordinal,
    patience,
    processed,
)
from tests.live.steady import SCHEMA, Steady
from tests.live.watching import Events, books, home, running, settled
from tests.texts import tells


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


def test_what_a_kill_left_of_a_first_batch_stops_nobody(resting: Session, counting: Counting) -> None:
    """Spark refuses a checkpoint with remains of a batch that was never recorded: another one is taken."""
    cluster = resting.runtime.cluster

    def leave_remains() -> None:
        offsets = Path(resting.runtime.instances["cut_off.1"].checkpoint) / "offsets"
        offsets.mkdir(parents=True)
        (offsets / ".0.5f0c.tmp").write_text("v1")
        cluster.ask_before_starts(lambda: None)

    with Events(resting) as events:
        cluster.ask_before_starts(leave_remains)
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


def test_a_query_begins_beside_what_an_earlier_one_left(resting: Session, counting: Counting) -> None:
    """A checkpoint's place is not taken again, whoever wrote there."""
    left = Path(resting.runtime.checkpoints) / "begun" / "1" / "1"
    (left / "offsets").mkdir(parents=True)
    (left / "offsets" / "0").write_text("v1")
    options = {"topic": counting.topic, "schema": SCHEMA, "starting": "earliest", "sink": "memory"}
    with Events(resting) as events:
        resting.stream("begun", "SELECT n FROM source", priority=1, min_accuracy=0.1, **options)  # type: ignore[arg-type]
        try:
            settled(resting, "begun", counting.steady.rest())
            assert not events.of("query-failed", instance="begun.1")
            assert [file.name for file in left.iterdir()] == ["offsets"]
        finally:
            resting.stop("begun")


@pytest.mark.smoke
def test_a_query_that_fails_is_given_up_loudly_and_alone(
    flowing: Counting, poisoned: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = flowing.session
    monkeypatch.setattr(query, "ROWS_BACK_OFF_S", (0.5,))
    with Events(session) as events:
        poisoned()
        final = events.first("query-failed", instance="poisoned.1", gave_up=True)
        tries = events.of("query-failed", instance="poisoned.1")
        assert [event.get("retry_in_s") for event in tries] == [1.0, None]
        assert all("a poisoned row" in event["why"] for event in tries)
        assert final["failures"] == 1
        assert tells(session.status(), "poisoned.1", "given up")
        assert "a poisoned row" in session.status()
        story = [step.after.value for step in session.runtime.instances["poisoned.1"].life.steps]
        assert story[-4:] == ["backing off", "starting", "running", "given up"]
        assert tells(session.why("poisoned"), "running", "given up")
        eventually(lambda: running(session, "src.1", "counts.1"), what=session.status)
        check_nothing_is_lost(session, flowing.steady.rest())
        assert events.of("query-failed", instance="counts.1") == events.of("query-failed", instance="src.1") == []


@pytest.mark.smoke
def test_a_query_that_can_go_on_goes_on_where_it_was(
    flowing: Counting, poisoned: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row is poison until somebody heals the task managers, after any number of tries."""
    session = flowing.session
    for name in ("BACK_OFF_S", "ROWS_BACK_OFF_S"):
        monkeypatch.setattr(query, name, (0.5, *[1.0] * 60))
    healed = f"qod.test.healed.{flowing.topic}"
    with Events(session) as events:
        poisoned(f"reflect('java.lang.System', 'getProperty', '{healed}') <> 'yes'")
        events.first("query-failed", instance="poisoned.1")
        heal(session, healed)
        rows = flowing.steady.rest()
        found = settled(session, "poisoned", rows)
        assert found["poisoned"].processed == rows
        assert events.of("query-restarted", instance="poisoned.1")
        results = session.results("poisoned").toPandas()["n"]
        assert set(results) == set(range(rows))


def test_a_query_that_was_given_up_goes_on_where_it_was_once_it_is_declared_again(
    flowing: Counting, poisoned: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = flowing.session
    monkeypatch.setattr(query, "ROWS_BACK_OFF_S", (0.5,))
    healed = f"qod.test.healed.again.{flowing.topic}"
    ill = f"reflect('java.lang.System', 'getProperty', '{healed}') <> 'yes'"
    with Events(session) as events:
        poisoned(ill)
        events.first("query-failed", instance="poisoned.1", gave_up=True)
        heal(session, healed)
        poisoned(ill)
        rows = flowing.steady.rest()
        found = settled(session, "poisoned", rows)
        assert found["poisoned"].processed == rows
        assert set(session.results("poisoned").toPandas()["n"]) == set(range(rows))


def heal(session: Session, healed: str) -> None:
    """Set this property on all task managers: the row is poison no more."""
    for id in session.runtime.task_managers:
        manager(session, id).spark.sql(
            f"SELECT reflect('java.lang.System', 'setProperty', '{healed}', 'yes')"
        ).collect()


def test_a_query_that_stands_still_is_restarted_and_holds_up_nobody(
    flowing: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic of its sink goes: what it has sent there waits, without a failure for a minute, and no batch ends."""
    session, gone = flowing.session, new_topic(flowing.session)
    impatient = patience(session, stalled_s=5.0)
    monkeypatch.setattr(instance_state, "FREE", 2.0)  # whatever else the machine does
    options = {"topic": flowing.topic, "schema": SCHEMA, "starting": "earliest", "sink": f"kafka:{gone}"}
    session.stream("stuck", "SELECT n FROM source", priority=1, min_accuracy=0.1, **options)  # type: ignore[arg-type]
    try:
        stuck, beside = session.runtime.instances["stuck.1"], session.runtime.instances["src.1"]
        if home(session, "src.1") != home(session, "stuck.1"):
            session.move("src.1", home(session, "stuck.1"))
        eventually(lambda: stuck.ended() >= 0 and beside.ended() >= 0, what=session.status)
        with impatient, Events(session) as events:
            delete_topics(session.kafka, [gone])
            event = events.first("query-stalled", instance="stuck.1")
            assert "batch" in event["why"]
            assert event["retry_in_s"] == query.BACK_OFF_S[0]
            ended = beside.ended()
            eventually(
                lambda: beside.ended() >= ended + 2, 60.0, what="a query beside it goes on, the topic being gone"
            )
            create_topics(session.kafka, {gone: 1})
            assert "batch" in events.first("query-restarted", instance="stuck.1")["after"]
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
            others = {**options, "topic": flowing.topic}
            session.stream("beside", "SELECT n FROM source", priority=1, min_accuracy=0.1, **others)  # type: ignore[arg-type]
            session.stop("beside")
            create_topics(session.kafka, {topic: 1})
            events.first("topic-back", topic=topic)
            with Steady(session, topic) as steady:
                eventually(lambda: processed(session, "bereft") > 0, what="its reader goes on")
                steady.stop()
            eventually(lambda: running(session), what=session.status)
    finally:
        session.stop("bereft")


def test_a_topic_that_is_made_anew_with_fewer_rows_is_read_on_and_its_books_balance(flowing: Counting) -> None:
    """In micro-batches its reader goes on at the end that it finds: what it passes over there is unreported."""
    session, topic, first = flowing.session, new_topic(flowing.session), 500
    options = {"topic": topic, "schema": SCHEMA, "starting": "earliest", "sink": "memory", "mode": "microbatch"}
    session.stream("anew", "SELECT n FROM source", priority=1, min_accuracy=0.1, **options)  # type: ignore[arg-type]
    try:
        assert produce(session, topic, ({"n": n} for n in range(first))) == first
        settled(session, "anew", first)
        with Events(session) as events:
            delete_topics(session.kafka, [topic])
            events.first("topic-missing", topic=topic)
            create_topics(session.kafka, {topic: 1})
            produce(session, topic, ({"n": n} for n in range(20)))
            events.first("topic-back", topic=topic)

            def all_read() -> bool:
                count = books(session).get("anew", Count())
                return count.arrived >= first + 20 and count.waiting == 0

            eventually(all_read, what=session.status)
            passed_over = books(session)["anew"].unreported
            produce(session, topic, ({"n": n} for n in range(30)))
            eventually(lambda: processed(session, "anew") >= first + 50 - passed_over, what=session.status)
            assert not events.of("metrics-missing")
            assert fresh(session, "src.1")
    finally:
        session.stop("anew")
