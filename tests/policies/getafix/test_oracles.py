"""Getafix against the source's examples and cases worked out exactly."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.getafix.static import saving
from qod_magics.policies.getafix.packing import (
    Allocation,
    Parameters,
    balance,
    capacities,
    match,
    minimum_replicas,
    pack,
)
from qod_magics.policies.getafix.policy import Router, place, popularity
from tests.policies.getafix.oracles import DATA, exact, oracle, replica_bounds, steps_of

CASES = oracle("G1")["cases"]


def names(gets: tuple[int, ...]) -> list[str]:
    return [f"E{g + 1}" for g in gets]


def test_there_are_eleven_and_each_has_its_test() -> None:
    ids = {path.stem.upper() for path in DATA.glob("*.json")}
    assert len(ids) == 11
    assert {oracle(id)["id"] for id in ids} == ids
    tests = [name for name in globals() if name.startswith("test_g")]
    assert {name.split("_")[1].upper() for name in tests} == ids


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_g1_modified_best_fit(case: dict[str, Any]) -> None:
    counts, nodes, expected = case["counts"], case["nodes"], case["expect"]
    plan = pack(counts, [1] * nodes)
    assert capacities(sum(counts.values()), [1] * nodes) == (expected["capacity"],) * nodes
    assert list(plan.bins) == expected["allocation"]
    assert steps_of(plan) == expected["steps"]
    assert plan.replicas == expected["replicas"]
    assert list(plan.load) == expected["load"]
    assert plan.makespan == expected["makespan"]
    assert minimum_replicas(counts, nodes) == expected["minimum_replicas"]
    assert pack(counts, [1] * nodes, "first").replicas == expected["first_fit_replicas"]
    assert pack(counts, [1] * nodes, "largest").replicas == expected["largest_fit_replicas"]


def test_g2_the_matching_of_the_source() -> None:
    case, expected = oracle("G2"), oracle("G2")["expect"]
    found = match(case["have"], case["expected"])
    assert [list(row) for row in found.cost] == expected["cost"]
    assert (found.in_order, found.total) == (expected["identity_cost"], expected["min_cost"])
    assert names(found.gets) == expected["node_gets"]
    fetch = [
        [f"HN{h + 1}", segment]
        for h, g in enumerate(found.gets)
        for segment in case["expected"][g]
        if segment not in case["have"][h]
    ]
    assert fetch == expected["fetch"]


def test_g3_bytes_change_the_matching() -> None:
    case, expected = oracle("G3"), oracle("G3")["expect"]
    for cost, sizes in (("copies", None), ("bytes", case["size"])):
        found = match(case["have"], case["expected"], sizes)
        assert [list(row) for row in found.cost] == expected[f"cost_{cost}"]
        assert found.total == expected[f"min_{cost}"]
        assert names(found.gets) == expected[f"node_gets_{cost}"]


def test_g4_popularity() -> None:
    case, found = oracle("G4"), dict[str, int]()
    decay = Parameters(alpha=case["alpha"]).decay
    for x, expected in zip(case["rounds"], case["expect"], strict=True):
        found = popularity(found, x, decay)
        assert found == expected


def test_g5_unequal_nodes() -> None:
    case, expected = oracle("G5"), oracle("G5")["expect"]
    plan = pack(case["counts"], case["weights"])
    assert list(capacities(sum(case["counts"].values()), case["weights"])) == expected["capacity"]
    assert list(plan.bins) == expected["allocation"]
    assert steps_of(plan) == expected["steps"]
    assert plan.replicas == expected["replicas"]


def test_g6_the_cost_estimate() -> None:
    case, expected = oracle("G6"), oracle("G6")["expect"]
    factors = exact(case["rf_getafix"]), exact(case["rf_scarlett"])
    found = saving(exact(case["hot_TB"]), *factors, exact(case["usd_per_GB_h"]))
    assert found.terabytes == exact(expected["saved_TB"])
    assert found.usd_per_hour == exact(expected["usd_per_hour"])
    assert found.usd_per_year == exact(expected["usd_per_year"])
    assert round(float(factors[1] / factors[0]), 4) == expected["rf_ratio"]


def test_g7_scarlett() -> None:
    case, expected = oracle("G7"), oracle("G7")["expect"]
    nodes = [str(h + 1) for h in range(case["nodes"])]
    found = place(case["concurrent"], nodes, delta=case["delta"])
    assert {s: [int(node) for node in there] for s, there in found.nodes.items()} == expected["placement"]
    assert found.replicas == expected["replicas"]
    assert list(found.load.values()) == expected["load"]


def test_g8_balanced_numbers_of_copies() -> None:
    case, expected = oracle("G8"), oracle("G8")["expect"]
    start = next(each for each in CASES if each["name"] == "zipf_16")
    assert start["expect"]["allocation"] == case["start"]
    plan, shifts = balance(Allocation(tuple(case["start"])), list(start["counts"]))
    assert [[s.segment, s.pairs, s.source + 1, s.target + 1] for s in shifts] == expected["moves"]
    assert list(plan.bins) == expected["allocation"]
    assert plan.replicas == expected["replicas"]
    assert [len(each) for each in plan.bins] == expected["replicas_per_node"]
    assert list(plan.load) == expected["load"]


def test_g9_a_balanced_but_wasteful_plan() -> None:
    case, expected = oracle("G9"), oracle("G9")["expect"]
    plan = Allocation(tuple(case["allocation"]))
    assert (plan.replicas, list(plan.load)) == (expected["replicas"], expected["load"])
    source = CASES[0]
    assert plan.replicas - pack(source["counts"], [1] * source["nodes"]).replicas == 2


def test_g10_more_copies_than_the_optimum() -> None:
    case, expected = oracle("G10"), oracle("G10")["expect"]
    counts, nodes = case["counts"], case["nodes"]
    plan, optimum = pack(counts, [1] * nodes), Allocation(tuple(expected["one_minimum"]))
    assert capacities(sum(counts.values()), [1] * nodes) == (expected["capacity"],) * nodes
    assert plan.replicas == expected["modified_best_fit"] > expected["minimum"]
    assert minimum_replicas(counts, nodes) == expected["minimum"] == optimum.replicas
    assert optimum.load == plan.load == (expected["capacity"],) * nodes
    assert replica_bounds(len(counts), nodes) == (expected["minimum"], expected["upper_bound_m_plus_n_minus_1"])


def test_g11_the_deterministic_router() -> None:
    case = oracle("G11")
    router = Router(case["balls"])
    assert [int(router.route()) for _ in range(case["pairs"])] == case["expect"]
