"""Groups that are aggregated, joined or deduplicated further count once, in one task or through a topic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from qod_magics.errors import ApplicationError, TaskManagerError
from qod_magics.session.session import Session
from qod_magics.spark.plans.job import GROUPS_ONCE
from tests.live.applications import all_read, cell, instances, rows
from tests.live.conftest import eventually, new_topic, produce
from tests.raising import breaks

SCHEMA = "--schema 'bidder LONG, at TIMESTAMP' --starting earliest"
#: Bids by window of ten seconds and bidder.
COUNTS = """
bids.withWatermark("at", "1 minute").groupBy(F.window("at", "10 seconds"), "bidder").agg(F.count("*").alias("n"))
"""
BIDDERS, WINDOWS, ROUNDS = 4, 3, 3


def bids(of_round: int) -> Iterator[dict[str, Any]]:
    """In each window bidder b bids b + 1 times; the bids of a window come in several rounds."""
    for window in range(WINDOWS):
        for bidder in range(BIDDERS):
            for i in range(bidder + 1):
                if i % ROUNDS == of_round:
                    yield {"bidder": bidder, "at": f"2026-05-04T10:00:{10 * window + i:02d}Z"}


def send_in_rounds(session: Session, topic: str) -> None:
    """Rounds of which each is read before the next, then a bid that is late enough to end all windows."""
    (feed,) = (name for name, account in session.runtime.deployment.accounts.items() if account.topic == topic)
    sent = 0
    for each in (*map(bids, range(ROUNDS)), [{"bidder": 99, "at": "2026-05-04T11:00:00Z"}]):
        sent += produce(session, topic, each)
        eventually(partial(all_read, session, feed, sent), what=f"{sent} bids are read")


@pytest.fixture
def topic(recommending: Session) -> str:
    name = new_topic(recommending)
    cell(recommending, f"bids --topic {name} {SCHEMA}")
    return name


@pytest.fixture(params=["", "--no-fuse"], ids=["one-task", "two-tasks"])
def counts(recommending: Session, topic: str, request: pytest.FixtureRequest) -> str:
    """The topic of the bids that are counted by window and bidder, in the task of the one who reads that or its own."""
    cell(recommending, f"counts --from bids {request.param}", "from pyspark.sql import functions as F\n" + COUNTS)
    return topic


@pytest.mark.parametrize(
    "counts",
    [pytest.param("", marks=pytest.mark.smoke, id="one-task"), pytest.param("--no-fuse", id="two-tasks")],
    indirect=True,
)
def test_the_most_bids_of_a_bidder_are_found_once_for_each_window(recommending: Session, counts: str) -> None:
    totals = "counts.groupBy('window').agg(F.max('n').alias('most'), F.sum('n').alias('bids'))"
    cell(recommending, "totals --from counts -p 1 -a 1", "from pyspark.sql import functions as F\n" + totals)
    send_in_rounds(recommending, counts)
    total = sum(range(1, BIDDERS + 1))

    def newest() -> dict[str, Any]:
        return {row["window"]["start"].isoformat(): row for row in rows(recommending, "totals")}

    eventually(lambda: len(newest()) >= WINDOWS, what="all windows")
    for row in newest().values():
        assert (row["most"], row["bids"]) == (BIDDERS, total)


def test_groups_of_equal_size_are_kept_once(recommending: Session, counts: str) -> None:
    cell(recommending, "sizes --from counts -p 1 -a 1", "counts.select('n').dropDuplicates()")
    send_in_rounds(recommending, counts)
    expected = set(range(1, BIDDERS + 1))
    eventually(lambda: {row["n"] for row in rows(recommending, "sizes")} >= expected, what="all sizes")
    assert Counter(row["n"] for row in rows(recommending, "sizes")) == Counter(expected)


def test_they_are_emitted_in_micro_batches_whatever_latency_is_wanted(recommending: Session, topic: str) -> None:
    cell(recommending, "counts --from bids --no-fuse", "from pyspark.sql import functions as F\n" + COUNTS)
    cell(recommending, "seen --from counts -p 1 -a 1 --max-latency 0.1", "counts.where('n > 0')")
    (count,) = instances(recommending, "counts")
    assert count.job.chained is False
    cell(recommending, "sizes --from counts -p 1 -a 1", "counts.select('n').dropDuplicates()")
    (count,) = instances(recommending, "counts")
    assert count.job.chained is True
    assert (count.mode, count.mode_why) == ("micro-batch", GROUPS_ONCE)
    with pytest.raises(TaskManagerError, match="real-time"):
        cell(
            recommending,
            "counts --from bids --no-fuse --mode realtime",
            "from pyspark.sql import functions as F\n" + COUNTS,
        )
    recommending.stop("sizes")
    eventually(lambda: not instances(recommending, "counts")[0].job.chained, what="updates again")


@pytest.mark.parametrize("fuse", ["", "--no-fuse"], ids=["one-task", "two-tasks"])
def test_groups_that_are_never_complete_are_refused(recommending: Session, topic: str, fuse: str) -> None:
    cell(recommending, f"counts --from bids {fuse}", "bids.groupBy('bidder').count()")
    with pytest.raises(ApplicationError, check=breaks("watermark")):
        cell(recommending, "sizes --from counts -p 1 -a 1", "counts.select('count').dropDuplicates()")
