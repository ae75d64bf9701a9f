"""The exact parts beside a library's solvers, which know nothing of them."""

from __future__ import annotations

import ctypes
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from benchmarks.getafix.optimum import drawn, gap, optimum
from qod_magics.policies.assignment import least_cost
from qod_magics.policies.getafix.packing import capacities, minimum_replicas, pack
from tests.policies.getafix.oracles import oracle


@pytest.mark.parametrize(("counts", "nodes"), drawn(12, seed=1), ids=str)
def test_the_minimum_is_that_of_an_integer_program(counts: dict[str, int], nodes: int) -> None:
    best = optimum(counts, [1] * nodes)
    assert best.replicas == minimum_replicas(counts, nodes) <= pack(counts, [1] * nodes).replicas
    assert {s: sum(each.get(s, 0) for each in best.bins) for s in counts} == counts
    assert best.makespan <= capacities(sum(counts.values()), [1] * nodes)[0]


def test_the_counterexample_has_a_plan_with_fewer_copies() -> None:
    case = oracle("G10")
    found = optimum(case["counts"], [1] * case["nodes"])
    assert found.replicas == case["expect"]["minimum"] < pack(case["counts"], [1] * case["nodes"]).replicas


def test_the_solver_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    counts, nodes = drawn(88)[-1]  # on which HiGHS leaves a line of debugging in C's buffer
    optimum(counts, [1] * nodes)
    ctypes.CDLL(None).fflush(None)
    assert capfd.readouterr() == ("", "")


def test_the_packing_may_miss_the_optimum_by_a_copy_and_never_the_makespan() -> None:
    found = gap(300)
    assert found.cases == sum(found.beyond.values()) == 300
    assert set(found.beyond) == {0, 1}
    assert found.makespan == 0


MATRICES = st.integers(1, 6).flatmap(
    lambda n: st.lists(st.lists(st.integers(0, 4), min_size=n, max_size=n), min_size=n, max_size=n)
)


@given(MATRICES)
def test_an_assignment_is_the_first_of_the_cheapest(cost: list[list[int]]) -> None:
    n = range(len(cost))
    expected = min(permutations(n), key=lambda gets: (sum(cost[h][gets[h]] for h in n), gets))
    assert least_cost(cost) == expected


@pytest.mark.parametrize("n", [1, 7, 20, 60])
def test_an_assignment_costs_what_the_library_finds(n: int) -> None:
    draw = np.random.default_rng(n)
    for high in (2, 10**12):
        cost = draw.integers(0, high, (n, n))
        gets = least_cost(cost.tolist())
        assert sorted(gets) == list(range(n))
        assert cost[range(n), gets].sum() == cost[linear_sum_assignment(cost)].sum()
