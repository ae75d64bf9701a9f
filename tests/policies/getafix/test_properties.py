"""What holds for every plan, matching and balance."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from math import ceil

from hypothesis import given
from hypothesis import strategies as st

from qod_magics.policies.getafix.packing import (
    balance,
    capacities,
    match,
    minimum_replicas,
    pack,
)
from qod_magics.policies.getafix.policy import Router, guard, place, popularity, replicas
from tests.policies.getafix.oracles import (
    effective_replication_factor,
    most_effective_replication_factor,
    probabilities,
    replica_bounds,
)

NAMES = [f"S{j}" for j in range(12)]
COUNTS = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 40), max_size=12)
WEIGHTS = st.lists(st.integers(1, 4), min_size=1, max_size=7)
SETS = st.integers(1, 6).flatmap(
    lambda n: st.tuples(*[st.lists(st.sets(st.sampled_from(NAMES)), min_size=n, max_size=n)] * 2)
)


@given(COUNTS, WEIGHTS, st.sampled_from(["best", "first", "largest"]))
def test_all_pairs_have_a_node_and_no_node_is_over_its_capacity(counts, weights, choice) -> None:
    plan = pack(counts, weights, choice)
    placed = Counter()
    for each in plan.bins:
        placed.update(each)
    assert placed == Counter({s: c for s, c in counts.items() if c})
    room = capacities(sum(counts.values()), weights)
    assert all(load <= most for load, most in zip(plan.load, room, strict=True))
    assert all(count > 0 for each in plan.bins for count in each.values())
    assert sum(room) >= sum(counts.values())


@given(COUNTS, WEIGHTS)
def test_each_step_makes_a_copy_and_they_keep_to_the_bounds(counts, weights) -> None:
    plan = pack(counts, weights)
    m = sum(1 for count in counts.values() if count)
    least, most = replica_bounds(m, len(weights))
    assert len(plan.steps) == plan.replicas
    assert least <= plan.replicas <= most
    if m:
        assert effective_replication_factor(plan) <= most_effective_replication_factor(m, len(weights))


@given(COUNTS, st.integers(1, 5))
def test_equal_nodes_end_as_early_as_they_can(counts, nodes) -> None:
    assert pack(counts, [1] * nodes).makespan <= ceil(Fraction(sum(counts.values()), nodes))


@given(st.dictionaries(st.sampled_from(NAMES[:6]), st.integers(1, 12), max_size=6), st.integers(1, 4))
def test_the_minimum_lies_within_the_bounds(counts, nodes) -> None:
    made, least = pack(counts, [1] * nodes).replicas, minimum_replicas(counts, nodes)
    assert len(counts) <= least <= made <= least + nodes - 1


@given(SETS)
def test_a_matching_costs_no_more_than_the_order_and_nothing_if_applied_again(sets) -> None:
    have, expected = sets
    found = match(have, expected)
    assert found.total <= found.in_order
    assert sorted(found.gets) == list(range(len(have)))
    there = [expected[g] for g in found.gets]
    again = match(there, expected)
    assert again.total == 0
    assert [expected[g] for g in again.gets] == there


@given(SETS, st.data())
def test_sets_go_to_nodes_of_their_kind(sets, data) -> None:
    have, expected = sets
    kinds = data.draw(st.lists(st.integers(1, 2), min_size=len(have), max_size=len(have)))
    found = match(have, expected, kinds=kinds)
    assert [kinds[g] for g in found.gets] == kinds
    assert found.total <= found.in_order


@given(st.lists(st.sets(st.sampled_from(NAMES)), max_size=4), st.lists(st.sets(st.sampled_from(NAMES)), max_size=4))
def test_missing_nodes_and_sets_are_empty(have, expected) -> None:
    found = match(have, expected)
    assert len(found.gets) == max(len(have), len(expected))
    assert match(have, have).total == 0


@given(COUNTS, WEIGHTS)
def test_balanced_nodes_differ_by_a_copy_at_most_and_no_pair_is_lost(counts, weights) -> None:
    plan = pack(counts, weights)
    even, shifts = balance(plan, list(counts))
    numbers = [len(each) for each in even.bins]
    assert max(numbers) - min(numbers) <= 1
    assert sum(even.load) == sum(plan.load)
    assert even.replicas <= plan.replicas
    if not shifts:
        assert even.bins == plan.bins


@given(st.lists(COUNTS, min_size=1, max_size=8), st.sampled_from([Fraction(0), Fraction(1, 2), Fraction(9, 10)]))
def test_once_seen_a_segment_stays_and_its_popularity_is_no_less_than_its_accesses(rounds, alpha) -> None:
    found: dict[str, int] = {}
    for x in ({s: c for s, c in each.items() if c} for each in rounds):
        before, found = found, popularity(found, x, alpha)
        assert before.keys() | x.keys() == found.keys()
        assert all(found[s] >= x.get(s, 0) for s in found)
        assert all(found[s] - 1 < x.get(s, 0) + alpha * p <= found[s] for s, p in before.items())


@given(st.dictionaries(st.sampled_from(NAMES), st.integers(1, 9), min_size=1, max_size=5), st.integers(0, 60))
def test_the_router_keeps_to_the_shares(shares, pairs) -> None:
    router, chance = Router(shares), probabilities(shares)
    assert sum(chance.values()) == 1
    for _ in range(pairs):
        assert router.route() in shares
    assert sum(router.sent.values()) == pairs
    # no node is ever a whole pair ahead of its share, so after a full turn all are level
    assert all(sent - pairs * chance[node] < 1 for node, sent in router.sent.items())
    if pairs % sum(shares.values()) == 0:
        assert router.sent == {node: pairs * chance[node] for node in shares}


@given(st.dictionaries(st.sampled_from(NAMES), st.integers(0, 9)), st.integers(1, 6), st.data())
def test_scarlett_places_each_copy_on_a_node_of_its_own(concurrent, n, data) -> None:
    nodes = [f"n{h}" for h in range(n)]
    held = {s: sorted(data.draw(st.sets(st.sampled_from(nodes)))) for s in concurrent}
    found = place(concurrent, nodes, held)
    for segment, there in found.nodes.items():
        wanted = replicas(concurrent[segment], n)
        assert len(set(there)) == len(there) == wanted
        kept = set(there) & set(held[segment])
        assert len(kept) == min(wanted, len(held[segment]))
    empty = place(concurrent, nodes)
    expected = sum(
        Fraction(max(1, concurrent[s]), i + 1) for s, there in empty.nodes.items() for i in range(len(there))
    )
    assert sum(empty.load.values()) == expected


@given(st.lists(st.sets(st.sampled_from(NAMES)), min_size=1, max_size=4), COUNTS, st.integers(1, 10))
def test_the_guard_never_gives_up_a_last_copy(sets, popular, memory) -> None:
    planned = {f"n{h}": each for h, each in enumerate(sets)}
    size = {segment: j + 1 for j, segment in enumerate(NAMES)}
    left_out = guard(planned, popular, size, dict.fromkeys(planned, memory * 4), 0.8)
    rest = {node: there - {s for n, s in left_out if n == node} for node, there in planned.items()}
    assert set().union(*rest.values()) == set().union(*sets)
    for node, there in rest.items():
        if sum(size[s] for s in there) > 0.8 * memory * 4:
            for segment in there:  # what remains are last copies
                assert sum(segment in other for other in rest.values()) == 1 or (node, segment) in left_out
