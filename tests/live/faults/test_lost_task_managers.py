"""Task managers of sessions of their own that fall silent, vanish, hang or are killed. Nothing is lost silently.

Apart from the tests on the shared application, whose real-time batches are shortened as long as it runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from qod_magics.core.runtime import Count, FeedRows
from qod_magics.kafka.broker import EmbeddedBroker
from qod_magics.kafka.reading import end_offsets
from qod_magics.monitoring.alarms import Alarm
from qod_magics.session.session import Session
from qod_magics.spark.servers import task_manager
from tests.live.conftest import PATIENCE_S, eventually, kafka_of, new_topic, pause, server_of
from tests.live.faults.breaking import (
    PERIOD_S,
    check_moved_away,
    check_nothing_is_lost,
    check_waiting,
    kill,
    manager,
    patience,
    pid,
)
from tests.live.steady import SCHEMA, Steady
from tests.live.watching import Events, books, counted, declare_counts, home, running, settled


@contextmanager
def rows_on_theirs(cluster: Session, mode: str = "auto") -> Iterator[tuple[Session, str, str, psutil.Process]]:
    """A session of its own whose query `rows` runs on a server of the user's: the session, the topic, the id of that
    task manager, and its process."""
    theirs = server_of(cluster)
    options: dict[str, Any] = {"period_s": PERIOD_S, "jit": "c1", **kafka_of(cluster)}
    with Session.up(task_managers=1, cores=1, connect=[theirs.url], **options) as session:
        pause(session)
        topic = new_topic(session)
        remote = next(id for id, each in session.runtime.task_managers.items() if each.kind == "connect")
        wanted: dict[str, Any] = {"priority": 1, "min_accuracy": 0.1, "sink": "memory", "mode": mode}
        session.stream("rows", topic=topic, schema=SCHEMA, **wanted)
        if home(session, "rows.1") != remote:
            session.move("rows.1", remote)
        yield session, topic, remote, psutil.Process(theirs.child.pid)


def test_a_server_of_the_users_that_is_silent_keeps_its_queries(cluster: Session) -> None:
    """They are not started a second time elsewhere, on the same checkpoints: they run on, and are seen again."""
    with rows_on_theirs(cluster) as (session, topic, remote, process), patience(session, silence_s=3.0):
        run = session.runtime.instances["rows.1"].run_id
        with Steady(session, topic) as steady, Events(session) as events:
            process.suspend()
            try:
                assert "%qod remove-tm" in events.first("task-manager-silent", task_manager=remote)["why"]
            finally:
                process.resume()
            events.first("metrics-back", task_manager=remote)
            settled(session, "rows", steady.stop())
            assert events.of("task-manager-lost") == events.of("move") == []
        assert (home(session, "rows.1"), session.runtime.instances["rows.1"].run_id) == (remote, run)


@pytest.mark.parametrize("mode", [pytest.param("microbatch", marks=pytest.mark.slow), "realtime"])
def test_a_run_on_a_host_that_vanished_ends_once_another_writes_to_its_checkpoint(
    cluster: Session, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """Nobody could stop it: its host neither answered nor refused connections, until the user removed it. When the host
    is back, Spark ends the run at its next batch: the checkpoint has that batch already; or a request to stop it that
    was under way does."""
    monkeypatch.setattr(task_manager, "let_go", lambda *_: None)  # the request to end its session is lost, too
    with (
        rows_on_theirs(cluster, mode) as (session, topic, remote, process),
        patience(session, hung_s=600.0, removal_s=2.0),
        Steady(session, topic) as steady,
    ):
        eventually(lambda: session.runtime.instances["rows.1"].begun, what="its first batch")
        left = session.runtime.instances["rows.1"].query
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
        # None: the request to stop it, still under way, came before the end of its batch. Its log is written on a
        # thread of its own, which that error ends: the batch then finds it closed ("Producer interrupted")
        why = left.exception()
        assert why is None or any(told in str(why) for told in ("CONCURRENT_STREAM_LOG_UPDATE", "Producer interrupted"))
        settled(session, "rows", steady.stop())
        assert running(session)


def test_instances_of_hung_and_killed_task_managers_go_on_elsewhere_or_wait(cluster: Session, tmp_path: Path) -> None:
    """On two of the test's own, beside the shared broker: the one with the state hangs, then the one left is killed."""
    options: dict[str, Any] = {"period_s": PERIOD_S, "jit": "c1", **kafka_of(cluster)}
    # the shared server, where the state ends, writes its last snapshot within a minute, also after the session's end
    with (
        Session.up(task_managers=2, cores=1, checkpoints=str(tmp_path), **options) as session,
        patience(session, hung_s=10.0),
    ):
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
            assert "killed" in events.first("task-manager-hung", task_manager=lost)["why"]
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


