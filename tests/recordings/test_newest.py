"""The newest cycles of a recording that goes on for days."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from qod_magics.controller.record_json import record_from_json
from qod_magics.controller.recording import RecordingError
from qod_magics.recordings import reading as module
from qod_magics.recordings.reading import newest_records
from tests.recordings.taxi_drives import START, taxi_drives


@pytest.fixture
def path(tmp_path: Path) -> Path:
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


def test_older_cycles_are_not_made_but_what_was_paused_in_them_is_known(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    monkeypatch.setattr(module, "record_from_json", lambda line, n: [made.append(n), record_from_json(line, n)][1])
    records, paused = newest_records(path, START, 10)
    assert [record.number for record in records] == list(range(31, 41))
    assert paused == {"judge"}
    assert made == [4, 6, 8, *range(31, 41)]
    assert newest_records(path, START, 100)[1] == frozenset(), "they are among the records"


def test_cycles_of_earlier_sessions_are_left_out(path: Path) -> None:
    records, paused = newest_records(path, START + timedelta(seconds=5 * 30, microseconds=999), 100)
    assert [record.number for record in records] == list(range(31, 41))
    assert paused == frozenset()
    with pytest.raises(RecordingError, match=r"has no cycle since .*: wait for the first one$"):
        newest_records(path, START + timedelta(days=1), 100)


def test_a_line_that_is_no_cycle_is_named(path: Path) -> None:
    with path.open("a") as file:
        file.write('{"at": "yesterday"}\n')
    with pytest.raises(RecordingError, match=r"run\.jsonl, cycle 41"):
        newest_records(path, START, 10)
