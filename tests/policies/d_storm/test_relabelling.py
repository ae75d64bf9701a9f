from __future__ import annotations

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from qod_magics.policies.d_storm.observation import usages
from qod_magics.policies.d_storm.packing import Demand, Node, inter_node_traffic
from qod_magics.policies.d_storm.solver import assignment, relabelled
from tests.policies.d_storm.cases import problems


@given(
    st.integers(1, 5).flatmap(
        lambda n: st.lists(st.lists(st.integers(0, 9), min_size=n, max_size=n), min_size=n, max_size=n)
    )
)
def test_the_assignment_is_the_best_of_all(weights: list[list[int]]) -> None:
    chosen = assignment(weights)
    assert sorted(chosen) == list(range(len(weights)))
    best = max(sum(weights[i][k] for i, k in enumerate(order)) for order in permutations(range(len(weights))))
    assert sum(weights[i][k] for i, k in enumerate(chosen)) == best


def test_what_does_not_fit_is_not_assigned() -> None:
    never = float("-inf")
    assert assignment([[9.0, 1.0], [9.0, never]]) == [1, 0]


NODES = [Node("v1", 100.0), Node("v2", 100.0), Node("v3", 200.0)]
DEMANDS = [Demand("a", 50.0), Demand("b", 50.0), Demand("c", 90.0)]


def test_nodes_of_one_size_change_roles() -> None:
    current = {"a": "v2", "b": "v2", "c": "v1"}
    assert relabelled({"a": "v1", "b": "v1", "c": "v2"}, NODES, DEMANDS, current) == current


def test_nodes_of_different_sizes_do_not() -> None:
    placement = {"a": "v3", "b": "v3", "c": "v2"}
    assert relabelled(placement, NODES, DEMANDS, {"a": "v1", "b": "v1", "c": "v2"}) == placement


def test_a_role_goes_only_where_it_fits() -> None:
    """Both have one core; other processes take 20 % of v2."""
    nodes = [Node("v1", 100.0, cores=1.0), Node("v2", 80.0, cores=1.0)]
    placement = {"a": "v1", "b": "v1", "c": "v1"}
    small = [Demand("a", 30.0), Demand("b", 30.0), Demand("c", 30.0)]
    assert relabelled(placement, nodes, small, dict.fromkeys("abc", "v2")) == placement


def test_a_node_that_is_up_goes_before_one_that_would_have_to_be_started() -> None:
    nodes = [Node("new plain 1", 100.0, kind="plain"), Node("v1", 100.0)]
    placement = dict.fromkeys("ab", "new plain 1")
    assert relabelled(placement, nodes, DEMANDS[:2], {}) == dict.fromkeys("ab", "v1")


@given(problems(), st.randoms(use_true_random=False))
def test_it_keeps_loads_and_traffic_and_never_moves_more(problem, random) -> None:  # type: ignore[no-untyped-def]
    names = [node.id for node in problem.nodes]
    placement = {demand.id: random.choice(names) for demand in problem.demands}
    current = {demand.id: random.choice(names) for demand in problem.demands}
    found = relabelled(placement, problem.nodes, problem.demands, current)
    channels = problem.channels
    assert inter_node_traffic(channels, found) == inter_node_traffic(channels, placement)
    staying = [sum(where[i] == current[i] for i in current) for where in (placement, found)]
    assert staying[1] >= staying[0]
    demands, nodes = {d.id: d for d in problem.demands}, {node.id: node for node in problem.nodes}
    before, after = usages(demands, nodes, placement), usages(demands, nodes, found)
    assert sorted(before.values()) == sorted(after.values())
