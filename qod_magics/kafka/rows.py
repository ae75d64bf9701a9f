"""Rows of the user's own, sent to a topic: `qod.send`.

A row is a dict (or what becomes one: a Row, a named tuple, a dataclass), which is written as JSON, or bytes or text,
which are written as they are. A pandas, Arrow, Polars or Spark DataFrame is a collection of rows.
"""

from __future__ import annotations

import base64
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, is_dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple
from uuid import UUID

from confluent_kafka import KafkaException, Producer

from qod_magics.errors import KafkaError, UsageProblem
from qod_magics.kafka.cluster import Kafka
from qod_magics.kafka.topics import said

#: How long `send` waits for the broker's acknowledgements, seconds.
TIMEOUT_S = 60.0
_PRODUCER: Mapping[str, Any] = {
    "acks": "all",
    "enable.idempotence": True,  # a retry brings no row twice
    "linger.ms": 5,
    "partitioner": "murmur2_random",  # of keys, as Java clients do
    "log.connection.close": False,
}

#: A column's name, or a function of the row.
By = str | Callable[[Any], Any]


class Record(NamedTuple):
    """A Kafka record before it is sent."""

    value: bytes | None  #: None: a tombstone
    key: bytes | None = None
    timestamp_ms: int = 0  #: since 1970; 0: the time of sending


@dataclass(frozen=True, slots=True)
class Sent:
    """What `qod.send` did."""

    topic: str
    rows: int  #: acknowledged by the broker
    note: str = ""  #: what the author should know

    def __repr__(self) -> str:
        line = f"{self.rows} row{'' if self.rows == 1 else 's'} sent to {self.topic!r}"
        return f"{line}; {self.note}" if self.note else line


# -- rows to records ---------------------------------------------------------------------------------------------------


def records(rows: Any, key: By | None = None, timestamp: By | None = None) -> Iterator[Record]:
    """Yield the Kafka record of each row.

    Args:
        rows: dicts, raw values, or a DataFrame; a single dict or raw value is one row.
        key: the column, or the function of a row, that gives the record's key: bytes and text as they are, other
            values as JSON.
        timestamp: the same for the record's timestamp: a datetime (UTC unless it has a zone) or milliseconds since
            1970.

    Raises:
        UsageProblem: a row, a value in it, its key or its timestamp can't be written; it names the row.

    """
    if _is_spark(rows):
        yield from _of_spark(rows, key, timestamp)
        return
    for number, row in enumerate(_each(rows), 1):
        try:
            given = _as_mapping(row)
            yield Record(
                _value(given),
                None if key is None else _key(_picked(given, key, "key")),
                0 if timestamp is None else _milliseconds(_picked(given, timestamp, "timestamp")),
            )
        except _Unwritable as problem:
            raise UsageProblem(f"row {number}: {problem}") from None


class _Unwritable(Exception):
    """What is wrong with a row, as the end of a sentence."""


def _each(rows: Any) -> Iterable[Any]:
    """Return the rows in what was given."""
    if isinstance(rows, Mapping | str | bytes | bytearray | memoryview) or hasattr(rows, "asDict"):
        return (rows,)
    if hasattr(rows, "_asdict") or (is_dataclass(rows) and not isinstance(rows, type)):
        return (rows,)
    kind = type(rows).__module__.partition(".")[0]
    if kind == "pandas" and hasattr(rows, "columns"):
        return _of_pandas(rows)
    for method in ("to_dicts", "to_pylist"):  # Polars, Arrow
        if hasattr(rows, method):
            listed: list[Any] = getattr(rows, method)()
            return listed
    if rows is None or not isinstance(rows, Iterable):
        raise UsageProblem(
            f"rows must be dicts, bytes, text or a DataFrame, got {type(rows).__name__}; a single row is a dict"
        )
    found: Iterable[Any] = rows
    return found


def _of_pandas(frame: Any) -> Iterator[dict[Any, Any]]:
    """Yield the rows of a pandas DataFrame.

    Missing values are null. Whole numbers of a column that pandas made float for their sake are whole again: Spark
    reads no 5.0 for an INT.
    """
    columns = []
    for position in range(frame.shape[1]):
        column = frame.iloc[:, position]
        values, missing = column.tolist(), column.isna().tolist()
        known = [value for value, gone in zip(values, missing, strict=True) if not gone]
        whole = len(known) < len(values) and all(isinstance(each, float) and each.is_integer() for each in known)
        pairs = zip(values, missing, strict=True)
        columns.append([None if gone else int(value) if whole else value for value, gone in pairs])
    names = list(frame.columns)
    for values in zip(*columns, strict=True) if columns else ():
        yield dict(zip(names, values, strict=True))


