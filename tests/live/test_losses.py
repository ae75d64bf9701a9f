"""Rows that no shedder drops, and that are in no result all the same, on real Kafka and Spark: each is counted and
shown, and what is no row is not counted as one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka import Producer

from qod_magics.errors import ApplicationError
from qod_magics.session.session import Session
from tests.live.applications import cell, rows, written
from tests.live.conftest import PATIENCE_S, eventually, new_topic
from tests.live.watching import Events, books, settled
from tests.texts import tells

TIMED = "k INT, at TIMESTAMP"
NOON, LATER, NEXT_DAY = "2026-01-01T12:00:00Z", "2026-01-01T12:00:30Z", "2026-01-02T12:00:00Z"


def send(session: Session, topic: str, values: list[Any]) -> None:
    """Send JSON; None is a tombstone."""
    producer = Producer({**session.kafka.client_config(), "enable.idempotence": True})
    for value in values:
        producer.produce(topic, None if value is None else json.dumps(value))
    assert producer.flush(PATIENCE_S) == 0


def counts(session: Session, name: str, column: str = "count") -> list[Any]:
    """The newest value of this column by window."""
    found = {str(row["window"]): row[column] for row in session.show(name).read().rows.values()}
    return sorted(found.values())


def by_hour(where: str = "k >= 0", aggregate: str = "count()") -> str:
    return f"source.where('{where}').withWatermark('at', '1 minute').groupBy(F.window('at', '1 hour')).{aggregate}"


@pytest.mark.smoke
def test_late_rows_are_counted_and_an_edited_cell_keeps_its_state_or_says_that_it_lost_it(
    brief: Session, topic: str
) -> None:
    line = f"q --topic {topic} --schema '{TIMED}' --starting earliest -p 1"
    cell(brief, line, by_hour())
    send(brief, topic, [{"k": 1, "at": NOON}] * 5)
    eventually(lambda: counts(brief, "q") == [5], what="the first window")

    handle = cell(brief, line, by_hour("k >= 0 AND k < 9"))
    assert "kept" in handle.said
    send(brief, topic, [{"k": 1, "at": LATER}] * 5 + [{"k": 9, "at": LATER}])
    eventually(lambda: counts(brief, "q") == [10], what=lambda: f"ten rows in the window: {counts(brief, 'q')}")

    with Events(brief) as events:
        send(brief, topic, [{"k": 1, "at": NEXT_DAY}])
        eventually(lambda: counts(brief, "q") == [1, 10], what="the next day")
        send(brief, topic, [{"k": 1, "at": NEXT_DAY}])  # a batch later the watermark is there
        eventually(lambda: counts(brief, "q") == [2, 10], what="the next day's second row")
        send(brief, topic, [{"k": 1, "at": NOON}] * 50)
        event = events.first("late-rows", task="q")
    assert event["rows"] >= 1
    cycle = eventually(
        lambda: brief.last if brief.last and brief.last.measured.late.get("q") else None, what="late rows"
    )
    assert cycle.measured.late["q"] >= 1
    assert "watermark" in brief.status()
    assert counts(brief, "q") == [2, 10]

    handle = cell(brief, line, by_hour(aggregate="agg(F.sum('k').alias('count'))"))
    assert "empty" in handle.said
    assert "incomplete" in brief.status()
    assert brief.show("q").read().incomplete


def test_a_watermark_goes_with_its_stream_through_kafka(brief: Session, topic: str) -> None:
    cell(
        brief,
        f"timed --topic {topic} --schema '{TIMED}' --starting earliest --no-fuse",
        "source.withWatermark('at', '1 minute')",
    )
    cell(brief, "q --from timed -p 1 --no-fuse", "timed.groupBy(F.window('at', '1 hour')).count()")
    send(brief, topic, [{"k": 1, "at": NOON}] * 5)
    eventually(lambda: counts(brief, "q") == [5], what="the first window")
    for n in (1, 2):
        send(brief, topic, [{"k": 1, "at": NEXT_DAY}])
        eventually(lambda n=n: counts(brief, "q") == [n, 5], what="the next day")  # type: ignore[misc]
    send(brief, topic, [{"k": 1, "at": NOON}] * 5)
    eventually(lambda: brief.runtime.incomplete.late.get("q"), what="late rows")
    assert counts(brief, "q") == [2, 5]


def test_records_without_a_column_of_the_schema_are_named(brief: Session, topic: str) -> None:
    with Events(brief) as events:
        cell(brief, f"q --topic {topic} --schema 'zone INT, fare DOUBLE' --starting earliest -p 1", "source")
        send(brief, topic, [{"Zone": 1, "Fare": 2.5}] * 5)
        event = events.first("no-column-of-the-schema", topic=topic)
    assert event["rows"] == 5
    assert "found: Zone, Fare" in event["why"]
    assert "found: Zone, Fare" in brief.status()


def test_numbers_of_milliseconds_are_implausible_or_read_as_such(brief: Session, topic: str) -> None:
    number = 1_764_201_600_000
    send(brief, topic, [{"k": 1, "at": number}, {"k": 2, "at": NOON}, {"k": 3, "at": str(number)}])
    cell(brief, f"seconds --topic {topic} --schema '{TIMED}' --starting earliest -p 1", "source")
    count = settled(brief, "seconds", 3)["seconds"]
    assert (count.implausible, count.malformed) == (1, 1)
    assert "--time-unit ms" in brief.status()
    eventually(lambda: [row["k"] for row in rows(brief, "seconds")] == [2], what="the row whose time is plausible")
    cell(brief, f"ms --topic {topic} --schema '{TIMED}' --starting earliest -p 1 --time-unit ms", "source")
    count = settled(brief, "ms", 3)["ms"]
    assert (count.implausible, count.malformed) == (0, 0)
    eventually(lambda: len(rows(brief, "ms")) == 3, what="the rows")
    times = {row["k"]: row["at"].timestamp() for row in rows(brief, "ms")}
    assert times[1] == times[3] == number / 1e3
    far = f"source.where('k = 1').withColumn('far', F.timestamp_seconds(F.lit({number})))"
    made = cell(brief, f"far --topic {topic} --schema '{TIMED}' --starting earliest -p 1 --time-unit ms", far)
    eventually(lambda: written(brief, "far") > 0, what="a time that a recipe made")
    with pytest.raises(ApplicationError, match="9999"):
        made.to_pandas()


@pytest.mark.parametrize("mode", ["realtime", "microbatch"])
def test_the_records_that_end_transactions_are_no_rows(brief: Session, topic: str, mode: str) -> None:
    cell(brief, f"{mode}_q --topic {topic} --schema 'a INT' --starting earliest -p 1 --mode {mode}", "source")
    producer = Producer({**brief.kafka.client_config(), "transactional.id": topic})
    producer.init_transactions(PATIENCE_S)
    for n in range(3):
        producer.begin_transaction()
        producer.produce(topic, json.dumps({"a": n}))
        producer.commit_transaction(PATIENCE_S)

    def done() -> bool:
        count = books(brief).get(f"{mode}_q")
        return count is not None and (count.arrived, count.processed, count.waiting, count.unreported) == (3, 3, 0, 0)

    eventually(done, what=lambda: f"three rows, and none that waits: {books(brief)}")
    assert brief.last is not None
    assert brief.last.measured.lag[f"{mode}_q"] == 0


def test_a_row_of_megabytes_is_a_result_and_one_beyond_is_told_with_its_column(brief: Session) -> None:
    topic = new_topic(brief)
    line = f"q --topic {topic} --schema 'k INT, b STRING' --starting earliest -p 1"
    with Events(brief) as events:
        cell(brief, line, "source.groupBy('k').agg(F.collect_list(F.repeat('b', 3000)).alias('bs'))")
        send(brief, topic, [{"k": 1, "b": "x" * 1000}])
        eventually(lambda: [row["k"] for row in rows(brief, "q")] == [1], what="a row of three megabytes")
        send(brief, topic, [{"k": 1, "b": "x" * 1000}] * 6)
        failed = eventually(lambda: events.of("query-failed", gave_up=True), what=lambda: f"a failure: {events.all}")
    assert tells(failed[0]["why"], "column bs")
    assert len(events.of("query-failed")) == 2
