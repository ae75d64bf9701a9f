"""Nexmark queries: with accuracy 1 the rows of plain Spark, and shed by key all rows of the auctions that are kept."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from qod_magics.session.session import Session
from tests.live import nexmark
from tests.live.applications import all_read, cell, plain, rows, turn
from tests.live.conftest import eventually, new_topic, produce

BIDS = 1500


@pytest.fixture
def topics(brief: Session) -> dict[str, str]:
    """The topic of each kind of event, of a stream of that name."""
    return {name: new_topic(brief) for name in nexmark.SCHEMAS}


def declared(session: Session, topics: dict[str, str], options: str = "", **shed_by: str) -> None:
    for name, schema in nexmark.SCHEMAS.items():
        key = f"--shed-by {shed_by[name]}" if name in shed_by else ""
        cell(session, f"{name} --topic {topics[name]} --schema '{schema}' --starting earliest {options} {key}")


def asked(session: Session, name: str, query: Callable[..., DataFrame], options: str) -> None:
    arguments = list(inspect.signature(query).parameters)
    cell(session, f"{name} --from {' '.join(arguments)} {options}", f"query({', '.join(arguments)})", query=query)


def sent(session: Session, topics: dict[str, str], events: dict[str, list[dict[str, Any]]]) -> None:
    """In two halves, the first of which is read before the second comes, so that groups change; and the last events."""
    arrived = dict.fromkeys(topics, 0)
    halves = [{n: e[: len(e) // 2] for n, e in events.items()}, {n: e[len(e) // 2 :] for n, e in events.items()}]
    for part in (*halves, {name: [event] for name, event in nexmark.last().items()}):
        for name, topic in topics.items():
            arrived[name] += produce(session, topic, part[name])
        expected: Counter[str] = Counter()  # by the task that reads them
        for name, account in session.runtime.deployment.accounts.items():
            stream = next((stream for stream, topic in topics.items() if topic == account.topic), None)
            if stream is not None:
                expected[name.rpartition(">")[2]] += arrived[stream]
        for task, number in expected.items():
            eventually(partial(all_read, session, task, number), what=f"{number} events are read by {task}")


def truth(
    spark: SparkSession, events: dict[str, list[dict[str, Any]]], query: Callable[..., DataFrame]
) -> Counter[str]:
    """The rows of the same query over static rows."""
    given = {}
    for name in inspect.signature(query).parameters:
        columns = nexmark.SCHEMAS[name].replace("TIMESTAMP", "STRING")
        frame = spark.createDataFrame(
            [tuple(e[c.split()[0]] for c in columns.split(", ")) for e in events[name]], columns
        )
        for column in nexmark.SCHEMAS[name].split(", "):
            if column.endswith("TIMESTAMP"):
                frame = frame.withColumn(column.split()[0], frame[column.split()[0]].cast("timestamp"))
        given[name] = frame
    return counted(plain(row) for row in query(**given).collect())


def counted(found: Iterable[dict[str, Any]]) -> Counter[str]:
    return Counter(str(sorted(row.items())) for row in found)


@pytest.mark.parametrize("name", list(nexmark.QUERIES))
def test_at_accuracy_1_they_have_the_rows_of_plain_spark(brief: Session, topics: dict[str, str], name: str) -> None:
    declared(brief, topics)
    query = nexmark.QUERIES[name]
    asked(brief, name, query, "-p 1 -a 1")
    events = nexmark.events(BIDS)
    sent(brief, topics, events)
    expected = truth(next(iter(brief.runtime.task_managers.values())).spark, events, query)
    assert len(expected) > 5
    eventually(lambda: len(rows(brief, name)) >= expected.total(), what="all rows")
    assert counted(rows(brief, name)) == expected


def test_shed_by_key_all_rows_of_the_auctions_kept_are_there(brief: Session, topics: dict[str, str]) -> None:
    accuracy = 0.4
    turn(brief, {(None, "bids"): accuracy, (None, "auctions"): accuracy})
    declared(brief, topics, "--no-fuse", bids="lot", auctions="auction")
    asked(brief, "q20", nexmark.q20, "-p 1 -a 0.1")
    asked(brief, "counts", nexmark.counts, "-p 1 -a 0.1 --mode microbatch")
    events = nexmark.events(BIDS)
    sent(brief, topics, events)
    for feed in ("bids>q20", "auctions>q20", "bids>counts"):
        read = brief.runtime.observe().measured.counts[feed.partition(">")[0]].processed
        eventually(lambda f=feed, n=read: all_read(brief, f, n), what=feed)  # type: ignore[misc]
    spark = next(iter(brief.runtime.task_managers.values())).spark
    kept = {row["lot"] for row in rows(brief, "counts")} - {-3}
    every = {bid["lot"] for bid in events["bids"]}
    assert 0.2 * len(every) < len(kept) < 0.6 * len(every)
    of_kept = {**events, "bids": [bid for bid in events["bids"] if bid["lot"] in kept]}
    assert counted(rows(brief, "q20")) == truth(spark, of_kept, nexmark.q20)
    last = {(row["window"]["start"], row["lot"]): row for row in rows(brief, "counts") if row["lot"] in kept}
    assert counted(last.values()) == truth(spark, of_kept, nexmark.counts)
