"""Records of a topic: its newest ones, read as they come, and those of single offsets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka import KafkaError as ClientError
from confluent_kafka.admin import OffsetSpec

from qod_magics.errors import KafkaError
from qod_magics.kafka.cluster import Kafka
from qod_magics.kafka.topics import readable_partitions, said, unavailable

# --- Offsets ----------------------------------------------------------------------------------------------------------

#: Topic -> partition -> offset.
Offsets = dict[str, dict[int, int]]
Asked = dict[TopicPartition, OffsetSpec]
#: Topic -> why its offsets are missing.
Problems = dict[str, str]

_TRANSIENT = (
    ClientError.NOT_LEADER_FOR_PARTITION,
    ClientError.LEADER_NOT_AVAILABLE,
    ClientError.UNKNOWN_TOPIC_OR_PART,
    ClientError.OFFSET_NOT_AVAILABLE,
    ClientError.UNKNOWN_LEADER_EPOCH,
    ClientError.FENCED_LEADER_EPOCH,
)

_NO_ANSWER = (
    ClientError._TIMED_OUT,
    ClientError._TRANSPORT,
    ClientError._ALL_BROKERS_DOWN,
    ClientError.REQUEST_TIMED_OUT,
    ClientError.NETWORK_EXCEPTION,
)


def end_offsets(kafka: Kafka, topics: Iterable[str], *, timeout_s: float = 2.0) -> Offsets:
    """Return the end offsets (of the next row) of all partitions of these topics, in one request.

    Raises:
        KafkaError: a topic isn't there, or the broker does not answer within `timeout_s` seconds.

    """
    return _offsets(kafka, topics, OffsetSpec.latest(), timeout_s)


def known_end_offsets(kafka: Kafka, topics: Iterable[str], *, timeout_s: float = 2.0) -> tuple[Offsets, Problems]:
    """Return the end offsets of these topics; and for each topic whose offsets are missing, why.

    Raises:
        KafkaError: the broker does not answer at all within `timeout_s` seconds.

    """
    problems: Problems = {}
    return _offsets(kafka, topics, OffsetSpec.latest(), timeout_s, problems), problems


def beginning_offsets(kafka: Kafka, topics: Iterable[str], *, timeout_s: float = 2.0) -> Offsets:
    """Return the offset of the oldest retained row of each partition; its end offset if it is empty.

    Raises:
        KafkaError: as `end_offsets`.

    """
    return _offsets(kafka, topics, OffsetSpec.earliest(), timeout_s)


def offsets_at(kafka: Kafka, topics: Iterable[str], at_ms: int, *, timeout_s: float = 2.0) -> Offsets:
    """Return the offset of the first row of each partition that is as new as a time, in milliseconds since 1970, or
    newer; the end offset of a partition without one.

    Raises:
        KafkaError: as `end_offsets`.

    """
    names = list(topics)
    ends = end_offsets(kafka, names, timeout_s=timeout_s)
    found = _offsets(kafka, names, OffsetSpec.for_timestamp(at_ms), timeout_s)
    return {
        name: {number: offset if offset >= 0 else ends[name][number] for number, offset in partitions.items()}
        for name, partitions in found.items()
    }


def committed_offsets(kafka: Kafka, group: str, topic: str, *, timeout_s: float = 2.0) -> dict[int, int]:
    """Return the offsets that a consumer group has committed for a topic, by partition; others have no offset.

    Raises:
        KafkaError: the group has committed none for this topic, or the broker does not answer in time.

    """
    asked = kafka.admin().list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)], request_timeout=timeout_s)
    try:
        found = asked[group].result(timeout_s + 1.0).topic_partitions or []
    except (KafkaException, TimeoutError) as error:
        why = said(error) if isinstance(error, KafkaException) else "no answer"
        raise KafkaError(f"Kafka did not return the offsets of the consumer group {group!r}: {why}.") from error
    offsets = {each.partition: each.offset for each in found if each.topic == topic and each.offset >= 0}
    if not offsets:
        raise KafkaError(
            f"the consumer group {group!r} must have committed offsets of {topic!r}, got none; "
            "take --starting latest or earliest",
            name=group,
            rule="committed",
        )
    return offsets


def _offsets(
    kafka: Kafka, topics: Iterable[str], spec: OffsetSpec, timeout_s: float, problems: Problems | None = None
) -> Offsets:
    """With `problems`, topics whose offsets are missing go there instead of raising."""
    names = sorted(set(topics))
    if not names:
        return {}
    deadline = time.monotonic() + timeout_s
    there = readable_partitions(kafka, names, timeout_s=timeout_s)
    absent = [name for name in names if name not in there]
    if absent and problems is None:
        raise KafkaError(unavailable(kafka, absent[0], timeout_s=timeout_s))
    if problems is not None:
        problems.update((name, "the broker has no such topic, or no leader for it") for name in absent)
    names = [name for name in names if name in there]
    asked = {TopicPartition(name, number): spec for name in names for number in range(there[name])}
    found: Offsets = {name: {} for name in names}
    while asked:
        asked = _ask(kafka, asked, found, deadline, problems)
        if asked:
            time.sleep(0.05)
    return {name: partitions for name, partitions in found.items() if problems is None or name not in problems}


def _ask(kafka: Kafka, asked: Asked, found: Offsets, deadline: float, problems: Problems | None) -> Asked:
    """Put the answers into `found`; returns the requests to retry: a partition just created or moved has no leader, or
    a stale one, for a moment."""
    left_s = max(0.1, deadline - time.monotonic())
    again: Asked = {}
    for partition, answer in kafka.admin().list_offsets(asked, request_timeout=left_s).items():
        try:
            found[partition.topic][partition.partition] = answer.result(left_s + 1.0).offset
        except (KafkaException, TimeoutError) as error:
            if time.monotonic() < deadline and _is_transient(error):
                again[partition] = asked[partition]
                continue
            why = said(error) if isinstance(error, KafkaException) else "no answer"
            where = f"{partition.topic}-{partition.partition}"
            if problems is None or _no_answer(error):
                text = f"Kafka did not return the offsets of {where} in time: {why}. Is it overloaded?"
                raise KafkaError(text) from error
            problems[partition.topic] = f"no offsets of partition {partition.partition}: {why}"
    return again


def _no_answer(error: Exception) -> bool:
    """Return whether the broker does not answer at all, rather than for one topic."""
    return not isinstance(error, KafkaException) or error.args[0].code() in _NO_ANSWER


def _is_transient(error: Exception) -> bool:
    return isinstance(error, KafkaException) and error.args[0].code() in _TRANSIENT


TIMEOUT_S = 5.0
COUNTED_WITHIN_S = 30.0  #: timeout of `count_sent`
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
        """Return the records in the order in which they were written: by their timestamps, and those of a partition as
        they are, also where a clock was set back."""
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
            so are all once the topic was created again.

    """

    def __init__(self, kafka: Kafka, topic: str, most: int, starting: Mapping[int, int] | None = None) -> None:
        self.topic = topic
        self._kafka, self._most, self._starting = kafka, most, dict(starting or {})
        self._position: dict[int, int] = {}  #: the offset of the next record, by partition
        self._consumer: Consumer | None = None

    def __repr__(self) -> str:
        return f"tail of topic {self.topic}, at {self._position or 'its beginning'}"

    def read(self, timeout_s: float = TIMEOUT_S) -> News:
        """Return the records that were there when it was called, or as many of them as came in time.

        Raises:
            KafkaError: there is no such topic, or the broker does not answer, or sends nothing, in time.

        """
        deadline = time.monotonic() + timeout_s
        ends = end_offsets(self._kafka, [self.topic], timeout_s=timeout_s)[self.topic]
        known = {**self._starting, **self._position}
        if any(end < known.get(partition, 0) for partition, end in ends.items()):
            self._position, self._starting = {}, {}  # it was deleted and created again
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


