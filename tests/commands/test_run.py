"""Runs without a notebook: exit codes, lines of JSON and signals; sessions are made up, all else is real."""

from __future__ import annotations

import argparse
import ast
import configparser
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import nbformat
import pytest
from IPython.core.inputtransformer2 import TransformerManager

from qod_magics.__main__ import COMMANDS
from qod_magics.__main__ import main as command
from qod_magics.application.streams.options import parse_stream_line
from qod_magics.commands.headless import CatchUp
from qod_magics.commands.run import CODES, FINISH_S, _parser, main, port_of, seconds_of
from qod_magics.core.runtime import Count, FeedRows
from qod_magics.errors import UsageProblem
from qod_magics.monitoring.alarms import GIVEN_UP, SILENT, STARVED
from qod_magics.notebook.magics import expanded
from qod_magics.notebook.options import COMMANDS as QOD
from tests.monitoring.sessions import Session
from tests.raising import breaks

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


Ran = Callable[..., tuple[int, list[dict[str, Any]]]]
BEGIN = "from tests.monitoring.sessions import Session\nqod = Session()\n"


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ran:
    """Runs a script with this text; returns the exit code and the lines."""
    Session.made.clear()

    def ran(text: str, *options: str, name: str = "app.py") -> tuple[int, list[dict[str, Any]]]:
        (tmp_path / name).write_text(text)
        code = main([str(tmp_path / name), *options])
        said = capsys.readouterr()
        assert said.err == ""
        return code, [json.loads(line) for line in said.out.splitlines()]

    return ran


def kinds(lines: list[dict[str, Any]]) -> list[str]:
    return [line["kind"] for line in lines]


def ended(lines: list[dict[str, Any]]) -> dict[str, Any]:
    assert kinds(lines).count("ended") == 1
    assert lines[-1]["kind"] == "ended"
    return lines[-1]


# --- exit codes -------------------------------------------------------------------------------------------------------


def test_a_run_ends_with_its_time(run: Ran) -> None:
    code, lines = run(BEGIN, "--for", "0.3s")
    assert code == ended(lines)["code"] == 0
    assert {"begun", "cell", "session", "ended"} <= set(kinds(lines))
    assert Session.made[0].finish_s == FINISH_S, "batches under way end"


def test_a_script_sees_its_own_arguments(run: Ran) -> None:
    code, lines = run("import sys\nprint(len(sys.argv), sys.argv[0][-6:])")
    assert code == 0
    assert "1 app.py" in [line.get("words") for line in lines]


@pytest.mark.parametrize("name", ["none/a.prom", "a.txt"])
def test_a_file_of_metrics_is_looked_at_before_anything_runs(run: Ran, tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageProblem):
        run(f"open({str(tmp_path / 'ran')!r}, 'w')", "--metrics-file", str(tmp_path / name))
    assert not (tmp_path / "ran").exists()


def test_a_run_without_a_session_ends_at_once(run: Ran) -> None:
    assert run("x = 1")[0] == 0
    assert run(BEGIN + "qod.down()")[0] == 0


def test_a_script_that_ends_itself_is_no_failure(run: Ran) -> None:
    assert run(BEGIN + "import sys; sys.exit()")[0] == 0
    assert run(BEGIN + "import sys; sys.exit('no')")[0] == 3


@pytest.mark.parametrize("text", ["1 / 0", "x = (", "%no_such_magic", "raise BaseException"])
def test_an_error_in_a_cell_ends_the_run_and_its_session(run: Ran, text: str) -> None:
    code, lines = run(f"{BEGIN}# %%\n{text}\n# %%\nprint('never')")
    assert code == ended(lines)["code"] == 3
    (failed,) = [line for line in lines if line["kind"] == "cell-failed"]
    assert failed["cell"] == 2
    assert not any(line.get("words") == "never" for line in lines)
    assert (Session.made[0].up, Session.made[0].finish_s) == (False, 0.0)


@pytest.mark.parametrize("kind", CODES)
def test_a_session_that_can_not_go_on_ends_the_run_with_its_code(run: Ran, kind: str) -> None:
    code, lines = run(BEGIN + f"qod.alarm({kind!r}, 400.0)", "--for", "20s")
    assert code == CODES[kind] == ended(lines)["code"]
    assert f"it is {kind}" in ended(lines)["why"]


