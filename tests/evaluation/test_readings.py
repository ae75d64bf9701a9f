"""What the evaluation reads from a recording, on recordings made by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from benchmarks.evaluation import readings
from benchmarks.evaluation.row import Row
from qod_magics.controller.record import Record
from qod_magics.core.plan import Plan
from qod_magics.core.runtime import Dials, Measured
from qod_magics.core.snapshot import Instance, Snapshot, Task, TaskManager, replace


def line(second: float, phase: str, accuracy: float, planned: float, lag: int = 0, warming_up: bool = False) -> Record:
    """A cycle of a source `S` and its query `Q` with minimum 0.4, at 100 rows/s."""
    return Record(
        at=datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=second),
        snapshot=Snapshot(
            task_managers=(TaskManager("tm1", 1.0, 50.0),),
            tasks=(Task("S", (), None, None, None), Task("Q", ("S",), None, 1, 0.4)),
            streams=(),
            instances=(Instance("Q.1", "Q", "tm1", 100.0, 50.0, warming_up),),
        ),
        plan=Plan({"S": planned, "Q": planned}, {}),
        measured=Measured({"S": lag, "S>Q": 10_000}, {"S": 100.0}, {"Q": accuracy}),
        dials=Dials({}, {}),
        current_accuracy={"S": accuracy},
        applied=True,
        annotations={"phase": phase},
    )


STEP = [
    line(0, "calm", 1.0, 1.0),
    line(5, "overload", 1.0, 0.5, lag=2000),
    line(10, "overload", 0.7, 0.5, lag=400),
    line(15, "overload", 0.52, 0.5, lag=600),
    line(20, "overload", 0.51, 0.5, lag=100),
    line(25, "overload", 0.49, 0.5, lag=100),
    line(30, "overload", 0.5, 0.5, lag=100),
]


def test_a_reaction_lasts_until_accuracy_and_lag_are_there() -> None:
    assert readings.reaction_s(STEP, "overload") == 15


def test_a_reaction_that_does_not_last_is_none_yet() -> None:
    relapse = [
        *STEP[:4],
        line(20, "overload", 0.51, 0.5),
        line(25, "overload", 0.9, 0.5),
        line(30, "overload", 0.2, 0.5),
    ]
    assert readings.reaction_s(relapse, "overload") is None
    assert readings.reaction_s(STEP, "nowhere") is None


def test_lag_is_in_periods_of_input_and_of_sources() -> None:
    assert readings.most_lag_periods(STEP) == 4.0
    assert readings.most_lag_periods(STEP, "calm") == 0.0


def test_the_worst_margin_leaves_out_what_warms_up() -> None:
    cold = line(35, "overload", 0.1, 0.5, warming_up=True)
    assert readings.worst_margin([*STEP, cold]) == {"Q": pytest.approx(0.09)}
    assert readings.worst_margin([*STEP, replace(cold, repeated=True)]) == {"Q": pytest.approx(0.09)}


def test_errors_compare_with_the_plan_in_force() -> None:
    expected = [0.0, 0.2, 0.02, 0.01, 0.01, 0.0]  # the first cycle has no plan before it
    assert readings.source_errors(STEP) == {"S": pytest.approx(sum(expected) / 6)}


def test_relative_errors_are_in_percent() -> None:
    found = readings.errors_of([(101.0, 100.0), (99.0, 100.0), (100.0, 100.0), (5.0, 0.0)])
    assert (found["mean"], found["count"]) == (pytest.approx(0.0), 3)
    assert found["spread"] == pytest.approx((2 / 3) ** 0.5)
    assert found["p90"] == pytest.approx(1.0, abs=0.21)


@pytest.mark.parametrize(
    ("values", "limits", "short"),
    [
        ([1.0, 3.0, 2.0], {"at_most": 2.0}, False),
        ([1.0, 3.0, 2.5], {"at_most": 2.0}, True),
        ([0.5], {"at_least": 0.6}, True),
        ([None, None], {"at_most": 2.0}, True),
        ([None, 1.0], {"at_most": 2.0}, False),
        ([9.0], {}, False),
    ],
)
def test_a_row_falls_short_by_its_median(values: list[float | None], limits: dict[str, float], short: bool) -> None:
    row = Row("what", "source", values, **limits)
    assert row.short is short
