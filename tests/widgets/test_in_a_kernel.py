"""The dashboard in a real kernel without a browser: what it sends from its thread arrives while a cell runs."""

from __future__ import annotations

import os
import queue
import time
from pathlib import Path

import pytest
from jupyter_client import KernelManager

ROOT = Path(__file__).parents[2]
FED = """
import threading, time
from datetime import datetime
from qod_widgets.dashboard import Dashboard
from qod_widgets.state import frame
from tests.widgets.recordings import taxi_drives

lines = taxi_drives()
began = datetime.fromisoformat(lines[0]["at"])
dashboard = Dashboard("fed")
ended = threading.Event()

def feed():
    for line in lines:
        dashboard.feed(frame(line, began))
        if ended.wait(0.1):
            return

feeder = threading.Thread(target=feed, daemon=True)
feeder.start()
"""
BUSY_S = 3.0
#: What a cell says when it begins to compute, and when it is done.
BUSY = f"""
import sys
print("begins"); sys.stdout.flush()
until = time.monotonic() + {BUSY_S}
while time.monotonic() < until:
    sum(range(1000))
print("ends"); sys.stdout.flush()
"""


class Client:
    """A kernel's client that keeps what the dashboard sends."""

    def __init__(self, client):
        self.client = client

    def heard(self, until, timeout_s=60):
        """The messages up to the first of which `until` is true."""
        found, deadline = [], time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            try:
                message = self.client.get_iopub_msg(timeout=1)
            except queue.Empty:
                continue
            found.append(message)
            if until(message):
                return found
        raise AssertionError(f"it did not come within {timeout_s} s: {[m['msg_type'] for m in found]}")

    def run(self, code):
        """What came while a cell ran."""
        asked = self.client.execute(code)
        found = self.heard(lambda m: is_idle(m) and m["parent_header"].get("msg_id") == asked)
        assert [m["content"] for m in found if m["msg_type"] == "error"] == []
        return found

    def tell(self, comm, content):
        """What the view's `model.send` does."""
        message = {"comm_id": comm, "data": {"method": "custom", "content": content}}
        self.client.shell_channel.send(self.client.session.msg("comm_msg", message))


def is_idle(message):
    return message["msg_type"] == "status" and message["content"]["execution_state"] == "idle"


def frames(messages):
    """The dashboard's messages among these."""
    found = [m["content"]["data"] for m in messages if m["msg_type"] == "comm_msg"]
    return [data["content"] for data in found if data.get("method") == "custom"]


@pytest.fixture
def client(tmp_path):
    manager = KernelManager(connection_file=str(tmp_path / "kernel.json"))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "IPYTHONDIR": str(tmp_path / "ipython")}
    manager.start_kernel(env=environment, cwd=str(tmp_path))
    made = manager.blocking_client()
    made.start_channels()
    try:
        made.wait_for_ready(timeout=60)
        yield Client(made)
    finally:
        made.stop_channels()
        manager.shutdown_kernel(now=True)
        manager.cleanup_resources()


def test_frames_arrive_while_a_cell_computes_and_none_before_a_view_opens(client):
    opened = [m for m in client.run(FED) if m["msg_type"] == "comm_open"]
    comm = next(m["content"]["comm_id"] for m in opened if "_esm" in m["content"]["data"]["state"])
    assert frames(client.run("time.sleep(1)")) == []

    client.tell(comm, {"kind": "open", "view": "a"})
    assert frames(client.heard(lambda m: frames([m])))[0]["fresh"]

    said = client.run(BUSY)
    edges = [i for i, m in enumerate(said) if m["msg_type"] == "stream"]
    during = frames(said[edges[0] : edges[-1]])
    assert len(during) >= 4
    assert not any(message["fresh"] for message in during)
    assert sum(len(message["frames"]) for message in during) > len(during)

    client.tell(comm, {"kind": "close", "view": "a"})
    client.run("pass")
    client.run("time.sleep(1)")
    assert frames(client.run("time.sleep(1)")) == []
    client.run("ended.set(); feeder.join(); dashboard.end()")
