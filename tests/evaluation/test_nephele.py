"""The figures of Nephele Streaming beside ours, on a small job."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.findings import NOT_DECIDABLE, REFUTED, REPRODUCED
from benchmarks.nephele import calibrations
from benchmarks.nephele.calibrations import calibration
from benchmarks.nephele.table import all_rows
from benchmarks.nephele.video import VideoRun
from qod_magics.simulator.buffers import Interval
from tests.texts import tells

NAMES = sorted(path.stem for path in Path(calibrations.__file__).parent.glob("*.json"))


@pytest.mark.closed_loop
def test_every_figure_has_its_row() -> None:
    rows = [row.to_json() for row in all_rows(quick=True)]
    assert json.loads(json.dumps(rows)) == rows
    assert len({row["figure"] for row in rows}) == len(rows) == 27
    for row in rows:
        assert row["system"] == "Nephele Streaming"
        assert all(value for name, value in row.items() if name != "calibrated")
        assert row["verdict"] in (REPRODUCED, REFUTED, NOT_DECIDABLE)
    by_figure = {row["figure"]: row for row in rows}
    buffers = [row for row in rows if row["experiment"] == "buffers"]
    assert len(buffers) == 7
    assert sum(row["calibrated"] for row in rows) == 6
    assert all(row["verdict"] == REPRODUCED for row in buffers)
    assert by_figure["scenario 3: what is chained"]["verdict"] == REPRODUCED
    (placed,) = (row for figure, row in by_figure.items() if "runtime constraints" in figure)
    assert placed["verdict"] == REFUTED  # 80 tasks of each type, not the source's 800
    assert tells(placed["ours"], "0.512 million", "20", "D")


@pytest.mark.parametrize("name", NAMES)
def test_a_calibration_says_which_numbers_are_chosen(name: str) -> None:
    value = calibration(name)
    assert value["given"]
    assert value["chosen"]
    told = " ".join([*value["given"], *value["chosen"]])
    for key in (*value["streams"], *value["network"]):
        assert key in told or key in ("count", "slow_share"), key
    for vertex in value["vertices"]:
        assert ("work_us" in vertex) <= ("work_us" in told)


def interval(end_s: float, mean: float | None) -> Interval:
    return Interval(end_s, mean, mean, mean, mean, {}, {}, 100, 99)


def test_a_run_has_settled_once_its_mean_stays_near_the_last() -> None:
    means = [3000.0, None, 400.0, 320.0, 300.0, 310.0, 290.0, 300.0]
    intervals = [interval(15.0 * (i + 1), mean) for i, mean in enumerate(means)]
    found = VideoRun(intervals, [(20.0, "Resize"), (61.0, "Chain"), (90.0, "CannotBeMet")], [], 200, 800)
    assert found.settled_mean == 300
    assert found.converged_s == 60  # from the interval of 320 ms on
    assert found.last_action_s == 61
    assert found.kept_up == 0.99
