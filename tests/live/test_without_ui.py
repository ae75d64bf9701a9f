"""A session on a cluster of somebody else's, of which nothing but its batches tells how busy it is."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from qod_magics.errors import TaskManagerError
from qod_magics.machine.java import find_java
from qod_magics.session.session import Session
from qod_magics.spark.queries.checkpoints import check_shared, shuffle_partitions
from qod_magics.spark.servers.own_jars import compiled
from qod_magics.spark.servers.server import LocalServer, ServerOptions, spark_home
from tests.live.applications import count, observed
from tests.live.conftest import eventually, new_topic, produce
from tests.live.standalone import Standalone
from tests.live.steady import Steady
from tests.raising import breaks

SLOTS = 2
HASHES = 150  #: of each row: what makes rows dear
QUERIES = {"minor": 1, "major": 2}  #: with their priorities


@pytest.fixture
def standalone(tmp_path: Any) -> Iterator[Standalone]:
    cluster = Standalone(tmp_path, SLOTS, ui=False)
    yield cluster
    cluster.stop()


def heavy(source: DataFrame) -> DataFrame:
    """How often each key came, and the greatest of many hashes."""
    text = "CAST(k AS STRING)"
    hashed = f"aggregate(sequence(1, {HASHES}), {text}, (hash, i) -> sha2(concat(hash, {text}), 512))"
    rows = source.withColumn("hash", F.expr(hashed))
    return rows.groupBy("k").agg(F.count("*").alias("n"), F.max("hash").alias("most"))


def books(session: Session, name: str) -> tuple[int, int]:
    """Rows processed and dropped."""
    found = count(session, name)
    return found.processed, found.dropped


def test_an_overload_is_shed_by_priority_and_every_row_is_booked(standalone: Standalone) -> None:
    begun = time.monotonic()
    with Session.up(task_managers=0, connect=[standalone.url], cores=SLOTS, period_s=2.5) as session:
        up_s = time.monotonic() - begun
        (manager,) = session.runtime.task_managers.values()
        assert (manager.ui, manager.capacity, manager.signal) == (None, SLOTS, "slot time of batches")
        with pytest.raises(TaskManagerError, check=breaks("shared files", name=manager.id)):
            check_shared(manager, "/proc/checkpoints")
        topic = new_topic(session, SLOTS)
        for name, priority in QUERIES.items():
            options: dict[str, Any] = {"priority": priority, "min_accuracy": 0.05, "sink": "memory"}
            session.stream(name, heavy, topic=topic, schema="k LONG", starting="earliest", **options)
        first = produce(session, topic, ({"k": i % 10} for i in range(500)), SLOTS)
        eventually(lambda: sum(books(session, "major")) >= first, what=session.status)
        row_s = time.monotonic() - begun
        print(f"up in {up_s:.1f} s, first row after {row_s:.1f} s")

        with Steady(session, topic, rate=4_000.0, partitions=SLOTS) as rows:
            accuracy = eventually(lambda: shed(session), what=lambda: f"rows dropped: {session.status()}")
            settled = [accuracy]
            for _ in range(8):
                time.sleep(2.5)
                settled.append(accuracies(session))
            print(session.status(), session.why("minor"), *settled, sep="\n")
            sent = first + rows.stop()
        late = [each for each in settled[-5:] if len(each) == 2]
        assert late, settled
        assert all(each["minor"] <= each["major"] + 0.02 for each in late), settled
        for name in QUERIES:
            eventually(lambda: sum(books(session, name)) == sent, what=session.status)  # noqa: B023
        assert books(session, "minor")[1] > books(session, "major")[1]


def test_a_server_that_fixes_its_settings_is_counted_and_gives_its_first_row(tmp_path: Path) -> None:
    jar = tmp_path / "frozen.jar"
    jar.write_bytes(compiled(find_java(), [Path(__file__).with_name("frozen.scala")], [spark_home() / "jars" / "*"]))
    fixed = {"spark.sql.shuffle.partitions": "3", "spark.sql.session.timeZone": "Europe/Berlin"}
    conf = {**fixed, "spark.ui.enabled": "false", "spark.connect.grpc.interceptor.classes": "qod.frozen.Frozen"}
    server = LocalServer("theirs", ServerOptions(slots=SLOTS, jit="c1", conf=conf, jars=(jar,)))
    try:
        server.wait_until_listening()
        with Session.up(task_managers=0, connect=[server.url], period_s=2.5) as session:
            (manager,) = session.runtime.task_managers.values()
            with pytest.raises(Exception, match="fixed here"):
                manager.spark.conf.set("spark.sql.shuffle.partitions", "1")
            assert (manager.ui, manager.capacity, manager.kept) == (None, SLOTS, fixed)
            topic = new_topic(session, SLOTS)
            options: dict[str, Any] = {"topic": topic, "schema": "k LONG", "starting": "earliest", "sink": "memory"}
            session.stream("counted", lambda source: source.groupBy("k").count(), **options)
            sent = produce(session, topic, ({"k": i % 10} for i in range(500)), SLOTS)
            eventually(lambda: sum(books(session, "counted")) == sent, what=session.status)
            found = session.results("counted").groupBy("k").max("count").collect()
            assert sorted(tuple(row) for row in found) == [(key, 50) for key in range(10)]
            query = session.runtime.instances["counted.1"]
            assert shuffle_partitions(query.checkpoint) == query.shuffles == 3
            status = session.status()
            assert "slot time of batches" in status
            assert "Europe/Berlin" in status
    finally:
        server.stop()


def accuracies(session: Session) -> dict[str, float]:
    """Those that are known, by query."""
    return {name: value for name, value in observed(session).measured.accuracy.items() if value is not None}


def shed(session: Session) -> dict[str, float] | None:
    """The accuracies, once the less important query has lost rows: a batch that began before keeps all of its rows on a
    server of others, and a busy machine takes a minute for it."""
    found = accuracies(session)
    return found if len(found) == len(QUERIES) and found["minor"] < 0.95 else None
