"""Where the partitions of a topic begin and end, asked of the broker."""

from __future__ import annotations

import time
from collections.abc import Iterable

from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from qod_magics.errors import KafkaError
from qod_magics.kafka.cluster import Kafka
from qod_magics.kafka.topics import readable_partitions, said, topic_partitions, unknown

#: Topic -> partition -> offset.
Offsets = dict[str, dict[int, int]]
Asked = dict[TopicPartition, OffsetSpec]
#: Topic -> why it has no answer.
Problems = dict[str, str]

_PASSING = (
    ClientError.NOT_LEADER_FOR_PARTITION,
    ClientError.LEADER_NOT_AVAILABLE,
    ClientError.UNKNOWN_TOPIC_OR_PART,
    ClientError.OFFSET_NOT_AVAILABLE,
    ClientError.UNKNOWN_LEADER_EPOCH,
    ClientError.FENCED_LEADER_EPOCH,
)

_SILENT = (
    ClientError._TIMED_OUT,
    ClientError._TRANSPORT,
    ClientError._ALL_BROKERS_DOWN,
    ClientError.REQUEST_TIMED_OUT,
    ClientError.NETWORK_EXCEPTION,
)


def end_offsets(kafka: Kafka, topics: Iterable[str], *, timeout_s: float = 2.0) -> Offsets:
    """The offset that the next row of each partition will get, for all partitions of these topics, in one request.

    Raises:
        KafkaError: a topic isn't there, or the broker does not answer within `timeout_s` seconds.

    """
    return _offsets(kafka, topics, OffsetSpec.latest(), timeout_s)


def known_end_offsets(kafka: Kafka, topics: Iterable[str], *, timeout_s: float = 2.0) -> tuple[Offsets, Problems]:
    """The same for those of the topics that have an answer; for each of the others, why it has none.

    Raises:
        KafkaError: the broker does not answer at all within `timeout_s` seconds.

    """
    problems: Problems = {}
    return _offsets(kafka, topics, OffsetSpec.latest(), timeout_s, problems), problems


def beginning_offsets(kafka: Kafka, topics: Iterable[str], *, timeout_s: float = 2.0) -> Offsets:
    """The offset of the oldest row that each partition still has; its end offset where it has none.

    Raises:
        KafkaError: as `end_offsets`.

    """
    return _offsets(kafka, topics, OffsetSpec.earliest(), timeout_s)


def _offsets(
    kafka: Kafka, topics: Iterable[str], spec: OffsetSpec, timeout_s: float, problems: Problems | None = None
) -> Offsets:
    """With `problems`, topics without an answer go there instead of raising."""
    names = sorted(set(topics))
    if not names:
        return {}
    deadline = time.monotonic() + timeout_s
    there = readable_partitions(kafka, names, timeout_s=timeout_s)
    absent = [name for name in names if name not in there]
    if absent and problems is None:
        raise KafkaError(unknown(absent[0], topic_partitions(kafka, timeout_s=timeout_s)))
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
            if problems is None or _is_silence(error):
                text = f"Kafka did not tell the offsets of {where} in time: {why}. Is it overloaded?"
                raise KafkaError(text) from error
            problems[partition.topic] = f"no offsets of partition {partition.partition}: {why}"
    return again


def _is_silence(error: Exception) -> bool:
    """Whether it is the broker that does not answer, not one topic that has no answer."""
    return not isinstance(error, KafkaException) or error.args[0].code() in _SILENT


def _passes(error: Exception) -> bool:
    return isinstance(error, KafkaException) and error.args[0].code() in _PASSING
