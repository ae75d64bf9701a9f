"""The runs that are kept of a part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.evaluation import kept


def run(commit: str, at: str, load: float = 1.0, took: float = 100.0, **figures: Any) -> dict[str, Any]:
    return {"commit": commit, "at": at, "load_average": load, "took_s": took, "machine": "a machine", **figures}


def test_runs_are_added_to_those_of_the_same_scale(tmp_path: Path) -> None:
    path = tmp_path / "part.json"
    assert kept.earlier(path, 1.0) == []
    kept.keep(path, "part", 1.0, [run("aaa", "monday", value=0.123456)])
    runs = kept.earlier(path, 1.0)
    assert [each["value"] for each in runs] == [0.1235]
    kept.keep(path, "part", 1.0, [*runs, run("bbb", "tuesday", value=2.0)])
    assert [each["commit"] for each in kept.earlier(path, 1.0)] == ["aaa", "bbb"]


def test_runs_of_another_scale_are_not_mixed_with_these(tmp_path: Path) -> None:
    path = tmp_path / "part.json"
    kept.keep(path, "part", 0.3, [run("aaa", "monday")])
    with pytest.raises(ValueError, match=r"keeps runs at --scale 0\.3, not 1: give --scale 0\.3, or leave out --more"):
        kept.earlier(path, 1.0)


def test_it_is_told_how_many_runs_there_are_and_of_what() -> None:
    runs = [run("aaa", "monday", 3.0), run("bbb", "tuesday", 0.5, 110.0), run("aaa", "friday", 2.0, 90.0)]
    assert kept.told("part", 0.3, runs) == (
        "3 runs of `python -m benchmarks.evaluation part --scale 0.3`, monday to friday, commits aaa, bbb: a machine; "
        "load average 0.5 to 3.0 afterwards; 90 to 110 s each."
    )
    assert kept.told("part", 1, runs[:1]).startswith("1 run of ")


def test_what_ends_says_where_and_when() -> None:
    found = kept.provenance("aaa", 12.0)
    assert found["commit"] == "aaa"
    assert "virtual cores" in found["machine"]
    assert set(found) == {"at", "machine", "load_average", "commit", "took_s"}
