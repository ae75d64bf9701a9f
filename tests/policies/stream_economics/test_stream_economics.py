"""What Stream Economics promises: properties over any valid snapshot, and what a reader would check first."""

from __future__ import annotations

from math import isfinite
from random import Random
from unittest import mock

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from qod_magics.core.load import current_accuracy
from qod_magics.core.plan import Plan
from qod_magics.core.snapshot import Instance, Snapshot, TaskManager, replace
from qod_magics.policies.stream_economics import StreamEconomics, actual_accuracy, reach, restrictions
from tests.policies import reference
from tests.policies.snapshots import chain_of, one_manager, snapshots
from tests.policies.stream_economics.shapes import LOADS, SHAPES, snapshot


def decide(given: Snapshot) -> Plan:
    return StreamEconomics().decide(given)[0]


def same(plan: Plan, expected: dict[str, object]) -> None:
    assert plan.desired == pytest.approx(expected["desired"], abs=1e-9)
    assert plan.non_drop == pytest.approx(expected["non_drop"], abs=1e-9)
    assert list(plan.leaving) == expected["fail"]
    assert {move.instance: move.to for move in plan.moves} == expected["place"]
    assert list(plan.starved) == expected["starved"]


@settings(max_examples=max(50, settings.default.max_examples if settings.default else 0))
@given(snapshots())
def test_equals_the_model_word_for_word(given: Snapshot) -> None:
    expected = reference.plan(given)
    same(decide(given), expected)
    assert current_accuracy(given) == pytest.approx(expected["current_accuracy"], abs=1e-9)


@settings(max_examples=max(50, settings.default.max_examples if settings.default else 0))
@given(snapshots())
def test_large_sets_of_queries_change_nothing(given: Snapshot) -> None:
    with mock.patch.object(reach, "SMALL", 1):
        large = decide(given)
    assert large == decide(given)


@pytest.mark.parametrize("small", [2, 48])
@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("shape", SHAPES)
def test_equals_the_model_on_large_dags(shape: str, load: str, small: int) -> None:
    given = snapshot(shape, 240, load, priorities=3)
    with mock.patch.object(reach, "SMALL", small):
        plan = decide(given)
    same(plan, reference.plan(given))


@given(snapshots(wild=True))
def test_any_valid_snapshot_has_a_plan_within_bounds(given: Snapshot) -> None:
    plan = decide(given)
    assert all(0 <= d <= 1 for d in plan.non_drop.values())
    assert set(plan.non_drop) == {
        *((None, task.id) for task in given.tasks if not task.upstream),
        *((stream.source, stream.target) for stream in given.streams),
    }
    assert all(0 <= accuracy <= 1 for accuracy in current_accuracy(given).values())
    for task in given.tasks:
        assert isfinite(plan.desired[task.id])
        assert plan.desired[task.id] >= (task.min_accuracy or 0)
    where = {instance.id: instance.task_manager for instance in given.instances}
    assert {move.instance for move in plan.moves} == set(plan.leaving)
    assert all(where[move.instance] != move.to for move in plan.moves)


def test_a_snapshot_without_anything_has_a_plan_without_anything() -> None:
    plan = decide(Snapshot((), (), (), ()))
    assert plan == Plan({}, {})


@given(st.lists(snapshots(), min_size=2, max_size=4))
def test_the_state_never_changes_a_plan(course: list[Snapshot]) -> None:
    policy = StreamEconomics()
    state = None
    for cluster_now in (course[0], *course, course[-1], _with_other_restrictions(course[-1])):
        plan, state = policy.decide(cluster_now, state)
        assert plan == decide(cluster_now)


def _with_other_restrictions(given: Snapshot) -> Snapshot:
    return replace(
        given,
        tasks=tuple(
            task if task.priority is None else replace(task, priority=task.priority % 2, min_accuracy=0.5)
            for task in given.tasks
        ),
    )


@given(snapshots(), st.randoms(use_true_random=False))
def test_the_order_of_instances_does_not_matter(given: Snapshot, rng: Random) -> None:
    # an instance that never ran is estimated by the first of its task that did: there order may count
    assume(all(instance.cpu or instance.in_rate or not instance.warming_up for instance in given.instances))
    shuffled = list(given.instances)
    rng.shuffle(shuffled)
    assert decide(replace(given, instances=tuple(shuffled))) == decide(given)


@given(snapshots(warming=False))
def test_what_is_desired_fits_on_every_task_manager_that_is_not_starved(given: Snapshot) -> None:
    model = reference.Model(given)
    assume(all(model.current(task.id) > 0 for task in given.tasks))  # else the model bets on a whole core
    plan = decide(given)
    for manager in given.task_managers:
        hosted = [instance for instance in given.instances if instance.task_manager == manager.id]
        available = min(max(100 * manager.cores - manager.cpu + sum(i.cpu for i in hosted), 0), 100 * manager.cores)
        if manager.id not in plan.starved:
            needed = sum(model.required(i.task, plan.desired[i.task]) for i in hosted if i.id not in plan.leaving)
            assert needed <= available + 1e-6


QUERIES = st.lists(
    st.tuples(st.floats(1, 60), st.integers(0, 3), st.floats(0, 0.9), st.floats(0.2, 1.0)), min_size=2, max_size=6
)


