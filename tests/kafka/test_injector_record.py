"""The record of an injector replaces that of an earlier one, and nothing else."""

from __future__ import annotations

import io
import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from qod_magics.errors import UsageProblem
from qod_magics.kafka.injector import Injector, _Lines
from qod_magics.kafka.scenario import Scenario
from tests.raising import breaks

SCENARIO: dict[str, Any] = {
    "duration_s": 1,
    "topics": [{"topic": "t", "data": {"generator": "taxi-trips"}, "rate": 1.0}],
}


@pytest.mark.parametrize("text", ['{"at": "2026-01-01T00:00:00Z", "snapshot": {}}\n', "notes\n", "\n"])
def test_a_file_that_no_injector_wrote_stays(tmp_path: Path, text: str) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(text)
    with pytest.raises(UsageProblem, check=breaks("own file")):
        Injector(Scenario.from_json(SCENARIO), "127.0.0.1:1", record=path).start()
    assert path.read_text() == text


def test_data_that_is_given_with_a_relative_path_lies_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = {"jsonl": "rows.jsonl"}
    scenario = Scenario.from_json({**SCENARIO, "topics": [{**SCENARIO["topics"][0], "data": data}]})
    nothing: Any = None
    made = Injector(scenario, "h:1", run=lambda *_, **__: nothing)
    made._spawn(tmp_path)
    sent = json.loads((tmp_path / "scenario.json").read_text())
    assert sent["topics"][0]["data"]["jsonl"] == str(tmp_path / "rows.jsonl")


class Slow(io.BytesIO):
    """A file whose lines take a while."""

    def read(self, *given: Any) -> bytes:
        time.sleep(0.05)
        return super().read(*given)


def test_two_that_read_the_record_at_once_skip_no_line() -> None:
    written = bytearray(json.dumps({"kind": "start", "monotonic_s": 5.0}).encode() + b"\n")
    lines = _Lines()
    lines.path = type("Record", (), {"open": lambda *_: Slow(bytes(written))})()  # type: ignore[assignment]
    readers = [threading.Thread(target=lines.read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert lines.started_s == 5.0
    written += json.dumps({"kind": "end", "position_s": 1.0}).encode() + b"\n"
    lines.read()
    assert lines.ended_s == 1.0
