"""`python -m qod_magics demo`: what it refuses, how it ends, and its verdict."""

from __future__ import annotations

import json
import time
from copy import deepcopy
from pathlib import Path
from typing import Any

import nbformat
import pytest

from qod_magics.__main__ import main as run_module
from qod_magics.commands import demo
from tests.recordings.taxi_drives import taxi_drives
from tests.texts import tells

Line = dict[str, Any]


@pytest.fixture(scope="module")
def lines() -> list[Line]:
    return taxi_drives()


def text(line: Line) -> bytes:
    return json.dumps(line).encode() + b"\n"


# -- the command -------------------------------------------------------------------------------------------------------


def test_without_the_notebook_it_says_where_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_module(["demo", "--out", str(tmp_path / "out")]) == 2
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 1
    assert "--notebook" in printed[0]


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

    monkeypatch.setattr(demo, "show", interrupted)
    assert run_module(["demo", "--notebook", str(tmp_path / "book.ipynb"), "--out", str(tmp_path / "out")]) == 2
    (line,) = capsys.readouterr().out.splitlines()
    assert tells(line, "demo", "interrupted")


def test_a_run_is_judged_and_written_up(tmp_path: Path, capsys: pytest.CaptureFixture[str], lines: list[Line]) -> None:
    (tmp_path / "run.jsonl").write_bytes(b"".join(map(text, lines)))
    (tmp_path / "off.jsonl").write_bytes(b"".join(map(text, taxi_drives(False))))
    written: list[Any] = []
    assert demo._judge(tmp_path, write=lambda *all_of_it, title: written.append((*all_of_it, title))) == 0
    *criteria, report, recording = capsys.readouterr().out.splitlines()
    assert criteria
    assert all(criterion.startswith("PASS ") for criterion in criteria)
    assert (report, recording) == (f"report: {tmp_path / 'report.html'}", f"recording: {tmp_path / 'run.jsonl'}")
    ((path, run, off, _, title),) = written
    assert (path, len(run), title) == (tmp_path / "report.html", len(lines), "Taxi Drives, overloaded")
    assert off is not None


def unwritten(*_: object, **__: object) -> None:
    """In the place of a report, which takes seconds to draw."""


def test_a_run_that_fails_a_criterion_ends_with_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lines: list[Line]
) -> None:
    bad = deepcopy(lines)
    bad[30]["measured"]["counts"]["TDSrc1"]["dropped"] += 1
    (tmp_path / "run.jsonl").write_bytes(b"".join(map(text, bad)))
    assert demo._judge(tmp_path, write=unwritten) == 1
    assert "FAIL " in capsys.readouterr().out


def test_the_short_form_waits_for_two_periods_and_not_for_four(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lines: list[Line]
) -> None:
    last = lines[-1]["phase"]
    kept = [line for line in lines if line["phase"] != last] + [line for line in lines if line["phase"] == last][:4]
    (tmp_path / "run.jsonl").write_bytes(b"".join(map(text, kept)))
    (tmp_path / "off.jsonl").write_bytes(b"".join(map(text, taxi_drives(False))))
    assert demo._judge(tmp_path, short=True, write=unwritten) == 0
    assert demo._judge(tmp_path, write=unwritten) == 1
    assert "calm-again" in capsys.readouterr().out
