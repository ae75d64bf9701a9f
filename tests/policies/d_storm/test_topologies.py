"""The synthetic topologies on the source's twelve nodes: placements, traffic and costs, with the baselines."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from qod_magics.policies.d_storm.packing import Demand, Node, Problem, costs, inter_node_traffic, pack, total_traffic
from qod_magics.policies.d_storm.static import resource_aware, round_robin
from tests.policies.d_storm.cases import nodes_of, oracle, parameters_of, spread, uniform

LINEAR = oracle("dstorm-09-linear")
COST = oracle("dstorm-13-cost")
SCENARIO = oracle("dstorm-14-cost-scenario")
PRICES = COST["input"]["price_per_h"]


def linear(expected: dict[str, Any]) -> tuple[Problem, dict[str, Any]]:
    given = LINEAR["input"]
    nodes = nodes_of(given["nodes"], given["price_per_h"])
    rate = float(expected["P_s"])
    rates, _ = spread(given["operators"], given["operator_edges"], given["tasks_per_operator"], rate)
    points = given["cpu_points_per_1000_input_tuples_per_s"] / 1000.0 / given["tasks_per_operator"]
    cpu = {name: points * arriving for name, arriving in rates.items()}
    memory = given["mem_per_task"]
    return uniform(cpu, given["operator_edges"], nodes, given["tasks_per_operator"], memory, source_rate=rate), given


def outcome(problem: Problem, placement: dict[str, str]) -> dict[str, Any]:
    used = [node for node in problem.nodes if node.id in placement.values()]
    return {
        "nodes": [node.id for node in used],
        "inter_node_traffic": pytest.approx(inter_node_traffic(problem.channels, placement), rel=1e-6),
        "cost_per_h": pytest.approx(costs(used)[0], rel=1e-6),
    }


@pytest.mark.parametrize("expected", LINEAR["expected"], ids=lambda each: str(each["P_s"]))
def test_the_linear_topology(expected: dict[str, Any]) -> None:
    problem, given = linear(expected)
    assert problem.demands[0].cpu == pytest.approx(expected["cpu_per_task"])
    assert total_traffic(problem.channels) == pytest.approx(expected["total_traffic"])
    packing = pack(problem, parameters_of(given))
    of = {name: given["operators"].index(name.split(".")[0]) for name in packing.placement}
    counts: dict[str, list[int]] = {node: [0, 0, 0, 0] for node in packing.used}
    for task, node in packing.placement.items():
        counts[node][of[task]] += 1
    found = outcome(problem, dict(packing.placement))
    assert {**found, "tasks_of_Op1..Op4_on_node": counts} == expected["dstorm"]


@pytest.mark.parametrize("expected", LINEAR["expected"], ids=lambda each: str(each["P_s"]))
def test_the_baselines_on_the_linear_topology(expected: dict[str, Any]) -> None:
    problem, given = linear(expected)
    tasks = {name: [d.id for d in problem.demands if d.id.startswith(f"{name}.")] for name in given["operators"]}
    profile = {name: next(d for d in problem.demands if d.id == of[0]) for name, of in tasks.items()}
    ras = resource_aware(tasks, map(tuple, given["operator_edges"]), profile, problem.nodes)
    assert ras is not None
    assert outcome(problem, ras) == expected["ras"]
    dealt = round_robin([d.id for d in problem.demands], [node.id for node in problem.nodes])
    assert {**outcome(problem, dealt), "nodes": len(set(dealt.values()))} == expected["round_robin"]


def test_the_best_placement_on_two_large_nodes_beats_both() -> None:
    """ "Always at least as good as RAS" is no property of the algorithm (E14)."""
    expected = LINEAR["expected"][0]
    problem, given = linear(expected)
    best = expected["best_possible_on_two_large_nodes"]
    on_one = best["tasks_of_Op1..Op4_on_one_node"]
    placement = {
        d.id: "L1" if int(d.id.split(".")[1]) < on_one[given["operators"].index(d.id.split(".")[0])] else "L2"
        for d in problem.demands
    }
    assert inter_node_traffic(problem.channels, placement) == pytest.approx(best["inter_node_traffic"])
    assert best["inter_node_traffic"] < expected["ras"]["inter_node_traffic"]
    assert expected["ras"]["inter_node_traffic"] < expected["dstorm"]["inter_node_traffic"]


def test_the_cost_of_node_mixes() -> None:
    mixes = COST["input"]["mixes"]
    nodes = {
        name: [Node(f"{kind}{i}", 0.0, price=PRICES[kind]) for kind, count in mix.items() for i in range(count)]
        for name, mix in mixes.items()
    }
    found = dict(zip(nodes, costs(*nodes.values()), strict=True))
    assert found == pytest.approx(COST["expected"]["cost_per_h"], rel=1e-6)
    shares = COST["expected"]["remaining_share_at_2500"]
    left = found["any_2500_inferred"]
    assert {name: round(left / found[name], 4) for name in shares} == shares


@pytest.mark.parametrize("topology", SCENARIO["input"]["topologies"])
def test_the_cost_scenario(topology: str) -> None:
    given = SCENARIO["input"]
    declared, expected = given["topologies"][topology], SCENARIO["expected"][topology]
    nodes = nodes_of(given["nodes"], PRICES)
    plans = []
    for plan in expected["plans"]:
        cpu = {name: at * plan["P_s"] / 10000 for name, at in declared["cpu_points_per_task_at_10000"].items()}
        rate = float(plan["P_s"])
        edges, tasks, memory = declared["operator_edges"], given["tasks_per_operator"], given["mem_per_task"]
        problem = uniform(cpu, edges, nodes, tasks, memory, source_rate=rate)
        packing = pack(problem, parameters_of(given))
        assert packing.is_complete
        used = [node for node in nodes if node.id in packing.used]
        kinds = Counter(node.id[0] for node in used)
        traffic = inter_node_traffic(problem.channels, packing.placement)
        plans.append(
            {"P_s": plan["P_s"], **{k: kinds[k] for k in "LMS"}, "cost_per_h": costs(used)[0], "traffic": traffic}
        )
    for found, plan in zip(plans, expected["plans"], strict=True):
        assert {k: found[k] for k in ("P_s", "L", "M", "S")} == {k: plan[k] for k in ("P_s", "L", "M", "S")}
        assert found["cost_per_h"] == pytest.approx(plan["cost_per_h"], rel=1e-6)
        assert found["traffic"] == pytest.approx(plan["inter_node_traffic"], rel=1e-6)
    assert round(plans[-1]["cost_per_h"] / plans[0]["cost_per_h"], 4) == expected["remaining_share"]


def test_one_price_unknown_compares_cores() -> None:
    nodes = nodes_of(SCENARIO["input"]["nodes"], PRICES)
    unknown = nodes_of(SCENARIO["input"]["nodes"][:1])
    assert costs(nodes) == pytest.approx([COST["expected"]["cost_per_h"]["all_twelve"]])
    assert costs(nodes, unknown) == pytest.approx([28.0, 1.0])


def test_ras_fails_as_a_whole() -> None:
    nodes = nodes_of(SCENARIO["input"]["nodes"][:2])
    tasks = {"a": ["a.1", "a.2"], "b": ["b.1"]}
    profile = {"a": Demand("a", 60.0, 1.0), "b": Demand("b", 50.0, 1.0)}
    assert resource_aware(tasks, [("a", "b")], profile, nodes) is None
    assert resource_aware(tasks, [("a", "b")], {**profile, "b": Demand("b", 40.0)}, nodes) == {
        "a.1": "S1",
        "b.1": "S1",
        "a.2": "S2",
    }


def test_ras_begins_with_the_largest_node() -> None:
    nodes = nodes_of(SCENARIO["input"]["nodes"])
    assert resource_aware({"a": ["a.1"]}, [], {"a": Demand("a", 10.0)}, nodes) == {"a.1": "L1"}


def test_round_robin_deals_by_id() -> None:
    assert round_robin(["c", "a", "b"], ["y", "x"]) == {"a": "x", "b": "y", "c": "x"}
    assert round_robin(["a", "b"], ["y", "x"], first=1) == {"a": "y", "b": "x"}
    with pytest.raises(ValueError, match="nodes"):
        round_robin(["a"], [])
