"""Other users of this machine reach the loopback interface, too: without the session's secrets they get nothing there.

What Kafka refuses is in test_broker.py, what Connect refuses in test_endings.py.
"""

from __future__ import annotations

import json
import socket
import struct
import urllib.error
import urllib.request
from collections import Counter

import psutil
import pytest

from qod_magics.kafka.broker import EmbeddedBroker
from qod_magics.session.session import Session
from qod_magics.spark.servers.server import LocalServer
from tests.live.applications import cell, rows
from tests.live.conftest import eventually, new_topic, produce

RPC_REQUEST = 3  #: in `org.apache.spark.network.protocol.Message`


def answer(port: int, message: bytes) -> str:
    """Spark's answer to a call by its wire protocol, of a client that did not log in."""
    body = struct.pack(">bqi", RPC_REQUEST, 1, len(message)) + message
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(struct.pack(">q", 8 + len(body)) + body)
        return connection.recv(10_000).decode("utf-8", "replace")


def driver_ports(server: LocalServer) -> list[int]:
    """Ports of a local task manager beside Connect's and the UI's; all of them are on loopback."""
    found = [c.laddr for c in psutil.Process(server.child.pid).net_connections("tcp") if c.status == psutil.CONN_LISTEN]
    assert {address.ip.removeprefix("::ffff:") for address in found} == {"127.0.0.1"}
    return sorted({address.port for address in found} - {server.port, server.ui_port})


@pytest.mark.smoke
def test_the_driver_and_its_blocks_ask_for_a_login(cluster: Session) -> None:
    # of its own: where a foreachBatch query ran, Spark leaves the port open that its Python worker had called
    name = cluster.add_task_manager(cores=1)
    try:
        server = cluster.runtime.task_managers[name].server
        assert server is not None
        ports = driver_ports(server)
        assert len(ports) == 2
        for port in ports:
            assert "Expected SaslMessage" in answer(port, b"anything")
    finally:
        cluster.remove_task_manager(name)


def test_a_shuffle_in_real_time_mode_listens_on_loopback_only(brief: Session) -> None:
    """Its writers open a port each, on all interfaces by Spark's own code, and without a login."""
    session, topic = brief, new_topic(brief)
    servers = {id: m.server for id, m in session.runtime.task_managers.items() if m.server is not None}
    before = {id: set(driver_ports(server)) for id, server in servers.items()}
    line = f"zones --topic {topic} --schema 'zone INT' --starting earliest -p 1 --mode realtime"
    cell(session, line, "source.groupBy('zone').count()")
    sent = produce(session, topic, ({"zone": i % 3} for i in range(300)))
    seen: list[set[int]] = []

    def shuffled() -> bool:
        """Whether all rows are counted, and ports of three batches were seen; each look judges all ports."""
        (instance,) = [i for i in session.runtime.instances.values() if i.job.task == "zones"]
        home = instance.task_manager
        if instance.mode == "real-time" and home is not None:
            opened = set(driver_ports(servers[home.id])) - before[home.id]
            seen.extend([opened] if opened and opened not in seen else [])
        counted = Counter[int]()
        for row in rows(session, "zones"):
            counted[row["zone"]] = max(counted[row["zone"]], row["count"])
        return len(seen) >= 3 and counted.total() == sent

    eventually(shuffled, what=lambda: f"the counts, and three ports: {seen}")


def test_the_ui_changes_nothing_and_hides_the_password(qod: Session, broker: EmbeddedBroker) -> None:
    topic = new_topic(qod)
    qod.stream("rows", topic=topic, schema="id LONG", priority=1, sink="memory", starting="earliest")
    produce(qod, topic, ({"id": i} for i in range(100)))
    eventually(lambda: qod.results("rows").count() == 100, what="all rows")
    manager = qod.runtime.instances["rows.1"].task_manager
    assert manager.ui is not None
    password = broker.credentials["sasl.password"]
    paths = ["jobs/", "stages/", "environment/", "SQL/", "StreamingQuery/", "connect/"]
    for path in [*paths, "api/v1/applications"]:
        text = page(f"{manager.ui}/{path}")
        assert password not in text, path
        assert "kill?" not in text
    (application,) = json.loads(page(f"{manager.ui}/api/v1/applications"))
    for path in ("sql?details=true&length=50", "jobs", "stages?details=true", "environment"):
        assert password not in page(f"{manager.ui}/api/v1/applications/{application['id']}/{path}")
    with pytest.raises(urllib.error.HTTPError):
        page(f"{manager.ui}/jobs/job/kill/?id=0", method="POST")


def page(url: str, method: str = "GET") -> str:
    with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=60) as answer:
        return answer.read().decode()