def _as_mapping(row: Any) -> Any:
    """Return a row that has columns as a dict, and others as they are."""
    if isinstance(row, Mapping):
        return row
    if hasattr(row, "asDict"):
        return row.asDict(recursive=True)
    if hasattr(row, "_asdict"):
        return row._asdict()
    if is_dataclass(row) and not isinstance(row, type):
        return asdict(row)
    return row


def _value(row: Any) -> bytes | None:
    match row:
        case None:
            return None
        case Mapping():
            columns = {str(name): _plain(value, str(name)) for name, value in row.items()}
            return json.dumps(columns, ensure_ascii=False, allow_nan=False).encode()
        case str():
            return row.encode()
        case bytes() | bytearray() | memoryview():
            return bytes(row)
    raise _Unwritable(f"it must be a dict, bytes or text, got {type(row).__name__}")


def _plain(value: Any, where: str) -> Any:
    """Return a value as JSON has it, such that Spark's JSON reader makes the same of it."""
    match value:
        case None | bool() | int() | str() if type(value) in (type(None), bool, int, str):
            return value
        case Enum():
            return _plain(value.value, where)
        case float():  # also numpy's
            return (
                float(value)
                if math.isfinite(value)
                else str(float(value)).replace("inf", "Infinity").replace("nan", "NaN")
            )
        case Decimal():
            return float(value) if Decimal(repr(float(value))) == value else str(value)
        case datetime():
            return None if value != value else value.isoformat(timespec="microseconds")  # pandas' NaT is none
        case date():
            return value.isoformat()
        case bool() | int():
            return int(value)
        case str():
            return str(value)
        case bytes() | bytearray() | memoryview():
            return base64.b64encode(bytes(value)).decode()
        case UUID():
            return str(value)
    value = _as_mapping(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(each, f"{where}.{name}") for name, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(each, where) for each in value]
    if hasattr(value, "tolist"):  # numpy's scalars and arrays
        as_python = value.tolist()
        if type(as_python) is not type(value):
            return _plain(as_python, where)
    if type(value).__name__ == "NAType":
        return None
    raise _Unwritable(
        f"column {where!r} must hold numbers, text, dates, bytes, lists or dicts, got {type(value).__name__}"
    )


def _picked(row: Any, by: By, what: str) -> Any:
    if not isinstance(by, str):
        return by(row)
    if not isinstance(row, Mapping):
        raise _Unwritable(f"{what}={by!r} names a column, and it has none; give a function of the row")
    if by not in row:
        raise _Unwritable(f"{what}={by!r} names no column of it; it has {', '.join(map(str, row)) or 'none'}")
    return row[by]


def _key(key: Any) -> bytes | None:
    match key:
        case None:
            return None
        case str():
            return key.encode()
        case bytes() | bytearray() | memoryview():
            return bytes(key)
    plain = _plain(key, "key")
    return plain.encode() if isinstance(plain, str) else json.dumps(plain).encode()


def _milliseconds(at: Any) -> int:
    if isinstance(at, datetime) and at == at:
        aware = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
        return _since_1970(round(aware.timestamp() * 1000))
    if hasattr(at, "item") and not isinstance(at, int):
        at = at.item()
    if isinstance(at, int) and not isinstance(at, bool):
        return _since_1970(at)
    raise _Unwritable(f"the timestamp must be a datetime or whole milliseconds since 1970, got {at!r}")


def _since_1970(milliseconds: int) -> int:
    """Return the milliseconds themselves, if a Kafka client takes them for a timestamp: to it 0 is now."""
    if milliseconds <= 0:
        raise _Unwritable(f"the timestamp must be after 1970-01-01, got {milliseconds} ms")
    return milliseconds


# -- Spark DataFrames --------------------------------------------------------------------------------------------------


def _is_spark(rows: Any) -> bool:
    return type(rows).__module__.startswith("pyspark.sql") and hasattr(rows, "toLocalIterator")


