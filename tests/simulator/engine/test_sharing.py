"""Max-min fairness, by its properties and against progressive filling."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.simulator.engine.sharing import max_min_fair

SECONDS = st.one_of(st.just(0.0), st.floats(1e-6, 10.0))
CASES = st.integers(1, 4).flatmap(
    lambda groups: st.tuples(
        st.lists(st.tuples(SECONDS, st.integers(0, groups - 1)), min_size=1, max_size=20),
        st.lists(SECONDS, min_size=groups, max_size=groups),
    )
)


def progressive_filling(demands: list[float], capacity: float) -> list[float]:
    """All levels rise together; who has enough stops; the water is what there is."""
    grants = [0.0] * len(demands)
    waiting = sorted(range(len(demands)), key=lambda i: demands[i])
    while waiting:
        level = capacity / len(waiting)
        first = waiting.pop(0)
        grants[first] = min(demands[first], level)
        capacity -= grants[first]
    return grants


@given(CASES)
def test_it_is_max_min_fair(case: tuple[list[tuple[float, int]], list[float]]) -> None:
    demands, capacities = case
    demand, group = np.array([d for d, _ in demands]), np.array([g for _, g in demands])
    before = demand.copy()
    grant = max_min_fair(demand, group, np.array(capacities))
    assert (demand == before).all()
    assert (grant <= demand).all()
    assert (grant >= 0).all()
    for g, capacity in enumerate(capacities):
        wanted, got = demand[group == g].tolist(), grant[group == g].tolist()
        assert sum(got) <= capacity * (1 + 1e-9) + 1e-12
        assert got == pytest.approx(progressive_filling(wanted, capacity), abs=1e-9)
        if sum(wanted) <= capacity:
            assert got == wanted
        else:
            assert sum(got) == pytest.approx(capacity, abs=1e-9)  # nothing is left over
        for want, have in zip(wanted, got, strict=True):
            if have < want - 1e-9:
                assert have >= max(got) - 1e-9  # who wants more has as much as anybody