@pytest.mark.parametrize("kind", [STARVED, SILENT])
def test_what_is_tolerated_does_not_end_it(run: Ran, kind: str) -> None:
    assert run(BEGIN + f"qod.alarm({kind!r}, 400.0)", "--for", "0.3s", "--tolerate", "10m")[0] == 0
    assert run(BEGIN + f"qod.alarm({kind!r})", "--for", "20s", "--tolerate", "0.4s")[0] == CODES[kind]


def test_a_cell_that_awaits_the_session_ends_with_the_same_code(run: Ran) -> None:
    code, lines = run(BEGIN + f"qod.alarm({GIVEN_UP!r})\nawait qod.run(20.0)")
    assert code == CODES[GIVEN_UP]
    assert "QueryError" in [line.get("error") for line in lines]


def test_codes_are_distinct_and_told_by_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    codes = [0, 1, 2, 3, *CODES.values()]
    assert len(set(codes)) == len(codes)
    with pytest.raises(SystemExit):
        command(["run", "--help"])
    said = capsys.readouterr().out
    assert all(re.search(rf"^  {code}  \w", said, re.MULTILINE) for code in codes)


@pytest.mark.parametrize(
    ("name", "text", "rule"),
    [("app.txt", "", "suffix"), ("gone.py", None, "readable"), ("app.ipynb", "no json", "notebook")],
)
def test_what_is_no_application_is_refused(tmp_path: Path, name: str, text: str | None, rule: str) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(UsageProblem, check=breaks(rule)):
        main([str(tmp_path / name)])
    assert command(["run", str(tmp_path / name)]) == 2


# --- until now --------------------------------------------------------------------------------------------------------


def rows(**feeds: tuple[int, int]) -> list[FeedRows]:
    """Inputs by name, `_` for `>`: rows that arrived, and that were read."""
    found = []
    for name, (arrived, read) in feeds.items():
        feed = name.replace("_", ">")
        count = Count(arrived, read, 0, arrived - read)
        found.append(FeedRows(feed, feed.rpartition(">")[2], "t", count, {0: count.waiting}))
    return found


class Reading:
    """Looks at rows, one after the other. The broker is asked for offsets before each look, unless it is `stale`."""

    def __init__(self) -> None:
        self.looking, self.samples = CatchUp(), 0

    def done(self, found: list[FeedRows], *, stale: bool = False) -> bool:
        self.samples += not stale
        return self.looking.done(found, float(self.samples))

    def settled(self, found: list[FeedRows]) -> bool:
        """Look three times at the same rows, until their offsets are new."""
        return [self.done(found) for _ in range(3)][-1]


def test_rows_that_come_later_are_not_waited_for() -> None:
    reading = Reading()
    assert not reading.settled(rows(a=(10, 0)))
    assert not reading.done(rows(a=(50, 9)))
    assert reading.done(rows(a=(90, 10)))


def test_rows_are_followed_through_all_tasks() -> None:
    reading = Reading()
    assert not reading.settled(rows(a=(10, 0), a_b=(0, 0), b_c=(0, 0)))
    assert not reading.settled(rows(a=(30, 10), a_b=(10, 0), b_c=(0, 0)))
    assert not reading.settled(rows(a=(50, 30), a_b=(30, 10), b_c=(10, 0)))
    assert reading.done(rows(a=(99, 50), a_b=(50, 30), b_c=(30, 10)))


def test_what_a_task_wrote_last_is_waited_for_though_the_broker_has_not_been_asked_since() -> None:
    reading = Reading()
    assert not reading.settled(rows(a=(10, 0), a_b=(0, 0)))
    for _ in range(5):
        assert not reading.done(rows(a=(10, 10), a_b=(0, 0)), stale=True)
    assert not reading.settled(rows(a=(10, 10), a_b=(10, 0)))
    assert reading.done(rows(a=(10, 10), a_b=(10, 10)))


