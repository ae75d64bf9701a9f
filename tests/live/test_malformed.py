"""Values that are not JSON of their schema, on real Kafka and Spark: counted, shown, and dropped, kept or fatal."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Producer

from qod_magics.core.runtime import Count
from qod_magics.session.session import Session
from tests.live.applications import cell, rows, written
from tests.live.conftest import PATIENCE_S, eventually
from tests.live.watching import Events, books, settled
from tests.texts import tells

SCHEMA = "a INT, b STRING"
GOOD = [f'{{"a": {n}, "b": "g{n}"}}' for n in range(20)]
#: not JSON, cut short, of another type, an array, and no value at all in three ways
BAD: list[str | None] = ["not json", '{"a": 1, "b": "cu', '{"a": "one", "b": "text"}', "[1]", "", "null", None]


def send(session: Session, topic: str, values: list[str] | list[str | None]) -> None:
    producer = Producer({**session.kafka.client_config(), "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(PATIENCE_S) == 0


def malformed(session: Session, name: str, rows: int) -> int:
    """How many values of this query were malformed, once it has processed `rows`, by the last cycle: to observe here
    would take the events that the controller is to see."""
    return settled(session, name, rows)[name].malformed


def of(session: Session, name: str, column: str) -> list[Any]:
    """The values in this column of its results that are not null."""
    return [row[column] for row in rows(session, name) if row[column] is not None]


@pytest.mark.parametrize("mode", ["realtime", "microbatch"])
@pytest.mark.parametrize(
    ("option", "kept"),
    [("", 0), pytest.param("--malformed drop", 0, marks=pytest.mark.smoke), ("--malformed keep", len(BAD))],
)
def test_malformed_values_are_counted_and_dropped_or_kept(
    brief: Session, topic: str, option: str, kept: int, mode: str
) -> None:
    session = brief
    line = f"q --topic {topic} --schema '{SCHEMA}' --starting earliest -p 1 --mode {mode} {option}"
    with Events(session) as events:
        cell(session, line, "source")
        send(session, topic, [*GOOD, *BAD])
        count = settled(session, "q", len(GOOD) + len(BAD))["q"]
        assert (count.malformed, count.tombstones) == (len(BAD) - 1, 1)
        eventually(lambda: written(session, "q") >= len(GOOD) + kept, what="the rows")
        event = events.first("malformed-input", topic=topic)
    assert event["task"] == "q"
    assert 1 <= event["rows"] < len(BAD)
    assert tells(session.status(), topic, len(BAD) - 1, "JSON")
    assert tells(session.status(), topic, 1, "tombstones")
    assert sorted(of(session, "q", "a")) == list(range(20))
    # of a value cut short or with one wrong type Spark keeps what it could parse
    assert sorted(set(of(session, "q", "b")) - {f"g{n}" for n in range(20)}) == (["text"] if kept else [])
    assert written(session, "q") == len(GOOD) + kept


def test_only_the_columns_that_a_query_reads_are_checked(brief: Session, topic: str) -> None:
    cell(brief, f"q --topic {topic} --schema '{SCHEMA}' --starting earliest -p 1", "source.select('b')")
    send(brief, topic, ['{"a": "one", "b": "text"}', '{"a": 1, "b": "cu'])
    assert malformed(brief, "q", 2) == 1
    eventually(lambda: of(brief, "q", "b") == ["text"], what="the row whose b is right")


def test_a_schema_may_be_a_struct(brief: Session, topic: str) -> None:
    cell(brief, f"q --topic {topic} --schema 'struct<a: int, b: string>' --starting earliest -p 1", "source")
    send(brief, topic, [*GOOD, "not json"])
    assert malformed(brief, "q", len(GOOD) + 1) == 1
    eventually(lambda: sorted(of(brief, "q", "a")) == list(range(20)), what="the rows")


def test_a_query_may_end_with_the_first_malformed_value_and_is_not_tried_again(brief: Session, topic: str) -> None:
    line = f"q --topic {topic} --schema '{SCHEMA}' --starting earliest -p 1 --mode microbatch --malformed fail"
    with Events(brief) as events:
        cell(brief, line, "source")
        send(brief, topic, [*GOOD, None])
        eventually(lambda: books(brief).get("q", Count()).tombstones == 1, what="the tombstone")
        send(brief, topic, [*GOOD, '{"a": 5.0, "b": "x"}'])
        failed = events.first("query-failed", instance="q.1")
    assert failed["gave_up"]
    assert "malformed value: " in failed["why"]
    assert tells(failed["why"], "column a", "5.0")
    assert "tried again" in brief.status()
    assert written(brief, "q") <= 2 * len(GOOD)  # each row at most once


def test_a_schema_with_sparks_own_column_keeps_them_there(brief: Session, topic: str) -> None:
    schema = f"{SCHEMA}, _corrupt_record STRING"
    cell(brief, f"q --topic {topic} --schema '{schema}' --starting earliest -p 1", "source")
    send(brief, topic, [*GOOD, "not json"])
    assert malformed(brief, "q", len(GOOD) + 1) == 1
    eventually(lambda: of(brief, "q", "_corrupt_record") == ["not json"], what="the malformed value")
    assert written(brief, "q") == len(GOOD) + 1
