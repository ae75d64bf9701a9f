"""A Kafka cluster in memory, behind the protocol `kafka.cluster.Kafka`: topics are dicts, clients answer at once.

A test changes `topics`, or sets `fail`, which raises for an operation on a topic what a broker would answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException, TopicPartition

EARLIEST, MAX_TIMESTAMP = -2, -3  #: of librdkafka's `OffsetSpec`; from 0 on it is a time, any other asks for the end


@dataclass
class Partition:
    """One partition's records by offset; some offsets may hold none."""

    end: int = 0  #: the offset of the next record
    first: int = 0  #: the oldest that is retained
    values: dict[int, bytes | None] = field(default_factory=dict)
    headers: dict[int, list[tuple[str, bytes]]] = field(default_factory=dict)  #: of records with some
    beat_s: float = -1e-3  #: the latest timestamp of a record, seconds since 1970; below 0: it has none

    def append(self, value: bytes | None) -> None:
        self.values[self.end] = value
        self.end += 1


def failure(code: int, why: str | None = None) -> KafkaException:
    """What librdkafka raises for a broker's answer."""
    return KafkaException(ClientError(code, why) if why else ClientError(code))


def answer(call: Callable[[], Any]) -> Future[Any]:
    """A future that is done, with the result or the failure of a call."""
    found: Future[Any] = Future()
    try:
        found.set_result(call())
    except KafkaException as error:
        found.set_exception(error)
    return found


class FakeKafka:
    """A cluster with these topics (name -> number of partitions, all empty)."""

    bootstrap = "here:9092"
    prefix = ""
    own_retention = None

    def __init__(self, topics: Mapping[str, int] | None = None, options: Mapping[str, Any] | None = None) -> None:
        self.topics: dict[str, dict[int, Partition]] = {}
        self.options = dict(options or {})
        self.fail: Callable[[str, str], None] = lambda operation, topic: None
        self.rights: dict[str, list[Any]] = {}  #: what the login may do, by topic; of others it is not known
        self.id = "one"  #: of the cluster
        self.done: list[tuple[str, str]] = []  #: topics that were created and deleted, in order
        self.grown: list[dict[str, int]] = []  #: what was grown to how many partitions, by call
        self.producers: list[FakeProducer] = []
        self.consumers: list[FakeConsumer] = []
        for name, count in (topics or {}).items():
            self.create(name, count)

    def create(self, topic: str, partitions: int = 1, end: int = 0) -> None:
        """Create a topic whose partitions all end at an offset, without records before it."""
        self.topics[topic] = {number: Partition(end) for number in range(partitions)}

    def set_ends(self, topic: str, ends: Mapping[int, int]) -> None:
        """Let the partitions of a topic end at these offsets; the topic is created if need be."""
        there = self.topics.setdefault(topic, {})
        for partition, end in ends.items():
            there.setdefault(partition, Partition()).end = end

    def ends(self, topic: str) -> dict[int, int]:
        return {number: each.end for number, each in self.topics[topic].items()}

    # -- the protocol

    def admin(self) -> Any:
        return self

    def client_config(self) -> dict[str, Any]:
        return dict(self.options)

    def spark_options(self) -> dict[str, str]:
        return {}

    def producer(self, config: Mapping[str, Any]) -> Any:
        self.producers.append(FakeProducer(self, config))
        return self.producers[-1]

    def consumer(self, config: Mapping[str, Any]) -> Any:
        self.consumers.append(FakeConsumer(self, config))
        return self.consumers[-1]

    # -- the admin client

    def list_topics(self, timeout: float) -> Any:
        self.fail("list", "")
        return SimpleNamespace(
            cluster_id=self.id,
            topics={
                name: SimpleNamespace(error=None, partitions={n: SimpleNamespace(leader=0) for n in partitions})
                for name, partitions in self.topics.items()
            },
        )

    def describe_cluster(self, request_timeout: float) -> Future[Any]:
        return answer(lambda: self.fail("describe", ""))

    def describe_topics(
        self, asked: Any, request_timeout: float, include_authorized_operations: bool = False
    ) -> dict[str, Future[Any]]:
        def described(name: str) -> Any:
            self.fail("describe", name)
            if name not in self.topics:
                raise failure(ClientError.UNKNOWN_TOPIC_OR_PART)
            may = self.rights.get(name) if include_authorized_operations else None
            there = [SimpleNamespace(leader=SimpleNamespace(id=0))] * len(self.topics[name])
            return SimpleNamespace(partitions=there, authorized_operations=may)

        return {name: answer(lambda name=name: described(name)) for name in asked.topic_names}

    def create_topics(self, new: Iterable[Any], **_: float) -> dict[str, Future[Any]]:
        def made(each: Any) -> None:
            self.fail("create", each.topic)
            self.create(each.topic, each.num_partitions)
            self.done.append(("create", each.topic))

        return {each.topic: answer(lambda each=each: made(each)) for each in new}

    def create_partitions(self, new: Iterable[Any], **_: float) -> dict[str, Future[Any]]:
        def grown(each: Any) -> None:
            self.fail("grow", each.topic)
            self.set_ends(each.topic, dict.fromkeys(range(len(self.topics[each.topic]), each.new_total_count), 0))

        new = list(new)
        self.grown.append({each.topic: each.new_total_count for each in new})
        return {each.topic: answer(lambda each=each: grown(each)) for each in new}

    def delete_topics(self, names: Iterable[str], **_: float) -> dict[str, Future[Any]]:
        def deleted(name: str) -> None:
            self.fail("delete", name)
            if self.topics.pop(name, None) is None:
                raise failure(ClientError.UNKNOWN_TOPIC_OR_PART)
            self.done.append(("delete", name))

        return {name: answer(lambda name=name: deleted(name)) for name in names}

    def list_offsets(self, asked: Mapping[TopicPartition, Any], **_: float) -> dict[TopicPartition, Future[Any]]:
        def offset(place: TopicPartition, spec: Any) -> Any:
            self.fail("offsets", place.topic)
            there = self.topics[place.topic][place.partition]
            if spec._value == MAX_TIMESTAMP:
                return SimpleNamespace(offset=there.end - 1, timestamp=round(1000 * there.beat_s))
            if spec._value >= 0:  # the timestamp of a record is its offset
                newer = (at for at in there.values if at >= max(spec._value, there.first))
                return SimpleNamespace(offset=min(newer, default=-1), timestamp=-1)
            return SimpleNamespace(offset=there.first if spec._value == EARLIEST else there.end, timestamp=-1)

        return {place: answer(lambda place=place, spec=spec: offset(place, spec)) for place, spec in asked.items()}