def test_what_is_not_known_yet_is_waited_for() -> None:
    reading = Reading()
    assert not reading.settled([FeedRows("a", "a", "t", Count())])
    assert not reading.settled(rows(a=(10, 0)))
    assert reading.done(rows(a=(10, 10)))
    assert Reading().done([FeedRows("a", "a", "", Count(7, 7))]), "a recipe that makes its own rows"


def test_where_nothing_waits_no_row_is_waited_for() -> None:
    reading = Reading()
    assert not reading.settled(rows(a=(10, 10), a_b=(5, 5)))
    assert any(reading.done(rows(a=(10, 10), a_b=(5, 5))) for _ in range(2))
    assert Reading().done([])


def test_an_application_that_changes_is_followed_from_then_on() -> None:
    reading = Reading()
    assert not reading.settled(rows(a=(10, 0)))
    assert not reading.settled(rows(a=(20, 10), a_b=(10, 0)))
    assert not reading.settled(rows(a=(30, 20), a_b=(20, 10)))
    assert reading.done(rows(a=(30, 30), a_b=(20, 20)))


def test_a_run_until_now_ends_when_rows_are_read(run: Ran) -> None:
    text = (
        BEGIN
        + """
from tests.commands.test_run import rows
steps = [rows(a=(5, 1)), rows(a=(5, 1)), rows(a=(5, 1)), rows(a=(7, 4)), rows(a=(9, 5))]
qod.rows = lambda: steps.pop(0) if len(steps) > 1 else steps[0]
"""
    )
    code, lines = run(text, "--until", "now", "--for", "20s")
    assert code == 0
    assert ended(lines)["why"]
    assert Session.made[0].finish_s == FINISH_S


# --- cells and lines --------------------------------------------------------------------------------------------------


def test_a_notebook_runs_cell_by_cell_in_its_directory(run: Ran, tmp_path: Path) -> None:
    code = nbformat.v4.new_code_cell
    cells = [nbformat.v4.new_markdown_cell("# text"), code("%pwd"), code(""), code("x = 2"), code("print(x + 1)")]
    here = os.getcwd()
    status, lines = run(nbformat.writes(nbformat.v4.new_notebook(cells=cells)), name="app.ipynb")
    assert status == 0
    assert [line["words"] for line in lines if line["kind"] == "printed"][-1] == "3"
    assert any(str(tmp_path) in line.get("words", "") for line in lines if line["kind"] == "printed")
    assert [line["cell"] for line in lines if line["kind"] == "cell"] == [1, 2, 3]
    assert os.getcwd() == here


def test_each_line_that_is_printed_is_a_line_of_json(run: Ran) -> None:
    text = """
import logging, sys
print("one\\ntwo", end="")
print("three")
print("10 %\\r20 %\\r")
print("to err", file=sys.stderr)
logging.getLogger("some.library").warning("beware of %s", "it")
print("no end", end="")
"""
    _, lines = run(text)
    printed = [(line["stream"], line["words"]) for line in lines if line["kind"] == "printed"]
    assert [each for each in printed if each[0] == "stdout"] == [
        ("stdout", "one"),
        ("stdout", "twothree"),
        ("stdout", "20 %"),
        ("stdout", "no end"),
    ]
    assert ("stderr", "to err") in printed
    assert [line["words"] for line in lines if line["kind"] == "log"] == ["beware of it"]
    assert all(datetime.fromisoformat(line["at"]).tzinfo for line in lines)


def test_decisions_and_alarms_are_lines(run: Ran) -> None:
    text = (
        BEGIN
        + """
from tests.controller.scripted import FixedPolicy, bench
b = bench(policy=FixedPolicy(0.5, starved=("tm1",)))
b.controller.subscribe(qod.monitor.take)
# %%
b.cycles(2)
"""
    )
    code, lines = run(text, "--for", "0.5s")
    assert code == 0
    (starved,) = [line for line in lines if line["kind"] == "starved"]
    assert starved["names"] == ["tm1"]
    (alarm,) = [line for line in lines if line["kind"] == "alarm"]
    assert (alarm["alarm"], alarm["subject"], alarm["over"]) == ("starved", "tm1", False)


def test_metrics_go_to_a_file_while_it_runs(run: Ran, tmp_path: Path) -> None:
    path = tmp_path / "qod.prom"
    code, _ = run(BEGIN + f"# %%\nprint(open({str(path)!r}).read())", "--for", "0.2s", "--metrics-file", str(path))
    assert code == 0
    assert not path.exists()


