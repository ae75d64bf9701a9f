"""The experiments run, in short: their rows are whole, and say what they compare."""

from __future__ import annotations

import json
from math import inf

import pytest

from benchmarks.cameo.rows import CAMEO, up_to
from benchmarks.cameo.table import EXPERIMENTS, all_rows
from benchmarks.cameo.workload import FOLDER, calibration, jobs
from benchmarks.findings import Row


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return all_rows(quick=True)


@pytest.mark.closed_loop
def test_every_experiment_has_rows(rows: list[Row]) -> None:
    assert {row.experiment for row in rows} == EXPERIMENTS.keys()
    for row in rows:
        assert row.verdict in ("reproduced", "refuted", "not decidable")
        assert row.source
        assert row.ours
        assert "nan" not in row.ours
        assert row.system == "Cameo"
    assert len({(row.experiment, row.figure) for row in rows}) == len(rows)


def test_short_runs_already_show_what_tokens_do(rows: list[Row]) -> None:
    together = [row for row in rows if row.experiment == "5.6" and "three together" in row.figure]
    assert [row.verdict for row in together] == ["refuted", "reproduced"]


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [(1.0, "refuted"), (1.9, "refuted"), (2.0, "reproduced"), (4.0, "reproduced"), (4.1, "refuted")],
)
def test_a_factor_is_reproduced_within_half_of_its_excess(ours: float, verdict: str) -> None:
    assert CAMEO.factor("x", "y", 3.0, ours).verdict == verdict


@pytest.mark.parametrize(
    ("swept", "verdict"),
    [
        ({"a": 1.0, "b": 1.2}, "refuted"),
        ({"a": 1.0, "b": 2.1}, "reproduced"),
        ({"a": 1.0, "b": 30.0}, "reproduced"),
        ({"a": 1.0, "b": inf}, "reproduced"),
        ({"a": 20.0, "b": 30.0}, "refuted"),
        ({"a": inf}, "not decidable"),
    ],
)
def test_a_sweep_reproduces_a_factor_that_it_passes(swept: dict[str, float], verdict: str) -> None:
    assert up_to("x", "y", 3.0, swept, "").verdict == verdict


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_calibrations_say_what_is_given_and_what_is_chosen(path: object) -> None:
    found = calibration(getattr(path, "stem", ""))
    assert found["given"]
    assert found["chosen"]
    assert found["anchor"]
    assert jobs(found["jobs"], dict.fromkeys(found["jobs"], 1)) or not found["jobs"]
    json.dumps(found)
