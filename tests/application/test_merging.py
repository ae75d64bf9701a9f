"""Rows of groups, merged from the parts that instances have counted."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.application.merging import Merge, merged, merged_groups

MERGES = {
    "n": Merge("sum"),
    "values": Merge("sum"),
    "total": Merge("sum"),
    "least": Merge("min"),
    "most": Merge("max"),
    "mean": Merge("mean", "values"),
}


def row(numbers: list[float | None], key: str = "a") -> dict[str, Any]:
    """What a query writes of rows with these values; what is null is left out."""
    known = [number for number in numbers if number is not None]
    found: dict[str, Any] = {"k": key, "n": len(numbers), "values": len(known)}
    if known:
        found |= {"total": sum(known), "least": min(known), "most": max(known), "mean": sum(known) / len(known)}
    return found


@given(st.lists(st.lists(st.none() | st.integers(-1000, 1000), min_size=1), min_size=1, max_size=5))
def test_parts_make_the_row_of_the_whole(parts: list[list[float | None]]) -> None:
    assert merged([row(each) for each in parts], MERGES) == pytest.approx(row([n for each in parts for n in each]))


def test_numbers_that_are_not_finite_are_texts_as_spark_writes_them() -> None:
    merges = {"low": Merge("min"), "high": Merge("max"), "sum": Merge("sum")}
    parts = [{"low": 1.0, "high": "NaN", "sum": "Infinity"}, {"low": "NaN", "high": 2.0, "sum": "-Infinity"}]
    assert merged(parts, merges) == {"low": 1.0, "high": "NaN", "sum": "NaN"}


def test_groups_are_told_apart_by_all_their_columns_and_keep_no_others() -> None:
    rows = [
        {"w": {"start": 1}, "k": "a", "n": 1, "_instance": 1},
        {"w": {"start": 2}, "k": "a", "n": 5, "_instance": 1},
        {"w": {"start": 1}, "k": "a", "n": 2, "_instance": 2},
        {"w": {"start": 1}, "n": 3, "_instance": 2},  # its key is null
    ]
    assert merged_groups(rows, ("w", "k"), {"n": Merge("sum")}) == [
        {"w": {"start": 2}, "k": "a", "n": 5},
        {"w": {"start": 1}, "k": "a", "n": 3},
        {"w": {"start": 1}, "n": 3},
    ]
