"""Rows of the user's own as Kafka records: what becomes of each kind of row and value, and what is refused."""

from __future__ import annotations

import json
from collections import namedtuple
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from itertools import count
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from confluent_kafka import KafkaError as ClientError
from pyspark.sql import Row

from qod_magics.errors import KafkaError, UsageProblem
from qod_magics.kafka.rows import Record, RowSender, Sent, records
from tests.kafka.fakes import FakeKafka, failure
from tests.texts import tells


def values(rows: Any, **options: Any) -> list[Any]:
    return [record.value and json.loads(record.value) for record in records(rows, **options)]


@dataclass
class Ride:
    zone: int
    fare: float


Pair = namedtuple("Pair", ["zone", "fare"])


class Colour(Enum):
    RED = "red"


@pytest.mark.parametrize(
    "rows",
    [
        [{"zone": 1, "fare": 2.5}],
        {"zone": 1, "fare": 2.5},
        iter([{"zone": 1, "fare": 2.5}]),
        [Row(zone=1, fare=2.5)],
        Row(zone=1, fare=2.5),
        [Ride(1, 2.5)],
        Ride(1, 2.5),
        [Pair(1, 2.5)],
        Pair(1, 2.5),
        pd.DataFrame({"zone": [1], "fare": [2.5]}),
        pa.table({"zone": [1], "fare": [2.5]}),
        ['{"zone": 1, "fare": 2.5}'],
        b'{"zone": 1, "fare": 2.5}',
    ],
)
def test_whatever_a_row_is_it_is_the_same_record(rows: Any) -> None:
    assert values(rows) == [{"zone": 1, "fare": 2.5}]


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (None, None),
        (True, True),
        (np.int64(7), 7),
        (np.float32(0.5), 0.5),
        (np.bool_(True), True),
        (np.array([1, 2]), [1, 2]),
        (np.str_("a"), "a"),
        (np.datetime64("2026-01-02T03:04:05"), "2026-01-02T03:04:05.000000"),
        (float("nan"), "NaN"),  # as Spark writes and reads it
        (float("-inf"), "-Infinity"),
        (Decimal("1.10"), 1.1),
        (Decimal("12345678901234567890.12"), "12345678901234567890.12"),  # a DOUBLE would not hold it
        (date(2026, 1, 2), "2026-01-02"),
        (datetime(2026, 1, 2, 3), "2026-01-02T03:00:00.000000"),
        (datetime(2026, 1, 2, 3, tzinfo=timezone(timedelta(hours=2))), "2026-01-02T03:00:00.000000+02:00"),
        (pd.Timestamp("2026-01-02 03:04:05.123456789"), "2026-01-02T03:04:05.123456"),
        (pd.NaT, None),
        (pd.NA, None),
        (b"\x00\xff", "AP8="),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Colour.RED, "red"),
        ({"a": (1, Pair(2, None))}, {"a": [1, {"zone": 2, "fare": None}]}),
        ("å\ud800"[0], "å"),
    ],
)
def test_a_value_is_written_as_spark_reads_it(value: Any, written: Any) -> None:
    assert values([{"x": value}]) == [{"x": written}]


def test_whole_numbers_that_pandas_made_float_for_a_missing_one_are_whole_again() -> None:
    """Spark reads no 5.0 for an INT: the row would be malformed."""
    frame = pd.DataFrame({"zone": [5, None], "fare": [1.0, 2.0], "half": [0.5, None], "none": [None, None]})
    text = [record.value for record in records(frame)]
    assert text == [
        b'{"zone": 5, "fare": 1.0, "half": 0.5, "none": null}',
        b'{"zone": null, "fare": 2.0, "half": null, "none": null}',
    ]


def test_frames_with_odd_columns() -> None:
    assert values(pd.DataFrame({0: [1], "a b": [2]})) == [{"0": 1, "a b": 2}]
    assert values(pd.DataFrame([[1, 2]], columns=["a", "a"])) == [{"a": 2}]
    assert values(pd.DataFrame()) == values([]) == []


def test_raw_values_and_tombstones() -> None:
    found = list(records([b"\xff", "text", None, bytearray(b"b")], key=lambda row: "k"))
    assert found == [Record(b"\xff", b"k"), Record(b"text", b"k"), Record(None, b"k"), Record(b"b", b"k")]


@pytest.mark.parametrize(
    ("key", "written"), [("a", b"a"), (b"\xff", b"\xff"), (7, b"7"), (None, None), (date(2026, 1, 2), b"2026-01-02")]
)
def test_a_key_is_text_bytes_or_json(key: Any, written: bytes | None) -> None:
    assert [record.key for record in records([{"k": key}], key="k")] == [written]
    assert [record.key for record in records([{"k": key}], key=lambda row: row["k"])] == [written]


@pytest.mark.parametrize(
    "at",
    [
        1_767_315_600_000,
        np.int64(1_767_315_600_000),
        datetime(2026, 1, 2, 1),
        datetime(2026, 1, 2, 1, tzinfo=UTC),
        datetime(2026, 1, 2, 2, tzinfo=timezone(timedelta(hours=1))),
        pd.Timestamp("2026-01-02 01:00"),
    ],
)
def test_a_timestamp_without_a_zone_is_utc(at: Any) -> None:
    assert [record.timestamp_ms for record in records([{"at": at}], timestamp="at")] == [1_767_315_600_000]


@pytest.mark.parametrize(
    ("rows", "options", "says"),
    [
        ([{"zone": 1}, {"zone": object()}], {}, "row 2: column 'zone'"),
        ([{"a": {"b": [1, {2j}]}}], {}, "row 1: column 'a.b'"),
        ([{"took": timedelta(1)}], {}, "column 'took'"),
        ([1], {}, "got int"),
        ([(1, 2)], {}, "got tuple"),
        (5, {}, "got int"),
        (None, {}, "got NoneType"),
        ([{"zone": 1}], {"key": "zon"}, "key='zon'"),
        ([b"raw"], {"key": "zone"}, "key='zone'"),
        ([{"at": "now"}], {"timestamp": "at"}, "timestamp"),
        ([{"at": 1.5}], {"timestamp": "at"}, "timestamp"),
        ([{"at": pd.NaT}], {"timestamp": "at"}, "timestamp"),
        ([{"at": 0}], {"timestamp": "at"}, "1970-01-01"),
        ([{"at": datetime(1969, 1, 1)}], {"timestamp": "at"}, "1970-01-01"),
    ],
)
def test_what_can_not_be_written_is_named(rows: Any, options: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageProblem) as caught:
        list(records(rows, **options))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_rows_that_the_broker_does_not_take_are_counted() -> None:
    asked = count(1)

    def every_other(operation: str, topic: str) -> None:
        if operation == "produce" and next(asked) % 2:
            raise failure(ClientError.TOPIC_AUTHORIZATION_FAILED)

    kafka = FakeKafka({"trips": 1})
    kafka.fail = every_other
    with pytest.raises(KafkaError) as caught:
        RowSender(kafka).send("trips", records([b"1", b"2", b"3"]))
    assert (caught.value.name, caught.value.value) == ("trips", 2)
    assert kafka.topics["trips"][0].values == {0: b"2"}


def test_what_was_sent_is_one_line() -> None:
    assert tells(repr(Sent("trips", 1)), "1 row", "'trips'")
    assert tells(repr(Sent("trips", 2, "unread")), "2 rows", "'trips'", "unread")


def test_rows_are_read_one_by_one() -> None:
    """An endless iterator can be sent from."""

    def endless() -> Iterator[bytes]:
        while True:
            yield b"row"

    assert next(records(endless())) == Record(b"row")
