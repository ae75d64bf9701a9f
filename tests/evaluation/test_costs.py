"""What the evaluation makes of measured costs, on figures made by hand."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.evaluation.costs_section import Spent, costs_section, idle_each, ratios, spent
from benchmarks.evaluation.delays import longest_gap
from benchmarks.evaluation.parts import STEPS, steps

TASKS = {"TDSnk1.1": 2.0, "TDSnk1.2": 2.0, "TDSnk2.1": 3.0}
APART = {"TDSrc1.1": 2.0, "TDSrc2.1": 2.0, "TDSnk1.1": 1.0, "TDSnk1.2": 1.0, "TDSnk2.1": 2.0}


def drain(rate: float, jvm_cpu_s: float, tasks: dict[str, float] | None) -> dict[str, Any]:
    return {"rows": 100_000, "rate": rate, "jvm_cpu_s": jvm_cpu_s, "task_cpu_s": tasks}


def turns() -> dict[str, Any]:
    """Ours carries 0.7 of plain Spark, then 0.9."""
    return {
        "ours": [drain(7_000.0, 9.0, None), drain(9_000.0, 10.0, TASKS)],
        "ours, sources apart": [drain(4_000.0, 10.0, APART)] * 2,
        "plain": [drain(10_000.0, 7.0, None), drain(10_000.0, 7.0, {"TDSnk1": 3.0, "TDSnk2": 3.0})],
    }


def run() -> dict[str, Any]:
    return {
        "capacity": {"light": turns()},
        "parts": {"parts_us": dict.fromkeys(STEPS, 2.0)},
        "step": {"longest_batch_s": 7.5, "period_s": 5.0},
        "dial": {"dial_ms": [3.0], "cycle_ms": [30.0], "override_ms": [2_000.0]},
        "move": {"without_a_row_s": [1.0], "call_to_first_row_s": [4.0]},
        "start_s": [20.0],
        "observe": {"5": {"observe_ms": [20.0], "idle_cpu": 10.0}, "20": {"observe_ms": [50.0], "idle_cpu": 40.0}},
        "memory_mib": {"kernel": 300.0},
    }


def test_cpu_is_told_by_what_spends_it() -> None:
    assert spent(turns()["ours"][1]) == Spent(sources=0.0, queries=70.0, beside=30.0)
    assert spent(turns()["ours, sources apart"][1]) == Spent(sources=40.0, queries=40.0, beside=20.0)
    assert spent(turns()["plain"][1]) == Spent(sources=0.0, queries=60.0, beside=10.0)
    assert spent(turns()["plain"][0]) is None


def test_engines_are_compared_turn_by_turn() -> None:
    assert ratios(turns()) == pytest.approx([0.7, 0.9])


def test_a_part_is_the_difference_of_two_plans() -> None:
    found = steps(
        {
            "read": [1.0, 3.0, 2.0],
            "parse": [5.0, 7.0, 16.0],
            **{p: [9.0] for p, _ in STEPS.values() if p not in ("read", "parse")},
        }
    )
    assert found["read the topic"] == 2.0
    assert found["parse and clean"] == 4.0
    assert set(found) == set(STEPS)


def test_an_idle_instance_costs_the_slope() -> None:
    assert idle_each(run()["observe"]) == pytest.approx(2.0)


def test_the_longest_gap_is_one_that_ends_after_the_call() -> None:
    times = [0.0, 5.0, 5.1, 6.9, 7.0, 5.2]
    assert longest_gap(times, since=5.05) == pytest.approx((1.7, 6.9))
    with pytest.raises(ValueError, match="empty"):
        longest_gap(times, since=8.0)


def test_the_section_says_where_the_difference_goes_and_which_ratio_falls_short() -> None:
    text, rows = costs_section([run()])
    assert (
        "a row costs ours 30.0 us more than plain Spark: the queries' tasks 10.0 us more, and the process outside its "
        "tasks 20.0 us more." in text
    )
    assert "| light | ours, sources apart | 4,000 | 100.0 | 40.0 | 40.0 | 20.0 |" in text
    assert (
        "costs ours 12.0 us before any query's work, with the sources apart 24.0 (12.0 at the source, 6.0 at each "
        "reading end), and plain Spark 8.0." in text
    )
    assert not rows[0].short
    assert rows[0].middle == pytest.approx(0.8)
    (longest,) = [row for row in rows if "micro-batch" in row.what]
    assert longest.middle == pytest.approx(1.5)
