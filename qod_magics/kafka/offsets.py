"""Where the partitions of a topic begin and end, asked of the broker."""

from __future__ import annotations

import time
from collections.abc import Iterable

from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from qod_magics.errors import KafkaError
from qod_magics.kafka.cluster import Kafka
from qod_magics.kafka.topics import said, topic_partitions, unknown

#: Topic -> partition -> offset.
Offsets = dict[str, dict[int, int]]
Asked = dict[TopicPartition, OffsetSpec]

_PASSING = (
    ClientError.NOT_LEADER_FOR_PARTITION,
    ClientError.LEADER_NOT_AVAILABLE,
    ClientError.UNKNOWN_TOPIC_OR_PART,
    ClientError.OFFSET_NOT_AVAILABLE,
    ClientError.UNKNOWN_LEADER_EPOCH,
    ClientError.FENCED_LEADER_EPOCH,
)


def end_offsets(kafka: Kafka, topics: Iterable[str], *, timeout_s: float = 2.0) -> Offsets:
    """The offset that the next row of each partition will get, for all partitions of these topics, in one request.

    Raises:
        KafkaError: a topic isn't there, or the broker does not answer within `timeout_s` seconds.

    """
    return _offsets(kafka, topics, OffsetSpec.latest(), timeout_s)


def beginning_offsets(kafka: Kafka, topics: Iterable[str], *, timeout_s: float = 2.0) -> Offsets:
    """The offset of the oldest row that each partition still has; its end offset where it has none.

    Raises:
        KafkaError: as `end_offsets`.

    """
    return _offsets(kafka, topics, OffsetSpec.earliest(), timeout_s)


def _offsets(kafka: Kafka, topics: Iterable[str], spec: OffsetSpec, timeout_s: float) -> Offsets:
    names = sorted(set(topics))
    if not names:
        return {}
    deadline = time.monotonic() + timeout_s
    there = topic_partitions(kafka, timeout_s=timeout_s)
    for name in names:
        if name not in there:
            raise KafkaError(unknown(name, there))
    asked = {TopicPartition(name, number): spec for name in names for number in range(there[name])}
    found: Offsets = {name: {} for name in names}
    while asked:
        asked = _ask(kafka, asked, found, deadline)
        if asked:
            time.sleep(0.05)
    return found


def _ask(kafka: Kafka, asked: Asked, found: Offsets, deadline: float) -> Asked:
    """Put the answers into `found`; what must be asked again: a partition that was just made or has just moved answers
    for a moment that it has no leader, or not yet that one."""
    left_s = max(0.1, deadline - time.monotonic())
    again: Asked = {}
    for partition, answer in kafka.admin().list_offsets(asked, request_timeout=left_s).items():
        try:
            found[partition.topic][partition.partition] = answer.result(left_s + 1.0).offset
        except (KafkaException, TimeoutError) as error:
            if time.monotonic() < deadline and _passes(error):
                again[partition] = asked[partition]
                continue
            why = said(error) if isinstance(error, KafkaException) else "no answer"
            where = f"{partition.topic}-{partition.partition}"
            raise KafkaError(f"Kafka did not tell the offsets of {where} in time: {why}. Is it overloaded?") from error
    return again


def _passes(error: Exception) -> bool:
    return isinstance(error, KafkaException) and error.args[0].code() in _PASSING
