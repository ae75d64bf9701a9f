from __future__ import annotations

import json
from pathlib import Path

import pytest

from qod_magics.commands.inject import COMPLETE, MISUSED, main
from qod_magics.kafka.injector import CONFIG_VARIABLE

FEED = {"topic": "t", "data": {"generator": "points", "rows": 10}, "rate": 5}


@pytest.fixture
def path(tmp_path: Path) -> str:
    (tmp_path / "scenario.json").write_text(json.dumps({"duration_s": 1, "topics": [FEED]}))
    return str(tmp_path / "scenario.json")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "SCENARIO.json, --bootstrap"),
        (["{path}"], "--bootstrap"),
        (["{path}", "--bootstrap", "localhost:9", "--speed", "0"], "--speed is 0: it must be above 0"),
        (["{path}", "--bootstrap", "localhost:9", "--speed", "nan"], "--speed is nan"),
        (["{path}", "--bootstrap", "localhost:9", "--speed", "fast"], "invalid float value: 'fast'"),
        (["{path}", "--bootstrap", "localhost:9", "--client-option", "linger.ms"], "write NAME=VALUE"),
        (["{path}", "--bootstrap", "localhost:9", "--client-option", "kafka.linger.ms=5"], "for Spark only"),
        (["{path}", "--bootstrap", "localhost:9", "--records", "x"], "unrecognized arguments: --records"),
        (["{path}", "--bootstrap", "localhost:9", "--record", "/no/such/folder/r.jsonl"], "can't be written"),
        (["/no/such.json", "--bootstrap", "localhost:9"], "can't be read"),
    ],
)
def test_wrong_words_are_one_line_and_status_2(
    words: list[str], says: str, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([word.format(path=path) for word in words]) == MISUSED == 2
    said, complained = capsys.readouterr()
    assert said == ""
    assert complained.count("\n") == 1
    assert says in complained


@pytest.mark.parametrize("settings", ["{sasl.password: hush}", '["hush"]', '"hush"', "7"])
def test_settings_that_are_no_object_are_one_line_without_their_text(
    settings: str, path: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CONFIG_VARIABLE, settings)
    assert main([path, "--bootstrap", "localhost:9"]) == MISUSED
    complained = capsys.readouterr().err
    assert complained.count("\n") == 1
    assert f"{CONFIG_VARIABLE} is not a JSON object" in complained
    assert "hush" not in complained


def test_help_has_the_format_of_a_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == COMPLETE
    said = capsys.readouterr().out
    for word in ("duration_s", "add_task_manager", "taxi-trips", "exit codes", "--client-option"):
        assert word in said
