"""Beginning and end offsets of a topic's partitions, from the broker."""

from __future__ import annotations

import time
from collections.abc import Iterable

from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from qod_magics.errors import KafkaError
from qod_magics.kafka.cluster import Kafka
from qod_magics.kafka.topics import readable_partitions, said, unavailable

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
    """The end offsets (of the next row) of all partitions of these topics, in one request.

    Raises:
        KafkaError: a topic isn't there, or the broker does not answer within `timeout_s` seconds.

    """
    return _offsets(kafka, topics, OffsetSpec.latest(), timeout_s)


def known_end_offsets(kafka: Kafka, topics: Iterable[str], *, timeout_s: float = 2.0) -> tuple[Offsets, Problems]:
    """The end offsets of these topics; and for each topic whose offsets are missing, why.

    Raises:
        KafkaError: the broker does not answer at all within `timeout_s` seconds.

    """
    problems: Problems = {}
    return _offsets(kafka, topics, OffsetSpec.latest(), timeout_s, problems), problems


def beginning_offsets(kafka: Kafka, topics: Iterable[str], *, timeout_s: float = 2.0) -> Offsets:
    """The offset of the oldest retained row of each partition; its end offset if it is empty.

    Raises:
        KafkaError: as `end_offsets`.

    """
    return _offsets(kafka, topics, OffsetSpec.earliest(), timeout_s)


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
    """Whether the broker does not answer at all, rather than for one topic."""
    return not isinstance(error, KafkaException) or error.args[0].code() in _NO_ANSWER


def _is_transient(error: Exception) -> bool:
    return isinstance(error, KafkaException) and error.args[0].code() in _TRANSIENT
