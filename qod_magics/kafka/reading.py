"""Records of a topic: its newest ones, read as they come, and those of single offsets."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka import KafkaError as ClientError

from qod_magics.errors import KafkaError
from qod_magics.kafka.cluster import Kafka
from qod_magics.kafka.offsets import beginning_offsets, end_offsets
from qod_magics.kafka.topics import said

TIMEOUT_S = 5.0
_AT_ONCE = 5000  #: records of one call
_POLL_S = 0.05
#: Asked for by the client; no group is joined and no offset kept.
_GROUP: Mapping[str, Any] = {"group.id": "qod-show"}
_OPTIONS: Mapping[str, Any] = {
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",  # retention may have deleted what comes next
    "enable.partition.eof": True,  # the last offsets may hold no records
}
#: The group and options of reading single offsets.
_PEEK_GROUP: Mapping[str, Any] = {
    "group.id": "qod-peek",
    "isolation.level": "read_uncommitted",  # as Spark reads by default
}
_PEEK_OPTIONS: Mapping[str, Any] = {
    "enable.auto.commit": False,
    "auto.offset.reset": "error",  # offsets that are gone hold no record to look at
    "enable.partition.eof": True,
    "queued.max.messages.kbytes": 1024,
}


@dataclass(frozen=True, slots=True)
class Record:
    """A record of a topic."""

    partition: int
    value: bytes
    key: bytes | None = None
    at_ms: int = 0  #: its timestamp, milliseconds since 1970
    headers: Mapping[str, bytes] = field(default_factory=dict)  #: the last one of each name


@dataclass(frozen=True, slots=True)
class News:
    """The records of a topic since the last look."""

    records: tuple[Record, ...]  #: those of a partition in their order
    skipped: int = 0  #: how many older ones were left out

    @property
    def by_time(self) -> list[Record]:
        """The records in the order in which they were written: by their timestamps, and those of a partition as they
        are, also where a clock was set back."""
        latest: dict[int, int] = {}
        times = []
        for record in self.records:
            latest[record.partition] = max(record.at_ms, latest.get(record.partition, record.at_ms))
            times.append(latest[record.partition])
        return [record for _, record in sorted(zip(times, self.records, strict=True), key=lambda timed: timed[0])]


class Tail:
    """Reads a topic from its newest records on. Nothing is fetched between two looks. Not thread-safe; `close` it.

    Args:
        kafka: the cluster.
        topic: need not have records yet.
        most: of a partition in one look; older ones are skipped.
        starting: offsets by partition before which nothing is read; other partitions are read from their beginning, and
            so are all once the topic was made anew.

    """

    def __init__(self, kafka: Kafka, topic: str, most: int, starting: Mapping[int, int] | None = None) -> None:
        self.topic = topic
        self._kafka, self._most, self._starting = kafka, most, dict(starting or {})
        self._position: dict[int, int] = {}  #: the offset of the next record, by partition
        self._consumer: Consumer | None = None

    def __repr__(self) -> str:
        return f"tail of topic {self.topic}, at {self._position or 'its beginning'}"

    def read(self, timeout_s: float = TIMEOUT_S) -> News:
        """The records that were there when it was called, or as many of them as came in time.

        Raises:
            KafkaError: there is no such topic, or the broker does not answer, or sends nothing, in time.

        """
        deadline = time.monotonic() + timeout_s
        ends = end_offsets(self._kafka, [self.topic], timeout_s=timeout_s)[self.topic]
        known = {**self._starting, **self._position}
        if any(end < known.get(partition, 0) for partition, end in ends.items()):
            self._position, self._starting = {}, {}  # it was deleted and made anew
        if ends.keys() - self._position.keys():
            first = beginning_offsets(self._kafka, [self.topic], timeout_s=timeout_s)[self.topic]
            first = {partition: max(at, self._starting.get(partition, 0)) for partition, at in first.items()}
            self._position = {partition: self._position.get(partition, at) for partition, at in first.items()}
        starts = {partition: max(at, ends.get(partition, 0) - self._most) for partition, at in self._position.items()}
        skipped = sum(starts[partition] - at for partition, at in self._position.items())
        self._position = starts
        waiting = {partition for partition, at in starts.items() if at < ends.get(partition, 0)}
        try:
            records = self._fetch(ends, waiting, deadline) if waiting else []
        except KafkaException as error:
            raise KafkaError(f"Kafka returned no records of {self.topic!r}: {said(error)}.") from error
        return News(tuple(records), skipped)

    def close(self) -> None:
        """Drop the connection; the next look makes another one, and goes on where this one was."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def _fetch(self, ends: Mapping[int, int], waiting: set[int], deadline: float) -> list[Record]:
        if self._consumer is None:
            self._consumer = self._kafka.consumer({**_GROUP, **self._kafka.client_config(), **_OPTIONS})
        found: list[Record] = []
        position = dict(self._position)
        self._consumer.assign([TopicPartition(self.topic, each, self._position[each]) for each in sorted(waiting)])
        try:
            while waiting:
                if time.monotonic() > deadline:
                    if found:
                        break
                    raise KafkaError(f"Kafka did not return the records of {self.topic!r} in time. Is it overloaded?")
                for message in self._consumer.consume(_AT_ONCE, _POLL_S):
                    error, partition, offset = message.error(), message.partition(), message.offset()
                    if error is not None and error.code() == ClientError.GROUP_AUTHORIZATION_FAILED:
                        continue  # said of the group that the client asks for, which is of no use here
                    if error is not None and error.code() != ClientError._PARTITION_EOF:
                        raise KafkaException(error)
                    if partition not in waiting or offset is None:  # written since
                        continue
                    if error is None and offset < ends[partition]:
                        headers: Any = message.headers() or ()
                        at_ms = message.timestamp()[1]
                        found.append(Record(partition, message.value() or b"", message.key(), at_ms, dict(headers)))
                        position[partition] = offset + 1
                    if error is not None:  # of a replica that lags, or an open transaction, it is below the end
                        position[partition] = max(offset, position[partition])
                    if error is not None or offset + 1 >= ends[partition]:
                        waiting.discard(partition)
        finally:
            self._consumer.unassign()
        self._position = position  # had it failed, the same records are read again
        return found


