"""Topics of a Kafka cluster: create, delete, count partitions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future

from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AclOperation, OffsetSpec, TopicMetadata
from confluent_kafka.cimpl import NewPartitions, NewTopic

from qod_magics.errors import KafkaError, nearest
from qod_magics.kafka.cluster import Kafka
from qod_magics.kafka.names import own_topic, session_of
from qod_magics.kafka.properties import LARGEST_BATCH, Retention

TIMEOUT_S = 15.0
#: Errors of a topic that is not available now.
_NOT_THERE = (
    ClientError.UNKNOWN_TOPIC_OR_PART,
    ClientError.LEADER_NOT_AVAILABLE,
    ClientError.TOPIC_EXCEPTION,
)

#: The setting of a topic that some brokers bound.
LARGEST = "max.message.bytes"
_REFUSED = (ClientError.INVALID_CONFIG, ClientError.POLICY_VIOLATION)


def create_topics(
    kafka: Kafka,
    topics: Mapping[str, int],
    *,
    retention: Retention | None = None,
    timeout_s: float = TIMEOUT_S,
) -> None:
    """Create these topics (name -> partitions), and wait until they are writable. An existing one with as many
    partitions is left as it is.

    Args:
        kafka: the cluster.
        topics: how many partitions each has.
        retention: of each partition, of a topic of our own, which may have large records, too; default the broker's
            own settings.
        timeout_s: for everything together, seconds.

    Raises:
        KafkaError: a topic has another number of partitions, or the broker refuses or does not answer.

    """
    listed = _listed(kafka, timeout_s)
    there = {name: len(topic.partitions) for name, topic in listed.items()}
    for name, count in topics.items():
        if there.get(name, count) != count:
            raise KafkaError(
                f"Topic {name!r} has {there[name]} partitions, not {count}: delete it first, or take {there[name]}.",
                name=name,
                rule="partitions",
            )
    missing = {name: count for name, count in topics.items() if name not in there}
    if not missing:
        return

    def create(config: Mapping[str, str]) -> None:
        new = [NewTopic(n, num_partitions=c, replication_factor=-1, config=dict(config)) for n, c in missing.items()]
        asked = kafka.admin().create_topics(new, operation_timeout=timeout_s, request_timeout=timeout_s)
        _settle(asked, "create", unless=ClientError.TOPIC_ALREADY_EXISTS)

    config = _config(retention)
    try:
        create(config)
    except KafkaError as error:
        refused = isinstance(error.__cause__, KafkaException) and error.__cause__.args[0].code() in _REFUSED
        if not refused or LARGEST not in config:
            raise
        create({name: value for name, value in config.items() if name != LARGEST})  # smaller records, then
    _wait(lambda: missing.items() <= topic_partitions(kafka, timeout_s=timeout_s).items(), missing, "appear", timeout_s)


def grow_topics(kafka: Kafka, topics: Mapping[str, int]) -> None:
    """Add partitions to these topics (name -> new total) and wait until they exist. A topic that has as many or more is
    left as it is.

    Raises:
        KafkaError: the broker refuses or does not answer.

    """
    if not topics:
        return
    new = [NewPartitions(name, count) for name, count in topics.items()]
    asked = kafka.admin().create_partitions(new, operation_timeout=TIMEOUT_S, request_timeout=TIMEOUT_S)
    _settle(asked, "grow", unless=ClientError.INVALID_PARTITIONS)

    def have_grown() -> bool:
        there = topic_partitions(kafka)
        return all(there.get(name, 0) >= count for name, count in topics.items())

    _wait(have_grown, topics, "grow", TIMEOUT_S)


def delete_topics(kafka: Kafka, topics: Iterable[str], *, timeout_s: float = TIMEOUT_S) -> None:
    """Delete these topics with their data and wait until they are gone. A missing one is no error.

    Raises:
        KafkaError: the broker refuses or does not answer.

    """
    names = list(topics)
    if not names:
        return
    asked = kafka.admin().delete_topics(names, operation_timeout=timeout_s, request_timeout=timeout_s)
    _settle(asked, "delete", unless=ClientError.UNKNOWN_TOPIC_OR_PART)
    _wait(lambda: not set(names) & set(topic_partitions(kafka, timeout_s=timeout_s)), names, "disappear", timeout_s)


def topic_partitions(kafka: Kafka, *, timeout_s: float = TIMEOUT_S) -> dict[str, int]:
    """Return all topics available now, with their partition counts; without Kafka's internal ones (`__...`).

    Raises:
        KafkaError: the broker does not answer within `timeout_s` seconds.

    """
    return {name: len(topic.partitions) for name, topic in _listed(kafka, timeout_s).items() if _has_leaders(topic)}


def readable_partitions(kafka: Kafka, names: Collection[str], *, timeout_s: float = TIMEOUT_S) -> dict[str, int]:
    """Partition counts of the available ones of these topics. Requests no metadata of other topics, of which a shared
    cluster may have thousands.

    Raises:
        KafkaError: the broker does not answer within `timeout_s` seconds.

    """
    if not names:
        return {}
    found = {}
    asked = kafka.admin().describe_topics(TopicCollection(sorted(names)), request_timeout=timeout_s)
    for name, answer in asked.items():
        try:
            described = answer.result(timeout_s + 1.0).partitions
        except (KafkaException, TimeoutError) as error:
            if isinstance(error, KafkaException) and error.args[0].code() in _NOT_THERE:
                continue
            why = said(error) if isinstance(error, KafkaException) else "no answer"
            raise KafkaError(f"Kafka at {kafka.bootstrap} does not answer: {why}. Is it running?") from error
        if all(partition.leader is not None and partition.leader.id >= 0 for partition in described):
            found[name] = len(described)
    return found


def absent_topics(kafka: Kafka, names: Collection[str], *, timeout_s: float = TIMEOUT_S) -> set[str]:
    """Return those of these topics of which the broker says that there are none. A topic without a leader is there, and
    so is one that may not be read, or of which the broker says nothing within `timeout_s` seconds."""
    found = set()
    asked = kafka.admin().describe_topics(TopicCollection(sorted(names)), request_timeout=timeout_s) if names else {}
    for name, answer in asked.items():
        try:
            answer.result(timeout_s + 1.0)
        except TimeoutError:
            continue
        except KafkaException as error:
            if error.args[0].code() == ClientError.UNKNOWN_TOPIC_OR_PART:
                found.add(name)
    return found


def check_answers(kafka: Kafka, *, timeout_s: float = TIMEOUT_S) -> None:
    """Raise KafkaError if the broker does not answer. Requests no metadata of topics."""
    try:
        kafka.admin().describe_cluster(request_timeout=timeout_s).result(timeout_s + 1.0)
    except (KafkaException, TimeoutError) as error:
        why = said(error) if isinstance(error, KafkaException) else "no answer"
        raise KafkaError(f"Kafka at {kafka.bootstrap} does not answer: {why}. Is it running?") from error


def check_writable(kafka: Kafka, names: Collection[str], *, timeout_s: float = TIMEOUT_S) -> None:
    """Raise KafkaError if the broker says that the login may not write to one of these topics, which are there."""
    if not names:
        return
    asked = kafka.admin().describe_topics(
        TopicCollection(sorted(names)), include_authorized_operations=True, request_timeout=timeout_s
    )
    for name, answer in asked.items():
        try:
            may = answer.result(timeout_s + 1.0).authorized_operations
        except (KafkaException, TimeoutError):  # those that write find out
            continue
        if may and AclOperation.WRITE not in may:
            raise KafkaError(
                f"the login at {kafka.bootstrap} must have the right to write to topic {name!r}, got "
                f"{', '.join(sorted(each.name for each in may))}; add Write, or take another sink",
                name=name,
                rule="writes",
            )


def partitions(kafka: Kafka, topic: str) -> int:
    """Return the number of partitions of a topic.

    Raises:
        KafkaError: there is no such topic (the nearest name is suggested), or the broker does not answer.

    """
    listed = _listed(kafka, TIMEOUT_S)
    if topic not in listed or not _has_leaders(listed[topic]):
        raise KafkaError(_unavailable(topic, listed))
    return len(listed[topic].partitions)


def unavailable(kafka: Kafka, topic: str, *, timeout_s: float = TIMEOUT_S) -> str:
    """Return the message for a topic that is not available. Raises KafkaError: the broker does not answer."""
    return _unavailable(topic, _listed(kafka, timeout_s))


def _unavailable(topic: str, listed: Collection[str]) -> str:
    """Return the message for a topic that is not available, where these are listed: it has no leader, or is not among
    them."""
    if topic in listed:
        return f"Topic {topic!r} has partitions without a leader: wait until their brokers are up again."
    return f"There is no topic {topic!r}.{nearest(topic, listed)} `%qod topic {topic}` creates it."


def id_of(kafka: Kafka, *, timeout_s: float = TIMEOUT_S) -> str:
    """Return the id of a cluster; "" where it tells none.

    Raises:
        KafkaError: the broker does not answer within `timeout_s` seconds.

    """
    try:
        return str(kafka.admin().list_topics(timeout=timeout_s).cluster_id or "")
    except KafkaException as error:
        raise KafkaError(
            f"Kafka at {kafka.bootstrap} must tell which cluster it is, got no answer ({said(error)}); is it running?",
            rule="answers",
        ) from error


def _listed(kafka: Kafka, timeout_s: float) -> dict[str, TopicMetadata]:
    """Return all topics, with or without leaders; without Kafka's internal ones. Raises KafkaError: the broker does not
    answer in time."""
    try:
        topics = kafka.admin().list_topics(timeout=timeout_s).topics
    except KafkaException as error:
        raise KafkaError(f"Kafka at {kafka.bootstrap} does not answer: {said(error)}. Is it running?") from error
    return {name: topic for name, topic in topics.items() if topic.error is None and not name.startswith("__")}


def _has_leaders(topic: TopicMetadata) -> bool:
    return all(partition.leader >= 0 for partition in topic.partitions.values())


def said(error: KafkaException) -> str:
    """Return the text of librdkafka's error."""
    cause = error.args[0] if error.args else error
    return cause.str() if isinstance(cause, ClientError) else str(cause)


