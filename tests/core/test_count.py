"""The books of several topics are those of each, added up."""

from __future__ import annotations

from qod_magics.core.runtime import Count


def test_counts_add_up_field_by_field() -> None:
    counts = [Count(10, 6, 4, 0), Count(7, 2, 1, 3, 1)]
    assert sum(counts, Count()) == Count(17, 8, 5, 3, 1)