@dataclass(frozen=True, slots=True)
class Seen:
    """The records of a range of offsets in one partition."""

    start: int
    values: Mapping[int, bytes | None]  #: by offset
    reached: int  #: the range was read up to this offset, exclusively

    @property
    def has_gaps(self) -> bool:
        """Whether some offset below `reached` holds no record."""
        return len(self.values) < self.reached - self.start


def peek(
    kafka: Kafka, topic: str, partition: int, start: int, end: int, most: int = 1, timeout_s: float = TIMEOUT_S
) -> Seen:
    """Read the records from offset `start` to before `end`, at most `most` of them.

    Raises:
        KafkaError: the broker does not answer within `timeout_s` seconds, or no longer has `start`.

    """
    deadline = time.monotonic() + timeout_s
    consumer = kafka.consumer({**_PEEK_GROUP, **kafka.client_config(), **_PEEK_OPTIONS})
    values: dict[int, bytes | None] = {}
    reached = start
    try:
        consumer.assign([TopicPartition(topic, partition, start)])
        while reached < end and len(values) < most:
            if time.monotonic() > deadline:
                raise KafkaError(f"Kafka did not return the records of {topic!r} in time. Is it overloaded?")
            for message in consumer.consume(most, _POLL_S):
                error, offset = message.error(), message.offset()
                if error is not None and error.code() == ClientError.GROUP_AUTHORIZATION_FAILED:
                    continue
                if error is not None and error.code() != ClientError._PARTITION_EOF:
                    raise KafkaException(error)
                if offset is None:
                    continue
                if error is None and offset < end and len(values) < most:
                    values[offset] = message.value()
                    reached = offset + 1
                elif error is not None or offset >= end:
                    reached = max(reached, min(offset, end))
                    end = min(end, reached)  # an open transaction may end below the end of the topic
    except KafkaException as error:
        raise KafkaError(f"Kafka returned no records of {topic!r}: {said(error)}.") from error
    finally:
        consumer.close()
    return Seen(start, values, reached)
