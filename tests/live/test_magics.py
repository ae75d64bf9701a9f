"""The magics in a notebook that runs in a real kernel, once, from `%qod up` to `%qod down`; what each cell showed."""

from __future__ import annotations

import json
import re
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbconvert import HTMLExporter

from qod_magics.notebook.replies import FROM_THE_START
from qod_magics.policies import DEFAULT_POLICY
from qod_magics.session.status import DECLARED
from tests.live.kernel import CELL_S, START_S, Household, Traces, lingering, surroundings
from tests.texts import tells

pytestmark = pytest.mark.smoke

#: (name, source) in the order in which they run. `until` waits inside the kernel, as a user's cell would.
CELLS = (
    (
        "prepare",
        """
        %load_ext qod_magics
        import asyncio, os, threading, time
        import psutil

        async def until(condition, seconds=120):
            end = time.monotonic() + seconds
            while not condition():
                if time.monotonic() > end:
                    raise TimeoutError(f"{condition} is false after {seconds} s")
                await asyncio.sleep(0.1)

        def accuracy(name):
            measured = qod.last.measured if qod.last else None
            return measured.accuracy.get(name) if measured else None

        def task(name):
            return next((task for task in qod.last.snapshot.tasks if task.id == name), None)
        """,
    ),
    ("early", "%qod status"),
    ("config", "%config QodMagics.period = 2"),
    ("up", "%qod up --cores 1 --jit c1 --record $out/run.jsonl"),
    ("again", "%qod up"),
    (
        "inject",
        """
        TRIPS = "zone INT, fare DOUBLE, ts TIMESTAMP"
        rows = out + "/rows.jsonl"
        with open(rows, "w") as file:
            for i in range(1000):
                print(f'{{"zone": {i % 10}, "fare": {i}.5, "ts": "2026-11-21T00:00:00Z"}}', file=file)
        data = {"jsonl": rows, "event_time": "ts"}
        injector = qod.inject({"duration_s": 900, "topics": [{"topic": "trips", "data": data, "rate": 100}]})
        """,
    ),
    ("source", '%%qod_stream trips --topic trips --schema "$TRIPS"\nsource.where("fare >= 0")'),
    ("source_repr", "trips"),
    (
        "python",
        """
        %%qod_stream busy --from trips --priority 2 --min-accuracy 0.4
        zones = trips.withWatermark("ts", "5 seconds").groupBy(F.window("ts", "5 seconds"), "zone")
        zones.agg(F.sum("_weight").alias("trips"))
        """,
    ),
    (
        "sql",
        """
        %%qod_stream dear --sql --priority 1 --min-accuracy 0.2
        SELECT zone, fare, _weight FROM trips WHERE fare > 100
        """,
    ),
    ("typo", "%%qod_stream dear2 --sql\nSELECT zone, fair FROM trips"),
    ("typo_python", "%%qod_stream dear2 --from trips\ntrips.where('fair > 100')"),
    ("typo_dry_run", "%%qod_stream dear2 --from trips --dry-run\ntrips.where('fair > 100')"),
    ("typo_replaced", '%%qod_stream trips --topic trips --schema "$TRIPS"\nsource.drop("fare")'),
    ("early_topic", "%%qod_stream later --topic later --schema 'id INT'\nsource.where('id > 0')"),
    ("dry_run", "%%qod_stream dear2 --from trips --dry-run\ntrips.where('fare > 100')"),
    ("measured", "await until(lambda: accuracy('busy') and accuracy('dear'))"),
    ("status", "%qod status"),
    ("why", "%qod why busy"),
    ("why_typo", "%qod why bussy"),
    ("session_repr", "qod"),
    ("stream_repr", "busy"),
    ("show", "%qod show busy --save $out/kept.jsonl"),
    ("show_typo", "%qod show bussy"),
    ("show_column", "%qod show busy --y trip"),
    ("show_read", "%qod show trips"),
    ("set", "%qod set busy --priority 5 --min-accuracy 0.7"),
    ("set_typo", "%qod set bussy --priority 5"),
    ("set_seen", "await until(lambda: task('busy').min_accuracy == 0.7)\ntask('busy').priority"),
    ("pause", "%qod pause"),
    ("paused", "await until(lambda: qod.last.paused)\n%qod status"),
    # while it is paused nothing else moves
    ("add_tm", "%qod add-tm --cores 1"),
    ("move", "%qod move busy.1 tm2"),
    ("move_typo", "%qod move busy.1 tm3"),
    ("moved", "busy"),
    ("remove_tm", "%qod remove-tm tm2"),
    ("removed", "busy"),
    ("resume", "%qod resume"),
    ("resumed", "await until(lambda: qod.last.applied)"),
    ("watch", "%qod watch 3\nawait asyncio.sleep(1)"),
    ("dashboard", "%qod watch"),
    ("silent", "number = qod.last.number\nawait until(lambda: qod.last.number > number + 1)\n'cycles went by'"),
    ("replace", "%%qod_stream dear --sql --priority 1\nSELECT zone, fare FROM trips WHERE fare > 200"),
    ("results", "await until(lambda: len(dear.to_pandas()) > 0)\ndear.to_pandas()['fare'].min() > 200"),
    ("report", "%qod report $out/report.html"),
    ("report_nowhere", "%qod report $out/no/such/place.html"),
    ("stop_read", "%qod stop trips"),
    ("stop", "%qod stop busy"),
    ("stopped", "busy"),
    ("stop_all", "%qod stop --all"),
    ("all_stopped", "%qod status"),
    ("started", "len(psutil.Process().children(recursive=True)) > 2"),
    ("down", "%qod down"),
    (
        "nothing_left",
        """
        def held():
            processes = [process.cmdline() for process in psutil.Process().children(recursive=True)]
            threads = [thread.name for thread in threading.enumerate() if thread.name.startswith("qod-")]
            return processes + threads

        await until(lambda: not held())
        held(), [name for name in ("qod",) if name in globals()]
        """,
    ),
    ("late", "%qod status"),
    ("late_repr", "dear"),
    ("late_show", "%qod show --from $out/kept.jsonl --kind table"),
    (
        "classic_again",
        """
        from pyspark.sql.connect.session import SparkSession
        os.environ.get("SPARK_CONNECT_MODE_ENABLED"), SparkSession.getActiveSession(), SparkSession._default_session
        """,
    ),
    ("up_again", "%qod up --jit c1"),
    ("unload", "%unload_ext qod_magics"),
    ("gone", "%qod status"),
    ("gone_session", "'qod' in globals()"),
    ("load_again", "%load_ext qod_magics"),
    ("early_again", "%qod status"),
)
#: Cells before which it is looked at what the kernel holds of the machine, and cells after which that must be gone.
LOOK_BEFORE = ("early", "down", "unload")
GONE_AFTER = ("down", "unload")