def _of_spark(frame: Any, key: By | None, timestamp: By | None) -> Iterator[Record]:
    """Yield the records of a Spark DataFrame. Spark writes their JSON: it knows the types."""
    from pyspark.sql import functions as F

    if frame.isStreaming:
        raise UsageProblem("rows must be a batch DataFrame, got a streaming one; write it with --sink kafka:TOPIC")
    for what, by in (("key", key), ("timestamp", timestamp)):
        if by is not None and not isinstance(by, str):
            raise UsageProblem(f"{what} must be a column's name where the rows are a Spark DataFrame, got a function")
        if by is not None and by not in frame.columns:
            raise UsageProblem(f"{what}={by!r} must be one of the columns {', '.join(frame.columns)}")
    types = dict(frame.dtypes)

    def keyed(by: str) -> Any:
        column = frame[by]
        if types[by] in ("binary", "string"):
            return column.cast("binary")
        if types[by].startswith(("struct", "array", "map")):
            return F.to_json(column).cast("binary")
        return column.cast("string").cast("binary")

    def timed(by: str) -> Any:
        return frame[by].cast("long") if types[by] in ("bigint", "int") else F.unix_millis(frame[by].cast("timestamp"))

    columns = [
        F.to_json(F.struct("*"), {"ignoreNullFields": "false"}).alias("value"),
        (F.lit(None).cast("binary") if key is None else keyed(str(key))).alias("key"),
        (F.lit(0).cast("long") if timestamp is None else timed(str(timestamp))).alias("timestamp"),
    ]
    for number, (value, record_key, at) in enumerate(frame.select(*columns).toLocalIterator(), 1):
        try:
            at_ms = 0 if timestamp is None else _milliseconds(at)
        except _Unwritable as problem:
            raise UsageProblem(f"row {number}: {problem}") from None
        yield Record(value.encode(), None if record_key is None else bytes(record_key), at_ms)


# -- records to Kafka --------------------------------------------------------------------------------------------------


class RowSender:
    """Sends records to a cluster, with one producer for all calls.

    Args:
        kafka: the cluster.

    """

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._producer: Producer | None = None

    def __repr__(self) -> str:
        return f"sender to Kafka at {self._kafka.bootstrap}"

    def send(self, topic: str, rows: Iterable[Record], timeout_s: float = TIMEOUT_S) -> int:
        """Send records to a topic that exists, and return how many the broker acknowledged: all of them.

        Raises:
            KafkaError: some were not acknowledged within `timeout_s` seconds of the last one; it says how many were.
            Raises whatever `rows` raises; what it yielded before is sent.

        """
        done, failed = 0, 0
        first_error = ""

        def delivered(error: Any, _: Any) -> None:
            nonlocal done, failed, first_error
            if error is None:
                done += 1
            else:
                failed += 1
                first_error = first_error or str(error.str())

        producer = self._opened()
        try:
            for record in rows:
                self._produce(producer, topic, record, delivered, timeout_s)
        except KafkaException as error:
            raise KafkaError(f"Kafka must take the rows of {topic!r}, got: {said(error)}; {done} were sent") from error
        finally:
            left = producer.flush(timeout_s)
            if left:
                producer.purge()
                producer.flush(1.0)
        if failed:
            why = first_error or "no answer"
            raise KafkaError(
                f"{failed} of {done + failed} rows were not acknowledged by topic {topic!r}: {why}; send these again",
                name=topic,
                value=failed,
                rule="acknowledged",
            )
        return done

    def close(self) -> None:
        """Drop the producer."""
        self._producer = None

    def _opened(self) -> Producer:
        if self._producer is None:
            try:
                self._producer = self._kafka.producer({**_PRODUCER, **self._kafka.client_config()})
            except KafkaException as error:
                raise KafkaError(f"Kafka client options must suit a producer, got: {said(error)}") from error
        return self._producer

    @staticmethod
    def _produce(
        producer: Producer, topic: str, record: Record, delivered: Callable[[Any, Any], None], timeout_s: float
    ) -> None:
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                producer.produce(topic, record.value, record.key, on_delivery=delivered, timestamp=record.timestamp_ms)
            except BufferError:  # its queue is full
                if time.monotonic() > deadline:
                    raise KafkaError(
                        f"Kafka must take the rows of {topic!r} within {timeout_s:g} s, got no room; is it running?"
                    ) from None
                producer.poll(0.1)
                continue
            producer.poll(0)
            return
