"""What a consumer may hold of the topics that an instance reads."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qod_magics.kafka.properties import FETCHED_BY_ALL, LEAST_FETCHED, fetch_options


@given(st.integers(0, 10_000))
def test_many_partitions_hold_no_more_than_the_default_or_their_share(partitions: int) -> None:
    fetched = int(fetch_options(partitions)["kafka.max.partition.fetch.bytes"])
    assert fetched >= LEAST_FETCHED
    assert fetched * partitions <= max(FETCHED_BY_ALL, LEAST_FETCHED * partitions)