WIDGET = "application/vnd.jupyter.widget-view+json"


@dataclass
class Shown:
    """What one cell showed: the text of its outputs, and of its error if it failed."""

    printed: str = ""
    value: str = ""
    display: list[str] = field(default_factory=list)
    page: list[str] = field(default_factory=list)  #: the HTML of displays that have some
    widgets: int = 0  #: outputs that a page shows as widgets
    error: list[str] = field(default_factory=list)  #: the lines that stand for the traceback


def shown(cell: Any) -> Shown:
    found = Shown()
    for output in cell.outputs:
        found.widgets += WIDGET in output.get("data", {})
        if output.output_type == "stream":
            found.printed += output.text
        elif output.output_type == "error":
            found.error += [line for text in output.traceback for line in text.split("\n")]
        elif output.output_type == "execute_result":
            found.value += output.data["text/plain"]
        else:
            found.display.append(output.data["text/plain"])
            found.page += [output.data["text/html"]] if "text/html" in output.data else []
    return found


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Shown]:
    """The whole notebook, run once; the kernel has ended when the tests look at what it showed."""
    out = tmp_path_factory.mktemp("magics")
    book = nbformat.v4.new_notebook()
    first = nbformat.v4.new_code_cell(f"out = {str(out)!r}")
    cells = {name: nbformat.v4.new_code_cell("\n".join(_dedented(source))) for name, source in CELLS}
    book.cells = [first, *cells.values()]
    where = {"metadata": {"path": str(out)}}
    client = NotebookClient(
        book, timeout=CELL_S, startup_timeout=START_S, resources=where, extra_arguments=[FROM_THE_START]
    )
    household = Household()
    traces: dict[str, Traces] = {}
    left: dict[str, Shown] = {}
    with closing(household), client.setup_kernel(env={**surroundings(), **household.environment}):
        for index, (name, cell) in enumerate([("out", first), *cells.items()]):
            if name in LOOK_BEFORE:
                traces[name] = household.look()
            with suppress(CellExecutionError):  # some must fail; what they show is looked at
                client.execute_cell(cell, index)
            if name in GONE_AFTER:
                assert len(traces[name].left(traces["early"])) > 5  # the look sees what there is
                lines = lingering(household.look, traces["early"], traces[name])
                left[f"left_by_{name}"] = Shown(printed="\n".join(lines))
    found = {name: shown(cell) for name, cell in cells.items()} | left
    assert (out / "run.jsonl").stat().st_size > 0
    found["first_cycle"] = Shown(printed=(out / "run.jsonl").read_text(encoding="utf-8").partition("\n")[0])
    found["saved"] = Shown(printed=HTMLExporter().from_notebook_node(book)[0])
    found["report_file"] = Shown(printed=(out / "report.html").read_text(encoding="utf-8"))
    return found


