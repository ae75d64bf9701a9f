"""The record of an injector replaces that of an earlier one, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from qod_magics.errors import UsageProblem
from qod_magics.kafka.injector import Injector
from qod_magics.kafka.scenario import Scenario

SCENARIO = {
    "duration_s": 1,
    "topics": [{"topic": "t", "data": {"generator": "taxi-trips"}, "rate": 1.0}],
}


@pytest.mark.parametrize("text", ['{"at": "2026-01-01T00:00:00Z", "snapshot": {}}\n', "notes\n", "\n"])
def test_a_file_that_no_injector_wrote_stays(tmp_path: Path, text: str) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(text)
    with pytest.raises(UsageProblem, match="no injector wrote: choose another"):
        Injector(Scenario.from_json(SCENARIO), "127.0.0.1:1", record=path).start()
    assert path.read_text() == text
