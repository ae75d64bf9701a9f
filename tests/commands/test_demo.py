"""What `python -m qod_magics demo` makes of a recording while the notebook runs."""

from __future__ import annotations

import json
import re
import time
from copy import deepcopy
from io import StringIO
from pathlib import Path
from typing import Any

import nbformat
import pytest
from rich.console import Console

from qod_magics.__main__ import main as run_module
from qod_magics.commands import demo
from qod_magics.controller.record import Record
from qod_magics.controller.record_json import record_from_json
from qod_magics.controller.recording import Recording
from tests.recordings.taxi_drives import taxi_drives

Line = dict[str, Any]


def read(line: Line) -> Record:
    return record_from_json(line)


@pytest.fixture(scope="module")
def lines() -> list[Line]:
    return taxi_drives()


def text(line: Line) -> bytes:
    return json.dumps(line).encode() + b"\n"


# -- following a recording ---------------------------------------------------------------------------------------------


def test_a_tail_gives_each_line_once(tmp_path: Path, lines: list[Line]) -> None:
    tail = demo._Tail(tmp_path / "run.jsonl")
    assert list(tail) == [], "the file is not there yet"
    recording = Recording(tail.path)
    seen: list[Record] = []
    for first in range(0, 30, 3):
        for line in lines[first : first + 3]:
            recording.append(line)
        fresh = list(tail)
        assert fresh == [read(line) for line in lines[first : first + 3]]
        seen += fresh
    recording.close()
    assert seen == [read(line) for line in lines[:30]]
    assert list(tail) == []


def test_a_tail_waits_for_the_end_of_a_line(tmp_path: Path, lines: list[Line]) -> None:
    path = tmp_path / "run.jsonl"
    whole, half = text(lines[0]), text(lines[1])
    path.write_bytes(whole + half[:100])
    tail = demo._Tail(path)
    assert list(tail) == [read(lines[0])]
    assert list(tail) == []
    with path.open("ab") as file:
        file.write(half[100:-1])
    assert list(tail) == []
    with path.open("ab") as file:
        file.write(b"\n" + text(lines[2]))
    assert list(tail) == [read(lines[1]), read(lines[2])]


def test_a_tail_that_is_left_early_goes_on_from_there(tmp_path: Path, lines: list[Line]) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(b"".join(map(text, lines[:5])))
    tail = demo._Tail(path)
    assert next(iter(tail)) == read(lines[0])
    assert list(tail) == [read(line) for line in lines[1:5]]


def test_what_is_not_ascii_does_not_shift_a_tail(tmp_path: Path, lines: list[Line]) -> None:
    odd = [{**line, "phase": f"Überlast → {number}"} for number, line in enumerate(lines[:4])]
    path = tmp_path / "run.jsonl"
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in odd), encoding="utf-8")
    tail = demo._Tail(path)
    assert next(iter(tail)).phase == "Überlast → 0"
    assert [record.phase for record in tail] == [line["phase"] for line in odd[1:]]


# -- a line of text for each cycle -------------------------------------------------------------------------------------


def test_the_phase_is_the_recordings(lines: list[Line]) -> None:
    assert demo._phase(None) == "starting Kafka and Spark"
    assert [demo._phase(read(line)) for line in lines] == [line["phase"] for line in lines]
    assert demo._phase(read(without(lines[0], "phase"))) == "starting"
    assert demo._phase(read({**lines[0], "phase": None})) == "starting"


def test_the_phase_says_when_the_controller_is_off(lines: list[Line]) -> None:
    off = taxi_drives(False)
    assert {demo._phase(read(line)) for line in off} == {f"{line['phase']} (controller off)" for line in off}
    assert demo._phase(read({**lines[0], "applied": False})) == "calm (controller off)"


def without(line: Line, key: str) -> Line:
    return {name: value for name, value in line.items() if name != key}


def test_each_cycle_is_a_line_with_its_figures(lines: list[Line]) -> None:
    for number, line in enumerate(lines):
        quiet = {**line, "events": []}
        said = demo._one_line(read(quiet), elapsed_s=5.0 * number, length_s=5.0 * len(lines))
        assert "\n" not in said
        assert said.startswith(f"[{100 * number / len(lines):3.0f} %] {line['phase']} ")
        sources = line["measured"]["input_rate"]
        arriving = sum(rate for name, rate in sources.items() if name in ("TDSrc1", "TDSrc2"))
        assert f" in {arriving:,.0f}/s " in said
        assert f" lag {sum(line['measured']['lag'].values()):,}" in said
        for query, least in (("TDSnk1", 0.4), ("TDSnk2", 0.6)):
            accuracy = line["measured"]["accuracy"][query]
            assert f"{query} {'-' if accuracy is None else f'{accuracy:.2f}'} (min {least:g})" in said
        assert "TDSrc" not in said, "sources promise nothing"
        for manager in line["snapshot"]["task_managers"]:
            assert f"{manager['id']} {manager['cpu']:.0f} % of {100 * manager['cores']:.0f} %" in said


