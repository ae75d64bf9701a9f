"""P1 to P7: what holds of every packing; and the incremental form is the plain one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from qod_magics.policies.d_storm.packing import (
    DEFAULTS,
    Channel,
    Node,
    Parameters,
    Problem,
    availability,
    inter_node_traffic,
    pack,
    total_traffic,
)
from tests.policies.d_storm.cases import problems
from tests.policies.d_storm.plain import packed


def left(problem: Problem, placement: dict[str, str], node: Node) -> tuple[float, float]:
    there = [demand for demand in problem.demands if placement.get(demand.id) == node.id]
    return node.cpu - sum(d.cpu for d in there), node.memory - sum(d.memory for d in there)


@given(problems())
def test_p1_capacities_hold_on_every_node(problem: Problem) -> None:
    packing = pack(problem)
    for node in problem.nodes:
        assert min(left(problem, dict(packing.placement), node)) >= -1e-9


@given(problems())
def test_p2_every_instance_has_one_node_or_is_unplaced(problem: Problem) -> None:
    packing = pack(problem)
    ids = {demand.id for demand in problem.demands}
    assert packing.placement.keys() | set(packing.unplaced) == ids
    assert packing.placement.keys().isdisjoint(packing.unplaced)
    assert set(packing.placement.values()) <= {node.id for node in problem.nodes}


@given(problems())
def test_p3_nothing_opened_later_would_have_fitted_earlier(problem: Problem) -> None:
    packing = pack(problem)
    nodes = {node.id: node for node in problem.nodes}
    placement = dict(packing.placement)
    for position, name in enumerate(packing.opened):
        cpu, memory = left(problem, placement, nodes[name])
        later = set(packing.opened[position + 1 :])
        for demand in problem.demands:
            if placement.get(demand.id) in later or demand.id in packing.unplaced:
                assert demand.cpu > cpu or demand.memory > memory


@given(problems())
def test_p4_the_same_problem_has_the_same_packing(problem: Problem) -> None:
    again = Problem(list(problem.demands), list(problem.nodes), list(problem.channels))
    assert pack(problem) == pack(again)


@given(problems(), st.sampled_from([0.001, 0.5, 3.0, 1024.0]))
def test_p5_the_unit_of_traffic_does_not_matter(problem: Problem, factor: float) -> None:
    scaled = tuple(Channel(c.source, c.target, c.traffic * factor) for c in problem.channels)
    assert pack(replace(problem, channels=scaled)) == pack(problem)


@given(problems())
def test_p6_a_node_with_the_least_room_changes_no_success(problem: Problem) -> None:
    packing = pack(problem)
    assume(packing.is_complete)
    least = min(problem.nodes, key=lambda node: availability([node], problem.demands))
    more = pack(problem.with_nodes((*problem.nodes, replace(least, id="more"))))
    assert more.placement == packing.placement


@given(problems())
def test_p7_one_node_has_no_traffic_with_others(problem: Problem) -> None:
    node = Node("v1", 1e6, 1e6)
    packing = pack(problem.with_nodes([node, replace(node, id="v2")]))
    assert packing.used == (("v1",) if problem.demands else ())
    assert inter_node_traffic(problem.channels, packing.placement) == 0


@given(
    problems(), st.sampled_from([DEFAULTS, Parameters(1.0, 1.0, 0.5), Parameters(0.0, 1.0, 1.0), Parameters(1.0, 0.0)])
)
def test_the_incremental_form_is_the_plain_one(problem: Problem, parameters: Parameters) -> None:
    packing = pack(problem, parameters)
    placed, unplaced = packed(problem, parameters)
    assert list(packing.placement.items()) == list(placed.items())
    assert list(packing.unplaced) == unplaced


@given(problems())
def test_traffic_counts_each_directed_channel_once(problem: Problem) -> None:
    apart = {demand.id: f"n{i}" for i, demand in enumerate(problem.demands)}
    assert inter_node_traffic(problem.channels, apart) == total_traffic(problem.channels)
    packing = pack(problem)
    assume(packing.is_complete)
    inside = sum(c.traffic for c in problem.channels if packing.placement[c.source] == packing.placement[c.target])
    between = inter_node_traffic(problem.channels, packing.placement)
    assert inside + between == pytest.approx(total_traffic(problem.channels))