def count_sent(
    kafka: Kafka,
    topic: str,
    after_ms: int,
    counts: Callable[[int, Iterable[tuple[str, bytes]] | None], bool],
) -> int:
    """Return for how many of the records that were sent after a time `counts` is true; it is called with a record's
    timestamp, milliseconds since 1970, and its headers.

    Raises:
        KafkaError: there is no such topic, or the broker does not answer within COUNTED_WITHIN_S seconds.

    """
    deadline = time.monotonic() + COUNTED_WITHIN_S
    ends = end_offsets(kafka, [topic], timeout_s=TIMEOUT_S)[topic]
    starts = offsets_at(kafka, [topic], after_ms + 1, timeout_s=TIMEOUT_S)[topic]
    waiting = {partition for partition, start in starts.items() if start < ends.get(partition, 0)}
    if not waiting:
        return 0
    options = {**_PEEK_OPTIONS, "auto.offset.reset": "earliest", "queued.max.messages.kbytes": 16_384}
    consumer = kafka.consumer({**_PEEK_GROUP, **kafka.client_config(), **options})
    found = 0
    try:
        consumer.assign([TopicPartition(topic, each, starts[each]) for each in sorted(waiting)])
        while waiting:
            if time.monotonic() > deadline:
                raise KafkaError(f"Kafka did not return the records of {topic!r} in time. Is it overloaded?")
            for message in consumer.consume(_AT_ONCE, _POLL_S):
                error, partition, offset = message.error(), message.partition(), message.offset()
                if error is not None and error.code() == ClientError.GROUP_AUTHORIZATION_FAILED:
                    continue
                if error is not None and error.code() != ClientError._PARTITION_EOF:
                    raise KafkaException(error)
                if partition not in waiting or offset is None:
                    continue
                if error is None and offset < ends[partition]:
                    headers: Any = message.headers()
                    found += counts(message.timestamp()[1], headers)
                if error is not None or offset + 1 >= ends[partition]:
                    waiting.discard(partition)
    except KafkaException as error:
        raise KafkaError(f"Kafka returned no records of {topic!r}: {said(error)}.") from error
    finally:
        consumer.close()
    return found


@dataclass(frozen=True, slots=True)
class Seen:
    """The records of a range of offsets in one partition."""

    start: int
    values: Mapping[int, bytes | None]  #: by offset
    reached: int  #: the range was read up to this offset, exclusively
    first_ms: int | None = None  #: timestamp of the first record, milliseconds since 1970; None: there is none

    @property
    def has_gaps(self) -> bool:
        """Return whether some offset below `reached` holds no record."""
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
    reached, first_ms = start, None
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
                    first_ms = message.timestamp()[1] if first_ms is None else first_ms
                    reached = offset + 1
                elif error is not None or offset >= end:
                    reached = max(reached, min(offset, end))
                    end = min(end, reached)  # an open transaction may end below the end of the topic
    except KafkaException as error:
        raise KafkaError(f"Kafka returned no records of {topic!r}: {said(error)}.") from error
    finally:
        consumer.close()
    return Seen(start, values, reached, first_ms)