def test_events_follow_on_lines_of_their_own(lines: list[Line]) -> None:
    line = next(line for line in lines if line["events"])
    first, *news = demo._one_line(read(line), 10.0, 100.0).split("\n")
    assert first.startswith("[ 10 %]")
    assert len(news) == len(line["events"])
    for words, event in zip(news, line["events"], strict=True):
        assert re.fullmatch(rf" +{re.escape(event['kind'])}: .*", words)
        assert all(f"{key} {value}" in words for key, value in event.items() if key != "kind")


def test_more_time_than_was_thought_is_still_a_hundred_percent(lines: list[Line]) -> None:
    assert demo._one_line(read(lines[0]), 1000.0, 10.0).startswith("[100 %]")


def test_a_query_without_input_has_no_accuracy_yet(lines: list[Line]) -> None:
    line = deepcopy(lines[0])
    line["measured"]["accuracy"]["TDSnk1"] = None
    assert "TDSnk1 - (min 0.4)" in demo._one_line(read(line), 0.0, 1.0)


def test_the_table_has_a_row_for_each_task(lines: list[Line]) -> None:
    for line in (lines[0], lines[-1], next(line for line in lines if line["events"])):
        console = Console(width=160, file=StringIO())
        console.print(demo._table(read(line)))
        shown = console.file.getvalue()
        for task in line["snapshot"]["tasks"]:
            (row,) = [row for row in shown.splitlines() if re.search(rf"\b{task['id']}\b.*│.*│", row)]
            dropped = sum(
                count
                for name, count in line["measured"]["dropped"].items()
                if name == task["id"] or name.endswith(f">{task['id']}")
            )
            assert row.rstrip(" │").endswith(f" {dropped:,}")
        assert all(event["kind"] in shown for event in line["events"])


# -- the command -------------------------------------------------------------------------------------------------------


def test_without_the_notebook_it_says_where_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_module(["demo", "--out", str(tmp_path / "out")]) == 2
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 1
    assert "run the demo from the top of the repository, or name one with --notebook" in printed[0]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--notebook", "nope.ipynb", "--out", "out"], "No nope.ipynb here"),
        (["--notebook", "text.ipynb", "--out", "out"], "text.ipynb can't be read as a notebook"),
        (["--notebook", "text.ipynb", "--out", "text.ipynb/out"], "can't be written: Not a directory. Name another"),
    ],
)
def test_what_can_not_be_read_or_written_is_one_line(
    words: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.ipynb").write_text("no notebook")
    assert run_module(["demo", *words]) == 2
    (printed,) = capsys.readouterr().out.splitlines()
    assert printed.startswith("demo: ")
    assert told in printed


def test_an_interrupt_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A cell that is interrupted ends the notebook, and with it its kernel."""
    started = tmp_path / "started"
    cell = nbformat.v4.new_code_cell(f"import time\nopen({str(started)!r}, 'w').close()\ntime.sleep(300)")
    metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    nbformat.write(nbformat.v4.new_notebook(cells=[cell], metadata=metadata), tmp_path / "book.ipynb")

    def interrupted(*_: object) -> None:
        deadline = time.monotonic() + 60
        while not started.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "_show", interrupted)
    assert run_module(["demo", "--notebook", str(tmp_path / "book.ipynb"), "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().out.splitlines() == ["demo: interrupted; everything it started has ended"]


def test_a_run_is_judged_and_written_up(tmp_path: Path, capsys: pytest.CaptureFixture[str], lines: list[Line]) -> None:
    (tmp_path / "run.jsonl").write_bytes(b"".join(map(text, lines)))
    (tmp_path / "off.jsonl").write_bytes(b"".join(map(text, taxi_drives(False))))
    assert demo._judge(tmp_path) == 0
    *criteria, report, recording = capsys.readouterr().out.splitlines()
    assert criteria
    assert all(criterion.startswith("PASS ") for criterion in criteria)
    assert (report, recording) == (f"report: {tmp_path / 'report.html'}", f"recording: {tmp_path / 'run.jsonl'}")
    assert "Taxi Drives, overloaded" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_a_run_that_fails_a_criterion_ends_with_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, lines: list[Line]
) -> None:
    monkeypatch.setattr(
        "qod_magics.reports.page.write_report", lambda *args, **options: None
    )  # drawn above; takes seconds
    bad = deepcopy(lines)
    bad[30]["measured"]["counts"]["TDSrc1"]["dropped"] += 1
    (tmp_path / "run.jsonl").write_bytes(b"".join(map(text, bad)))
    assert demo._judge(tmp_path) == 1
    assert "FAIL " in capsys.readouterr().out
