"""The newest records of a topic, on a real broker."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from time import time

import pytest
from confluent_kafka import Producer

from qod_magics.errors import KafkaError
from qod_magics.kafka.broker import EmbeddedBroker
from qod_magics.kafka.reading import News, Tail
from qod_magics.kafka.topics import create_topics, delete_topics, grow_topics
from tests.live.conftest import PATIENCE_S


def produce(broker: EmbeddedBroker, topic: str, first: int, last: int, partition: int = 0) -> None:
    producer = Producer({**broker.client_config(), "enable.idempotence": True})
    for number in range(first, last):
        producer.produce(topic, str(number).encode(), partition=partition)
    assert producer.flush(PATIENCE_S) == 0


def numbers(news: News, partition: int = 0) -> list[int]:
    return [int(record.value) for record in news.records if record.partition == partition]


@pytest.fixture
def tail(broker: EmbeddedBroker, topic: str) -> Iterator[Tail]:
    with closing(Tail(broker, topic, most=100)) as made:
        yield made


def read(tail: Tail) -> News:
    return tail.read(timeout_s=PATIENCE_S)


@pytest.mark.smoke
def test_each_record_is_read_once(broker: EmbeddedBroker, tail: Tail) -> None:
    assert read(tail) == News(())
    produce(broker, tail.topic, 0, 30)
    before = time()
    news = read(tail)
    assert numbers(news) == list(range(30))
    assert all(record.key is None and abs(record.at_ms / 1000 - before) < PATIENCE_S for record in news.records)
    assert read(tail) == News(())
    produce(broker, tail.topic, 30, 90)
    tail.close()  # it goes on where it was
    assert numbers(read(tail)) == list(range(30, 90))


def test_what_is_before_a_given_offset_is_not_read(broker: EmbeddedBroker, topic: str) -> None:
    produce(broker, topic, 0, 30)
    with closing(Tail(broker, topic, 100, {0: 20})) as tail:
        news = read(tail)
    assert (numbers(news), news.skipped) == (list(range(20, 30)), 0)


def test_no_more_than_the_newest_are_read_and_the_others_counted(broker: EmbeddedBroker, tail: Tail) -> None:
    produce(broker, tail.topic, 0, 150)
    news = read(tail)
    assert (numbers(news), news.skipped) == (list(range(50, 150)), 50)
    produce(broker, tail.topic, 150, 300)
    news = read(tail)
    assert (numbers(news), news.skipped) == (list(range(200, 300)), 50)
    assert replace(read(tail), records=()) == News(())


def test_partitions_that_are_added_are_read_from_their_beginning(broker: EmbeddedBroker, tail: Tail) -> None:
    produce(broker, tail.topic, 0, 10)
    assert numbers(read(tail)) == list(range(10))
    grow_topics(broker, {tail.topic: 3})
    produce(broker, tail.topic, 0, 20, partition=2)
    produce(broker, tail.topic, 10, 15)
    news = read(tail)
    assert numbers(news) == list(range(10, 15))
    assert numbers(news, 2) == list(range(20))


def test_a_topic_that_is_made_anew_is_read_anew(broker: EmbeddedBroker, tail: Tail) -> None:
    produce(broker, tail.topic, 0, 50)
    assert len(read(tail).records) == 50
    delete_topics(broker, [tail.topic])
    with pytest.raises(KafkaError, match=tail.topic):
        read(tail)
    create_topics(broker, {tail.topic: 1})
    produce(broker, tail.topic, 100, 110)
    assert numbers(read(tail)) == list(range(100, 110))


def test_between_two_looks_nothing_is_assigned(broker: EmbeddedBroker, tail: Tail) -> None:
    produce(broker, tail.topic, 0, 10)
    read(tail)
    assert tail._consumer is not None
    assert tail._consumer.assignment() == []
    before = threading.active_count()
    tail.close()
    assert tail._consumer is None
    assert threading.active_count() <= before