def cluster(queries: list[tuple[float, int, float, float]], cores: float) -> Snapshot:
    names = [f"q{i}" for i in range(len(queries))]
    cpu, priority, minimum, accuracy = (dict(zip(names, column, strict=True)) for column in zip(*queries, strict=True))
    return one_manager(
        cpu, priority=priority, min_accuracy=minimum, accuracy=accuracy, cores=cores, used=min(sum(cpu.values()), 1)
    )


@given(QUERIES, st.floats(0.1, 4.0))
def test_a_higher_priority_never_has_a_lower_share_of_its_need_met(
    queries: list[tuple[float, int, float, float]], cores: float
) -> None:
    given = cluster(queries, cores)
    plan = decide(given)
    model = reference.Model(given)

    need = {task.id: model.required(task.id, 1.0) - model.min_required(task.id) for task in given.tasks}
    met = {
        query: (model.required(query, plan.desired[query]) - model.min_required(query)) / need[query]
        for query in need
        if need[query] > 1e-6
    }
    for high in given.tasks:
        for low in given.tasks:
            if high.id in met and low.id in met and (high.priority or 0) > (low.priority or 0):
                assert met[high.id] >= met[low.id] - 1e-6


@given(QUERIES, st.floats(0.1, 4.0), st.floats(0.0, 2.0))
def test_more_capacity_never_lowers_the_accuracy_of_the_top_priority(
    queries: list[tuple[float, int, float, float]], cores: float, more: float
) -> None:
    less, more_of_it = decide(cluster(queries, cores)), decide(cluster(queries, cores + more))
    top = max(priority for _, priority, _, _ in queries)
    for i, (_, priority, _, _) in enumerate(queries):
        if priority == top:
            assert more_of_it.desired[f"q{i}"] >= less.desired[f"q{i}"] - 1e-9


@given(snapshots())
def test_what_the_shedders_let_through_is_what_is_desired_of_each_query_on_one_path(given: Snapshot) -> None:
    plan = decide(given)
    actual = actual_accuracy(given, plan.non_drop)
    for task in given.tasks:
        if len(task.upstream) <= 1 and all(len(t.upstream) <= 1 for t in given.tasks):
            assert actual[task.id] == pytest.approx(plan.desired[task.id], abs=1e-9)
        assert 0 <= actual[task.id] <= 1 + 1e-9


def test_a_deep_chain_needs_no_recursion() -> None:
    names = [f"t{i}" for i in range(5000)]
    tasks, streams = chain_of(names)
    instances = tuple(Instance(f"{name}.1", name, "tm1", 50.0, 0.1, False) for name in names)
    given = Snapshot((TaskManager("tm1", 8, 500),), tasks[::-1], streams, instances)
    plan, accuracy = decide(given), current_accuracy(given)
    assert accuracy["t0"] == 0.5
    assert accuracy["t4999"] == pytest.approx(0.0)
    assert plan.starved == ("tm1",)


def test_load_that_fits_but_for_rounding_moves_nothing_and_starves_nobody() -> None:
    parts = {f"q{i}": 100.0 / 3 for i in range(3)}
    given = one_manager(
        parts,
        priority=dict.fromkeys(parts, 1),
        min_accuracy=dict.fromkeys(parts, 0.7),
        accuracy=dict.fromkeys(parts, 0.7),
        cores=1.0 - 1e-13,
        used=100.0,
    )
    for others in ((), (TaskManager("tm2", 1, 0),)):
        plan = decide(replace(given, task_managers=(*given.task_managers, *others)))
        assert plan.actions == plan.starved == ()
        assert plan.desired == pytest.approx(dict.fromkeys(parts, 0.7))


@example(1.0)
@given(st.floats(0.01, 1.0))
def test_what_fits_is_desired_whole_to_the_last_bit(accuracy: float) -> None:
    given = one_manager(
        {"a": 30.1, "b": 7.7},
        priority={"a": 1, "b": 2},
        min_accuracy={"a": 0.3, "b": 0.07},
        accuracy={"a": accuracy, "b": accuracy},
        cores=200.0,
    )
    assume(30.1 / accuracy < 100)
    assert set(decide(given).desired.values()) == {1.0}


def test_a_task_without_measured_cpu_keeps_its_accuracy_and_may_add_its_minimum() -> None:
    given = one_manager({"a": 0.0}, priority={"a": 1}, min_accuracy={"a": 0.2}, accuracy={"a": 0.5})
    assert decide(given).desired == {"a": 0.7}


def test_restrictions_are_the_highest_of_what_the_queries_ask() -> None:
    given = snapshot("taxi apps", 8, "calm", priorities=5)
    asked = restrictions(given)
    queries = {task.id: task for task in given.tasks if task.priority is not None}
    assert asked["t0"] == asked["t1"]
    assert asked["t0"][0] == max(queries["t2"].priority or 0, queries["t3"].priority or 0)
    assert asked["t0"][1] == max(queries["t2"].min_accuracy or 0, queries["t3"].min_accuracy or 0)


def test_an_instance_that_failed_counts_where_it_goes_within_the_same_plan() -> None:
    given = snapshot("single", 100, "killing", priorities=3)
    idle = (TaskManager("tm3", 2.0, 0.0), TaskManager("tm4", 2.0, 0.0))
    plan = decide(replace(given, task_managers=(*given.task_managers, *idle)))
    assert len(plan.moves) > 4
    assert {"tm3", "tm4"} <= {move.to for move in plan.moves}
    assert all(move.why for move in plan.moves)
