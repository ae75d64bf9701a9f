"""How old rows are, from the ends of topics and from batches."""

from __future__ import annotations

import pytest

from benchmarks.evaluation.ages import Ends, ages, counts, median_age, reached
from qod_magics.spark.queries.progress import Batch, FeedCount


def ends(*samples: tuple[float, int]) -> Ends:
    found = Ends()
    for at, offset in samples:
        found.add(at, offset)
    return found


def batch(start: float, end: float, first: int | None, last: int, kept: int = 0, topic: str = "trips") -> Batch:
    read = last - (first or 0)
    feed = FeedCount(topic, None if first is None else {0: first}, {0: last}, read, kept)
    return Batch("run", 0, start, end, 0.0, (feed,), 0, {})


STEADY = {"trips": ends((0.0, 0), (100.0, 1000))}  # ten rows a second


def test_a_row_came_between_the_two_samples_around_it() -> None:
    topic = ends((10.0, 100), (11.0, 200), (12.0, 200), (13.0, 600))
    assert topic.arrival(150) == pytest.approx(10.5)
    assert topic.arrival(400) == pytest.approx(12.5)
    assert topic.arrival(0) == 10.0
    assert topic.arrival(9999) == 13.0
    assert topic.offset(12.25) == pytest.approx(300)


def test_where_nothing_was_sampled_nothing_is_told() -> None:
    with pytest.raises(ValueError, match="sampled"):
        ends().arrival(1)


def test_ages_are_from_arrival_to_the_end_of_the_batch() -> None:
    found = ages([batch(20.0, 25.0, 100, 200)], STEADY, 0.0, 100.0)  # its rows came from 10 to 20 s
    assert median_age(found) == pytest.approx(10.0)
    assert (min(found)[0], max(found)[0]) == pytest.approx((6.0, 14.0))
    assert sum(rows for _, rows in found) == pytest.approx(100)


def test_only_batches_that_end_meanwhile_count_and_large_ones_count_more() -> None:
    small, large = batch(10.0, 11.0, 100, 110), batch(50.0, 60.0, 110, 500)
    assert median_age(ages([small, large], STEADY, 0.0, 100.0)) == pytest.approx(60 - 30.5)
    assert median_age(ages([small, large], STEADY, 0.0, 20.0)) == pytest.approx(0.5)
    assert median_age(ages([small, large], STEADY, 20.0, 30.0)) is None


def test_a_batch_of_unknown_beginning_or_without_rows_tells_no_age() -> None:
    assert ages([batch(0.0, 5.0, None, 50), batch(5.0, 6.0, 50, 50)], STEADY, 0.0, 100.0) == []


def test_rows_of_two_topics_have_their_own_arrivals() -> None:
    both = {**STEADY, "late": ends((0.0, 0), (10.0, 100))}
    found = ages([batch(20.0, 25.0, 100, 200), batch(20.0, 25.0, 0, 100, topic="late")], both, 0.0, 100.0)
    assert max(found)[0] == pytest.approx(24.0)
    assert min(found)[0] == pytest.approx(6.0)


def test_what_a_batch_read_is_spread_over_the_time_that_it_took() -> None:
    read, kept = counts([batch(0.0, 10.0, 0, 100, kept=50), batch(10.0, 20.0, 100, 300, kept=20)], 5.0, 15.0)
    assert (read, kept) == pytest.approx((50 + 100, 25 + 10))
    assert counts([], 0.0, 1.0) == (0.0, 0.0)


def test_what_was_reached_is_that_of_the_batches_that_had_ended() -> None:
    batches = [batch(0.0, 10.0, 0, 100), batch(10.0, 20.0, 100, 300)]
    assert reached(batches, "trips", 15.0, begun=40) == 100
    assert reached(batches, "trips", 5.0, begun=40) == 40
    assert reached(batches, "other", 25.0, begun=40) == 40