def test_health_and_metrics_are_served_while_it_runs(run: Ran, tmp_path: Path) -> None:
    text = (
        BEGIN
        + """
import threading, urllib.error, urllib.request
token = open({token!r}).read().strip()

def get(path):
    asks = {{"Authorization": f"Bearer {{token}}"}}
    request = urllib.request.Request(f"http://127.0.0.1:{port}{{path}}", headers=asks)
    try:
        return urllib.request.urlopen(request, timeout=5).read().decode().splitlines()[0]
    except urllib.error.HTTPError as error:
        return error.read().decode().strip()

print("first", get("/healthz"))
threading.Timer(0.2, lambda: print("then", get("/healthz"), get("/metrics"))).start()
"""
    )
    token, port = str(tmp_path / "token"), free_port()
    options = ("--health", str(port), "--token-file", token, "--for", "1s")
    code, lines = run(text.format(token=token, port=port), *options)
    assert code == 0
    words = [line["words"] for line in lines if line["kind"] == "printed"]
    assert words[0] == "first starting"
    assert words[1].startswith("then ok # HELP qod_session_info")
    assert [line["metrics"] for line in lines if line["kind"] == "serving"] == [f"http://127.0.0.1:{port}/metrics"]


def free_port() -> int:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90.0), ("5m", 300.0), ("1h30m", 5400.0), ("2.5", 2.5), ("1d", 86400.0)]
)
def test_durations(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "h", "5 m", "-3s", "1h30", "inf", "5x"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        seconds_of(text)


# --- signals ----------------------------------------------------------------------------------------------------------


def signalled(path: Path, number: int, after: str) -> tuple[int, list[dict[str, Any]]]:
    """Runs an application in a process that gets a signal once it has printed this."""
    words = [sys.executable, "-m", "qod_magics", "run", str(path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    lines = []
    timer = threading.Timer(60.0, process.kill)
    timer.start()
    for line in process.stdout:
        lines.append(json.loads(line))
        if after in line:
            process.send_signal(number)
            after = "\0"
    timer.cancel()
    return process.wait(), lines


@pytest.mark.parametrize(("text", "port"), [("9400", 9400), (":9400", 9400), ("0", 0)])
def test_ports(text: str, port: int) -> None:
    assert port_of(text) == port


@pytest.mark.parametrize("text", ["", ":", "-1", "65536", "9400x", "127.0.0.1:9400"])
def test_what_is_no_port_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        port_of(text)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_run_in_order(tmp_path: Path, number: int) -> None:
    path = tmp_path / "app.py"
    path.write_text(BEGIN)
    code, lines = signalled(path, number, '"kind": "cell"')
    assert code == 0
    assert signal.Signals(number).name in ended(lines)["why"]


def test_a_signal_ends_the_cell_under_way(tmp_path: Path) -> None:
    path = tmp_path / "app.py"
    path.write_text(BEGIN + "import time\nprint('asleep')\ntime.sleep(50)\n# %%\nprint('never')")
    begun = time.monotonic()
    code, lines = signalled(path, signal.SIGTERM, "asleep")
    assert code == 0
    assert time.monotonic() - begun < 40.0
    assert ended(lines)["why"]
    assert not any(line.get("words") == "never" for line in lines)


# --- examples ---------------------------------------------------------------------------------------------------------


def options_of(words: Sequence[str]) -> argparse.Namespace:
    """What a command line of an example gives to the command; it ends the test if there is no such option."""
    assert words[1:4] == ["-m", "qod_magics", "run"]
    assert "run" in COMMANDS
    return _parser().parse_args(words[4:])


def test_the_unit_file_runs_an_application_that_there_is() -> None:
    service = unit("qod-trips.service")["Service"]
    given = options_of(shlex.split(service["ExecStart"]))
    assert (EXAMPLES / given.application).is_file()
    assert float(service["TimeoutStopSec"]) > 2 * FINISH_S
    assert service["KillSignal"] == "SIGTERM"
    never = {int(code) for code in service["RestartPreventExitStatus"].split()}
    assert never == {2, 3}
    assert never.isdisjoint(CODES.values())


def unit(name: str) -> configparser.ConfigParser:
    """A unit of systemd among the examples."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string((EXAMPLES / name).read_text("utf-8"))
    return parser


def test_the_task_of_a_scheduler_ends_and_its_session_goes_on_next_time() -> None:
    service, timer = unit("qod-hourly.service")["Service"], unit("qod-hourly.timer")["Timer"]
    assert (service["Type"], timer["OnCalendar"]) == ("oneshot", "hourly")
    given = options_of(shlex.split(service["ExecStart"]))
    assert given.until == "now"
    text = (EXAMPLES / given.application).read_text("utf-8")
    (up,) = re.findall(r"^%qod up (.*)$", text, re.MULTILINE)
    options = QOD["up"].read(shlex.split(up), {})
    assert options.name
    assert options.checkpoints
    streams = [parse_stream_line(line) for line in re.findall(r"^%%qod_stream (.*)$", text, re.MULTILINE)]
    assert [stream.name for stream in streams] == ["trips", "per_zone"]


def test_the_container_file_runs_an_application_that_there_is() -> None:
    text = re.sub(r"\\\n", " ", (EXAMPLES / "Containerfile").read_text("utf-8"))
    lines = [line.split(" ", 1) for line in text.splitlines() if line and not line.startswith("#")]
    known = {"FROM", "RUN", "COPY", "WORKDIR", "USER", "HEALTHCHECK", "STOPSIGNAL", "ENTRYPOINT"}
    assert {name for name, _ in lines} <= known
    (words,) = [json.loads(rest) for name, rest in lines if name == "ENTRYPOINT"]
    given = options_of(words)
    (copied,) = [rest.split() for name, rest in lines if name == "COPY" and rest.endswith(str(given.application))]
    assert (EXAMPLES.parents[1] / copied[0]).is_file()
    (check,) = [rest for name, rest in lines if name == "HEALTHCHECK"]
    assert f":{given.health}/healthz" in check
    assert ["STOPSIGNAL", "SIGTERM"] in lines


def test_the_task_of_airflow_runs_the_application_of_the_timer() -> None:
    tree = ast.parse((EXAMPLES / "scheduled.py").read_text("utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    (task,) = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "BashOperator"]
    given = {each.arg: ast.literal_eval(each.value) for each in task.keywords if isinstance(each.value, ast.Constant)}
    execute, *words = shlex.split(given["bash_command"])
    assert execute == "exec", "else SIGTERM ends the shell alone"
    assert options_of(words) == options_of(shlex.split(unit("qod-hourly.service")["Service"]["ExecStart"]))
    (dag,) = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "DAG"]
    assert {each.arg: getattr(each.value, "value", None) for each in dag.keywords}["max_active_runs"] == 1


def test_papermill_finds_the_parameters_that_its_line_gives_and_the_cells_are_ours() -> None:
    cells = nbformat.read(EXAMPLES / "report.ipynb", 4).cells
    (tagged,) = [cell for cell in cells if "parameters" in cell.metadata.get("tags", ())]
    names = {target.id for node in ast.parse(tagged.source).body for target in node.targets}  # type: ignore[attr-defined]
    (line,) = re.findall(r"`(papermill .*?)`", cells[0].source)
    words = shlex.split(line)
    assert words[1] == "report.ipynb"
    given = {words[at + 1] for at, word in enumerate(words) if word == "-p"}
    assert given <= names
    used = set()
    for cell in (each.source for each in cells if each.cell_type == "code"):
        used |= set(re.findall(r"\$(\w+)|\bawait qod\.run\(.*?(minutes)", cell))
        begin, _, body = cell.partition("\n")
        if begin.startswith("%%qod_stream "):
            parse_stream_line(expanded(begin.removeprefix("%%qod_stream "), {"minimum": 0.4}))
            assert body
            continue
        for magic in re.findall(r"^%qod (\S+) ?(.*)$", cell, re.MULTILINE):
            QOD[magic[0]].read(shlex.split(expanded(magic[1], {"kafka": "localhost:9092"})), {})
        ast.parse(TransformerManager().transform_cell(cell))
    assert {name for pair in used for name in pair if name} == names
