"""How a task manager reads its dials, and what is passed to its JVM."""

from __future__ import annotations

import copy
import json
import shlex
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest

from qod_magics.errors import TaskManagerError
from qod_magics.spark.plans.dial import DialReading
from qod_magics.spark.servers import cpu, task_manager
from qod_magics.spark.servers.cpu import executor_cores, refuses
from qod_magics.spark.servers.server import LocalServer, _quoted
from qod_magics.spark.servers.task_manager import TaskManager
from tests.machine.fakes import FakeMachine, on
from tests.spark.stand_ins import BOARD, Spark, manager

RUN = "0a0b0c0d-0000-4000-8000-000000000000"


class Mastered(Spark):
    """A session with this master."""

    def __init__(self, master: str) -> None:
        super().__init__()
        self.master = master

    def get(self, key: str) -> str | None:
        return self.master if key == "spark.master" else super().get(key)


@pytest.mark.parametrize(
    ("master", "reading"),
    [
        ("local[4]", DialReading.ROW),
        ("local", DialReading.ROW),
        ("local-cluster[2,1,1024]", DialReading.BATCH),  # its executors are other processes than the one with the dials
        ("spark://here:7077", DialReading.BATCH),
    ],
)
def test_dials_are_read_for_each_row_only_where_the_driver_works_itself(master: str, reading: DialReading) -> None:
    made = TaskManager("tm1", Mastered(master), kind="attached", cores=1.0, board=BOARD)  # type: ignore[arg-type]
    assert made.reading is reading


def test_a_ui_that_does_not_answer_holds_up_no_poll_and_its_late_answer_is_not_lost() -> None:
    release = threading.Event()
    stage = {"description": f"runId = {RUN}\nbatch = 3", "executorCpuTime": 2_000_000_000, "executorRunTime": 3_000}

    class Slow(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            release.wait(30)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps([stage]).encode())

        def log_message(self, *_: object) -> None:
            """Nothing on the console."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Slow)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        made = TaskManager("tm1", Spark(), kind="attached", cores=1.0, board=BOARD)  # type: ignore[arg-type]
        made.ui, made.application = f"http://127.0.0.1:{server.server_port}", "app"
        assert made.task_times(0.05) is None
        assert made.task_times(0.05) is None
        release.set()
        assert made.task_times(30.0) == {(RUN, 3): (2.0, 3.0)}
        made.ui = "http://127.0.0.1:9"
        assert made.task_times(30.0) is None
    finally:
        release.set()
        server.shutdown()
        server.server_close()
        thread.join()


def test_an_answer_that_is_cut_short_is_none_and_the_next_one_counts() -> None:
    """A UI that is restarted, or a proxy before it. One answer alone must not stand for all that follow."""
    stage = {"description": f"runId = {RUN}\nbatch = 3", "executorCpuTime": 2_000_000_000, "executorRunTime": 3_000}
    cut = True

    class Cutting(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps([stage]).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body) + cut))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing on the console."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Cutting) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            made = TaskManager("tm1", Spark(), kind="attached", cores=1.0, board=BOARD)  # type: ignore[arg-type]
            made.ui, made.application = f"http://127.0.0.1:{server.server_port}", "app"
            assert made.task_times(30.0) is None
            assert made.works_on(RUN) is None
            assert executor_cores(made.ui, "app", patience_s=0.0) is None
            cut = False
            assert made.task_times(30.0) == {(RUN, 3): (2.0, 3.0)}
            assert made.works_on(RUN) is True
        finally:
            server.shutdown()
            thread.join()


def test_whatever_an_answer_is_the_next_one_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    made = TaskManager("tm1", Spark(), kind="attached", cores=1.0, board=BOARD)  # type: ignore[arg-type]
    made.ui, made.application = "http://127.0.0.1:9", "app"
    monkeypatch.setattr(cpu, "completed_stages", lambda *_: [{"description": f"runId = {RUN}\nbatch = 3"}])
    with pytest.raises(KeyError):
        made.task_times(30.0)
    monkeypatch.setattr(cpu, "completed_stages", lambda *_: [])
    assert made.task_times(30.0) == {}


def test_a_server_is_gone_when_its_port_refuses_connections() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:  # answers nothing, like a process that is stopped
        endpoint = f"127.0.0.1:{listening.getsockname()[1]}"
        assert not refuses(endpoint)
    assert refuses(endpoint)
    assert not refuses("no-such-host.invalid:15002")


@pytest.mark.parametrize("option", ["-Dx=/tmp/a b", "-Dx=plain", '-Dx=a "b" c', "-Dx=c:\\a b"])
def test_an_option_with_spaces_stays_one(option: str) -> None:
    assert shlex.split(_quoted(option)) == [option]


def test_an_interrupt_leaves_neither_a_server_nor_a_claim_of_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def interrupted(*_: object) -> None:
        done.append("interrupted")
        raise KeyboardInterrupt

    server = object.__new__(LocalServer)
    monkeypatch.setattr(server, "child", SimpleNamespace(stop=interrupted, alive=lambda: True), raising=False)
    monkeypatch.setattr(server, "claim", SimpleNamespace(release=lambda: done.append("released")), raising=False)
    made = manager()
    made.kind, made.server = "connect", server
    monkeypatch.setattr(task_manager, "let_go", interrupted)
    with pytest.raises(KeyboardInterrupt):
        made.close()
    assert done == ["interrupted", "interrupted", "released"]


def test_a_server_that_falls_silent_after_its_first_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    spark = Spark()
    released: list[Any] = []
    spark.gate.clear()
    monkeypatch.setattr(task_manager, "connect", lambda *_: spark)
    monkeypatch.setattr(task_manager, "let_go", lambda given, _: released.append(given))
    monkeypatch.setattr(task_manager, "INQUIRY_S", 0.2)
    with pytest.raises(TaskManagerError, match=r"^sc://there:1/;token=\.\.\. did not answer within 0\.2 s\.$"):
        task_manager.attach_url("tm1", "sc://there:1/;token=secret", BOARD, 0.1, cores=1.0)
    assert released == [spark]
    spark.gate.set()


class Own(Spark):
    """A notebook's session, interrupted while its address is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.settings = {"spark.sql.shuffle.partitions": "200"}

    def get(self, key: str) -> str | None:
        return self.settings.get(key)

    def set(self, key: str, value: str) -> None:
        self.settings[key] = value

    def unset(self, key: str) -> None:
        del self.settings[key]

    @property
    def sparkContext(self) -> object:
        raise KeyboardInterrupt


