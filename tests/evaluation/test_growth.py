"""How a cycle grows: measured on a small cluster, and told."""

from __future__ import annotations

import pytest

from benchmarks.evaluation.scenario_rows import SECTIONS
from benchmarks.simulator import cycles


def test_a_cycle_takes_longer_than_the_decision_in_it() -> None:
    policy, cycle, observing = cycles(8, 3, managers=2, cores=1.0)
    assert len(policy) == len(cycle) == len(observing) == 3
    assert all(0 < decided < whole for decided, whole in zip(policy, cycle, strict=True))


def test_the_law_of_growth_is_that_of_the_medians() -> None:
    sizes = (10, 500, 1000, 5000)
    by_tasks = {
        str(n): {"policy_ms": [0.01 * n], "cycle_ms": [1e-5 * n**2] * 2 + [99.0], "observing_ms": [1.0]} for n in sizes
    }
    rows = SECTIONS["scenario5"].rows([{"by_tasks": by_tasks, "as_source": {"cycle_ms": [40.0, 50.0, 60.0]}}])
    figures = {row.what: row.middle for row in rows}
    assert figures["cycle: k of time ~ tasks ** k, from 500 tasks on"] == pytest.approx(2.0)
    assert figures["a cycle at 2,000 tasks on 2 task managers"] == 50.0
    assert figures["CPU of a core there"] == pytest.approx(1.0)