def _dedented(source: str) -> list[str]:
    lines = source.strip("\n").split("\n")
    margin = len(lines[0]) - len(lines[0].lstrip())
    return [line[margin:] for line in lines]


MUST_FAIL = {
    "early": "UsageProblem: nothing is up: begin with %qod up",
    "typo": "fair",
    "typo_python": "fair",
    "typo_dry_run": "fair",
    "typo_replaced": "fare",
    "why_typo": "UsageProblem: there is no stream, instance or task manager 'bussy'. Did you mean 'busy'?",
    "show_typo": "Did you mean 'busy'?",
    "show_column": "UsageProblem: --y trip: the result has no such column. Did you mean 'trips'?",
    "show_read": "ApplicationError: trips is no query, as busy, dear reads it: show busy, dear",
    "set_typo": "Did you mean 'busy'?",
    "move_typo": "TaskManagerError: There is no task manager 'tm3'. Did you mean 'tm",
    "report_nowhere": "No such file or directory",
    "stop_read": "ApplicationError: ",
    "late": "UsageProblem: nothing is up",
    "early_again": "UsageProblem: nothing is up: begin with %qod up",
}


def test_only_the_wrong_cells_fail(seen: dict[str, Shown]) -> None:
    assert {name: cell.error for name, cell in seen.items() if cell.error and name not in MUST_FAIL} == {}


@pytest.mark.parametrize("name", MUST_FAIL)
def test_a_wrong_cell_shows_one_line(seen: dict[str, Shown], name: str) -> None:
    (line,) = seen[name].error
    assert MUST_FAIL[name] in line
    assert seen[name].printed == ""


def test_up_tells_what_it_starts(seen: dict[str, Shown]) -> None:
    kafka, manager = seen["up"].printed.splitlines()
    assert re.fullmatch(r"Kafka at \S+:\d+ \(\d+\.\d s\)", kafka)
    # the other tests' session may have the same core
    assert re.fullmatch(r"tm1: .*core \d+( .*\d+, .*)?, .*\(\d+\.\d s\)", manager)


def test_up_a_second_time_goes_on(seen: dict[str, Shown]) -> None:
    assert seen["again"].printed.startswith("already up")


def test_the_best_policy_decides_where_none_is_named(seen: dict[str, Shown]) -> None:
    assert json.loads(seen["first_cycle"].printed)["policy"] == DEFAULT_POLICY


def test_a_stream_cell_says_what_became_of_it(seen: dict[str, Shown]) -> None:
    assert seen["source"].printed == f"trips {DECLARED}\n"
    assert seen["source_repr"].value == f"trips {DECLARED}"
    first, second = seen["python"].printed.splitlines()
    assert tells(first, "busy", "tm1", "micro-batch")
    assert second.startswith("busy: ")
    assert tells(seen["sql"].printed, "dear", "tm1", "real-time")
    assert tells(seen["replace"].printed, "dear replaced", "tm1", "real-time")
    assert seen["early_topic"].printed == f"later {DECLARED}\n"
    assert tells(seen["dry_run"].printed, "dear2", "dry run")


def test_the_status_has_a_row_for_each_task(seen: dict[str, Shown]) -> None:
    lines = seen["status"].printed.splitlines()
    assert tells(lines[0], "tm1", "core")
    for name, mode, least, priority in (("busy", "micro-batch", "0.400", "2"), ("dear", "real-time", "0.200", "1")):
        (row,) = [line.split() for line in lines if line.startswith(f"trips+{name} ")]
        assert row[1:3] == ["tm1", mode]
        assert row[7:9] == [least, priority]
    assert not any("dear2" in line for line in lines)


def test_why_speaks_of_the_stream(seen: dict[str, Shown]) -> None:
    assert "busy" in seen["why"].printed


def test_session_and_stream_say_what_they_are(seen: dict[str, Shown]) -> None:
    value = seen["session_repr"].value
    assert value.startswith("qod session ")
    assert tells(value, "1 task manager (tm1)", "4 streams (trips, busy, dear, later)", "2 s")
    assert re.fullmatch(
        r"busy .*tm1 .*micro-batch.* trips -> busy; [\d,]+ rows/s .*[\d.]+ %.*accuracy [\d.]+ .*0\.4.*",
        seen["stream_repr"].value,
    )


