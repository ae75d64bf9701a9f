"""Spark's rate source: rows by the clock."""

from __future__ import annotations

import time

import pytest

from qod_magics.errors import ApplicationError
from qod_magics.sources.rate import Rate
from qod_magics.sources.source import Context, Span
from qod_magics.spark.cluster.books import Account
from qod_magics.spark.queries.progress import FeedCount


def noted(began_ms: int, first: int, last: int) -> dict[str, int]:
    return {"began_ms": began_ms, "first": first, "last": last}


def test_rows_are_numbered_by_the_clock() -> None:
    assert Rate.span("100", noted(1_000_500, 0, 199)) == Span({0: 100_050}, {0: 100_250}, restarted=True)
    assert Rate.span("100", noted(1_000_500, 200, 299)) == Span({0: 100_250}, {0: 100_350})
    assert Rate.span("100", {"began_ms": None, "first": None, "last": None}) is None


def test_the_end_is_now() -> None:
    of = Rate(Context(None))  # type: ignore[arg-type]
    (end,) = of.ends(["50"])[0]["50"].values()
    assert abs(end - 50 * time.time()) <= 50


def test_rows_before_a_new_generator_never_came_and_those_between_batches_were_lost() -> None:
    account = Account("rate:100", {0: 1_000})
    for first, end, anew in [(1_300, 1_400, True), (1_500, 1_600, False), (2_000, 2_100, True)]:
        account.take(FeedCount("rate:100", {0: first}, {0: end}, 100, 60, restarted=anew))
    count = account.count({0: 2_150})
    assert (count.processed, count.dropped, count.waiting, count.unreported) == (180, 120, 50, 100)
    assert count.arrived == 450


@pytest.mark.parametrize(("place", "rows"), [("", "1"), ("1000", "1000"), ("007", "7")])
def test_rows_per_second(place: str, rows: str) -> None:
    assert Rate.checked(place) == rows


@pytest.mark.parametrize("place", ["0", "-1", "1.5", "many"])
def test_other_rates_are_refused(place: str) -> None:
    with pytest.raises(ApplicationError):
        Rate.checked(place)
