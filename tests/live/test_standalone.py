"""A task manager that is not ours: a Connect server in front of a Spark standalone cluster."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, TypeAlias
from urllib.request import urlopen

import psutil
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from qod_magics.errors import QodError, TaskManagerError
from qod_magics.machine.java import free_ports
from qod_magics.session.session import Session
from qod_magics.spark.plans.dial import DialReading
from qod_magics.spark.queries.checkpoints import shuffle_partitions
from qod_magics.spark.queries.instance import Instance
from qod_magics.spark.servers.server import LocalServer, ServerOptions
from qod_magics.spark.servers.task_manager import TaskManager
from tests.live.applications import count, observed, turn
from tests.live.conftest import eventually, produce
from tests.live.standalone import LEAST_BATCH, SLOTS, Proxy, Standalone
from tests.live.steady import SCHEMA, Steady
from tests.live.watching import Events, books, by_window, running, settled

HandingOn: TypeAlias = Callable[[], AbstractContextManager[None]]

KEYS = 7


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    cluster = Standalone(tmp_path_factory.mktemp("standalone"))
    yield cluster
    cluster.stop()


@pytest.fixture(scope="module")
def joined(cluster: Session, standalone: Standalone) -> Iterator[Callable[[], TaskManager]]:
    """Returns the standalone cluster as a task manager of the shared session, added if it is not there."""
    ids: list[str] = []

    def manager() -> TaskManager:
        if not ids or ids[-1] not in cluster.runtime.task_managers:
            ids.append(cluster.add_task_manager(standalone.url))
        return cluster.runtime.task_managers[ids[-1]]

    yield manager
    for id in ids:
        if id in cluster.runtime.task_managers:
            cluster.remove_task_manager(id)


@pytest.fixture
def theirs(joined: Callable[[], TaskManager], standalone: Standalone, handing_on: HandingOn) -> TaskManager:
    """The standalone cluster as a task manager of the shared session, whole again if a test has broken it."""
    with handing_on():
        standalone.mend()
    return joined()


@pytest.fixture
def brief(theirs: TaskManager, brief: Session) -> Session:
    """The shared session with the standalone cluster in it, where real-time batches last one second."""
    return brief


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qod_magics.spark.servers.joining.PATIENCE_S", 1.0)


def rows(begin: int, end: int) -> Iterable[dict[str, int]]:
    return ({"key": i % KEYS} for i in range(begin, end))


def counting(session: Session, name: str, topic: str, mode: str = "auto") -> Instance:
    """Starts a stateful query: how often each key came."""
    session.stream(
        name,
        lambda source: source.groupBy("key").count(),
        topic=topic,
        schema="key LONG",
        priority=1,
        min_accuracy=0.1,
        sink="memory",
        mode=mode,
        starting="earliest",
    )
    return session.runtime.instances[f"{name}.1"]


def counted(session: Session, name: str) -> int:
    """Rows that the query has counted so far, by what it wrote last for each key."""
    found = session.results(name).groupBy("key").max("count").collect()
    return sum(row[1] for row in found)


def read(session: Session, name: str) -> tuple[int, int]:
    """Rows kept and dropped at the source."""
    books = count(session, name)
    return books.processed, books.dropped


def test_its_cores_are_found_and_its_dials_turn_by_the_batch(theirs: TaskManager) -> None:
    assert theirs.kind == "connect"
    assert theirs.cores == pytest.approx(0.9 * SLOTS)
    assert theirs.reading is DialReading.BATCH  # the driver, where dials are, is another JVM than the executors


def test_a_stateful_query_moves_between_it_and_a_local_one(
    recommending: Session, topic: str, theirs: TaskManager
) -> None:
    session = recommending
    produce(session, topic, rows(0, 2000))
    query = counting(session, "moving", topic)
    session.move(query.id, theirs.id)
    assert query.task_manager is theirs
    sent = 2000
    for target in ("tm1", theirs.id, "tm2", theirs.id):
        eventually(lambda: counted(session, "moving") >= sent, what=f"{sent} rows counted")  # noqa: B023
        assert counted(session, "moving") == sent
        session.move(query.id, target)
        assert query.task_manager is session.runtime.task_managers[target], query.failure
        sent += produce(session, topic, rows(sent, sent + 1000))
    eventually(lambda: counted(session, "moving") >= sent, what=f"{sent} rows counted at last")
    assert counted(session, "moving") == sent


def slowly(source: DataFrame) -> DataFrame:
    """How often each key came, with a hash that takes nearly all of a batch's time, behind the shuffle."""
    hashed = "aggregate(sequence(1, 20000), CAST(key AS STRING), (hash, i) -> sha2(concat(hash, key), 512))"
    return source.groupBy("key").count().withColumn("hash", F.expr(hashed))


