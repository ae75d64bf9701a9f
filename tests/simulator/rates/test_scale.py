"""The scenario of the benchmark, at a size that takes no time."""

from __future__ import annotations

import gc

from benchmarks.simulator import cycles, simulation
from qod_magics.simulator import simulate
from qod_magics.simulator.rates.engine import unbalanced


def test_many_small_applications_run_shed_and_keep_their_books():
    given = simulation(60, duration_s=120.0)
    assert len(given.tasks) == 60
    run = simulate(given)
    assert len(run.cycles) == 24
    assert all(cycle.skipped is None for cycle in run.cycles)
    assert any(d < 1 for cycle in run.cycles[5:] for d in cycle.plan.desired.values())
    assert unbalanced(run.cluster.engine) == []
    assert gc.isenabled()


def test_cycles_are_timed_part_by_part():
    decided, whole, observed = cycles(12, 2)
    assert len(decided) == len(whole) == len(observed) == 2
    assert all(part < total for part, total in zip(decided, whole, strict=True))
