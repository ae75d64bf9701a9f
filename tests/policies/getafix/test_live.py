"""The policy getafix on a cluster: the default policy for streams, and copies of slices beside it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.core.engines import MS, Observation, Use
from qod_magics.core.plan import Plan
from qod_magics.core.policy import SlicingPolicy
from qod_magics.core.snapshot import Instance, Snapshot, Task, TaskManager, replace
from qod_magics.errors import UsageProblem
from qod_magics.policies import DEFAULT_POLICY, policy, policy_names
from tests.policies.snapshots import snapshots

SLICES = tuple(f"s{i}" for i in range(12))
NODES = ("tm1", "tm2", "tm3")


def rules(name: str) -> Any:
    found = policy(name)
    assert isinstance(found, SlicingPolicy)
    return found.slices


def settled(
    name: str, rounds: int = 4, may_load: bool = True, memory: int = 10**6, hot: int = 1
) -> dict[str, set[str]]:
    """Return what each node holds after rounds in which the newest slices are used most, the last one by this factor
    `hot`, with so many bytes of `memory` each."""
    held: dict[str, set[str]] = {node: set() for node in NODES}
    held["tm1"] |= set(SLICES)  # the first queries loaded them
    replication, state = rules(name).replication, None
    for _ in range(4):
        use = {each: Use(i + 1, (i + 1) * 50 * MS, 1) for i, each in enumerate(SLICES)}
        use[SLICES[-1]] = Use(12, 12 * hot * 50 * MS, 1)
        held_now = {node: frozenset(there) for node, there in held.items()}
        size = dict.fromkeys(SLICES, 1000)
        blocks = dict.fromkeys(NODES, memory)
        found, state = replication.decide(Observation(SLICES, NODES, held_now, use, size, memory=blocks), state)
        if not may_load:
            found = found.without_loads()
        for node, segment in found.loads:
            held[node].add(segment)
        for node, segment in found.drops:
            held[node].discard(segment)
    return held


def test_it_keeps_fewer_copies_than_one_everywhere_and_one_of_each() -> None:
    few, everywhere = settled("getafix"), settled("getafix-everywhere")
    assert sum(map(len, everywhere.values())) == len(SLICES) * len(NODES)
    assert sum(map(len, few.values())) <= len(SLICES) + len(NODES) - 1
    assert set.union(*few.values()) == set(SLICES)


@given(snapshot=snapshots(), name=st.sampled_from(["getafix", "getafix-everywhere"]))
def test_its_plans_for_streams_are_those_of_the_default_policy(snapshot: Snapshot, name: str) -> None:
    assert policy(name).decide(snapshot, None)[0] == policy(DEFAULT_POLICY).decide(snapshot, None)[0]


def test_parameters_are_checked_and_reach_the_rules() -> None:
    assert rules("getafix slice_s=30 forget_s=60").slice_s == 30.0
    assert rules("getafix-everywhere slice_s=30").slice_s == 30.0
    assert rules("getafix alpha=0.25 memory_limit=none measure=count").replication.parameters.alpha == 0.25
    for wrong in ("slice_s=0", "forget_s=1", "alpha=1", "memory_limit=1.5", "measure=bytes", "copies=2"):
        with pytest.raises(UsageProblem):
            policy(f"getafix {wrong}")


def test_no_other_policy_keeps_copies() -> None:
    assert {name for name in policy_names() if isinstance(policy(name), SlicingPolicy)} == {
        "auto",
        "getafix",
        "getafix-everywhere",
    }


def test_auto_makes_further_copies_up_to_half_of_the_memory_and_keeps_the_last_beyond() -> None:
    assert settled("auto") == settled("getafix")
    found = {size: [settled(name, memory=size, hot=10) for name in ("getafix", "auto")] for size in (10**6, 16_000, 1)}
    copies = {size: [sum(map(len, held.values())) for held in each] for size, each in found.items()}
    assert copies == {10**6: [14, 14], 16_000: [14, 13], 1: [12, 12]}
    assert set.union(*found[1][1].values()) == set(SLICES)


def test_no_slice_loses_its_last_copy_while_none_may_be_loaded() -> None:
    held = settled("auto", may_load=False)
    assert held == {"tm1": set(SLICES), "tm2": set(), "tm3": set()}


def test_auto_loads_no_copy_while_a_query_is_shed_or_late() -> None:
    task = Task("q", (), 100.0, 1, 0.5, max_latency_s=2.0)
    for p95_s, accuracy, expected in ((1.0, 1.0, True), (3.0, 1.0, False), (1.0, 0.8, False)):
        seen = Snapshot(
            (TaskManager("tm1", 1.0, 10.0),),
            (replace(task, latency_p95_s=p95_s),),
            (),
            (Instance("q.1", "q", "tm1", 100.0, 10.0, False),),
        )
        plan = Plan({"q": accuracy}, {(None, "q"): accuracy})
        assert rules("auto").may_load(seen, plan) is expected
        assert rules("getafix").may_load(seen, plan)