def tasks_at_once(manager: TaskManager) -> int:
    """How many tasks run on it now."""
    with urlopen(f"{manager.ui}/api/v1/applications/{manager.application}/stages?status=active", timeout=5) as reply:
        return sum(stage["numActiveTasks"] for stage in json.load(reply))


def test_a_heavy_aggregation_uses_its_slots_and_goes_on_where_there_is_one(
    recommending: Session, topic: str, theirs: TaskManager
) -> None:
    session, sent = recommending, 0
    anchor = counting(session, "anchor", topic)
    session.move(anchor.id, theirs.id)
    options: dict[str, Any] = {"schema": "key LONG", "starting": "earliest", "near": "anchor"}
    session.stream("heavy", slowly, topic=topic, priority=1, min_accuracy=0.1, sink="memory", **options)
    query = session.runtime.instances["heavy.1"]
    assert query.task_manager is theirs
    assert session.runtime.task_managers["tm1"].shuffle == 1
    produce(session, topic, ({"key": i % 100} for i in range(1000)))
    sent += 1000
    most = 0
    deadline = time.monotonic() + 60.0
    while time.monotonic() < deadline and counted(session, "heavy") < sent:
        most = max(most, tasks_at_once(theirs))
    print(f"{most} tasks at once of {SLOTS} slots")
    assert most >= SLOTS / 2
    for target in ("tm1", theirs.id):
        session.move(query.id, target)
        assert query.task_manager is session.runtime.task_managers[target], query.failure
        sent += produce(session, topic, ({"key": i % 100} for i in range(500)))
        eventually(lambda: counted(session, "heavy") >= sent, what=f"{sent} rows counted on {target}")  # noqa: B023
        assert counted(session, "heavy") == sent
        assert shuffle_partitions(query.checkpoint) == query.shuffles == SLOTS


def test_dials_turn_on_its_executors_and_metrics_come_back(brief: Session, topic: str, theirs: TaskManager) -> None:
    session = brief
    query = counting(session, "dialled", topic, "realtime")
    session.move(query.id, theirs.id)
    assert query.mode == "real-time", query.mode_why

    def feed(number: int) -> tuple[int, int]:
        before = read(session, "dialled")
        produce(session, topic, rows(0, number))
        eventually(lambda: sum(read(session, "dialled")) >= sum(before) + number, what="all rows read")
        after = read(session, "dialled")
        return after[0] - before[0], after[1] - before[1]

    def keep(value: float) -> None:
        """The dial acts from the next batch on: wait until one begins after it was turned."""
        turn(session, {(None, "dialled"): value})
        turned = time.time()
        eventually(lambda: feed(1) and query.meter.spans[-1][1].start > turned, what="a batch under the new dial")

    assert feed(4000) == (4000, 0)
    keep(0.25)
    kept, dropped = feed(4000)
    assert kept + dropped == 4000
    assert 0.15 < kept / 4000 < 0.35
    keep(0.0)
    assert feed(1000) == (0, 1000)
    keep(1.0)
    assert feed(1000) == (1000, 0)

    reading = eventually(
        lambda: observed(session) and (r := query.reading(5.0)) and r.cpu and r, what="CPU of its executors"
    )
    assert reading.kept
    seen = eventually(
        lambda: [i for c in [session.last] if c and c.snapshot for i in c.snapshot.instances if i.id == query.id],
        what="the instance in a snapshot",
    )
    assert seen[0].task_manager == theirs.id


