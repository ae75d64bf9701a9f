"""Algorithm 1 against the cases of its specification, each choice with all its priorities."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import inf
from typing import Any

import pytest

from qod_magics.policies.d_storm.packing import (
    Packing,
    Parameters,
    Priority,
    Problem,
    Step,
    availability,
    inter_node_traffic,
    pack,
)
from tests.policies.d_storm.cases import demands_of, oracle, parameters_of, problem_of
from tests.policies.d_storm.plain import packed

TRACED = [
    *("dstorm-01-chain", "dstorm-02-node-order", "dstorm-05-false-failure", "dstorm-06-opened-but-empty"),
    *("dstorm-07-zero-critical-cost", "dstorm-08-greedy-not-optimal", "dstorm-12-memory-critical"),
]


def shown(priority: Priority) -> Any:
    return ["inf", pytest.approx(priority.numerator, rel=1e-6)] if priority.value == inf else near(priority.value)


def near(value: float) -> Any:
    return pytest.approx(value, rel=1e-6, abs=1e-6)


def watched(problem: Problem, given: dict[str, Any]) -> tuple[Packing, list[Step]]:
    steps: list[Step] = []
    return pack(problem, parameters_of(given), steps.append), steps


@pytest.mark.parametrize("name", TRACED)
def test_a_traced_case(name: str) -> None:
    case = oracle(name)
    given, expected = case["input"], case["expected"]
    problem = problem_of(given)
    packing, steps = watched(problem, given)
    assert packing.is_complete is (expected["status"] == "OK")
    assert list(packing.order) == expected["node_order"]
    assert list(packing.opened) == expected["opened"]
    assert [
        {"node": step.node, "usage": near(step.usage), "rho": {i: shown(q) for i, q in step.priorities.items()}}
        for step in steps
    ] == expected["priorities_at_each_step"]
    if packing.is_complete:
        assert [list(pair) for pair in packing.placement.items()] == expected["placed_in_order"]
        assert list(packing.used) == expected["used"]
        assert len(packing.used) == expected["m_used"]
        assert inter_node_traffic(problem.channels, packing.placement) == near(expected["inter_node_traffic"])
    else:
        assert list(packing.unplaced) == expected["unplaced"]
    assert optimum(problem) == expected["optimum_traffic"]
    if "an_optimal_placement" in expected:
        best = expected["an_optimal_placement"]
        assert inter_node_traffic(problem.channels, best) == expected["optimum_traffic"]
    found = availability(problem.nodes, problem.demands)
    if "availability" in expected:
        named = zip(problem.nodes, found, strict=True)
        assert {node.id: available for node, available in named} == near_each(expected["availability"])
    assert packed(problem, parameters_of(given)) == (dict(packing.placement), list(packing.unplaced))


def near_each(values: dict[str, float]) -> Any:
    return pytest.approx(values, rel=1e-6, abs=1e-6)


def optimum(problem: Problem) -> float | None:
    """The least traffic of all placements that fit, by trying all of them."""
    best = None
    for choice in product(problem.nodes, repeat=len(problem.demands)):
        fits = all(
            sum(d.cpu for d, at in zip(problem.demands, choice, strict=True) if at is node) <= node.cpu
            and sum(d.memory for d, at in zip(problem.demands, choice, strict=True) if at is node) <= node.memory
            for node in problem.nodes
        )
        if fits:
            names = {demand.id: node.id for demand, node in zip(problem.demands, choice, strict=True)}
            traffic = inter_node_traffic(problem.channels, names)
            best = traffic if best is None else min(best, traffic)
    return best


@pytest.mark.parametrize("name", [*TRACED, "dstorm-03-threshold", "dstorm-09-linear", "dstorm-14-cost-scenario"])
def test_the_defaults_are_those_of_the_source(name: str) -> None:
    assert parameters_of(oracle(name)["input"]) == Parameters()


def test_the_listing_would_count_a_node_that_stays_empty() -> None:
    case = oracle("dstorm-06-opened-but-empty")
    packing, _ = watched(problem_of(case["input"]), case["input"])
    assert len(packing.opened) == case["expected"]["m_used_by_the_printed_counter"]


@pytest.mark.parametrize("variant", [0, 1, 2])
def test_the_threshold_compares_the_usage_before_the_candidate(variant: int) -> None:
    case = oracle("dstorm-03-threshold")
    given, expected = case["input"], case["expected"][variant]
    problem = problem_of({**given, **given["variants"][variant]})
    packing, steps = watched(problem, given)
    third = steps[2]
    assert third.usage == near(expected["usage_before_third"])
    assert {i: shown(q) for i, q in third.priorities.items()} == expected["rho_third"]
    assert list(packing.placement)[2] == expected["third_placed"]
    assert dict(packing.placement) == expected["placement"]
    assert inter_node_traffic(problem.channels, packing.placement) == expected["inter_node_traffic"]


def test_the_reading_that_was_not_chosen_would_place_another() -> None:
    """With the usage after the candidate, X and Z would lose the potential term: Y would have the highest priority."""
    case = oracle("dstorm-03-threshold")
    for variant, expected in zip(case["input"]["variants"], case["expected"], strict=True):
        _, steps = watched(problem_of({**case["input"], **variant}), case["input"])
        cpu = {demand.id: demand.cpu for demand in demands_of(variant["tasks"])}
        now = {"X": 10.0, "Y": 40.0, "Z": 0.0}  # alpha * q1 beside A and B
        over = {i: now[i] / q.cost for i, q in steps[2].priorities.items() if steps[2].usage + cpu[i] / 100 > 0.8}
        assert over.keys() == steps[2].priorities.keys()
        assert max(over, key=over.__getitem__) == expected["third_placed_if_usage_were_taken_after"]


def test_ties_go_to_the_larger_item() -> None:
    case = oracle("dstorm-04-tie-break")
    problem = problem_of(case["input"])
    packing, _ = watched(problem, case["input"])
    assert packing.is_complete
    assert dict(packing.placement) == case["expected"]["tie_break_largest"]["placement"]


def test_ties_in_input_order_alone_would_fail_here() -> None:
    """All priorities are 0, so input order alone is first fit: what `tie_break_input_order` says of the same case."""
    case = oracle("dstorm-04-tie-break")
    problem = problem_of(case["input"])
    left = {node.id: node.cpu for node in problem.nodes}
    unplaced = []
    for demand in problem.demands:
        node = next((name for name, free in left.items() if demand.cpu <= free), None)
        if node is None:
            unplaced.append(demand.id)
        else:
            left[node] -= demand.cpu
    assert unplaced == case["expected"]["tie_break_input_order"]["unplaced"]


def test_without_instances_no_node_is_opened() -> None:
    case = oracle("dstorm-01-chain")
    packing = pack(replace(problem_of(case["input"]), demands=(), channels=()))
    assert packing.is_complete
    assert packing.opened == ()
