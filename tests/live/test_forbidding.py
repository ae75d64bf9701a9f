"""A server whose SQL may not call methods of Java: dials turn by a topic, and no query restarts for them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from qod_magics.machine.java import find_java
from qod_magics.session.session import Session
from qod_magics.spark.plans.dial import DialReading, read_sql
from qod_magics.spark.servers.own_jars import compiled
from qod_magics.spark.servers.server import LocalServer, ServerOptions, spark_home
from qod_magics.spark.servers.task_manager import TaskManager
from tests.live.applications import cell, count, turn
from tests.live.conftest import produce
from tests.live.watching import settled

SOURCE = Path(__file__).with_name("forbidding.scala")


@pytest.fixture
def forbidding(recommending: Session, tmp_path: Path) -> Iterator[TaskManager]:
    """Such a server, as somebody else would run it, in the shared session."""
    jar = tmp_path / "forbidding.jar"
    jar.write_bytes(compiled(find_java(), [SOURCE], [spark_home() / "jars" / "*"]))
    conf = {"spark.sql.extensions": "qod.forbidding.Forbidding"}
    server = LocalServer("forbidding", ServerOptions(slots=8, jit="c1", conf=conf, jars=(jar,)))
    try:
        server.wait_until_listening()
        id = recommending.add_task_manager(server.url)
        yield recommending.runtime.task_managers[id]
        recommending.stop_all()
        recommending.remove_task_manager(id)
    finally:
        server.stop()


def test_dials_turn_without_restarts_where_reflect_is_refused(
    recommending: Session, forbidding: TaskManager, topic: str
) -> None:
    session = recommending
    with pytest.raises(Exception, match="not allowed here"):
        forbidding.spark.sql(f"SELECT {read_sql('x', DialReading.BATCH)}").collect()
    assert forbidding.reading is DialReading.TOPIC
    options = "--starting earliest --no-fuse --mode microbatch"
    cell(session, f"calls --topic {topic} --schema 'id LONG' {options}", "source")
    cell(session, "kept --from calls -p 1 -a 0.01 --mode microbatch", "calls")
    for task in ("calls", "kept"):
        session.move(f"{task}.1", forbidding.id)
    runs = {task: session.runtime.instances[f"{task}.1"].run_id for task in ("calls", "kept")}
    sent = 0

    def feed(number: int) -> tuple[int, int, int, int]:
        """Rows kept and dropped at the source, sent on the edge and kept behind it, of so many that come now."""
        nonlocal sent
        before = read()
        sent += produce(session, topic, ({"id": i} for i in range(sent, sent + number)))
        settled(session, "calls", sent, "calls>kept")
        return tuple(new - old for new, old in zip(read(), before, strict=True))  # type: ignore[return-value]

    def read() -> tuple[int, int, int, int]:
        source, edge = count(session, "calls"), count(session, "calls>kept")
        return source.processed, source.dropped, edge.arrived, edge.processed

    assert feed(2000) == (2000, 0, 2000, 2000)
    turn(session, {(None, "calls"): 0.5, ("calls", "kept"): 0.4}, kept=0.2)
    feed(1)  # a batch that had been planned before it
    kept, dropped, gone, accepted = feed(4000)
    assert kept + dropped == 4000
    assert 0.45 < kept / 4000 < 0.55
    assert 0.35 < gone / kept < 0.45
    assert accepted == gone  # 0.5 * 0.4 of the input is what is to be kept
    turn(session, {(None, "calls"): 1.0, ("calls", "kept"): 1.0}, kept=1.0)
    feed(1)
    assert feed(1000) == (1000, 0, 1000, 1000)
    assert {task: session.runtime.instances[f"{task}.1"].run_id for task in runs} == runs
    for task in runs:  # what reads the dials is no part of the stream
        facts = session.runtime.instances[f"{task}.1"].facts
        assert facts is not None
        assert not facts.keeps_state