def test_results_are_shown_as_text_too_and_from_a_file_when_nothing_is_up(seen: dict[str, Shown]) -> None:
    (live, last), (kept,) = seen["show"].display, seen["late_show"].display
    for text in (live, last, kept):
        heading, columns, *rows = text.splitlines()
        assert re.fullmatch(r"busy, .*\d\d:\d\d:\d\d UTC", heading)
        assert columns.split() == ["window", "zone", "trips"]
        assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d[05] to .*\d\d:\d[05] +\d +[\d.,]+", rows[0])
        (accuracy,) = [row for row in rows if row.startswith("accuracy: ")]
        assert "minimum 40.0%" in accuracy
        assert any(tells(row, "zone exact", "trips estimated") for row in rows)
    assert kept.splitlines()[-1].startswith("from kept.jsonl, saved at ")
    (picture,) = seen["show"].page
    assert picture.count("<svg") == 1
    assert ">start of" in picture
    assert "<p>accuracy: " in picture


def test_a_query_and_its_results_are_widgets_where_they_can_be(seen: dict[str, Shown]) -> None:
    assert seen["show"].widgets == seen["stream_repr"].widgets == seen["late_show"].widgets == 1
    assert seen["source_repr"].widgets == seen["stopped"].widgets == seen["late_repr"].widgets == 0


def test_set_reaches_the_next_cycle(seen: dict[str, Shown]) -> None:
    assert tells(seen["set"].printed, "busy", 5, 0.7)
    assert seen["set_seen"].value == "5"


def test_pause_and_resume(seen: dict[str, Shown]) -> None:
    assert seen["pause"].printed.startswith("paused")
    assert seen["pause"].printed in seen["paused"].printed
    assert seen["resume"].printed.endswith("again\n")


def test_a_watch_shows_in_its_own_cell_and_no_cycle_in_any_other(seen: dict[str, Shown]) -> None:
    assert seen["watch"].printed == ""
    assert seen["watch"].value == ""
    (status,) = seen["watch"].display
    assert tells(status.splitlines()[0], "tm1", "core")
    assert "\ntrips+busy " in status
    assert seen["silent"] == Shown(value="'cycles went by'")
    assert seen["resumed"] == seen["measured"] == Shown()


def test_a_saved_notebook_shows_the_last_state_without_a_kernel(seen: dict[str, Shown]) -> None:
    session, words = seen["dashboard"].display
    assert session.startswith("qod session ")
    assert re.fullmatch(r".* \d+ cycles .*session \w+.*", words)
    (picture,) = seen["dashboard"].page
    assert picture.count("<svg") == 2
    for name in ("busy", "dear", "tm1"):
        assert f">{name}</text>" in picture
    page = seen["saved"].printed  # it writes the attributes of elements in another order
    assert page.count("<svg") == 3  # two of the dashboard, and one of results
    assert ">busy</text>" in page


def test_task_managers_come_and_go(seen: dict[str, Shown]) -> None:
    assert seen["add_tm"].printed == "tm2 is up\n"
    assert seen["move"].printed == "busy.1 runs on tm2\n"
    assert tells(seen["moved"].value, "busy", "tm2")
    assert seen["remove_tm"].printed == "tm2 is gone\n"
    assert tells(seen["removed"].value, "busy", "tm1")


def test_results_are_those_of_the_query_as_it_is_now(seen: dict[str, Shown]) -> None:
    assert seen["results"].value in ("True", "np.True_")


def test_the_report_is_written(seen: dict[str, Shown]) -> None:
    assert re.fullmatch(r"written: \S+report.html\n", seen["report"].printed)
    page = seen["report_file"].printed
    assert "<svg" in page
    assert "busy" in page


def test_streams_stop(seen: dict[str, Shown]) -> None:
    assert seen["stop"].printed == seen["stop_all"].printed == "stopped\n"
    assert seen["stopped"].value == "busy: stopped"
    assert "real-time" not in seen["all_stopped"].printed


def test_after_down_nothing_is_left(seen: dict[str, Shown]) -> None:
    assert seen["started"].value == "True"
    assert seen["down"].printed.startswith("down: ")
    assert seen["nothing_left"].value == "([], [])"
    assert seen["left_by_down"].printed == ""
    assert tells(seen["late_repr"].value, "dear", "ended")
    assert seen["classic_again"].value == "(None, None, None)"


def test_after_unloading_the_magics_and_their_session_are_gone(seen: dict[str, Shown]) -> None:
    assert tells(seen["gone"].printed, "UsageError", "`%qod`")
    assert seen["gone_session"].value == "False"
    assert seen["left_by_unload"].printed == ""
