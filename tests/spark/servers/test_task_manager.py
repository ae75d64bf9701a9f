"""How a task manager reads its dials, and what is passed to its JVM."""

from __future__ import annotations

import copy
import json
import shlex
import socket
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest

from qod_magics.errors import SetupError, TaskManagerError
from qod_magics.spark.plans.dial import DialReading
from qod_magics.spark.servers import joining
from qod_magics.spark.servers.cpu import refuses
from qod_magics.spark.servers.remote import Remote
from qod_magics.spark.servers.server import LocalServer, _quoted
from qod_magics.spark.servers.task_manager import TaskManager
from tests.machine.fakes import FakeMachine, on, with_client
from tests.raising import breaks
from tests.spark.fakes import BOARD, Spark, manager

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


def test_whatever_an_answer_is_the_next_one_counts() -> None:
    """A UI that is restarted, or a proxy before it. One answer alone must not stand for all that follow."""
    stage = {"description": f"runId = {RUN}\nbatch = 3", "executorCpuTime": 2_000_000_000, "executorRunTime": 3_000}
    stages, cut = [stage], True

    class Cutting(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(stages).encode()
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
            assert made.rest.cores() is None
            cut = False
            assert made.task_times(30.0) == {(RUN, 3): (2.0, 3.0)}
            stages = [{"description": stage["description"]}]
            with pytest.raises(KeyError):
                made.task_times(30.0)
            stages = []
            assert made.task_times(30.0) == {}
            stages = [stage]
            assert made.works_on(RUN) is True
        finally:
            server.shutdown()
            thread.join()


def test_a_ui_behind_a_gateway_gets_the_headers_that_the_user_gave() -> None:
    stage = {"description": f"runId = {RUN}\nbatch = 3", "executorCpuTime": 2_000_000_000, "executorRunTime": 3_000}
    executor = {"id": "app", "totalCores": 4, "isActive": True}

    class Gateway(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            allowed = self.headers["X-Token"] == "it"
            body = json.dumps([stage if "stages" in self.path else executor]).encode()
            self.send_response(200 if allowed else 401)
            self.end_headers()
            self.wfile.write(body if allowed else b"")

        def log_message(self, *_: object) -> None:
            """Nothing on the console."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Gateway) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            for headers, times, cores in (({}, None, None), ({"X-Token": "it"}, {(RUN, 3): (2.0, 3.0)}, 4.0)):
                ui = f"http://127.0.0.1:{server.server_port}"
                made = TaskManager("tm1", Spark(), kind="connect", cores=1.0, board=BOARD, ui=ui, headers=headers)  # type: ignore[arg-type]
                made.application = "app"
                assert made.task_times(30.0) == times
                assert made.rest.cores() == cores
        finally:
            server.shutdown()
            thread.join()


def test_executors_that_come_and_go_change_its_cores() -> None:
    executors = [{"totalCores": 4, "isActive": True}, {"totalCores": 4, "isActive": True}]

    class Ui(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(executors).encode())

        def log_message(self, *_: object) -> None:
            """Nothing on the console."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Ui) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            there = {"kind": "connect", "cores": 3.6, "board": BOARD, "capacity": 4.0}
            made, told = (
                TaskManager("tm1", Spark(), **there, headroom=headroom)  # type: ignore[arg-type]
                for headroom in (0.1, None)
            )
            for each in (made, told):
                each.ui, each.application = f"http://127.0.0.1:{server.server_port}", "app"
                each.recount()
            assert made.cores == 3.6, "they have just been counted"
            made.recount(every_s=0.0)
            assert (made.cores, made.capacity, made.slots) == (pytest.approx(7.2), 8.0, 8.0)
            executors[0]["isActive"] = False
            made.recount(every_s=0.0)
            assert (made.cores, made.capacity) == (pytest.approx(3.6), 4.0)
            executors.clear()
            made.recount(every_s=0.0)
            assert made.capacity == 4.0, "none for a moment"
            told.recount(every_s=0.0)
            assert told.cores == 3.6, "the user has said so"
        finally:
            server.shutdown()
            thread.join()


# --- shuffle partitions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("capacity", "stated", "partitions"),
    [(1.0, None, 1), (0.5, None, 1), (8.0, None, 8), (900.0, None, 200), (8.0, 3, 3)],
)
def test_a_query_shuffles_into_a_partition_for_each_core_or_as_the_user_says(
    capacity: float, stated: int | None, partitions: int
) -> None:
    options: Any = {"kind": "connect", "cores": 0.9 * capacity, "board": BOARD, "capacity": capacity, "shuffle": stated}
    made = TaskManager("tm1", Spark(), **options)  # type: ignore[arg-type]
    assert made.shuffle == (stated or 1), "nothing tells how many slots a batch uses behind a shuffle"
    made.ui, made.application = "http://127.0.0.1:9", "app"
    assert made.shuffle == partitions
    if stated is None:
        made.capacity = 2.0  # executors have gone
        assert made.shuffle == min(2, max(partitions, 2))


class Setting(Spark):
    """A session whose settings are kept; the ones that were made are in `made`."""

    def __init__(self, **settings: str) -> None:
        super().__init__()
        self.settings, self.made = {"spark.master": "spark://there:7077", **settings}, []

    def get(self, key: str) -> str | None:
        return self.settings.get(key)

    def set(self, key: str, value: str) -> None:
        self.settings[key] = value
        self.made.append(value)


def test_starts_that_shuffle_alike_go_on_together_and_others_wait() -> None:
    """Each query copies the setting of its session when it starts."""
    spark = Setting()
    made = TaskManager("tm1", spark, kind="connect", cores=8.0, board=BOARD)  # type: ignore[arg-type]
    other = made.shuffling(1)
    waits = threading.Thread(target=other.__enter__, daemon=True)
    with made.shuffling(8), made.shuffling(8):
        waits.start()
        waits.join(0.2)
        assert spark.made == ["8"], "nobody changes it while queries start"
    waits.join(10)
    assert spark.made == ["8", "1"]
    with pytest.raises(TaskManagerError, check=breaks("answers", name="tm1")), made.shuffling(8, wait_s=0.05):
        pass  # the other one never ends
    assert spark.made == ["8", "1"]


def test_no_query_takes_the_partitions_that_the_recipe_of_another_has_set() -> None:
    spark = Setting()
    made = TaskManager("tm1", spark, kind="connect", cores=8.0, board=BOARD)  # type: ignore[arg-type]
    with made.shuffling(8):
        pass
    spark.conf.set("spark.sql.shuffle.partitions", "16")
    with made.shuffling(8):
        assert spark.settings["spark.sql.shuffle.partitions"] == "8"


class Fixed(Setting):
    """A session whose settings nobody may change, of a Spark that runs so many tasks at once."""

    def __init__(self, tasks: int, **settings: str) -> None:
        super().__init__(**settings)
        self.tasks = tasks

    def set(self, key: str, value: str) -> None:
        raise RuntimeError(f"{key} is fixed here")

    def collect(self) -> list[Any]:
        return [{0: self.tasks, "value": 0.25}]


def test_where_settings_are_fixed_queries_shuffle_as_they_say_and_the_status_tells() -> None:
    spark: Any = Fixed(6, **{"spark.sql.shuffle.partitions": "40", "spark.sql.session.timeZone": "Asia/Tokyo"})
    made = joining.attach_url("tm1", Remote("sc://there:1", ui=""), BOARD, 0.5, connect=partial(_given, spark))
    assert (made.capacity, made.cores) == (6.0, 3.0)
    assert made.kept["spark.sql.session.timeZone"] == "Asia/Tokyo"
    assert "Asia/Tokyo" in made.describe
    with made.shuffling(6) as partitions, made.shuffling(2) as others:  # neither waits for the other
        assert (partitions, others, made.shuffle) == (40, 40, 40)


def test_tasks_at_once_are_counted_anew_and_not_where_a_setting_says_their_number() -> None:
    spark: Any = Fixed(6)
    spark.stop = lambda: None
    made = joining.attach_url("tm1", Remote("sc://there:1", ui=""), BOARD, 0.5, connect=partial(_given, spark))
    spark.tasks = 4  # executors have gone
    made.recount(every_s=0.0)
    assert (made.capacity, made.cores) == (4.0, 2.0)
    spark.settings["spark.default.parallelism"] = "50"
    made.recount(every_s=0.0)
    assert made.capacity == 4.0
    with pytest.raises(TaskManagerError, check=breaks("known cores")):
        joining.attach_url("tm1", Remote("sc://there:1", ui=""), BOARD, 0.5, connect=partial(_given, spark))


def test_executors_that_come_for_the_first_count_are_counted() -> None:
    spark: Any = Fixed(6)
    counts, others = iter([2, 4, 1, 5]), spark.collect  # the first of two is without them
    spark.collect = lambda: [{0: next(counts)}] if "max(part)" in spark.asked[-1] else others()
    made = joining.attach_url("tm1", Remote("sc://there:1", ui=""), BOARD, 0.5, connect=partial(_given, spark))
    assert made.capacity == 4.0
    made.recount(every_s=0.0)
    assert made.capacity == 5.0


def _given(spark: Any, *_: object) -> Any:
    return spark


def test_the_shuffle_partitions_of_a_server_are_its_users_if_they_are_not_sparks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = "spark.sql.shuffle.partitions"
    monkeypatch.setattr(Spark, "stop", lambda _: None, raising=False)
    for stated, partitions in (("200", 1), ("64", 64)):  # without a UI, in one
        spark: Any = Setting(**{name: stated})
        server = Remote("sc://there:1", cores=4.0, ui="")
        made = joining.attach_url("tm1", server, BOARD, 0.1, connect=partial(_given, spark))
        assert (made.shuffle, spark.settings[name]) == (partitions, "1"), "the session is ours"
    counted = dict.fromkeys(range(2), 1.0)
    on(FakeMachine(range(2), None), monkeypatch)
    for stated, partitions in (("200", 2), ("7", 7)):
        session = Notebooks(2)
        session.settings[name] = stated
        options: Any = {"clone": Clones(), "core_seconds": lambda: counted}
        attached = joining.attach_session("spark", session, BOARD, 0.1, **options)  # type: ignore[arg-type]
        assert (attached.shuffle, session.settings[name]) == (partitions, stated)


def test_a_server_is_gone_when_its_port_refuses_connections() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:  # answers nothing, like a process that is stopped
        endpoint = f"127.0.0.1:{listening.getsockname()[1]}"
        assert not refuses(endpoint)
    assert refuses(endpoint)
    assert not refuses("no-such-host.invalid:15002")


@pytest.mark.parametrize("option", ["-Dx=/tmp/a b", "-Dx=plain", '-Dx=a "b" c', "-Dx=c:\\a b"])
def test_an_option_with_spaces_stays_one(option: str) -> None:
    assert shlex.split(_quoted(option)) == [option]


def test_an_interrupt_leaves_neither_a_server_nor_a_claim_of_its_cores() -> None:
    done: list[str] = []

    def interrupted(*_: object) -> None:
        done.append("interrupted")
        raise KeyboardInterrupt

    server: Any = object.__new__(LocalServer)
    server.child = SimpleNamespace(stop=interrupted, alive=lambda: True)
    server.claim = SimpleNamespace(release=lambda: done.append("released"))
    made = manager()
    made.kind, made.server = "connect", server
    made.spark.client = SimpleNamespace(release_session=interrupted)  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        made.close()
    assert done == ["interrupted", "interrupted", "released"]


def test_a_server_that_falls_silent_after_its_first_answer_is_given_up() -> None:
    spark: Any = Spark()
    released: list[Any] = []
    spark.stop = lambda: released.append(spark)
    spark.gate.clear()
    url = "sc://there:1/;token=secret"
    with pytest.raises(TaskManagerError) as caught:
        joining.attach_url("tm1", Remote(url, cores=1.0), BOARD, 0.1, inquiry_s=0.2, connect=lambda *_: spark)
    assert (caught.value.rule, caught.value.value, caught.value.name) == ("answers", 0.2, "sc://there:1/;token=...")
    assert "secret" not in str(caught.value)
    assert released == [spark]
    spark.gate.set()


class Older(Spark):
    """A server of an earlier release."""

    version = "4.2.9"


def test_a_server_that_is_older_than_pyspark_is_let_go_and_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with_client("4.3.0", monkeypatch)
    spark: Any = Older()
    released: list[Any] = []
    spark.stop = lambda: released.append(spark)
    url = "sc://there:1/;token=secret"
    with pytest.raises(SetupError, check=breaks("client not newer", value="4.2.9")) as caught:
        joining.attach_url("tm1", Remote(url, cores=1.0), BOARD, 0.1, connect=lambda *_: spark)
    assert "secret" not in str(caught.value)
    assert released == [spark]
    with pytest.raises(SetupError, check=breaks("client not newer", value="4.2.9")):
        joining.attach_session("spark", spark, BOARD, 0.1, clone=lambda each: each)


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


@pytest.fixture(autouse=True)
def classic(monkeypatch: pytest.MonkeyPatch) -> None:
    """No session of this process is of Connect."""
    monkeypatch.delenv(joining.CONNECT_MODE, raising=False)


class Clones(list[Any]):
    """Makes the clones of notebooks' sessions, and keeps them."""

    def __call__(self, spark: Any) -> Any:
        made = copy.copy(spark)
        made.settings = dict(spark.settings)
        made.conf = made
        self.append(made)
        return made


def test_settings_go_to_a_clone_of_the_notebooks_session() -> None:
    clones, spark = Clones(), Notebooks(2)
    made = joining.attach_session("spark", spark, BOARD, 0.1, clone=clones)  # type: ignore[arg-type]
    (own,) = clones
    assert made.spark is own
    assert made.notebooks is made.for_notebook() is spark  # type: ignore[comparison-overlap]
    assert own.settings["spark.sql.shuffle.partitions"] == "1"
    before = Notebooks(2).settings
    assert spark.settings == before
    made.close()
    assert spark.settings == before


def test_a_session_that_is_not_attached_after_all_keeps_its_settings() -> None:
    spark = Own()
    with pytest.raises(KeyboardInterrupt):
        joining.attach_session("spark", spark, BOARD, 0.1, clone=Clones())  # type: ignore[arg-type]
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
    on(FakeMachine(range(8), quota), monkeypatch)
    counted = dict.fromkeys(range(8), 1.0)
    spark: Any = Notebooks(threads)
    made = joining.attach_session("spark", spark, BOARD, 0.5, clone=Clones(), core_seconds=lambda: counted)
    assert made.cores == cores / 2
    assert (made.cpu_meter is not None) is measured
    if made.cpu_meter is not None:
        assert made.cpu_meter.cores == 8
