"""The books balance for any sequence of batches: lost reports, replays, partitions that come later."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.core.runtime import Count
from qod_magics.spark.cluster.books import Account, Gap, furthest_behind
from qod_magics.spark.queries.progress import FeedCount

PARTITIONS = (0, 1, 2)


@dataclass
class Reader:
    """A query as Spark runs it: each batch begins where the last committed one ended."""

    first: dict[int, int]
    committed: dict[int, int] = field(init=False)
    ends: dict[int, int] = field(init=False)  #: the broker's
    kept: int = 0
    dropped: int = 0
    lost: int = 0  #: rows of batches whose report nobody got
    again: int = 0  #: rows that were read a second time
    begun: bool = False

    def __post_init__(self) -> None:
        self.committed = dict(self.first)
        self.ends = dict(self.first)

    def batch(self, share: float, keep: float) -> FeedCount:
        """Read a share of what waits."""
        start = dict(self.committed)
        end = {p: start[p] + int(share * (self.ends[p] - start[p])) for p in start}
        read = sum(end[p] - start[p] for p in end)
        kept = int(keep * read)
        self.committed = end
        told = FeedCount("t", start if self.begun else None, end, read, kept)
        self.begun = True
        return told


def balance(count: Count) -> int:
    return count.arrived - count.processed - count.dropped - count.waiting - count.unreported


@given(
    first=st.dictionaries(st.sampled_from(PARTITIONS), st.integers(0, 1000), min_size=1),
    steps=st.lists(
        st.tuples(
            st.sampled_from(["reported", "lost", "uncounted", "again"]),
            st.lists(st.integers(0, 50), min_size=3, max_size=3),
            st.floats(0, 1),
            st.floats(0, 1),
        ),
        max_size=30,
    ),
)
def test_every_row_is_in_one_column(first: dict[int, int], steps: list[tuple[str, list[int], float, float]]) -> None:
    reader, account = Reader(dict(first)), Account("t", dict(first))
    for what, arriving, share, keep in steps:
        for partition in reader.ends:
            reader.ends[partition] += arriving[partition]
        batch = reader.batch(share, keep)
        read, kept = batch.read or 0, batch.kept or 0
        if what == "reported":
            account.take(batch)
            reader.kept += kept
            reader.dropped += read - kept
        elif what == "uncounted":  # a batch whose report carries no observed rows
            account.take(FeedCount("t", batch.start, batch.end, None, None))
            reader.lost += read
        elif what == "lost":
            reader.lost += read
        else:  # its rows were read twice, by two runs
            account.take(batch)
            account.take(FeedCount("t", batch.start or dict(first), batch.end, read, kept))
            reader.kept += 2 * kept
            reader.dropped += 2 * (read - kept)
            reader.again += read
        count = account.count(reader.ends)
        assert balance(count) == 0
        assert count.arrived == sum(reader.ends[p] - first[p] for p in first) + reader.again
        assert count.unreported >= 0
        assert count.waiting >= 0
        assert count.processed == reader.kept
        assert count.dropped == reader.dropped
    # the next report says how much was in the lost ones
    account.take(FeedCount("t", dict(reader.committed), dict(reader.committed), 0, 0))
    count = account.count(reader.ends)
    assert balance(count) == 0
    assert count.waiting == sum(reader.ends[p] - reader.committed[p] for p in first)
    assert count.unreported == reader.lost


def test_a_first_batch_begins_where_the_account_was_opened() -> None:
    account = Account("t", {0: 10, 1: 20})
    account.take(FeedCount("t", None, {0: 15, 1: 20}, 5, 4))
    assert account.count({0: 18, 1: 20}) == Count(arrived=8, processed=4, dropped=1, waiting=3, unreported=0)


def test_malformed_rows_are_among_those_processed_also_if_a_batch_was_evaluated_twice() -> None:
    account = Account("t", {0: 0})
    account.take(FeedCount("t", None, {0: 10}, 10, 8, 3, "not json"))
    account.take(FeedCount("t", {0: 10}, {0: 20}, 20, 20, 4))
    assert account.count({0: 20}) == Count(arrived=20, processed=18, dropped=2, waiting=0, unreported=0, malformed=5)
    assert account.sample == "not json"


def test_rows_of_a_lost_report_are_named_by_the_next_one() -> None:
    account = Account("t", {0: 0})
    account.take(FeedCount("t", None, {0: 10}, 10, 10))
    account.take(FeedCount("t", {0: 25}, {0: 30}, 5, 5))
    assert account.count({0: 30}) == Count(arrived=30, processed=15, dropped=0, waiting=0, unreported=15)


def test_when_a_partition_was_read_last_is_known_but_for_batches_without_a_report() -> None:
    account = Account("t", {0: 0, 1: 0, 2: 0})
    account.take(FeedCount("t", None, {0: 10, 1: 5, 2: 0}, 15, 15), 100.0)
    account.take(FeedCount("t", {0: 10, 1: 5, 2: 0}, {0: 20, 1: 5, 2: 0}, 10, 10), 110.0)
    assert account.last_read == {0: 110.0, 1: 100.0}
    account.go_on({0: 20, 1: 8}, 0)
    assert account.last_read == {0: 110.0}
    account.take(FeedCount("t", {0: 20, 1: 8, 2: 4}, {0: 20, 1: 8, 2: 4}, 0, 0), 120.0)  # rows that retention deleted
    assert account.last_read == {0: 110.0, 2: 120.0}


def test_rows_of_a_topic_that_was_made_anew_arrive_beside_those_of_the_first() -> None:
    account = Account("t", {0: 0})
    account.take(FeedCount("t", None, {0: 1000}, 1000, 900))
    account.take(FeedCount("t", {0: 0}, {0: 30}, 30, 30))
    found = account.count({0: 50})  # nothing tells them from rows that were read before
    assert found == Count(arrived=1050, processed=930, dropped=100, waiting=20, unreported=0, read_again=1000)


@pytest.mark.parametrize(("read", "kept"), [(0, 0), (None, None)])
def test_rows_of_a_topic_made_anew_that_spark_passes_over_are_unreported(read: int | None, kept: int | None) -> None:
    account = Account("t", {0: 5})
    account.take(FeedCount("t", None, {0: 1000}, 995, 900))
    account.take(FeedCount("t", {0: 1000}, {0: 10}, read, kept))
    assert account.count({0: 12}) == Count(arrived=1007, processed=900, dropped=95, waiting=2, unreported=10)
    account.take(FeedCount("t", {0: 10}, {0: 12}, 2, 2))
    assert account.count({0: 12}) == Count(arrived=1007, processed=902, dropped=95, waiting=0, unreported=10)


def test_a_partition_made_anew_takes_nothing_from_the_others() -> None:
    account = Account("t", {0: 0, 1: 0})
    account.take(FeedCount("t", None, {0: 1000, 1: 1000}, 2000, 2000))
    account.take(FeedCount("t", {0: 1000, 1: 1000}, {0: 10, 1: 1500}, 500, 400))
    assert account.count({0: 10, 1: 1500}) == Count(arrived=2510, processed=2400, dropped=100, waiting=0, unreported=10)


def test_a_batch_that_was_evaluated_twice_is_entered_once() -> None:
    account = Account("t", {0: 10})
    assert account.take(FeedCount("t", None, {0: 20}, 20, 10)) == 2.0
    assert account.take(FeedCount("t", {0: 20}, {0: 22}, 6, 6)) == 3.0
    assert account.count({0: 22}) == Count(arrived=12, processed=7, dropped=5, waiting=0, unreported=0)


def test_what_was_read_has_arrived_whatever_older_offsets_say() -> None:
    account = Account("t", {0: 0})
    account.take(FeedCount("t", None, {0: 10, 1: 4}, 14, 14))
    assert account.count({0: 7}) == Count(arrived=14, processed=14, dropped=0, waiting=0, unreported=0)


def test_a_partition_that_came_later_is_read_from_its_beginning() -> None:
    account = Account("t", {0: 100})
    account.take(FeedCount("t", {0: 100}, {0: 110, 1: 5}, 15, 15))
    assert account.count({0: 110, 1: 9}) == Count(arrived=19, processed=15, dropped=0, waiting=4, unreported=0)
    assert Account("t", {0: 100}).count({0: 110, 1: 9}) == Count(19, 0, 0, 19, 0)


def test_a_partition_that_one_of_several_readers_has_not_seen_yet_is_read_from_its_beginning() -> None:
    ahead, behind = Account("t", {0: 3, 1: 0}, {0: 20, 1: 9}), Account("t", {0: 3}, {0: 20})
    assert furthest_behind([ahead, behind]) is behind
    assert furthest_behind([ahead]) is ahead
    behind.position[0] = 30
    assert furthest_behind([ahead, behind]) == Account("t", {0: 20, 1: 0})


def test_offsets_without_a_record_have_not_arrived_once_that_is_known() -> None:
    """A transaction of five rows, with the record that commits it, as micro-batches read it."""
    account = Account("t", {0: 0})
    account.take(FeedCount("t", {0: 0}, {0: 6}, 5, 4))
    assert account.count({0: 6}) == Count(arrived=6, processed=4, dropped=1, waiting=0, unreported=1)
    gap, account.gap = account.gap, None
    assert gap == Gap({0: 0}, 1)
    account.settle(gap)
    assert account.count({0: 6}) == Count(arrived=5, processed=4, dropped=1)


def test_gaps_of_several_batches_are_one() -> None:
    account = Account("t", {0: 10, 1: 0})
    account.take(FeedCount("t", None, {0: 16, 1: 0}, 5, 5))
    account.take(FeedCount("t", {0: 16, 1: 0}, {0: 22, 1: 6}, 10, 10))
    assert account.gap == Gap({0: 10, 1: 0}, 3)


def test_offsets_at_the_end_that_hold_no_record_do_not_wait() -> None:
    """The same in real-time mode, which ends behind the last record that it read."""
    account = Account("t", {0: 0})
    account.take(FeedCount("t", {0: 0}, {0: 5}, 5, 5))
    assert account.count({0: 6}).waiting == 1
    account.empty[0] = (5, 6)
    assert account.next_row(0) == 6
    assert account.count({0: 6}) == Count(arrived=5, processed=5)
    assert account.count({0: 8}) == Count(arrived=7, processed=5, waiting=2)
    account.take(FeedCount("t", {0: 5}, {0: 11}, 5, 5))  # five more rows behind it
    assert account.next_row(0) == 11
    assert account.gap is not None
    account.settle(account.gap)
    assert account.count({0: 11}) == Count(arrived=10, processed=10)


def test_a_topic_made_anew_has_rows_where_the_old_one_had_none() -> None:
    account = Account("t", {0: 0})
    account.take(FeedCount("t", {0: 0}, {0: 5}, 5, 5))
    account.empty[0] = (5, 6)
    account.take(FeedCount("t", {0: 0}, {0: 5}, 5, 5))
    assert account.next_row(0) == 5
    assert account.count({0: 6}).waiting == 1


def test_rows_of_other_kinds_are_among_those_processed() -> None:
    account = Account("t", {0: 0})
    account.take(FeedCount("t", None, {0: 10}, 10, 10, 1, "bad", tombstones=2, implausible=3, late_time="at=1"))
    count = account.count({0: 10})
    assert (count.processed, count.malformed, count.tombstones, count.implausible) == (10, 1, 2, 3)


def test_a_topic_is_columnless_while_no_row_has_a_column() -> None:
    account = Account("t", {0: 0})
    account.take(FeedCount("t", None, {0: 5}, 5, 5, malformed=1, tombstones=1, columnless=3))
    assert account.is_columnless
    account.take(FeedCount("t", {0: 5}, {0: 10}, 5, 5, columnless=4))
    assert not account.is_columnless
