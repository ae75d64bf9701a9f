"""Reading whole recordings, and their newest cycles."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from qod_magics.controller.record import Record, RecordingError, record_from_json
from qod_magics.recordings.reading import load, newest_records
from tests.raising import breaks
from tests.recordings.taxi_drives import START, taxi_drives
from tests.texts import tells


def session(cycles: Sequence[int], later_s: float, repeated_last: bool = False) -> list[dict[str, Any]]:
    """Lines of a session that began so much later."""
    lines = [dict(line, cycle=cycle) for cycle, line in zip(cycles, taxi_drives(), strict=False)]
    for i, line in enumerate(lines):
        line["at"] = (START + timedelta(seconds=later_s + 5 * i)).isoformat()
    if repeated_last:
        lines[-1]["repeated"] = True
    return lines


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.jsonl"


def write(path: Path, *sessions: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for lines in sessions for line in lines), encoding="utf-8")


def test_the_last_of_several_sessions_is_read(path: Path) -> None:
    last = session([1, 2, 3, 3], 3600.0, repeated_last=True)
    write(path, session([1, 2, 3, 4, 5], 0.0), session([1], 600.0), last)
    said: list[str] = []
    assert load(path, say=said.append) == [record_from_json(line) for line in last]
    (one,) = said
    assert tells(one, path, 3, 4, "2026-11-21 03:00:00")


@pytest.mark.parametrize("cycles", [[1, 2, 3, 4], [7, 8, 12, 13], [1, 2, 3, 3]])
def test_one_session_is_one_run(path: Path, cycles: list[int]) -> None:
    """A cycle may be missing; late events repeat the number of the last."""
    write(path, session(cycles, 0.0, repeated_last=cycles[-1] == cycles[-2]))
    said: list[str] = []
    assert [record.number for record in load(path, say=said.append)] == cycles
    assert said == []


def test_lines_of_old_have_no_numbers_and_are_one_run(path: Path) -> None:
    lines = session([1, 2, 3], 0.0)
    for line in lines:
        del line["cycle"]
    write(path, lines)
    assert len(load(path)) == 3


def test_a_session_after_the_clock_was_set_back_is_a_run(path: Path) -> None:
    write(path, session([1, 2, 3], 3600.0), session([1, 2], 0.0))
    assert [record.number for record in load(path)] == [1, 2]


@pytest.fixture
def long_run(tmp_path: Path) -> Path:
    """A recording of 40 cycles, in two of the first of which a stage of the policy was paused or resumed."""
    lines = taxi_drives()[:40]
    for line in lines:
        line["events"] = []
    for number, kind, stage in (
        (3, "stage-paused", "judge"),
        (5, "stage-paused", "scale"),
        (7, "stage-resumed", "scale"),
    ):
        lines[number]["events"] = [{"kind": kind, "stage": stage, "why": "by hand"}]
    made = tmp_path / "run.jsonl"
    made.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return made


def test_older_cycles_are_not_made_but_what_was_paused_in_them_is_known(long_run: Path) -> None:
    made: list[int] = []

    def noting(line: Mapping[str, Any], number: int) -> Record:
        made.append(number)
        return record_from_json(line, number)

    records, paused = newest_records(long_run, START, 10, noting)
    assert [record.number for record in records] == list(range(31, 41))
    assert paused == {"judge"}
    assert made == [4, 6, 8, *range(31, 41)]
    assert newest_records(long_run, START, 100)[1] == frozenset(), "they are among the records"


def test_cycles_of_earlier_sessions_are_left_out(long_run: Path) -> None:
    records, paused = newest_records(long_run, START + timedelta(seconds=5 * 30, microseconds=999), 100)
    assert [record.number for record in records] == list(range(31, 41))
    assert paused == frozenset()
    with pytest.raises(RecordingError, check=breaks("has a cycle")):
        newest_records(long_run, START + timedelta(days=1), 100)


def test_a_line_that_is_no_cycle_is_named(long_run: Path) -> None:
    with long_run.open("a") as file:
        file.write('{"at": "yesterday"}\n')
    with pytest.raises(RecordingError, match="41"):
        newest_records(long_run, START, 10)
