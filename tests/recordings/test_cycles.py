"""Recorded cycles, told as they were when they were recorded."""

from __future__ import annotations

import json
from pathlib import Path

from qod_magics.controller.log import DecisionLog
from qod_magics.recordings.cycles import narrated
from tests.recordings.taxi_drives import records

RECORDED = Path(__file__).parents[2] / "notebooks" / "data" / "taxi_drives.jsonl"


def test_a_recorded_move_of_an_instance_that_is_not_there_is_no_move() -> None:
    """The policy asked for it, and it was refused: a recording holds the plan as it was made."""
    lines = [json.loads(text) for text in RECORDED.read_text("utf-8").splitlines()][:3]
    lines[1]["plan"] |= {"fail": ["nobody.1"], "place": {"nobody.1": "tm1"}}
    found = [entry for _, entries in narrated(records(lines), DecisionLog()) for entry in entries]
    assert not [entry for entry in found if "nobody.1" in entry.names]
