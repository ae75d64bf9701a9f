"""What the demonstration shows of a recording while it is written."""

from __future__ import annotations

import json
import re
import threading
from copy import deepcopy
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from qod_magics.commands.demo import LONGEST, STARTING, Tail, View, backlog, show
from qod_magics.controller.record import Record, Recording, record_from_json
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
    tail = Tail(tmp_path / "run.jsonl")
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
    tail = Tail(path)
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
    tail = Tail(path)
    assert next(iter(tail)) == read(lines[0])
    assert list(tail) == [read(line) for line in lines[1:5]]


def test_what_is_not_ascii_does_not_shift_a_tail(tmp_path: Path, lines: list[Line]) -> None:
    odd = [{**line, "phase": f"Überlast → {number}"} for number, line in enumerate(lines[:4])]
    path = tmp_path / "run.jsonl"
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in odd), encoding="utf-8")
    tail = Tail(path)
    assert next(iter(tail)).phase == "Überlast → 0"
    assert [record.phase for record in tail] == [line["phase"] for line in odd[1:]]


# -- a line of text for each cycle -------------------------------------------------------------------------------------


class Ticking:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def view_of(*lines: Line, length_s: float = 100.0, elapsed_s: float = 0.0) -> View:
    clock = Ticking()
    view = View(length_s, clock)
    clock.now = elapsed_s
    for line in lines:
        view.read(read(line))
    return view


def test_the_phase_is_the_recordings(lines: list[Line]) -> None:
    assert view_of().phase == STARTING
    assert [view_of(line).phase for line in lines] == [line["phase"].replace("-", " ") for line in lines]


def test_before_the_first_phase_it_gets_ready_and_between_two_the_load_changes(lines: list[Line]) -> None:
    unnamed = {**lines[0], "phase": None}
    assert view_of(unnamed).phase == "getting ready"
    assert view_of({name: value for name, value in lines[0].items() if name != "phase"}).phase == "getting ready"
    assert view_of(lines[0], unnamed).phase not in ("getting ready", lines[0]["phase"])


def test_the_phase_says_when_the_controller_is_off(lines: list[Line]) -> None:
    off = taxi_drives(False)
    assert {view_of(line).phase for line in off} == {f"{line['phase']} (controller off)" for line in off}
    assert view_of({**lines[0], "applied": False}).phase == "calm (controller off)"
    assert view_of(lines[0], {**lines[1], "phase": None, "applied": False}).phase == "controller off"


def test_each_cycle_is_one_line_with_its_figures(lines: list[Line]) -> None:
    clock = Ticking()
    view = View(5.0 * len(lines), clock)
    for number, line in enumerate(lines):
        clock.now = 5.0 * number
        view.read(read(line))
        said = view.line()
        assert "\n" not in said
        when, second, first, cpu, *decided = said.split(" | ")
        minutes, seconds = divmod(5 * number, 60)
        assert when.startswith(f"{minutes}:{seconds:02d} {line['phase'].replace('-', ' ')}, about ")
        rates = line["measured"]["input_rate"]
        arriving = f"{rates['TDSrc1'] + rates['TDSrc2']:,.0f} rows/s"
        for query, least, part in (("TDSnk2", 0.6, second), ("TDSnk1", 0.4, first)):
            accuracy = line["measured"]["accuracy"][query]
            shown = "-" if accuracy is None else f"{accuracy:.2f}"
            assert part.startswith(f"{query} {arriving}, accuracy {shown} (min {least:g})")
            assert part.endswith(f"backlog {backlog(read(line), query):,}")
        managers = line["snapshot"]["task_managers"]
        assert cpu == ", ".join(f"{one['id']} {one['cpu']:.0f} % of {100 * one['cores']:.0f} %" for one in managers)
        assert len(decided) <= 1


