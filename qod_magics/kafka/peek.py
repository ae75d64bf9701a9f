"""A look at single records of a topic: whether offsets hold records, and what these are."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka import KafkaError as ClientError

from qod_magics.errors import KafkaError
from qod_magics.kafka.cluster import LOG, Kafka
from qod_magics.kafka.topics import said

TIMEOUT_S = 5.0
_POLL_S = 0.05
_GROUP: Mapping[str, Any] = {"group.id": "qod-peek", "isolation.level": "read_uncommitted"}  # as Spark reads by default
_OPTIONS: Mapping[str, Any] = {
    "enable.auto.commit": False,
    "auto.offset.reset": "error",  # offsets that are gone hold no record to look at
    "enable.partition.eof": True,
    "queued.max.messages.kbytes": 1024,
}


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
    consumer = Consumer({**_GROUP, **kafka.client_config(), **_OPTIONS}, logger=LOG)
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