def test_a_session_object_is_a_task_manager_and_stays_open(
    recommending: Session, topic: str, standalone: Standalone, theirs: TaskManager
) -> None:
    session = recommending
    own = SparkSession.builder.remote(standalone.url).create()
    id = session.add_task_manager(spark=own)
    try:
        manager = session.runtime.task_managers[id]
        assert (manager.kind, manager.shuffle) == ("attached", SLOTS)
        query = counting(session, "objects", topic)
        session.move(query.id, id)
        sent = produce(session, topic, rows(0, 1000))
        eventually(lambda: counted(session, "objects") >= sent, what=session.status)
        assert query.task_manager is manager
    finally:
        session.stop_all()
        session.remove_task_manager(id)
    assert own.conf.get("spark.sql.shuffle.partitions") == "200"
    own.stop()


def test_a_wrong_token_is_one_line(cluster: Session, standalone: Standalone) -> None:
    managers = set(cluster.runtime.task_managers)
    for url in (f"sc://localhost:{standalone.port}", f"sc://localhost:{standalone.port}/;token=wrong"):
        with pytest.raises(TaskManagerError, match="token") as caught:
            cluster.add_task_manager(url)
        assert "\n" not in str(caught.value)
        assert "wrong" not in str(caught.value)
    assert set(cluster.runtime.task_managers) == managers


def test_an_address_with_a_token_is_told_to_be_a_name(
    cluster: Session, standalone: Standalone, impatient: None
) -> None:
    with pytest.raises(TaskManagerError, match="localhost"):
        cluster.add_task_manager(standalone.url.replace("localhost", "127.0.0.1"))