def test_rows_that_retention_deleted_before_they_were_read_are_counted_and_told(cluster: Session) -> None:
    """A query in real-time mode goes on behind them, and an alarm says how many there were."""
    with Session.up(task_managers=1, cores=1, period_s=PERIOD_S, jit="c1", **kafka_of(cluster)) as session:
        told: list[Alarm] = []
        session.on_event(told.append, kinds=["rows-deleted"])
        topic = new_topic(session)
        broker = cluster.kafka
        assert isinstance(broker, EmbeddedBroker)
        options: dict[str, Any] = {"starting": "earliest", "mode": "realtime", "priority": 1}
        session.stream("q", "SELECT n FROM source", topic=topic, schema="n INT", **options)

        def rows() -> FeedRows:
            (found,) = session.rows()
            return found

        session.send(topic, [{"n": 1}] * 100)
        eventually(lambda: rows().count.processed == 100, what=session.status)
        kill(session, "tm1")
        session.send(topic, [{"n": 2}] * 1000)
        admin = AdminClient(session.kafka.client_config())
        for deleted in admin.delete_records([TopicPartition(topic, 0, 700)]).values():
            assert deleted.result().low_watermark == 700
        session.add_task_manager(cores=1)
        eventually(lambda: rows().deleted == 600, what=session.status)
        eventually(lambda: told, what=session.status)
        assert (told[0].subject, told[0].detail["rows"]) == (topic, 600)
        eventually(lambda: rows().count == Count(1100, 500, 0, 0, 600), what=lambda: f"{rows()} {session.status()}")
        assert running(session)


def repeated(session: Session, topic: str) -> int:
    """How many rows of a topic have a number that another row before it has."""
    consumer = session.kafka.consumer(
        {**session.kafka.client_config(), "group.id": "repeated", "enable.partition.eof": True}
    )
    partitions = range(len(end_offsets(session.kafka, [topic])[topic]))
    consumer.assign([TopicPartition(topic, each, 0) for each in partitions])
    rows, numbers, ended = 0, set[int](), 0
    while ended < len(partitions):
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        if message.error() is not None:
            ended += 1
            continue
        rows += 1
        numbers.add(json.loads(message.value() or b"")["n"])
    consumer.close()
    return rows - len(numbers)


#: The first number of a burst, whose rows one micro-batch reads: at the last of them it sleeps.
BURST, IN_BURST, SLEEP_MS = 1_000_000, 500, 12_000
SLOW = f"coalesce(reflect('java.lang.Thread', 'sleep', CAST({SLEEP_MS} AS BIGINT)), '')"


def burst(session: Session, topic: str) -> None:
    """Send `IN_BURST` rows to the first partition within one record batch."""
    producer = Producer({**session.kafka.client_config(), "linger.ms": 200})
    for n in range(IN_BURST):
        producer.produce(topic, json.dumps({"n": BURST + n}), partition=0)
    assert producer.flush(PATIENCE_S) == 0


@pytest.mark.parametrize("mode", ["realtime", pytest.param("microbatch", marks=pytest.mark.slow)])
def test_rows_that_a_stream_has_twice_are_counted_and_told(cluster: Session, mode: str) -> None:
    """A task manager is killed within a batch of one of two senders, later a row ends every batch that reads it.

    Real-time mode is always within one; a micro-batch is held at the last row of a burst, when all others are sent."""
    with Session.up(task_managers=1, cores=1, period_s=PERIOD_S, jit="c1", **kafka_of(cluster)) as session:
        pause(session)
        topic = new_topic(session, 2)
        last = f"WHEN n = {BURST + IN_BURST - 1} THEN IF({SLOW} = '-', NULL, n)"
        recipe = f"SELECT CASE WHEN n < 0 THEN CAST(raise_error('bad') AS LONG) {last} ELSE n END AS n FROM source"
        options: dict[str, Any] = {"topic": topic, "schema": SCHEMA, "starting": "earliest", "mode": mode}
        session.stream("src", recipe, fuse=False, parallelism=2, **options)
        session.stream("rows", "SELECT n FROM src", from_="src", priority=1, min_accuracy=0.1, fuse=False)
        stream = session.runtime.deployment.pipes["src>rows"].topic

        def looked() -> bool:
            open_now = any(account.repeats.open for account in session.runtime.deployment.accounts.values())
            return running(session) and not open_now

        def told() -> int:
            return next(each.count.sent_again for each in session.rows() if each.feed == "src>rows")

        with Steady(session, topic, rate=1000.0, partitions=2) as steady, Events(session) as events:
            eventually(lambda: books(session).get("src>rows", Count()).processed > 3000, what=session.status)
            sent = 0
            if mode == "microbatch":
                settled(session, "src", steady.rest(), "src>rows")
                before = sum(end_offsets(session.kafka, [stream])[stream].values())
                burst(session, topic)
                there = before + IN_BURST - 1
                eventually(lambda: sum(end_offsets(session.kafka, [stream])[stream].values()) == there)
                sent = IN_BURST
            kill(session, "tm1")
            session.add_task_manager(cores=1)
            settled(session, "src", steady.rest() + sent, "src>rows")
            eventually(looked, what=session.status)
            first = told()
            assert first == repeated(session, stream) > 0
            read_again = sum(a.again for a in session.runtime.deployment.accounts.values() if a.topic == topic)
            assert mode == "realtime" or (first, read_again) == (IN_BURST - 1, IN_BURST)
            steady.go()
            eventually(lambda: steady.sent > 12_000)
            session.send(topic, [{"n": -1}])
            eventually(lambda: events.of("query-failed", gave_up=True), what=session.status)
            steady.rest()
            eventually(lambda: not any(a.repeats.open for a in session.runtime.deployment.accounts.values()))
            assert told() == repeated(session, stream) > first
            assert sum(each["rows"] for each in events.of("rows-sent-again", stream="src>rows")) == told()
            assert f"src>rows: {told():,} rows are there twice" in session.status()
