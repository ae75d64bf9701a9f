"""The order of a topic's records, and where reading begins, without a broker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from qod_magics.kafka.reading import News, Record, Tail
from tests.kafka.fakes import FakeKafka, Partition


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


def broker(first: Mapping[int, int], ends: Mapping[int, int]) -> FakeKafka:
    """A topic with a record at each of these offsets."""
    made = FakeKafka()
    made.topics["t"] = {n: Partition(ends[n], at, dict.fromkeys(range(at, ends[n]), b"")) for n, at in first.items()}
    return made


def begun(kafka: FakeKafka) -> list[dict[int, int]]:
    """Where the reader began to read, by partition, each time."""
    (consumer,) = kafka.consumers
    return consumer.assigned


def tail(kafka: FakeKafka, most: int = 100) -> Tail:
    return Tail(kafka, "t", most, {0: 5, 1: 7})


def test_what_is_before_the_first_offset_is_not_read() -> None:
    kafka = broker({0: 0, 1: 0}, {0: 9, 1: 7})
    reading = tail(kafka)
    assert reading.read().skipped == 0
    kafka.topics["t"] |= broker({1: 0, 2: 0}, {1: 8, 2: 3}).topics["t"]
    reading.read()
    assert begun(kafka) == [{0: 5}, {1: 7, 2: 0}], "a partition that is added is read from its beginning"


def test_what_retention_has_deleted_counts_as_no_rows_left_out() -> None:
    kafka = broker({0: 6, 1: 20}, {0: 9, 1: 40})
    assert tail(kafka, most=10).read().skipped == 10
    assert begun(kafka) == [{0: 6, 1: 30}]


def test_a_topic_made_anew_before_the_first_look_is_read_from_its_beginning() -> None:
    kafka = broker({0: 0, 1: 0}, {0: 4, 1: 9})
    assert len(tail(kafka).read().records) == 13
    assert begun(kafka) == [{0: 0, 1: 0}]
