"""What the evaluation makes of measured costs, on figures made by hand."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.evaluation.delays import longest_gap
from benchmarks.evaluation.spark_rows import SECTIONS, idle_each, spent

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
        "dial": {"dial_ms": [3.0], "cycle_ms": [30.0], "override_ms": [2_000.0]},
        "move": {"without_a_row_s": [1.0], "call_to_first_row_s": [4.0]},
        "start_s": [20.0],
        "observe": {"5": {"observe_ms": [20.0], "idle_cpu": 10.0}, "20": {"observe_ms": [50.0], "idle_cpu": 40.0}},
        "memory_mib": {"kernel": 300.0},
    }


def test_cpu_is_that_of_sources_of_queries_and_of_the_rest() -> None:
    assert spent(turns()["ours"][1]) == (0.0, 70.0, 30.0)
    assert spent(turns()["ours, sources apart"][1]) == (40.0, 40.0, 20.0)
    assert spent(turns()["plain"][1]) == (0.0, 60.0, 10.0)
    assert spent(turns()["plain"][0]) is None


def test_an_idle_instance_costs_the_slope() -> None:
    assert idle_each(run()["observe"]) == pytest.approx(2.0)


def test_the_longest_gap_is_one_that_ends_after_the_call() -> None:
    times = [0.0, 5.0, 5.1, 6.9, 7.0, 5.2]
    assert longest_gap(times, since=5.05) == pytest.approx((1.7, 6.9))
    with pytest.raises(ValueError, match="empty"):
        longest_gap(times, since=8.0)


def test_engines_are_compared_turn_by_turn_and_a_part_s_cpu_is_in_the_table() -> None:
    rows = SECTIONS["costs"].rows([run()])
    assert rows[0].values == pytest.approx([0.7, 0.9])
    assert not [row.what for row in rows if row.short]
    lines = {line["engine"]: line for line in SECTIONS["costs"].table([run()])}
    assert lines["ours, sources apart"]["sources' tasks, us/row"] == 40.0
    assert (lines["ours"]["rows/s"], lines["plain"]["outside tasks, us/row"]) == (8000, 10.0)
