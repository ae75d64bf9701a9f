"""Rounds: loads, drops and routing tables; the baselines; the registry."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qod_magics.core.engines import Observation, Round, Use
from qod_magics.errors import UsageProblem
from qod_magics.policies.getafix import Getafix, Memory, Parameters, Scarlett, Uniform
from qod_magics.policies.getafix.policy import guard
from qod_magics.policies.of_engines import replication_policy, replication_policy_names
from tests.policies.getafix.oracles import oracle
from tests.raising import breaks

NODES = ("n1", "n2", "n3")
NAMES = [f"S{j}" for j in range(8)]
BY_COUNT = Parameters(measure="count")


def observed(segments, held=None, accesses=None, **more) -> Observation:
    use = {s: Use(count, count * 1_000_000, min(count, 5)) for s, count in (accesses or {}).items()}
    there = {node: frozenset((held or {}).get(node, ())) for node in NODES}
    return Observation(tuple(segments), NODES, there, use, **more)


def after(seen: Observation, result: Round) -> dict[str, set[str]]:
    """What the nodes hold once a round is carried out."""
    held = {node: set(seen.held[node]) for node in seen.nodes}
    for node, segment in result.loads:
        assert segment not in held[node]
        held[node].add(segment)
    for node, segment in result.drops:
        held[node].remove(segment)
    return held


def test_the_round_of_the_source_loads_two_segments() -> None:
    case = oracle("G2")
    # accesses for which the packing makes the sets of the figure: {S1}, {S2, S4}, {S1, S3}
    seen = observed(
        ["S1", "S2", "S3", "S4"],
        dict(zip(NODES, case["have"], strict=True)),
        {"S1": 6, "S2": 3, "S3": 2, "S4": 1},
    )
    result, _ = Getafix(BY_COUNT).decide(seen, None)
    assert list(result.loads) == [("n1", "S1"), ("n2", "S2")]
    assert sorted(result.drops) == [("n1", "S2"), ("n3", "S2")]
    assert result.routing == {"S1": {"n1": 2, "n3": 4}, "S2": {"n2": 3}, "S3": {"n1": 2}, "S4": {"n2": 1}}
    in_order, _ = Getafix(Parameters(measure="count", match=False)).decide(seen, None)
    assert len(in_order.loads) == 3


def test_new_segments_go_to_the_nodes_in_turn_and_the_turn_goes_on() -> None:
    policy = Getafix()
    first, memory = policy.decide(observed(["S1", "S2"]), None)
    assert first.loads == (("n1", "S1"), ("n2", "S2"))
    assert first.routing == {"S1": {"n1": 1}, "S2": {"n2": 1}}
    second, memory = policy.decide(observed(["S1", "S2", "S3", "S4"], {"n1": ["S1"], "n2": ["S2"]}), memory)
    assert second.loads == (("n3", "S3"), ("n1", "S4"))
    assert second.drops == ()
    assert memory.turn == 4


def test_a_segment_without_accesses_keeps_one_copy() -> None:
    result, _ = Getafix().decide(observed(["S1"], {"n2": ["S1"], "n3": ["S1"]}), None)
    assert (result.loads, result.drops) == ((), (("n3", "S1"),))


def test_expired_segments_are_garbage_and_forgotten() -> None:
    policy = Getafix(BY_COUNT)
    _, memory = policy.decide(observed(["S1", "S2"], {"n1": ["S1", "S2"]}, {"S1": 9, "S2": 1}), None)
    seen = observed(["S2"], {"n1": ["S1", "S2"], "n2": ["S1"]}, {"S2": 1, "S1": 7})
    result, memory = policy.decide(seen, memory)
    assert set(result.drops) == {("n1", "S1"), ("n2", "S1")}
    assert memory.popularity == {"S2": 2}


@pytest.mark.parametrize(
    "policy",
    [
        Getafix(),
        Getafix(Parameters(balance=True, cost="bytes")),
        Getafix(Parameters(choice="largest", memory_limit=0.5)),
        Getafix(Parameters(match=False)),
        Scarlett(),
        Uniform(2),
    ],
    ids=["default", "balanced", "guarded", "in order", "scarlett", "uniform"],
)
@settings(max_examples=12)
@given(data=st.data())
def test_after_each_round_every_segment_has_a_copy_where_pairs_are_sent(policy, data) -> None:
    held: dict[str, set[str]] = {}
    size = {segment: 1 + j for j, segment in enumerate(NAMES)}
    state = None
    for _ in range(data.draw(st.integers(1, 4))):
        segments = data.draw(st.lists(st.sampled_from(NAMES), unique=True))
        accesses = data.draw(st.dictionaries(st.sampled_from(NAMES), st.integers(1, 30)))
        weight = data.draw(st.sampled_from([{}, {"n1": 3, "n2": 1, "n3": 1}]))
        seen = observed(segments, held, accesses, size=size, weight=weight, memory=dict.fromkeys(NODES, 12))
        result, state = policy.decide(seen, state)
        held = after(seen, result)
        assert result.routing.keys() == set(segments)
        for segment, shares in result.routing.items():
            assert shares
            assert all(share > 0 for share in shares.values())
            assert {node for node in NODES if segment in held[node]} == shares.keys()
        assert set().union(*held.values()) == set(segments)


def test_the_same_load_again_moves_nothing() -> None:
    policy, accesses = Getafix(Parameters(measure="count", alpha=0.0)), {"S1": 16, "S2": 8, "S3": 5, "S4": 4}
    seen = observed(accesses, {}, accesses)
    first, memory = policy.decide(seen, None)
    again, _ = policy.decide(observed(accesses, after(seen, first), accesses), memory)
    assert (again.loads, again.drops, again.routing) == ((), (), first.routing)


def test_unequal_nodes_take_pairs_by_their_weight() -> None:
    case = oracle("G5")
    weight = dict(zip(NODES, case["weights"], strict=True))
    result, _ = Getafix(BY_COUNT).decide(observed(case["counts"], {}, case["counts"], weight=weight), None)
    pairs = {node: sum(shares.get(node, 0) for shares in result.routing.values()) for node in NODES}
    assert pairs == {"n1": 6, "n2": 3, "n3": 3}


def test_popularity_is_access_time_in_milliseconds_rounded_up() -> None:
    seen = Observation(("S1", "S2"), NODES, {n: frozenset() for n in NODES}, {"S1": Use(1, 1_000_001), "S2": Use(9, 1)})
    assert Getafix().decide(seen, None)[1].popularity == {"S1": 2, "S2": 1}
    assert Getafix(BY_COUNT).decide(seen, Memory())[1].popularity == {"S1": 1, "S2": 9}


def test_scarlett_removes_from_the_most_loaded_holders_when_concurrency_falls() -> None:
    def seen(held, **concurrent) -> Observation:
        use = {s: Use(c, 0, c) for s, c in concurrent.items()}
        return Observation(("S1", "S2"), NODES, {n: frozenset(held.get(n, ())) for n in NODES}, use)

    first, _ = Scarlett().decide(seen({}, S1=2, S2=1), None)
    assert first.routing == {"S1": {"n1": 1, "n2": 1, "n3": 1}, "S2": {"n3": 1, "n2": 1}}
    held = {"n1": {"S1"}, "n2": {"S1", "S2"}, "n3": {"S1", "S2"}}
    second, _ = Scarlett().decide(seen(held, S1=1, S2=1), None)
    # loads are 1, 1/2 + 1, 1/3 + 1/2
    assert second.drops == (("n2", "S1"),)
    assert second.loads == ()


def test_uniform_copies_are_one_per_node_at_most() -> None:
    result, turn = Uniform(5).decide(observed(["S1"]), None)
    assert result.routing == {"S1": {"n1": 1, "n2": 1, "n3": 1}}
    fewer, _ = Uniform(1).decide(observed(["S1", "S2"], {node: ["S1"] for node in NODES}), turn)
    assert set(fewer.drops) == {("n2", "S1"), ("n3", "S1")}
    assert fewer.loads == (("n1", "S2"),)
    second, turn = Uniform(2).decide(observed(["S1"], {"n1": ["S1"]}), 0)
    assert (second.loads, turn) == ((("n2", "S1"),), 2)  # the first node has it


def test_the_guard_acts_above_the_limit_and_not_at_it() -> None:
    planned = {"n1": {"S1", "S2"}, "n2": {"S1"}}
    size, popular = {"S1": 4, "S2": 4}, {"S1": 9, "S2": 1}
    assert guard(planned, popular, size, {"n1": 10}, 0.8) == ()
    assert guard(planned, popular, size, {"n1": 9}, 0.8) == (("n1", "S1"),)  # S2 is less popular, but its last copy


def test_the_policies_have_names_and_options() -> None:
    assert replication_policy_names() == ("getafix", "scarlett", "uniform")
    for name in replication_policy_names():
        assert replication_policy(name).name == name
    assert replication_policy("getafix", {"balance": True}).parameters.balance


@pytest.mark.parametrize(
    ("name", "options", "wrong", "rule"),
    [
        ("getafx", {}, "getafx", "exists"),
        ("getafix", {"balanced": True}, "balanced", "exists"),
        ("getafix", {"choice": "worst"}, "choice", "known"),
        ("getafix", {"alpha": 1.0}, "alpha", "share"),
        ("getafix", {"memory_limit": 0}, "memory_limit", "share"),
        ("uniform", {"copies": 0}, "copies", "count"),
        ("scarlett", {"delta": -1}, "delta", "count"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(name, options, wrong, rule) -> None:
    with pytest.raises(UsageProblem, check=breaks(rule, name=wrong)):
        replication_policy(name, options)


@pytest.mark.parametrize("options", [{"cost": "bytes"}, {"memory_limit": 0.8}], ids=str)
def test_bytes_need_sizes(options) -> None:
    with pytest.raises(UsageProblem, check=breaks("known sizes")):
        Getafix(Parameters(**options)).decide(observed(["S1"]), None)
