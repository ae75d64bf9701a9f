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
    with pytest.raises(ValueError, match=r"--scale 0\.3"):
        kept.earlier(path, 1.0)


def test_what_ends_says_where_and_when() -> None:
    found = kept.provenance("aaa", 12.0)
    assert found["commit"] == "aaa"
    assert "virtual cores" in found["machine"]
    assert set(found) == {"at", "machine", "load_average", "commit", "took_s"}
