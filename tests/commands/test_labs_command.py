"""The command that copies the notebooks."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from qod_magics.__main__ import main as command
from qod_magics.commands import labs
from qod_magics.errors import SetupError
from tests.raising import breaks
from tests.texts import tells


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_notebooks_and_what_they_read_are_copied_and_nobodys_work_is_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "new" / "labs"
    assert command(["labs", str(target)]) == 0
    there = files(target)
    assert {"index.ipynb", "lab2_accuracy_and_priority.ipynb", "scenarios/nephele.json"} <= there
    assert str(target / "index.ipynb") in capsys.readouterr().out
    (target / "lab3_fair_share.ipynb").write_text("mine")
    (target / "index.ipynb").unlink()
    assert command(["labs", str(target)]) == 0
    assert files(target) == there
    assert (target / "lab3_fair_share.ipynb").read_text() == "mine"
    assert tells(capsys.readouterr().out, "1 file", f"{len(there) - 1} files")


def test_a_file_in_the_way_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "there").write_text("")
    assert command(["labs", str(tmp_path / "there")]) == 2
    said = capsys.readouterr().err
    assert (said.count("\n"), tells(said, "directory", str(tmp_path / "there"))) == (1, True)


def test_a_copy_that_failed_midway_leaves_nothing_and_is_made_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(source: str, target: Path) -> None:
        """Copy, until the disk is full in the middle of one file."""
        target.write_bytes(Path(source).read_bytes()[:100])
        if Path(source).name == "nephele.json":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))

    whole = files(labs.notebooks())
    with monkeypatch.context() as on:
        on.setattr(shutil, "copyfile", full)
        assert command(["labs", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert (said.count("\n"), tells(said, os.strerror(errno.ENOSPC), "nephele.json")) == (1, True)
    assert "[(" not in said
    there = files(tmp_path)
    assert (there < whole, "scenarios/nephele.json" in there) == (True, False)
    assert command(["labs", str(tmp_path)]) == 0
    assert (tmp_path / "scenarios/nephele.json").read_bytes() == (
        labs.notebooks() / "scenarios/nephele.json"
    ).read_bytes()


def test_an_installation_without_notebooks_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labs, "FOLDERS", ())
    with pytest.raises(SetupError, check=breaks("notebooks")):
        labs.notebooks()