def test_a_backlog_is_that_of_the_query_and_of_all_that_it_reads_from(lines: list[Line]) -> None:
    line = deepcopy(lines[5])
    line["measured"]["lag"] = {
        "TDSrc1": 1,
        "TDSrc2": 20,
        "TDSrc1>TDSnk1": 300,
        "TDSrc2>TDSnk1": 4000,
        "TDSrc1>TDSnk2": 7,
    }
    assert backlog(read(line), "TDSnk1") == 4321
    assert backlog(read(line), "TDSnk2") == 28


def test_what_is_decided_is_told_in_words_in_its_cycle_and_stays_in_the_terminal(lines: list[Line]) -> None:
    view, told = View(1000.0), []
    for line in lines:
        view.read(read(line))
        *_, last = view.line().split(" | ")
        if view.news:
            told.append(last)
            assert len(last) <= LONGEST
    assert any(re.match(r"TDSnk1 .*1\.00 .*0\.\d\d ", words) for words in told)
    assert any(re.search(r"\w+\.\d .*tm1 .*tm2 .*\d+\.\d s", words) for words in told)
    assert any("tm2 is up" in words for words in told)
    assert not any(re.search("took_s|TDSrc", words) for words in told)
    assert view.decision is not None
    assert f"last decision: {view.decision.words[:40]}" in drawn(view)


def test_that_code_has_warmed_up_is_no_decision(lines: list[Line]) -> None:
    event = {"kind": "warm-up-over", "instance": "TDSnk1.2", "task": "TDSnk1", "took_s": 10.206249908000018}
    view = View(1000.0)
    for line in lines:
        view.read(read({**line, "events": []}))
    before = view.decision
    view.read(read({**lines[-1], "events": [event]}))
    assert view.decision == before
    assert "TDSnk1.2" not in view.line()


def test_more_time_than_was_thought_is_a_moment(lines: list[Line]) -> None:
    assert view_of(lines[0], elapsed_s=40.0).left == "about 1:00 left"
    assert not any(c.isdigit() for c in view_of(lines[0], elapsed_s=1000.0).left)


def test_a_query_without_input_has_no_accuracy_yet(lines: list[Line]) -> None:
    line = deepcopy(lines[0])
    line["measured"]["accuracy"]["TDSnk1"] = None
    assert "accuracy - (min 0.4)" in view_of(line).line()


def test_without_a_terminal_a_cycle_is_a_line_and_nothing_moves_the_cursor(
    tmp_path: Path, lines: list[Line], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.jsonl").write_bytes(b"".join(map(text, lines[:4])))
    done = threading.Event()
    threading.Timer(1.5, done.set).start()
    show(tmp_path, done, 100.0)
    said = capsys.readouterr().out
    assert len(said.splitlines()) == 5
    assert not re.search(r"[\x1b\r]", said)


# -- in a terminal -----------------------------------------------------------------------------------------------------


def drawn(view: View) -> str:
    console = Console(width=160, file=StringIO())
    console.print(view.renderable())
    return console.file.getvalue()


def test_before_the_first_record_it_says_what_it_waits_for() -> None:
    assert f"{STARTING} " in drawn(view_of())


def test_a_terminal_shows_phase_time_queries_and_task_managers(lines: list[Line]) -> None:
    for line in (lines[0], lines[len(lines) // 2], lines[-1]):
        shown = drawn(view_of(line, elapsed_s=40.0))
        assert shown.startswith(line["phase"].replace("-", " "))
        assert "0:40, about 1:00 left" in shown
        for query in ("TDSnk2", "TDSnk1"):
            (row,) = [row for row in shown.splitlines() if re.search(rf"│ {query} ", row)]
            accuracy = line["measured"]["accuracy"][query]
            assert f" {accuracy:.2f} " in row
            assert f" {backlog(read(line), query):,} │" in row
        assert shown.index("TDSnk2") < shown.index("TDSnk1"), "the most important first"
        for manager in line["snapshot"]["task_managers"]:
            assert re.search(rf"{manager['id']} .* {manager['cpu']:.0f} % of {100 * manager['cores']:.0f} %", shown)
