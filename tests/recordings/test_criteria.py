"""Criteria that every recorded run is judged by."""

from __future__ import annotations

from datetime import datetime

import pytest

from qod_magics.recordings.criteria import _planned, _window, accuracy_errors
from tests.recordings.taxi_drives import records, taxi_drives


def test_the_estimate_compares_over_the_time_that_was_measured() -> None:
    lines = taxi_drives()
    at = [datetime.fromisoformat(line["at"]).timestamp() for line in lines]
    desired = [line["plan"]["desired"]["TDSrc1"] for line in lines]
    for index in range(2, len(lines)):
        for instance in lines[index]["snapshot"]["instances"]:
            instance["window"] = [at[index - 2], at[index - 1]]  # wholly under the plan before the last
    in_force = [(when, {"TDSrc1": d}) for when, d in zip(at, desired, strict=True)]
    assert _planned("TDSrc1", in_force[:20], (at[18] - 1.0, at[18] + 1.0)) == pytest.approx(
        (desired[17] + desired[18]) / 2
    )
    assert _planned("TDSrc1", in_force[:1], (at[0] - 3.0, at[0] + 1.0)) is None
    assert _window(records(lines)[5], "TDSrc1") == (at[3], at[4])


def test_a_plan_counts_from_when_its_dials_were_set() -> None:
    lines = taxi_drives()
    at = datetime.fromisoformat(lines[3]["at"]).timestamp()
    for line in lines[:5]:
        line["plan"]["desired"]["TDSrc1"] = 0.2
        line["plan"]["current_accuracy"]["TDSrc1"] = 0.2
        line["applied"] = True
    lines[3]["plan"]["desired"]["TDSrc1"] = 0.8
    lines[3]["applied_s"] = 2.0
    for instance in lines[4]["snapshot"]["instances"]:
        instance["window"] = [at - 1.0, at + 2.0]

    def error() -> float:
        return next(each for index, source, each in accuracy_errors(records(lines)) if (index, source) == (4, "TDSrc1"))

    assert error() == pytest.approx(0.0)
    del lines[3]["applied_s"]  # an older recording
    assert error() == pytest.approx(0.4)


def test_a_backlog_that_is_drained_is_no_accuracy_beyond_the_plan() -> None:
    """Twice as many rows are processed as arrive, each kept with the planned probability."""
    lines = taxi_drives()
    for line in lines[:5]:
        line["plan"]["desired"]["TDSrc1"] = line["measured"]["accuracy"]["TDSrc1"] = 0.4
        line["plan"]["current_accuracy"]["TDSrc1"] = 0.8
        line["applied"] = True

    def error(by_rates: bool) -> float:
        found = accuracy_errors(records(lines), by_rates=by_rates)
        return next(each for index, source, each in found if (index, source) == (4, "TDSrc1"))

    assert error(by_rates=False) == pytest.approx(0.0)
    assert error(by_rates=True) == pytest.approx(0.4)
