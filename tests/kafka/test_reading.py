"""The order of a topic's records, and where reading begins, without a broker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.kafka.reading import News, Record, Tail

MODULE = "qod_magics.kafka.reading"


def record(partition: int, value: str, at_ms: int) -> Record:
    return Record(partition, value.encode(), None, at_ms)


def values(records: Sequence[Record]) -> str:
    return b"".join(each.value for each in records).decode()


def test_records_of_several_partitions_are_ordered_by_time() -> None:
    news = News((record(0, "a", 10), record(0, "d", 40), record(2, "b", 20), record(2, "e", 50), record(1, "c", 30)))
    assert values(news.by_time) == "abcde"


def test_those_of_a_partition_stay_as_they_are_where_a_clock_was_set_back() -> None:
    news = News((record(0, "a", 30), record(0, "b", 10), record(0, "d", 50), record(1, "c", 40)))
    assert values(news.by_time) == "abcd"


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(-1, 5))))
def test_no_order_of_a_partition_is_ever_changed(found: list[tuple[int, int]]) -> None:
    records = tuple(Record(partition, str(n).encode(), None, at) for n, (partition, at) in enumerate(found))
    ordered = News(records).by_time
    for partition in range(3):
        assert [r for r in ordered if r.partition == partition] == [r for r in records if r.partition == partition]


class Broker:
    """Its topic has these offsets; fetches note where they begin."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, first: Mapping[int, int], ends: Mapping[int, int]) -> None:
        self.first, self.ends = dict(first), dict(ends)
        self.begun: list[dict[int, int]] = []
        monkeypatch.setattr(f"{MODULE}.beginning_offsets", lambda *_, **__: {"t": dict(self.first)})
        monkeypatch.setattr(f"{MODULE}.end_offsets", lambda *_, **__: {"t": dict(self.ends)})

        def fetch(tail: Tail, ends: Mapping[int, int], waiting: set[int], deadline: float) -> list[Record]:
            self.begun.append({partition: tail._position[partition] for partition in sorted(waiting)})
            tail._position |= {partition: ends[partition] for partition in waiting}
            return []

        monkeypatch.setattr(Tail, "_fetch", fetch)


def tail(most: int = 100) -> Tail:
    return Tail(None, "t", most, {0: 5, 1: 7})  # type: ignore[arg-type]


def test_what_is_before_the_first_offset_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    broker, reading = Broker(monkeypatch, {0: 0, 1: 0}, {0: 9, 1: 7}), tail()
    assert reading.read().skipped == 0
    broker.ends = {0: 9, 1: 8, 2: 3}
    broker.first[2] = 0
    reading.read()
    assert broker.begun == [{0: 5}, {1: 7, 2: 0}], "a partition that is added is read from its beginning"


def test_what_retention_has_deleted_counts_as_no_rows_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    broker, reading = Broker(monkeypatch, {0: 6, 1: 20}, {0: 9, 1: 40}), tail(most=10)
    assert reading.read().skipped == 10
    assert broker.begun == [{0: 6, 1: 30}]


def test_a_topic_made_anew_before_the_first_look_is_read_from_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    broker, reading = Broker(monkeypatch, {0: 0, 1: 0}, {0: 4, 1: 9}), tail()
    reading.read()
    assert broker.begun == [{0: 0, 1: 0}]