def _config(retention: Retention | None) -> dict[str, str]:
    if retention is None:
        return {}
    return {
        "retention.bytes": str(retention.bytes),
        "retention.ms": str(retention.milliseconds),
        "segment.bytes": str(retention.segment_bytes),
        "segment.ms": str(retention.roll_ms),
        LARGEST: str(LARGEST_BATCH),
    }


def _settle(asked: Mapping[str, Future[None]], what: str, unless: int) -> None:
    for name, answer in asked.items():
        try:
            answer.result()
        except KafkaException as error:
            if error.args[0].code() != unless:
                raise KafkaError(f"Kafka did not {what} topic {name!r}: {said(error)}.") from error


def _wait(done: Callable[[], bool], names: Iterable[str], what: str, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not done():
        if time.monotonic() > deadline:
            raise KafkaError(
                f"Topics {', '.join(names)} did not {what} within {timeout_s:.0f} s: look at the broker's log."
            )
        time.sleep(0.02)


# --- Presence of a session --------------------------------------------------------------------------------------------
# Which sessions are alive on a broker that several use: each has a topic to which it writes once a minute. The topics
# of a session that was killed are deleted by the next one that uses the broker, a day later: a session that has written
# nothing for a night may be on a machine that was asleep.

BEAT_S = 60.0
#: A session that has not written for this long, seconds, is dead.
DEAD_S = 24 * 3600.0
ANSWER_WITHIN_S = 5.0
#: Of the topic to which a session writes: the last record stays, however long ago the session was killed.
KEEP = Retention(bytes=1 << 20, seconds=None)  # a managed cluster may refuse smaller segments than the default
#: The topic of a session to which it writes.
_MARK = "alive"


class Presence:
    """Says that a session is alive, from `begin` to `end`.

    Args:
        kafka: the broker.
        session: id of the session, which begins the names of its topics.

    """

    def __init__(self, kafka: Kafka, session: str) -> None:
        self._session = session
        self.topic = own_topic(kafka.prefix, session, _MARK)
        self._kafka = kafka
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"presence-{session}", daemon=True)

    def __repr__(self) -> str:
        return f"presence by topic {self.topic}"

    def begin(self) -> None:
        """Create the topic, write to it, and go on from a thread. Raises KafkaError."""
        create_topics(self._kafka, {self.topic: 1}, retention=KEEP, timeout_s=ANSWER_WITHIN_S)
        self._thread.start()

    def end(self) -> None:
        """Write no more, and delete the topic; it stays where others of the session do, for a later session to find
        them by it. Raises KafkaError."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join(ANSWER_WITHIN_S)
            own = own_topic(self._kafka.prefix, self._session, "")
            if not any(
                name.startswith(own) and name != self.topic
                for name in topic_partitions(self._kafka, timeout_s=ANSWER_WITHIN_S)
            ):
                delete_topics(self._kafka, [self.topic], timeout_s=ANSWER_WITHIN_S)

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
    sessions that never wrote, and topics of other names or prefixes, stay. Raises KafkaError after all that can be
    deleted is."""
    there = topic_partitions(kafka, timeout_s=ANSWER_WITHIN_S)
    topics = {name: session for name in there if (session := session_of(kafka.prefix, name)) is not None}
    marked = {session for session in topics.values() if own_topic(kafka.prefix, session, _MARK) in topics}
    gone: dict[str, int] = {}
    failure: KafkaError | None = None
    for session in sorted(marked):
        mark = own_topic(kafka.prefix, session, _MARK)
        names = [name for name, of in topics.items() if of == session]
        try:
            if time.time() - _last_beat(kafka, mark) > dead_s:  # the mark last: what a failure leaves is found again
                delete_topics(kafka, [name for name in names if name != mark], timeout_s=ANSWER_WITHIN_S)
                delete_topics(kafka, [mark], timeout_s=ANSWER_WITHIN_S)
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
        (answer,) = kafka.admin().list_offsets(asked, request_timeout=ANSWER_WITHIN_S).values()
        at_ms = answer.result(ANSWER_WITHIN_S).timestamp
    except TimeoutError as error:
        raise KafkaError(f"Kafka did not return the last record of {topic!r} in time.") from error
    except KafkaException as error:
        raise KafkaError(f"Kafka did not return the last record of {topic!r}: {said(error)}.") from error
    return at_ms / 1000 if at_ms >= 0 else float("inf")
