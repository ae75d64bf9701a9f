"""The embedded broker: a real one, that keeps its data over a restart and leaves nothing when it stops."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from qod_magics.errors import KafkaError
from qod_magics.kafka.broker import EmbeddedBroker
from qod_magics.kafka.cluster import LOG, QUIET, ExternalKafka, Kafka
from qod_magics.kafka.properties import Retention
from qod_magics.kafka.reading import beginning_offsets, end_offsets, known_end_offsets
from qod_magics.kafka.topics import (
    create_topics,
    delete_topics,
    grow_topics,
    partitions,
    readable_partitions,
    topic_partitions,
)
from qod_magics.machine.child import Child
from qod_magics.machine.jars import broker_jars
from qod_magics.machine.java import HOST, find_java, free_ports
from tests.live.conftest import eventually
from tests.raising import breaks

PATIENCE_S = 60.0


@pytest.fixture
def own() -> Iterator[EmbeddedBroker]:
    """A broker that a test may ill-treat."""
    made = EmbeddedBroker()
    yield made
    made.stop()


def produce(kafka: Kafka, topic: str, rows: int, partition: int = 0, size: int = 100) -> None:
    producer = Producer({**kafka.client_config(), "enable.idempotence": True})
    for number in range(rows):
        producer.produce(topic, str(number).encode().ljust(size), partition=partition)
        producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0


def consume(kafka: Kafka, topic: str, rows: int, partition: int = 0) -> list[int]:
    consumer = Consumer({**kafka.client_config(), "group.id": "test", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0)])
    try:
        messages = consumer.consume(rows, timeout=PATIENCE_S)
        return [int(message.value()) for message in messages]
    finally:
        consumer.close()


def listening(pid: int) -> set[tuple[str, int]]:
    connections = psutil.Process(pid).net_connections("tcp")
    return {(c.laddr.ip, c.laddr.port) for c in connections if c.status == psutil.CONN_LISTEN}


def accepts(bootstrap: str) -> bool:
    with socket.socket() as probe:
        host, _, port = bootstrap.partition(":")
        return probe.connect_ex((host, int(port))) == 0


@pytest.mark.smoke
def test_rows_come_back_as_they_went_in(broker: EmbeddedBroker) -> None:
    create_topics(broker, {"there-and-back": 2})
    produce(broker, "there-and-back", 300, partition=1)
    assert consume(broker, "there-and-back", 300, partition=1) == list(range(300))
    assert end_offsets(broker, ["there-and-back"]) == {"there-and-back": {0: 0, 1: 300}}
    assert beginning_offsets(broker, ["there-and-back"]) == {"there-and-back": {0: 0, 1: 0}}


def test_end_offsets_of_many_topics_come_at_once(broker: EmbeddedBroker) -> None:
    topics = {f"many-{number}": number + 1 for number in range(6)}
    create_topics(broker, topics)
    produce(broker, "many-3", 7, partition=2)
    found = end_offsets(broker, topics)
    assert {name: len(offsets) for name, offsets in found.items()} == topics
    assert found["many-3"] == {0: 0, 1: 0, 2: 7, 3: 0}
    assert end_offsets(broker, []) == {}


@pytest.mark.smoke
def test_topics_are_made_once_and_deleted_at_will(broker: EmbeddedBroker) -> None:
    create_topics(broker, {"once": 1, "twice": 2})
    produce(broker, "once", 5)
    create_topics(broker, {"once": 1, "new": 1})
    assert end_offsets(broker, ["once"])["once"] == {0: 5}
    assert partitions(broker, "twice") == 2
    with pytest.raises(KafkaError, check=breaks("partitions", name="twice")):
        create_topics(broker, {"twice": 3})
    delete_topics(broker, ["once", "twice", "new", "never-was"])
    assert not {"once", "twice", "new"} & set(topic_partitions(broker))
    create_topics(broker, {"once": 1})
    assert end_offsets(broker, ["once"])["once"] == {0: 0}


def test_a_topic_grows_and_keeps_its_rows(broker: EmbeddedBroker) -> None:
    create_topics(broker, {"growing": 1})
    produce(broker, "growing", 3)
    for wanted in (3, 3, 2):
        grow_topics(broker, {"growing": wanted})
    assert end_offsets(broker, ["growing"]) == {"growing": {0: 3, 1: 0, 2: 0}}


def test_a_fork_has_a_client_of_its_own(broker: EmbeddedBroker) -> None:
    create_topics(broker, {"forked": 1})
    produce(broker, "forked", 3)
    forked = os.fork()
    if forked == 0:
        found = end_offsets(broker, ["forked"])
        broker.stop()  # the broker is not this process's to stop
        os._exit(0 if found == {"forked": {0: 3}} else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1]) == 0
    assert broker.health(PATIENCE_S).ok


def test_an_unknown_topic_gets_the_nearest_name(broker: EmbeddedBroker) -> None:
    create_topics(broker, {"taxi-rides": 1})
    with pytest.raises(KafkaError, match="'taxi-rides'"):
        partitions(broker, "taxi-ride")
    with pytest.raises(KafkaError, match="'taxi-rides'"):
        end_offsets(broker, ["taxi-ridse"])
    assert "taxi-ride" not in topic_partitions(broker), "asking does not create it"


def test_offsets_come_beside_topics_that_have_none(broker: EmbeddedBroker) -> None:
    create_topics(broker, {"present": 2})
    produce(broker, "present", 3)
    found, problems = known_end_offsets(broker, ["present", "absent"])
    assert found == {"present": {0: 3, 1: 0}}
    assert problems.keys() == {"absent"}
    assert readable_partitions(broker, ["present", "absent"]) == {"present": 2}
    assert readable_partitions(broker, []) == {}
    assert "absent" not in topic_partitions(broker), "asking does not create it"


@contextmanager
def second_broker(broker: EmbeddedBroker, directory: Path) -> Iterator[Child]:
    """Another broker (id 2) of its cluster, without a controller."""
    assert broker.directory is not None
    text = (broker.directory / "server.properties").read_text("utf-8")
    settings = dict(line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))
    meta = (broker.directory / "data" / "meta.properties").read_text("utf-8")
    (cluster,) = (line.removeprefix("cluster.id=") for line in meta.splitlines() if line.startswith("cluster.id="))
    (port,) = free_ports(1)
    listener = f"CLIENTS://{HOST}:{port}"
    own = {"process.roles": "broker", "node.id": "2", "listeners": listener, "advertised.listeners": listener}
    file = directory / "server.properties"
    lines = {**settings, **own, "log.dirs": str(directory / "data")}
    file.write_text("".join(f"{key}={value}\n" for key, value in lines.items()), "utf-8")
    java = [str(find_java().path), "-Xmx256m", "-cp", os.pathsep.join(map(str, broker_jars()))]
    subprocess.run(
        [*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(file)], check=True, capture_output=True
    )
    child = Child([*java, "kafka.Kafka", str(file)], log_path=directory / "console.log")
    try:
        eventually(lambda: 2 in broker.admin().list_topics(timeout=PATIENCE_S).brokers, what=lambda: child.tail(20))
        yield child
    finally:
        child.stop()


def test_a_topic_whose_broker_is_down_is_the_only_one_without_offsets(own: EmbeddedBroker, tmp_path: Path) -> None:
    own.start()
    names = ["led", "leaderless"]
    with second_broker(own, tmp_path) as second:
        placed = [NewTopic("led", 1, replica_assignment=[[1]]), NewTopic("leaderless", 1, replica_assignment=[[2]])]
        for created in own.admin().create_topics(placed).values():
            created.result(PATIENCE_S)
        eventually(lambda: readable_partitions(own, names) == dict.fromkeys(names, 1))
        produce(own, "led", 3)
        assert known_end_offsets(own, names) == ({"led": {0: 3}, "leaderless": {0: 0}}, {})

        def only_led() -> bool:
            with suppress(KafkaError):  # until the cluster notices, the client may ask the broker that is down
                return readable_partitions(own, names, timeout_s=2.0) == {"led": 1}
            return False

        second.kill()
        eventually(only_led)
        found, problems = known_end_offsets(own, names)
        assert found == {"led": {0: 3}}
        assert problems.keys() == {"leaderless"}
        assert topic_partitions(own) == {"led": 1}
        for ask in (partitions, lambda kafka, name: end_offsets(kafka, [name])):
            with pytest.raises(KafkaError, match=r"'leaderless'.*leader"):
                ask(own, "leaderless")
        create_topics(own, {"leaderless": 1})  # it is there


def test_a_name_that_kafka_refuses_is_told(broker: EmbeddedBroker) -> None:
    with pytest.raises(KafkaError, match="'no blanks'"):
        create_topics(broker, {"no blanks": 1})


def test_old_rows_go(broker: EmbeddedBroker) -> None:
    keep = Retention(bytes=2 << 20, seconds=3600, segment_bytes=1 << 20)
    create_topics(broker, {"bounded": 1}, retention=keep)
    produce(broker, "bounded", 6000, size=1000)
    most = keep.bytes + 2 * keep.segment_bytes
    assert most < 6000 * 1000
    eventually(lambda: (6000 - beginning_offsets(broker, ["bounded"])["bounded"][0]) * 1000 <= most)


@pytest.mark.smoke
def test_it_is_on_loopback_only(broker: EmbeddedBroker) -> None:
    assert broker.pid is not None
    found = listening(broker.pid)
    assert len(found) == 2
    assert {address.removeprefix("::ffff:") for address, _ in found} == {"127.0.0.1"}


def test_another_process_reaches_it_as_an_external_one(broker: EmbeddedBroker) -> None:
    create_topics(broker, {"from-outside": 1})
    external = ExternalKafka(broker.bootstrap, {"client.id": "outside", **broker.credentials})
    produce(external, "from-outside", 4)
    assert end_offsets(external, ["from-outside"]) == {"from-outside": {0: 4}}
    external.close()


@pytest.mark.parametrize(
    ("password", "port"),
    [
        pytest.param("guessed", "clients", marks=pytest.mark.smoke),
        ("guessed", "controller"),
        (None, "clients"),
        (None, "controller"),
    ],
)
def test_without_the_password_rows_are_neither_read_nor_written(
    password: str | None, port: str, broker: EmbeddedBroker
) -> None:
    create_topics(broker, {"secret": 1})
    produce(broker, "secret", 1)
    written = end_offsets(broker, ["secret"])["secret"][0]
    assert broker.pid is not None
    found = {f"{HOST}:{number}" for _, number in listening(broker.pid)} - {broker.bootstrap}
    bootstrap = broker.bootstrap if port == "clients" else found.pop()
    login = {} if password is None else {**broker.credentials, "sasl.password": password}
    stranger = {**QUIET, "bootstrap.servers": bootstrap, **login}

    delivered: list[Any] = []
    producer = Producer({**stranger, "message.timeout.ms": 3000}, logger=LOG)
    producer.produce("secret", b"forged", on_delivery=lambda error, _: delivered.append(error))
    producer.flush(PATIENCE_S)
    assert [error is not None for error in delivered] == [True]

    consumer = Consumer({**stranger, "group.id": "stranger"}, logger=LOG)
    consumer.assign([TopicPartition("secret", 0, 0)])
    try:
        assert [message.error() for message in consumer.consume(1, timeout=2.0) if message.error() is None] == []
    finally:
        consumer.close()
    with pytest.raises(KafkaException):
        AdminClient(stranger, logger=LOG).list_topics(timeout=2.0)
    assert end_offsets(broker, ["secret"]) == {"secret": {0: written}}


def test_options_that_librdkafka_refuses_are_told(broker: EmbeddedBroker) -> None:
    with pytest.raises(KafkaError, match=r"no\.such\.option"):
        ExternalKafka(broker.bootstrap, {**broker.credentials, "no.such.option": 1}).admin()


@pytest.mark.smoke
def test_a_broker_that_isnt_there_is_told() -> None:
    external = ExternalKafka("127.0.0.1:9")
    with pytest.raises(KafkaError, match=r"127\.0\.0\.1:9 "):
        end_offsets(external, ["rides"], timeout_s=0.5)
    external.close()


def test_a_restart_keeps_data_and_address(own: EmbeddedBroker) -> None:
    own.start()
    create_topics(own, {"kept": 2})
    produce(own, "kept", 50, partition=1)
    bootstrap, pid = own.bootstrap, own.pid
    own.restart()
    assert (own.bootstrap, own.health(PATIENCE_S).ok) == (bootstrap, True)
    assert own.pid != pid
    assert end_offsets(own, ["kept"]) == {"kept": {0: 0, 1: 50}}
    assert consume(own, "kept", 50, partition=1) == list(range(50))


def test_a_crash_is_seen_and_survived(own: EmbeddedBroker) -> None:
    own.start()
    create_topics(own, {"kept": 1})
    produce(own, "kept", 50)
    own.kill()
    health = own.health()
    assert not health.ok
    assert "ended" in health.problem
    with pytest.raises(KafkaError, match="answer"):
        end_offsets(own, ["kept"], timeout_s=0.5)
    own.start()
    assert own.health(PATIENCE_S).ok
    assert end_offsets(own, ["kept"]) == {"kept": {0: 50}}


@pytest.mark.smoke
def test_stop_leaves_no_process_no_port_and_no_directory(own: EmbeddedBroker) -> None:
    assert not own.health().ok
    own.start()
    bootstrap, pid, directory = own.bootstrap, own.pid, own.directory
    assert pid is not None
    assert directory is not None
    assert directory.exists()
    own.stop()
    assert not psutil.pid_exists(pid)
    assert not accepts(bootstrap)
    assert not directory.exists()
    with pytest.raises(KafkaError, check=breaks("started")):
        _ = own.bootstrap
    own.stop()


def test_it_stays_on_its_cores_within_its_heap(own: EmbeddedBroker) -> None:
    core = max(os.sched_getaffinity(0))
    own.cpus, own.heap = {core}, "300m"
    own.start()
    assert own.pid is not None
    assert os.sched_getaffinity(own.pid) == {core}
    assert "-Xmx300m" in psutil.Process(own.pid).cmdline()


def test_a_java_that_fails_is_told_with_its_cause(own: EmbeddedBroker) -> None:
    own.heap = "1k"
    with pytest.raises(KafkaError, match=r"(?i)heap"):
        own.start()
    assert own.directory is None


KERNEL = """\
import time
from qod_magics.kafka.broker import EmbeddedBroker
broker = EmbeddedBroker()
broker.start()
print(broker.pid, broker.bootstrap, broker.directory, flush=True)
time.sleep(600)
"""


@pytest.mark.smoke
def test_nothing_outlives_a_killed_kernel() -> None:
    with subprocess.Popen([sys.executable, "-c", KERNEL], stdout=subprocess.PIPE, text=True) as kernel:
        assert kernel.stdout is not None
        pid, bootstrap, directory = kernel.stdout.readline().split()
        assert accepts(bootstrap)
        kernel.kill()
    eventually(lambda: not psutil.pid_exists(int(pid)) and not Path(directory).exists())
    assert not accepts(bootstrap)


def test_topics_in_a_directory_that_stays_outlive_the_broker(own: EmbeddedBroker, tmp_path: Path) -> None:
    """The next broker begins while the one that was killed with its kernel ends."""
    own.data = tmp_path / "kafka"
    own.start()
    create_topics(own, {"kept": 1})
    produce(own, "kept", 100)
    cluster = own.admin().list_topics(timeout=PATIENCE_S).cluster_id
    after = EmbeddedBroker()
    after.data = own.data
    own.kill()
    try:
        after.start()
        assert after.admin().list_topics(timeout=PATIENCE_S).cluster_id == cluster
        assert consume(after, "kept", 100) == list(range(100))
    finally:
        after.stop()
    assert own.data.stat().st_mode & 0o777 == 0o700, "other users can read its rows"
