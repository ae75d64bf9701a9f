"""Dashboard and controls in a real kernel without a browser: what happens on threads while a cell computes.

With the ipykernel that is installed, and on demand with the oldest and the newest that setup.cfg allows.
"""

from __future__ import annotations

import configparser
import os
import queue
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from jupyter_client import KernelManager

from qod_magics.notebook.replies import FROM_THE_START

pytestmark = pytest.mark.kernel
ROOT = Path(__file__).parents[2]
FED = """
import threading, time
from qod_widgets.dashboard import Dashboard
from qod_magics.recordings.frame import frame
from tests.recordings.taxi_drives import records, taxi_drives

run = records(taxi_drives())
dashboard = Dashboard("fed")
ended = threading.Event()

def feed():
    for record in run:
        dashboard.feed(frame(record, run[0].at))
        if ended.wait(0.1):
            return

feeder = threading.Thread(target=feed, daemon=True)
feeder.start()
"""
#: A panel of controls whose session keeps what it is told, and by which thread.
PANEL = """
import threading, time
from qod_widgets.controls import Commands, Panel
from qod_magics.recordings.frame import frame
from tests.recordings.taxi_drives import records, taxi_drives

class Session:
    told = []
    def set(self, name, **restrictions):
        self.told.append((name, restrictions, threading.current_thread().name))

(record,) = records(taxi_drives()[:1])
panel = Panel(Session(), Commands())
panel.update(frame(record, record.at), 5.0, False)
print(panel._queries["TDSnk1"][0].control.comm.comm_id)
"""
TOLD = [("TDSnk1", {"min_accuracy": 0.5}, "qod-commands")]
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
#: The same of one that goes on until the session was told, or for as long.
COMPUTES = BUSY.replace("< until:", "< until and not Session.told:")
AWAITS = COMPUTES.replace("sum(range(1000))", "await asyncio.sleep(0.05)").replace("import sys", "import asyncio, sys")


class Client:
    """A kernel's client that keeps what the dashboard sends."""

    def __init__(self, client, version):
        self.client, self.version = client, version

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
        self.send(comm, {"method": "custom", "content": content})

    def turn(self, comm, value, subshell=None):
        """What the browser says of a slider that was dragged; the message's id."""
        return self.send(comm, {"method": "update", "state": {"value": value}, "buffer_paths": []}, subshell)

    def send(self, comm, data, subshell=None):
        message = self.client.session.msg("comm_msg", {"comm_id": comm, "data": data})
        if subshell is not None:
            message["header"]["subshell_id"] = subshell
        self.client.shell_channel.send(message)
        return message["header"]["msg_id"]

    def subshell(self):
        """A new subshell, as JupyterLab has one for each widget; None where the kernel has none."""
        self.client.kernel_info()
        while (reply := self.client.get_shell_msg(timeout=30))["msg_type"] != "kernel_info_reply":
            pass  # answers to cells, which nobody read
        if "kernel subshells" not in reply["content"].get("supported_features", []):
            return None
        self.client.control_channel.send(self.client.session.msg("create_subshell_request", {}))
        return self.client.get_control_msg(timeout=30)["content"]["subshell_id"]


def is_idle(message):
    return message["msg_type"] == "status" and message["content"]["execution_state"] == "idle"


def frames(messages):
    """The dashboard's messages among these."""
    found = [m["content"]["data"] for m in messages if m["msg_type"] == "comm_msg"]
    return [data["content"] for data in found if data.get("method") == "custom"]


def printed(messages):
    return "".join(m["content"]["text"] for m in messages if m["msg_type"] == "stream")


def allowed():
    """What setup.cfg says of ipykernel."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    (line,) = re.findall(r"^ipykernel(.*)$", setup["options"]["install_requires"], re.MULTILINE)
    return line


@pytest.fixture(scope="module")
def versions(tmp_path_factory):
    """Installs an ipykernel, with what it needs, into a folder of its own; the folder."""
    made = {}

    def install(version):
        if version not in made:
            folder = tmp_path_factory.mktemp("packages")
            others = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if "ipykernel" not in line]
            (folder / "constraints.txt").write_text("\n".join(others))
            options = ["--quiet", "--disable-pip-version-check", "--target", folder, "-c", folder / "constraints.txt"]
            subprocess.run([sys.executable, "-m", "pip", "install", *options, f"ipykernel{version}"], check=True)
            made[version] = folder
        return made[version]

    return install


@pytest.fixture(
    params=["installed", pytest.param("oldest", marks=pytest.mark.slow), pytest.param("newest", marks=pytest.mark.slow)]
)
def client(request, tmp_path):
    paths = [str(ROOT)]
    if request.param != "installed":
        (oldest,) = re.findall(r">=([\d.]+)", allowed())
        wanted = f"=={oldest}" if request.param == "oldest" else allowed()
        paths.insert(0, str(request.getfixturevalue("versions")(wanted)))
    manager = KernelManager(connection_file=str(tmp_path / "kernel.json"))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "IPYTHONDIR": str(tmp_path / "ipython")}
    manager.start_kernel(env=environment, cwd=str(tmp_path), extra_arguments=[FROM_THE_START])
    plain = manager.blocking_client()
    plain.start_channels()
    try:
        plain.wait_for_ready(timeout=60)
        made = Client(plain, request.param)
        version = printed(made.run("import ipykernel; print(ipykernel.__version__, ipykernel.__file__)"))
        assert request.param != "oldest" or version.startswith(f"{oldest}.")
        assert request.param == "installed" or paths[0] in version
        yield made
    finally:
        plain.stop_channels()
        manager.shutdown_kernel(now=True)
        manager.cleanup_resources()


def test_no_request_is_missed_that_arrives_while_a_reply_is_sent(client):
    """Of 300 such requests, ten were with ipykernel 7.3 as it is."""
    for _ in range(300):
        client.client.kernel_info()  # its reply is sent while the next request arrives
        client.run("pass")


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


def texts(messages):
    """What the line under the controls said."""
    states = [m["content"]["data"].get("state", {}) for m in messages if m["msg_type"] == "comm_msg"]
    return [re.sub("<[^>]*>", "", state["value"]) for state in states if isinstance(state.get("value"), str)]


@pytest.mark.parametrize("cell", [COMPUTES, AWAITS], ids=["computes", "awaits"])
def test_a_slider_that_is_dragged_while_a_cell_runs_is_one_command_of_another_thread(client, cell):
    comm, subshell = printed(client.run(PANEL)).strip(), client.subshell()
    asked = client.client.execute(cell)
    client.heard(lambda m: printed([m]).startswith("begins"))
    turned = client.turn(comm, 0.5, subshell)
    waited = {asked, turned}  # the browser keeps back what a user does next until it hears that this one is dealt with

    def dealt_with(message):
        if is_idle(message):
            waited.discard(message["parent_header"].get("msg_id"))
        return not waited

    said = client.heard(dealt_with)
    if not any(": done" in text for text in texts(said)):
        said += client.heard(lambda m: any(": done" in text for text in texts([m])))
    assert texts(said) == ["TDSnk1 at least 50%: pending", "TDSnk1 at least 50%: done"]
    end = next(i for i, m in enumerate(said) if printed([m]).startswith("ends"))
    assert bool(texts(said[:end])) == (subshell is not None), "without a subshell it waits for the end of the cell"
    assert printed(client.run("print(Session.told)")).strip() == repr(TOLD)