class FakeProducer:
    """Appends records to partition 0; `refused` says why a record is not taken."""

    def __init__(self, kafka: FakeKafka, config: Mapping[str, Any]) -> None:
        self.kafka, self.config = kafka, dict(config)

    def produce(self, topic: str, value: Any = None, key: Any = None, *, on_delivery: Any = None, **_: Any) -> None:
        error = None
        try:
            self.kafka.fail("produce", topic)
            self.kafka.topics[topic][0].append(value)
        except KafkaException as raised:
            (error,) = raised.args
        if on_delivery is not None:
            on_delivery(error, None)

    def poll(self, _: float = 0.0) -> int:
        return 0

    flush = poll


class FakeConsumer:
    """Reads from where it was assigned to the end of each partition, and says so there."""

    def __init__(self, kafka: FakeKafka, config: Mapping[str, Any]) -> None:
        self.kafka, self.config = kafka, dict(config)
        self.assigned: list[dict[int, int]] = []  #: where it began to read, by partition; one for each time
        self.closed = False
        self._at: dict[tuple[str, int], int] = {}

    def assign(self, places: list[TopicPartition]) -> None:
        self._at = {(place.topic, place.partition): place.offset for place in places}
        self.assigned.append({place.partition: place.offset for place in places})

    def unassign(self) -> None:
        self._at = {}

    def close(self) -> None:
        self.closed = True

    def consume(self, most: int, _: float) -> list[Any]:
        found: list[Any] = []
        for (topic, partition), at in self._at.items():
            there = self.kafka.topics[topic][partition]
            while at < there.end and len(found) < most:
                if at in there.values:
                    found.append(record(at, there.values[at], partition, there.headers.get(at)))
                at += 1
            self._at[topic, partition] = at
            if at >= there.end and len(found) < most:
                found.append(problem(ClientError._PARTITION_EOF, there.end, partition))
        return found


def record(
    offset: int, value: bytes | None = b"", partition: int = 0, headers: list[tuple[str, bytes]] | None = None
) -> Any:
    """A message of confluent_kafka that holds a record."""
    return SimpleNamespace(
        error=lambda: None,
        partition=lambda: partition,
        offset=lambda: offset,
        key=lambda: None,
        value=lambda: value,
        timestamp=lambda: (1, offset),
        headers=lambda: headers,
    )


def problem(code: int, offset: int = -1001, partition: int = 0) -> Any:
    """A message of confluent_kafka that holds an error."""
    return SimpleNamespace(error=lambda: ClientError(code), partition=lambda: partition, offset=lambda: offset)