def test_nobody_at_the_url_is_one_line(cluster: Session, impatient: None) -> None:
    with pytest.raises(TaskManagerError, match="refused") as caught:
        cluster.add_task_manager(f"sc://localhost:{free_ports(1)[0]}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("url", ["http://localhost:15002", "sc://localhost:port", "localhost:15002"])
def test_what_is_no_url_is_one_line(cluster: Session, url: str) -> None:
    with pytest.raises(QodError, match="localhost:") as caught:
        cluster.add_task_manager(url)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("end", [signal.SIGSTOP, signal.SIGKILL])
def test_a_server_behind_a_proxy_that_stays_up_is_missed_and_fenced(
    recommending: Session, topic: str, monkeypatch: pytest.MonkeyPatch, end: signal.Signals
) -> None:
    """It is killed, or stands still and wakes up once its query runs elsewhere: then the old query ends."""
    session = recommending
    monkeypatch.setattr(session.runtime.cluster, "patience", replace(session.runtime.cluster.patience, lease_s=10.0))
    server = LocalServer("theirs", ServerOptions(jit="c1"))
    try:
        server.wait_until_listening()
        with Proxy(server.port) as proxy:
            url = server.url.replace(str(server.port), str(proxy.port))
            id = session.add_task_manager(url, cores=1)
            lost = session.runtime.task_managers[id]
            sent = produce(session, topic, rows(0, 1500))
            query = counting(session, "fenced", topic)
            session.move(query.id, id)
            eventually(lambda: counted(session, "fenced") >= sent, what="all rows counted")
            os.kill(server.child.pid, end)
            sent += produce(session, topic, rows(sent, sent + 500))

            def missed() -> bool:
                observed(session)
                return id not in session.runtime.task_managers

            eventually(missed, 90.0, what="the loss noticed")
            eventually(lambda: counted(session, "fenced") >= sent, what="all rows counted elsewhere")
            if end is signal.SIGSTOP:
                os.kill(server.child.pid, signal.SIGCONT)
                eventually(lambda: lost.spark.is_stopped, what="its session released, and the old query with it")
            sent += produce(session, topic, rows(sent, sent + 500))
            eventually(lambda: counted(session, "fenced") >= sent, what="the rest counted")
            assert counted(session, "fenced") == sent
            assert lost is not query.task_manager
    finally:
        server.stop()


def test_a_server_behind_a_url_that_is_gone_is_missed(brief: Session, topic: str) -> None:
    """What ran there goes on elsewhere; it is also missed where it ran nothing."""
    session = brief
    server = LocalServer("theirs", ServerOptions(conf={LEAST_BATCH: "1000"}))
    try:
        server.wait_until_listening()
        id, idle = (session.add_task_manager(server.url, cores=1) for _ in range(2))
        sent = produce(session, topic, rows(0, 1500))
        query = counting(session, "orphan", topic)
        session.move(query.id, id)
        eventually(lambda: counted(session, "orphan") >= sent, what="all rows counted")
        server.child.kill()

        def missed() -> bool:
            observed(session)
            return not {id, idle} & set(session.runtime.task_managers)

        eventually(missed, what="both losses noticed")
        eventually(lambda: query.task_manager is not None and query.query is not None, what="the query elsewhere")
        sent += produce(session, topic, rows(sent, sent + 500))
        eventually(lambda: counted(session, "orphan") >= sent, what="all rows counted elsewhere")
        assert counted(session, "orphan") == sent
    finally:
        server.stop()


FROZEN_S = 20.0
MODES = ("microbatch", "realtime")


def by_windows(session: Session, name: str) -> dict[tuple[str, int], int]:
    """What the query has counted so far, by window and key."""
    found = session.results(name).groupBy("window.start", "k").max("n").collect()
    return {(str(start), key): n for start, key, n in found}


def test_counts_stay_exact_when_its_driver_freezes_a_worker_ends_and_its_driver_ends(
    brief: Session, topic: str, standalone: Standalone, theirs: TaskManager, handing_on: HandingOn
) -> None:
    session, begun = brief, time.monotonic()
    options: dict[str, Any] = {"topic": topic, "schema": SCHEMA, "priority": 1, "min_accuracy": 0.1, "sink": "memory"}
    for mode in MODES:
        session.stream(mode, by_window, starting="earliest", mode=mode, **options)
        if (query := session.runtime.instances[f"{mode}.1"]).task_manager is not theirs:
            session.move(query.id, theirs.id)

    def read() -> dict[str, int]:
        return {mode: c.processed + c.unreported for mode in MODES if (c := books(session).get(mode))}

    def flows(what: str) -> None:
        """Wait until both have read all that had come by now."""
        sent = steady.sent
        eventually(lambda: all(read().get(mode, 0) >= sent for mode in MODES), what=lambda: f"{what}: {read()}, {sent}")
        print(f"{time.monotonic() - begun:.0f} s: rows flow {what}")

    with Steady(session, topic, 400.0) as steady, Events(session) as events:
        flows("at first")
        driver = psutil.Process(standalone.connect.pid)
        driver.suspend()
        try:
            time.sleep(FROZEN_S)
        finally:
            driver.resume()
        flows("after the driver was frozen")
        standalone.kill_worker(0)
        flows("on the other worker")
        assert theirs.id in session.runtime.task_managers
        with handing_on():
            standalone.mend()
        flows("on both")
        driver.kill()
        events.first("task-manager-lost", task_manager=theirs.id)
        eventually(lambda: running(session), what=session.status)
        flows("elsewhere")
        sent = steady.stop()
    for mode in MODES:
        found = settled(session, mode, sent)[mode]
        assert (found.processed + found.unreported, found.dropped) == (sent, 0)
        eventually(lambda: sum(by_windows(session, mode).values()) >= sent, what=f"{mode}: {sent} rows counted")  # noqa: B023
        counts = by_windows(session, mode)
        last = max(start for start, _ in counts)
        assert {n for (start, _), n in counts.items() if start != last} == {100}
        assert sum(counts.values()) == sent
