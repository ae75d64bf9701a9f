"""Where the partitions of a topic begin and end, asked of the broker."""

from __future__ import annotations

import time
from collections.abc import Iterable

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from qod_magics.errors import KafkaError
from qod_magics.kafka.cluster import Kafka
from qod_magics.kafka.topics import said, topic_partitions, unknown

#: Topic -> partition -> offset.
Offsets = dict[str, dict[int, int]]


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
    left_s = max(0.1, deadline - time.monotonic())
    for partition, answer in kafka.admin().list_offsets(asked, request_timeout=left_s).items():
        try:
            found[partition.topic][partition.partition] = answer.result(left_s + 1.0).offset
        except (KafkaException, TimeoutError) as error:
            why = said(error) if isinstance(error, KafkaException) else "no answer"
            raise KafkaError(
                f"Kafka did not tell the offsets of {partition.topic}-{partition.partition} in {timeout_s:g} s: {why}."
            ) from error
    return found
