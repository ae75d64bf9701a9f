"""Co-located tasks become one query while targets are met, and part when they no longer pack."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from qod_magics.controller import Cycle
from qod_magics.core.plan import Fuse, Unfuse
from qod_magics.core.snapshot import Snapshot, replace
from qod_magics.policies.d_storm.packing import Parameters
from qod_magics.policies.d_storm.policy import DStorm, possible, to_fuse, to_separate
from qod_magics.simulator import Simulation, simulate
from tests.policies.d_storm.clusters import Cluster
from tests.texts import tells

CPU = {"a.1": 20.0, "b.1": 30.0, "c.1": 40.0}
CHAIN = {"b": ["a"], "c": ["b"]}
#: A chain of three on one task manager; b and c could each be one query with what they read.
TOGETHER = Cluster(
    {"tm1": 1.0}, CPU, dict.fromkeys(CPU, "tm1"), CHAIN, of_task={"b": {"fusable": 1}, "c": {"fusable": 1}}
)
AB, BC = Fuse(("a", "b")), Fuse(("b", "c"))


def fused(snapshot: Snapshot) -> Snapshot:
    """With a within b, and b within c."""
    within = {"b": ("a>b",), "c": ("b>c", "b2>c")}
    return replace(
        snapshot,
        tasks=tuple(replace(task, fused=within.get(task.id, ()), fusable=None) for task in snapshot.tasks),
    )


def decided(cluster: Cluster, times: Sequence[float]) -> list[tuple[float, Any]]:
    """The actions of plans that have no effect, each with its time."""
    found, state, policy = [], None, DStorm(parameters=Parameters(interval_s=1e6))
    for at_s in times:
        plan, state = policy.decide(replace(cluster, now_s=at_s).snapshot, state)
        found += [(at_s, action) for action in plan.actions]
    return found


def test_one_pair_at_a_time_of_those_that_fit_a_core() -> None:
    snapshot = TOGETHER.snapshot
    assert to_fuse(snapshot, CPU, ()) == (AB,)
    assert to_fuse(snapshot, CPU, {AB}) == (BC,)
    assert to_fuse(snapshot, {**CPU, "a.1": 70.0}, ()) == (AB,)
    assert to_fuse(snapshot, {**CPU, "a.1": 71.0}, ()) == (BC,)
    assert to_fuse(snapshot, {**CPU, "b.1": 90.0}, ()) == ()
    apart = replace(TOGETHER, cores={"tm1": 1.0, "tm2": 1.0}, place={**TOGETHER.place, "a.1": "tm2"})
    assert to_fuse(apart.snapshot, CPU, ()) == (BC,)


def test_what_is_larger_than_a_core_or_fits_nowhere_is_unfused() -> None:
    snapshot = fused(TOGETHER.snapshot)
    assert to_separate(snapshot, CPU, (), ()) == ()
    assert to_separate(snapshot, CPU, ["a.1"], ()) == ()  # nothing is within it
    (found,) = to_separate(snapshot, CPU, ["b.1"], ())
    assert found == Unfuse(("a", "b"))
    assert tells(found.why, "b.1")
    assert to_separate(snapshot, CPU, ["b.1", "c.1"], ()) == (Unfuse(("b2", "c")),)  # the largest, at its last stream
    assert to_separate(snapshot, {**CPU, "b.1": 100.0}, (), ()) == ()
    (found,) = to_separate(snapshot, {**CPU, "b.1": 101.0}, (), ())
    assert found == Unfuse(("a", "b"))
    assert tells(found.why, "b.1", "101 %")
    assert to_separate(snapshot, CPU, ["b.1", "c.1"], {Unfuse(("b2", "c"))}) == (Unfuse(("a", "b")),)


def test_the_actions_still_possible_are_those_without_effect() -> None:
    assert possible(TOGETHER.snapshot) == {AB, BC}
    assert possible(fused(TOGETHER.snapshot)) == {Unfuse(("a", "b")), Unfuse(("b", "c")), Unfuse(("b2", "c"))}


def test_an_action_without_effect_is_not_repeated() -> None:
    every = [5.0 * n for n in range(100)]
    assert decided(TOGETHER, every) == [(60.0, AB), (120.0, BC)]


def test_what_was_only_recommended_is_asked_for_once_plans_are_applied() -> None:
    found, state, policy = [], None, DStorm(parameters=Parameters(interval_s=1e6))
    for n in range(60):
        snapshot = replace(TOGETHER, now_s=5.0 * n).snapshot
        plan, state = policy.decide(replace(snapshot, paused=n < 30), state)
        found += [(5.0 * n, action) for action in plan.actions]
    assert found == [(60.0, AB), (120.0, AB), (180.0, AB), (240.0, BC)]


@pytest.mark.parametrize("reason", ["behind", "late", "warming"])
def test_nothing_is_fused_while_a_target_is_missed_or_an_instance_starts(reason: str) -> None:
    cluster = {
        "behind": replace(TOGETHER, read=0.8),
        "late": replace(TOGETHER, of_task={**TOGETHER.of_task, "c": {"fusable": 1, "latency_p50_s": 2.0}}),
        "warming": replace(TOGETHER, warming=frozenset({"c.1"})),
    }[reason]
    assert decided(cluster, [5.0 * n for n in range(100)]) == []


TASKS = [
    {"id": "src", "topic": "rows", "work_us": 200},
    {"id": "mid", "upstream": ["src"], "work_us": 250, "hop_us": 20, "fusable": True},
    {
        **{"id": "end", "upstream": ["mid"], "work_us": 300, "hop_us": 20, "fusable": True},
        **{"priority": 1, "min_accuracy": 0.1},
    },
]


def run(rate: Any, managers: Sequence[Any], duration_s: float) -> Sequence[Cycle]:
    made: dict[str, Any] = {"topics": [{"topic": "rows", "rate": rate}], "tasks": TASKS, "policy": "d-storm"}
    return simulate(Simulation.from_json({**made, "duration_s": duration_s, "task_managers": list(managers)})).cycles


def of(cycles: Sequence[Cycle], *kinds: str) -> list[str]:
    return [event.kind for cycle in cycles for event in cycle.events if event.kind in kinds]


def at(cycles: Sequence[Cycle], at_s: float) -> int:
    return next(n for n, cycle in enumerate(cycles) if cycle.snapshot.at_s is not None and cycle.snapshot.at_s >= at_s)


STEP = [[0, 300], [1000, 300], [1010, 1500]]
LATER: dict[str, Any] = {"id": "tm2", "kind": "more", "off": True, "start_s": 8}


@pytest.mark.closed_loop
def test_a_chain_ends_as_one_query_and_parts_when_the_load_exceeds_a_core() -> None:
    cycles = run(STEP, [{"id": "tm1"}, LATER], 2000)
    step = at(cycles, 1000)
    assert of(cycles[:step], "fuse", "unfuse", "move") == ["fuse", "fuse"]
    assert [task.id for task in cycles[step].snapshot.tasks] == ["end"]
    assert of(cycles[step:], "fuse", "unfuse", "move", "task-manager-up") == ["unfuse", "task-manager-up", "move"]
    assert {i.task_manager for i in cycles[-1].snapshot.instances} == {"tm1", "tm2"}
    assert of(cycles, "action-refused") == []
    assert sum(cycles[-1].measured.lag.values()) < 1500


@pytest.mark.closed_loop
def test_nothing_is_parted_where_the_parts_would_not_fit_either() -> None:
    cycles = run(STEP, [{"id": "tm1"}], 1800)
    assert of(cycles, "fuse", "unfuse", "move") == ["fuse", "fuse"]
    assert of(cycles, "starved")
