from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qod_magics.__main__ import main as run_module
from qod_magics.commands.recordings import report as main
from qod_magics.recordings.reading import load
from tests.recordings.taxi_drives import records, taxi_drives
from tests.texts import tells

Line = dict[str, Any]


def write(path: Path, lines: list[Line]) -> str:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return str(path)


def test_a_good_run_is_reported_and_its_verdict_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, off = write(tmp_path / "run.jsonl", taxi_drives()), write(tmp_path / "off.jsonl", taxi_drives(False))
    out = tmp_path / "new" / "report.html"
    assert run_module(["report", run, "--off", off, "--out", str(out)]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 10
    assert all(line.startswith("PASS ") and ": " in line for line in printed[:9])
    assert printed[9] == f"report: {out}"
    assert "Verdict: 9 of 9 criteria pass" in out.read_text(encoding="utf-8")


def test_a_bad_run_is_reported_all_the_same_and_of_several_sessions_in_one_file_the_last(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [dict(line, cycle=cycle) for cycle, line in enumerate(taxi_drives(), 1)]
    other = [dict(line, at=f"2020-01-01T00:00:{cycle:02}Z", cycle=cycle) for cycle, line in enumerate(lines[:9], 1)]
    lines[30]["measured"]["counts"]["TDSrc1"]["dropped"] += 1
    run = write(tmp_path / "run.jsonl", other + lines)
    assert main([run]) == 1
    printed = capsys.readouterr().out
    assert re.search(r"^FAIL .*: TDSrc1 at 150 s: ", printed, re.MULTILINE)
    assert printed.count("FAIL") == 1
    assert tells(printed.splitlines()[0], run, 2, len(lines), "2026-11-21 02:00:00")
    assert (tmp_path / "run.html").exists()


def drop_at(line: Line) -> None:
    del line["at"]


def before_the_line_above(line: Line) -> None:
    line["at"] = "2020-01-01T00:00:00Z"


def negative_cpu(line: Line) -> None:
    line["snapshot"]["instances"][0]["cpu"] = -1


def no_snapshot(line: Line) -> None:
    del line["snapshot"]


def lag_in_words(line: Line) -> None:
    line["measured"]["lag"]["TDSrc1"] = "many"


def lag_as_list(line: Line) -> None:
    line["measured"]["lag"] = [1, 2]


def half_a_count(line: Line) -> None:
    del line["measured"]["counts"]["TDSrc1"]["waiting"]


def event_without_kind(line: Line) -> None:
    line["events"] = [{"instance": "TDSnk1.1"}]


def dial_without_value(line: Line) -> None:
    line["plan"]["non_drop"] = [{"from": None, "to": "TDSrc1"}]


def other_zone(line: Line) -> None:
    line["at"] = line["at"].removesuffix("Z")


@pytest.mark.parametrize(
    ("spoil", "named"),
    [
        (drop_at, "'at'"),
        (before_the_line_above, "before the line above it"),
        (other_zone, "either all times name their zone, or none"),
        (negative_cpu, r"instances\[0\].cpu"),
        (no_snapshot, "snapshot"),
        (lag_in_words, r"measured\.lag\.TDSrc1 "),
        (lag_as_list, r"measured\.lag "),
        (half_a_count, r"measured\.counts\.TDSrc1 .*'waiting'"),
        (event_without_kind, r"events\[0\] .*'kind'"),
        (dial_without_value, r"plan\.non_drop\[0\] .*'d'"),
    ],
)
def test_what_breaks_the_format_is_told_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], spoil: Callable[[Line], None], named: str
) -> None:
    lines = taxi_drives()[:3]
    spoil(lines[2])
    assert main([write(tmp_path / "run.jsonl", lines)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert re.search(f"run.jsonl, cycle 3: .*{named}", line)
    assert not (tmp_path / "run.html").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere.jsonl"], "nowhere.jsonl"),
        (["empty.jsonl"], "empty.jsonl is empty"),
        (["text.jsonl"], "text.jsonl"),
        ([], "RUN.jsonl"),
        (["run.jsonl", "--policy", "stream-economy"], "stream-economics"),
        (["run.jsonl", "--off", "text.jsonl"], "text.jsonl"),
        (["run.jsonl", "--settle", "long"], "--settle"),
        (["run.jsonl", "--out", "run.jsonl/report.html"], "run.jsonl"),
    ],
)
def test_bad_words_and_files_end_with_status_two_and_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "run.jsonl", taxi_drives()[:3])
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "text.jsonl").write_text("hello\n", encoding="utf-8")
    assert main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("qod_magics report: ")
    assert said in line


def test_unknown_keys_and_values_that_were_not_measured_are_no_errors(tmp_path: Path) -> None:
    lines = taxi_drives()[:3]
    lines[1]["measured"]["accuracy"]["TDSnk1"] = None
    lines[1]["measured"]["more"] = {"heap": [1]}
    lines[1]["dials"] = {"keep": [], "accept": {}}
    del lines[2]["events"]
    read = load(Path(write(tmp_path / "run.jsonl", lines)))
    assert read == records(lines)
    assert [record.phase for record in read] == [line["phase"] for line in lines]
    assert read[1].measured.accuracy["TDSnk1"] is None
    assert read[1].measured.unknown == {"more": {"heap": [1]}}
    assert read[2].events == ()
