"""Which sessions are alive on a broker that several use: each has a topic to which it writes once a minute. The topics
of a session that was killed are deleted by the next one that uses the broker, a day later: a session that has written
nothing for a night may be on a machine that was asleep."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from qod_magics.errors import KafkaError
from qod_magics.kafka.cluster import Kafka
from qod_magics.kafka.properties import Retention
from qod_magics.kafka.topics import create_topics, delete_topics, said, topic_partitions

BEAT_S = 60.0
#: A session that has not written for this long, seconds, is dead.
DEAD_S = 24 * 3600.0
TIMEOUT_S = 5.0
#: Of the topic to which a session writes: the last record stays, however long ago the session was killed.
KEEP = Retention(bytes=1 << 20, seconds=None)  # a managed cluster may refuse smaller segments than the default
#: A session's own topics, with its id, and the one to which it writes.
_OWN = re.compile(r"qod\.([0-9a-f]{6})\..+")
_MARK = "qod.{}.alive"


class Presence:
    """Says that a session is alive, from `begin` to `end`.

    Args:
        kafka: the broker.
        session: id of the session, which begins the names of its topics.

    """

    def __init__(self, kafka: Kafka, session: str) -> None:
        self._session = session
        self.topic = _MARK.format(session)
        self._kafka = kafka
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"presence-{session}", daemon=True)

    def __repr__(self) -> str:
        return f"presence by topic {self.topic}"

    def begin(self) -> None:
        """Create the topic, write to it, and go on from a thread. Raises KafkaError."""
        create_topics(self._kafka, {self.topic: 1}, retention=KEEP, timeout_s=TIMEOUT_S)
        self._thread.start()

    def end(self) -> None:
        """Write no more, and delete the topic; it stays where others of the session do, for a later session to find
        them by it. Raises KafkaError."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join(TIMEOUT_S)
            own = f"qod.{self._session}."
            if not any(
                name.startswith(own) and name != self.topic
                for name in topic_partitions(self._kafka, timeout_s=TIMEOUT_S)
            ):
                delete_topics(self._kafka, [self.topic], timeout_s=TIMEOUT_S)

    def _run(self) -> None:
        producer = self._kafka.producer({**self._kafka.client_config(), "message.timeout.ms": round(1000 * BEAT_S)})
        while True:
            producer.produce(self.topic, b"alive")
            producer.poll(0)
            if self._ended.wait(BEAT_S):
                break
        producer.flush(1.0)


def sweep(kafka: Kafka, dead_s: float = DEAD_S) -> Mapping[str, int]:
    """Delete the topics of sessions that have not written for `dead_s` seconds; how many, by session. Topics of
    sessions that never wrote, and topics of other names, stay. Raises KafkaError after all that can be deleted is."""
    topics = [name for name in topic_partitions(kafka, timeout_s=TIMEOUT_S) if _OWN.fullmatch(name)]
    sessions = {found[1] for name in topics if (found := _OWN.fullmatch(name))}
    marked = {session for session in sessions if _MARK.format(session) in topics}
    gone: dict[str, int] = {}
    failure: KafkaError | None = None
    for session in sorted(marked):
        mark = _MARK.format(session)
        names = [name for name in topics if name.startswith(f"qod.{session}.")]
        try:
            if time.time() - _last_beat(kafka, mark) > dead_s:  # the mark last: what a failure leaves is found again
                delete_topics(kafka, [name for name in names if name != mark], timeout_s=TIMEOUT_S)
                delete_topics(kafka, [mark], timeout_s=TIMEOUT_S)
                gone[session] = len(names)
        except KafkaError as error:  # another session sweeps, too, or may do what this one may not
            failure = failure or error
    if failure is not None:
        raise failure
    return gone


def _last_beat(kafka: Kafka, topic: str) -> float:
    """When a session wrote last, seconds since the epoch; infinity if it has not written yet, or it is not known."""
    asked = {TopicPartition(topic, 0): OffsetSpec.max_timestamp()}
    try:
        (answer,) = kafka.admin().list_offsets(asked, request_timeout=TIMEOUT_S).values()
        at_ms = answer.result(TIMEOUT_S).timestamp
    except TimeoutError as error:
        raise KafkaError(f"Kafka did not return the last record of {topic!r} in time.") from error
    except KafkaException as error:
        raise KafkaError(f"Kafka did not return the last record of {topic!r}: {said(error)}.") from error
    return at_ms / 1000 if at_ms >= 0 else float("inf")