def cloned(monkeypatch: pytest.MonkeyPatch) -> list[Own]:
    """The clones that are made of notebooks' sessions from now on."""
    clones: list[Own] = []

    def clone(spark: Own) -> Own:
        clones.append(copy.copy(spark))
        clones[-1].settings = dict(spark.settings)
        clones[-1].conf = clones[-1]
        return clones[-1]

    monkeypatch.setattr(task_manager, "clone", clone)
    monkeypatch.delenv(task_manager.CONNECT_MODE, raising=False)
    return clones


def test_settings_go_to_a_clone_of_the_notebooks_session(monkeypatch: pytest.MonkeyPatch) -> None:
    clones, spark = cloned(monkeypatch), Notebooks(2)
    made = task_manager.attach_session("spark", spark, BOARD, 0.1)  # type: ignore[arg-type]
    (own,) = clones
    assert made.spark is own  # type: ignore[comparison-overlap]
    assert made.notebooks is made.for_notebook() is spark  # type: ignore[comparison-overlap]
    assert own.settings["spark.sql.shuffle.partitions"] == "1"
    before = Notebooks(2).settings
    assert spark.settings == before
    made.close()
    assert spark.settings == before


def test_a_session_that_is_not_attached_after_all_keeps_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    cloned(monkeypatch)
    spark = Own()
    with pytest.raises(KeyboardInterrupt):
        task_manager.attach_session("spark", spark, BOARD, 0.1)  # type: ignore[arg-type]
    assert spark.settings == {"spark.sql.shuffle.partitions": "200"}


class Notebooks(Own):
    """A classic session of the notebook's, `local[threads]`, without a UI."""

    def __init__(self, threads: int) -> None:
        super().__init__()
        self.settings |= {"spark.master": f"local[{threads}]", "spark.driver.host": "localhost"}
        self.context = SimpleNamespace(uiWebUrl=None, defaultParallelism=threads)

    @property
    def sparkContext(self) -> object:
        return self.context


@pytest.mark.parametrize(
    ("threads", "quota", "cores", "measured"),
    [(2, None, 2.0, False), (8, None, 8.0, True), (12, None, 8.0, True), (8, 2.0, 2.0, False)],
)
def test_the_machines_cores_are_measured_only_for_a_session_that_may_use_them_all(
    threads: int, quota: float | None, cores: float, measured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What others use on cores that are not the session's is not missing to it."""
    cloned(monkeypatch)
    on(FakeMachine(range(8), quota), monkeypatch)
    monkeypatch.setattr(task_manager, "core_seconds", lambda: dict.fromkeys(range(8), 1.0))
    made = task_manager.attach_session("spark", Notebooks(threads), BOARD, 0.5)  # type: ignore[arg-type]
    assert made.cores == cores / 2
    assert (made.cpu_meter is not None) is measured
    if made.cpu_meter is not None:
        assert made.cpu_meter.cores == 8
