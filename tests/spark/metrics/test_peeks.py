"""When the records of a topic are looked at, and what the books make of it; the broker's answers are made up."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from qod_magics.core.runtime import Count
from qod_magics.kafka.history import OffsetHistory
from qod_magics.sources.registry import Sources
from qod_magics.sources.source import Context
from qod_magics.spark.cluster.books import Account, misfits
from qod_magics.spark.cluster.feeds import Pipe
from qod_magics.spark.cluster.repeats import SETTLED_MS
from qod_magics.spark.metrics.peeks import STUCK_S, Peeks
from qod_magics.spark.plans.job import PlanFacts, Read
from qod_magics.spark.plans.shedder import SENDER
from qod_magics.spark.queries.progress import FeedCount
from tests.kafka.fakes import FakeKafka, Partition
from tests.spark.fakes import cluster, instance


class Broker:
    """A topic with one partition: which offsets hold records, and from which one on they are kept."""

    def __init__(self, values: dict[int, bytes | None]) -> None:
        self.now = 0.0
        self.topic = Partition(values=values)
        self.kafka = FakeKafka()
        self.kafka.topics["t"] = {0: self.topic}
        self.account = Account("t", {0: 0})
        self.history = OffsetHistory()
        made = self.cluster = cluster()
        made.deployment.sources = Sources(Context(self.kafka))
        made.deployment.accounts["q"] = self.account
        self.events = made.events
        self.peeks = Peeks(made, self.history, begin=self._begin, clock=lambda: self.now, wall=lambda: self.now / 1000)

    @property
    def looks(self) -> list[int]:
        """The offsets from which it was read."""
        return [start for consumer in self.kafka.consumers for each in consumer.assigned for start in each.values()]

    def _begin(self, call: Any, name: str) -> Future[None]:
        done: Future[None] = Future()
        done.set_result(call())
        return done

    def wait(self, end: int, seconds: float = STUCK_S + 1.0) -> None:
        """Look each second, while the topic ends here."""
        until = self.now + seconds
        while self.now < until:
            self.topic.end = end
            self.history.record(self.now, {"t": {0: end}})
            self.peeks.look()
            self.now += 1.0


def rows(*offsets: int) -> dict[int, bytes | None]:
    return dict.fromkeys(offsets, b'{"Zone": 1}')


def test_the_end_of_a_transaction_does_not_wait() -> None:
    broker = Broker(rows(0, 1))
    broker.account.take(FeedCount("t", {0: 0}, {0: 2}, 2, 2))
    broker.wait(3)
    assert broker.looks == [2]
    assert broker.account.count({0: 3}) == Count(arrived=2, processed=2)
    broker.wait(3)
    assert broker.looks == [2], "it is known by now"


def test_rows_that_wait_are_looked_at_once() -> None:
    broker = Broker(rows(0, 1, 2))
    broker.account.take(FeedCount("t", {0: 0}, {0: 2}, 2, 2))
    broker.wait(3, 30.0)
    assert broker.looks == [2]
    assert broker.account.count({0: 3}).waiting == 1


def test_nothing_is_looked_at_while_rows_arrive() -> None:
    broker = Broker(rows(*range(20)))
    for end in range(3, 20):
        broker.wait(end, 1.0)
    assert broker.looks == []


def test_gaps_in_a_batch_are_no_rows_where_the_topic_has_offsets_without_records() -> None:
    broker = Broker(rows(0, 1, 3, 4))
    broker.account.take(FeedCount("t", {0: 0}, {0: 5}, 4, 4))
    assert broker.account.count({0: 5}).unreported == 1
    broker.wait(5, 1.0)
    assert broker.account.count({0: 5}) == Count(arrived=4, processed=4)


@pytest.mark.parametrize(("values", "first"), [(rows(*range(5)), 0), (rows(3, 4), 3)], ids=["whole", "deleted"])
def test_rows_that_were_not_counted_stay_unreported(values: dict[int, bytes | None], first: int) -> None:
    broker = Broker(values)
    broker.topic.first = first
    broker.account.take(FeedCount("t", {0: 0}, {0: 5}, 3, 3))
    broker.wait(5, 3.0)
    assert broker.account.count({0: 5}) == Count(arrived=5, processed=3, unreported=2)
    assert broker.account.gap is None
    assert broker.account.deleted == (2 if first else 0)
    assert [(e.kind, e.detail["rows"], e.detail["topic"]) for e in broker.events] == (
        [("rows-deleted", 2, "t")] if first else []
    )


def test_of_a_batch_that_began_before_the_deleted_rows_only_these_are_told() -> None:
    broker = Broker(rows(0, 3, 4))  # 1 and 2 are gone, 0 was read before
    broker.topic.first = 3
    broker.account.take(FeedCount("t", {0: 0}, {0: 1}, 1, 1))
    broker.account.take(FeedCount("t", {0: 1}, {0: 5}, 2, 2))
    broker.wait(5, 3.0)
    assert broker.account.deleted == 2
    assert broker.account.count({0: 5}) == Count(arrived=5, processed=3, unreported=2)


def test_deleted_rows_that_are_found_soon_after_others_are_told_later_though_no_more_come() -> None:
    broker = Broker(rows(3, 4, 8, 9))
    broker.topic.first = 3
    broker.account.take(FeedCount("t", {0: 0}, {0: 5}, 2, 2))
    broker.wait(5, 3.0)
    broker.topic.first = 8
    broker.account.take(FeedCount("t", {0: 5}, {0: 10}, 2, 2))
    broker.wait(10, 3.0)
    assert [event.detail["rows"] for event in broker.events] == [3]
    broker.wait(10, 90.0)
    assert [event.detail["rows"] for event in broker.events] == [3, 3]


def test_offsets_without_a_record_are_not_deleted_rows_though_a_batch_ends_during_the_look() -> None:
    broker = Broker(rows(3, 4))
    broker.topic.first = 3
    broker.account.take(FeedCount("t", {0: 0}, {0: 5}, 2, 2))
    gap = broker.account.gap
    assert gap is not None
    broker.account.take(FeedCount("t", {0: 5}, {0: 9}, 0, 0))  # the ends of transactions
    broker.history.record(0.0, {"t": {0: 9}})
    broker.peeks._explain("q", broker.account, gap)
    broker.now = 1.0
    broker.wait(9, 3.0)
    assert broker.account.deleted == 3


def test_deleted_rows_of_our_own_topics_are_told_too() -> None:
    broker = Broker(rows(3, 4))
    broker.topic.first = 3
    accounts = broker.cluster.deployment.accounts
    accounts["p>q"] = accounts.pop("q")
    broker.cluster.deployment.pipes["p>q"] = Pipe("p>q", "p", "q", "t", 1, None)
    broker.account.take(FeedCount("t", {0: 0}, {0: 5}, 2, 2))
    broker.wait(5, 3.0)
    assert broker.account.deleted == 3
    assert [(e.detail["rows"], e.detail["task"]) for e in broker.events] == [(3, "q")]


def reading(broker: Broker, *columns: str) -> None:
    """Let an instance read these columns of the topic."""
    schema = StructType([StructField(name, StringType()) for name in ("zone", "fare")])
    one = instance()
    one.job = replace(one.job, task="q", instance="q.1")
    one.facts = PlanFacts(keeps_state=False, read={"t": Read(schema, frozenset(columns))}, schemas={"t": schema})
    broker.cluster.instances["q.1"] = one


def test_columns_that_are_there_and_null_are_not_said_to_be_missing() -> None:
    broker = Broker({0: b'{"zone": 1, "fare": null}'})
    reading(broker, "fare")
    broker.account.take(FeedCount("t", {0: 0}, {0: 1}, 1, 1, columnless=1))
    broker.wait(1, 3.0)
    assert len(broker.looks) == 1
    assert broker.events == []
    assert misfits(broker.account, "drop") == []


def test_only_the_columns_that_are_read_are_missed() -> None:
    broker = Broker({0: b'{"zone": 1, "Fare": 3}'})
    reading(broker, "fare")
    broker.account.take(FeedCount("t", {0: 0}, {0: 1}, 1, 1, columnless=1))
    broker.wait(1, 3.0)
    (told,) = misfits(broker.account, "drop")
    assert broker.account.columns == ("fare",)
    assert broker.account.found == ("zone", "Fare")
    assert told


def test_records_without_a_column_are_said_to_have_others() -> None:
    broker = Broker({0: b'{"Zone": 1}', 1: b"not json", 2: None, 3: b'{"Zone": 2, "Fare": 3}', 4: b"[]"})
    broker.account.take(FeedCount("t", {0: 0}, {0: 2}, 2, 2, columnless=2))
    broker.wait(2, 3.0)
    assert broker.account.found == ("Zone",)
    (event,) = broker.events
    assert event.kind == "no-column-of-the-schema"
    assert "found: Zone" in event.detail["why"]


def test_rows_that_a_batch_had_sent_which_did_not_end_are_counted_and_told() -> None:
    """Offsets are timestamps here: of two senders, one was killed between 2 and 8, and had committed at 2."""
    broker = Broker(rows(*range(12)))
    broker.topic.headers = {at: [("weight", b"1.0"), (SENDER, b"1")] for at in (3, 5, 6, 9)}
    made = broker.cluster.deployment
    made.accounts = {"src>q": broker.account}
    made.pipes["src>q"] = Pipe("src>q", "src", "q", "t", 1, None)
    broker.account.repeats.run_ended(1, None, 0)
    broker.account.repeats.run_ended(1, 2, 8)
    broker.wait(12, 3.0)
    assert broker.looks == [], "the broker may still take rows"
    broker.now = 8.0 + SETTLED_MS
    broker.wait(12, 2.0)
    assert broker.account.count({0: 12}).sent_again == 3
    assert [(e.kind, e.detail["stream"], e.detail["rows"]) for e in broker.events] == [("rows-sent-again", "src>q", 3)]
    assert broker.looks == [3]
