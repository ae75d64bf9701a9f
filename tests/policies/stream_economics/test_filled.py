"""What giving out CPU by levels promises: it fits, it is fair, and it knows priorities; with costs learned or not."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from qod_magics.core.dag import Topology
from qod_magics.core.load import Load, load_of
from qod_magics.core.plan import Plan
from qod_magics.core.snapshot import Instance, Snapshot, Stream, Task, TaskManager, replace
from qod_magics.policies import policy
from qod_magics.policies.stack.stage import Demand
from qod_magics.policies.stream_economics.reasons import needs
from qod_magics.policies.stream_economics.requirements import Requirements, learned
from tests.policies.snapshots import snapshots

NAME = "stream-economics-filled"
ROUNDING = 1e-6


@st.composite
def taught(draw: st.DrawFn, wild: bool = False) -> Snapshot:
    """A snapshot in which nobody warms up; of some tasks the costs are known, of all that send what they send."""
    given = draw(snapshots(wild=wild, warming=False))
    measure = st.floats(0.0, 1e6) if wild else st.integers(0, 500).map(float)
    ratio = st.floats(0.0, 10.0) if wild else st.sampled_from([0.0, 0.5, 1.0, 2.0])
    tasks = []
    for task in given.tasks:
        known = {"fixed_cpu": draw(measure) / 50.0, "read_us": draw(measure), "work_us": draw(measure)}
        rate = None if task.upstream else 4.0 * draw(measure)
        extra = {"selectivity": draw(ratio), **(known if draw(st.booleans()) else {})}
        if draw(st.booleans()):
            extra["concurrency"] = draw(st.integers(1, 4))
        tasks.append(replace(task, external_rate=rate, **extra))
    return replace(given, tasks=tuple(tasks))


def decide(given: Snapshot) -> Plan:
    return policy(NAME).decide(given, None)[0]


def model(given: Snapshot) -> tuple[Topology, Load, Requirements]:
    topology = Topology.of(given.tasks)
    load = load_of(given, topology)
    return topology, load, learned(given, topology, load)


def upwards(topology: Topology, desired: Mapping[int, float]) -> list[float]:
    """By task, what these accuracies of the queries make it run at."""
    found = [desired.get(t, 0.0) for t in range(len(topology.downstream))]
    for t in reversed(topology.order):
        found[t] = max([found[t], *(found[consumer] for consumer in topology.downstream[t])])
    return found


def short(given: Snapshot, accuracy: list[float], by: float = 0.0) -> list[int]:
    """The task managers that lack more than `by` % of a core for these accuracies; -1: a task uses all that it can."""
    topology, load, required = model(given)
    used = [0.0] * len(given.task_managers)
    full = False
    for t, manager in zip(load.task_of, load.manager_of, strict=True):
        least = required.of(t, topology.min_accuracy[t])
        needed = least + required.cost(t) * (accuracy[t] - topology.min_accuracy[t])
        full = full or (needed > required.usable[t] + by and accuracy[t] > topology.min_accuracy[t])
        used[manager] += needed
    return [m for m, cpu in enumerate(used) if cpu > required.available[m] + by] + [-1] * full


def as_planned(given: Snapshot, plan: Plan) -> list[float]:
    return [plan.desired[task.id] for task in given.tasks]


@given(taught(wild=True))
def test_any_valid_snapshot_has_a_plan_within_bounds(given: Snapshot) -> None:
    plan = decide(given)
    assert all(0 <= d <= 1 for d in plan.non_drop.values())
    for task in given.tasks:
        assert isfinite(plan.desired[task.id])
        assert plan.desired[task.id] >= (task.min_accuracy or 0)


@given(taught())
def test_what_is_planned_fits_where_the_minimums_do(given: Snapshot) -> None:
    topology, _, _ = model(given)
    assume(not short(given, topology.min_accuracy))
    plan = decide(given)
    assert not plan.actions
    assert not plan.starved
    assert not short(given, as_planned(given, plan), by=ROUNDING * 1000)


@given(taught())
def test_nobody_could_have_more_without_taking_from_one_that_has_no_more(given: Snapshot) -> None:
    topology, _, _ = model(given)
    assume(not short(given, topology.min_accuracy))
    plan = decide(given)
    queries = {t: plan.desired[given.tasks[t].id] for t, below in enumerate(topology.downstream) if not below}
    for q, mine in queries.items():
        if mine >= 1.0:
            continue
        poorer = {
            t: other
            if topology.priority[t] > topology.priority[q]
            or (topology.priority[t] == topology.priority[q] and other <= mine + ROUNDING)
            else topology.min_accuracy[t]
            for t, other in queries.items()
        }
        more = min(mine + 0.01, 1.0)
        # those poorer or before it keep theirs and all others fall to their minimums: even so there is no room for more
        assert short(given, upwards(topology, {**poorer, q: more})) or _free(given, q, mine, more)


def _free(given: Snapshot, q: int, mine: float, more: float) -> bool:
    """Whether the rise costs too little to be told from rounding."""
    topology, _, required = model(given)
    above = [q]
    cost = 0.0
    while above:
        t = above.pop()
        cost += required.cost(t) * (more - mine)
        above += topology.upstream[t]
    return cost < ROUNDING * 1000


@given(taught(), st.floats(0.1, 50.0))
def test_more_cpu_takes_nothing_from_the_highest_priority(given: Snapshot, more: float) -> None:
    topology, _, _ = model(given)
    assume(not short(given, topology.min_accuracy))
    larger = replace(given, task_managers=tuple(replace(m, cores=m.cores + more) for m in given.task_managers))
    first = max(task.priority for task in given.tasks if task.priority is not None)
    before, after = decide(given), decide(larger)
    queries = [task.id for task in given.tasks if task.priority == first]
    assert min(after.desired[q] for q in queries) >= min(before.desired[q] for q in queries) - ROUNDING


def two_queries(*managers: TaskManager, priority: int = 1) -> Snapshot:
    """A source and two queries that need 20 % of a core, and 40 % and 80 % at full accuracy."""
    costs = {"fixed_cpu": 0.0, "read_us": 0.0, "selectivity": 1.0}
    return Snapshot(
        managers,
        (
            Task("src", (), 1000.0, None, None, **{**costs, "work_us": 200.0}),
            Task("cheap", ("src",), None, 1, 0.1, **{**costs, "work_us": 400.0}),
            Task("dear", ("src",), None, priority, 0.1, **{**costs, "work_us": 800.0}),
        ),
        (Stream("src", "cheap", 500.0), Stream("src", "dear", 500.0)),
        tuple(
            Instance(f"{task}.1", task, managers[0].id, 500.0, cpu, False)
            for task, cpu in (("src", 10.0), ("cheap", 20.0), ("dear", 40.0))
        ),
    )


def test_queries_of_one_priority_have_the_same_accuracy_where_they_share_all() -> None:
    plan = decide(two_queries(TaskManager("tm1", 0.7, 70.0)))
    assert plan.desired["cheap"] == pytest.approx(0.5)
    assert plan.desired["dear"] == pytest.approx(0.5)


def test_a_higher_priority_has_all_it_can_use_first() -> None:
    plan = decide(two_queries(TaskManager("tm1", 1.2, 70.0), priority=2))
    assert plan.desired["dear"] == pytest.approx(1.0)
    assert plan.desired["cheap"] == pytest.approx(0.5)


def test_an_instance_moves_only_where_its_minimum_fits() -> None:
    tight = TaskManager("tm1", 0.1, 70.0)
    assert decide(two_queries(tight, TaskManager("tm2", 1.0, 0.0))).moves
    nowhere = decide(two_queries(tight, TaskManager("tm2", 1.0, 99.0)))
    assert not nowhere.actions
    assert nowhere.starved == ("tm1",)


def test_without_an_input_rate_it_is_taken_as_the_paper_takes_it() -> None:
    known = two_queries(TaskManager("tm1", 0.7, 70.0))
    source, *queries = known.tasks
    unknown = replace(known, tasks=(replace(source, external_rate=None), *queries))
    topology, load, required = model(unknown)
    assert required.at[topology.position["src"]] == 1.0
    assert required.base == [0.0] * 3
    assert required.cpu == load.cpu


def short_by_eleven(*, big: dict[str, Any] | None = None, **second: Any) -> Snapshot:
    """On tm1 two queries need 10 and 53 % of a core at their minimums, and 52 % are theirs; tm2 is half a core."""
    costs = {"fixed_cpu": 0.0, "read_us": 0.0}
    return Snapshot(
        (TaskManager("tm1", 0.52, 50.0), TaskManager("tm2", 0.5, 0.0, **second)),
        (
            Task("small", (), 1000.0, 1, 0.2, **{**costs, "work_us": 500.0}),
            Task("big", (), 1000.0, 2, 0.4, **{**costs, "work_us": 1325.0}),
        ),
        (),
        (
            Instance("small.1", "small", "tm1", 200.0, 10.0, False),
            Instance("big.1", "big", "tm1", 300.0, 40.0, bool(big), **big or {}),
        ),
    )


def moved(plan: Plan) -> dict[str, str]:
    return {move.instance: move.to for move in plan.moves}


def test_where_the_one_that_would_suffice_fits_nowhere_another_goes() -> None:
    plan = decide(short_by_eleven())
    assert moved(plan) == {"small.1": "tm2"}
    assert plan.starved == ("tm1",)  # by 1 %


def test_one_whose_departure_frees_nothing_stays() -> None:
    given = short_by_eleven()
    free = Task("free", (), 1000.0, 0, 0.0, fixed_cpu=0.0, read_us=0.0, work_us=100.0)
    there = Instance("free.1", "free", "tm1", 100.0, 1.0, False)
    plan = decide(replace(given, tasks=(*given.tasks, free), instances=(*given.instances, there)))
    assert moved(plan) == {"small.1": "tm2"}


def reactive(given: Snapshot) -> Plan:
    return policy("stream-economics-reactive").decide(given, None)[0]


def test_a_task_manager_where_nothing_is_scarce_takes_no_more_than_it_has_by_costs() -> None:
    assert moved(reactive(short_by_eleven(open_s=5.0))) == {"small.1": "tm2"}


@pytest.mark.parametrize("cpu", [37.0, 50.0])
def test_of_one_where_nothing_is_scarce_other_processes_hold_half_at_most(cpu: float) -> None:
    given = short_by_eleven(open_s=5.0)
    first, second = given.task_managers
    plan = reactive(replace(given, task_managers=(first, replace(second, cpu=cpu))))
    assert moved(plan) == {"small.1": "tm2"}
    busy = decide(replace(given, task_managers=(first, TaskManager(second.id, second.cores, cpu))))
    assert (moved(busy) == {"small.1": "tm2"}) is (cpu < 38.0)


def test_while_an_instance_is_on_its_way_nothing_else_leaves_where_it_was() -> None:
    assert not reactive(short_by_eleven(big={"state": "moving"})).moves
    assert moved(reactive(short_by_eleven(big={"state": "running"}))) == {"small.1": "tm2"}  # it rests no longer


@pytest.mark.parametrize(("work_us", "minimum"), [(0.0, 0.1), (300.0, 0.1)], ids=["free", "dear"])
def test_where_not_even_the_minimums_fit_accuracy_is_not_raised_however_cheap_it_seems(
    work_us: float, minimum: float
) -> None:
    """Costs learned while a core was full can put all of a task's CPU on the rows that it reads."""
    rows, read_us = 3000.0, 200.0
    costs = {"fixed_cpu": 10.0, "read_us": read_us, "work_us": work_us}
    other = {"fixed_cpu": 40.0, "read_us": 0.0, "work_us": 200.0}
    given = Snapshot(
        (TaskManager("tm1", 0.9, 100.0),),
        (Task("cheap", (), rows, 2, minimum, **costs), Task("other", (), rows, 0, 0.1, **other)),
        (),
        (
            Instance("cheap.1", "cheap", "tm1", rows, 70.0, False),
            Instance("other.1", "other", "tm1", 0.1 * rows, 25.0, False),
        ),
    )
    plan = decide(given)
    assert plan.starved == ("tm1",)
    assert plan.desired == {"cheap": minimum, "other": 0.1}


@pytest.mark.parametrize("name", [NAME, "stream-economics-reactive", "auto"])
def test_nothing_moves_to_where_a_task_manager_stands_by(name: str) -> None:
    tasks = tuple(Task(q, (), 1000.0, 1, 1.0) for q in ("a", "b"))
    instances = tuple(Instance(f"{q}.1", q, "tm1", 1000.0, 80.0, False) for q in ("a", "b"))
    given = Snapshot((TaskManager("tm1", 1.0, 160.0), TaskManager("tm2", 1.0, 0.0)), tasks, (), instances)
    by = replace(given.task_managers[1], standby=1)
    assert [move.to for move in policy(name).decide(given, None)[0].moves] == ["tm2"]
    plan, _ = policy(name).decide(replace(given, task_managers=(given.task_managers[0], by)), None)
    assert (plan.actions, plan.starved) == ((), ("tm1",))


@pytest.mark.parametrize("state", ["given up", "suspended", "backing off", "starting", "moving"])
@pytest.mark.parametrize("name", ["stream-economics-reactive", "auto"])
def test_what_does_not_run_is_not_moved(name: str, state: str) -> None:
    """The cluster refuses it, so that the same move was asked for in each cycle, and nothing else."""
    tasks = tuple(Task(q, (), 1000.0, 1, 1.0) for q in ("a", "b"))
    instances = tuple(Instance(f"{q}.1", q, "tm1", 1000.0, 80.0, False, state="running") for q in ("a", "b"))
    given = Snapshot((TaskManager("tm1", 1.0, 160.0), TaskManager("tm2", 1.0, 0.0)), tasks, (), instances)
    (chosen,) = policy(name).decide(given, None)[0].moves
    down = tuple(replace(i, state=state) if i.id == chosen.instance else i for i in instances)
    moved = [move.instance for move in policy(name).decide(replace(given, instances=down), None)[0].moves]
    stays = state in ("given up", "suspended")  # it takes no CPU, so that the other one fits
    assert moved == ([] if stays else [i.id for i in instances if i.id != chosen.instance])
    neither = tuple(replace(i, state=state) for i in instances)
    assert policy(name).decide(replace(given, instances=neither), None)[0].actions == ()


@pytest.mark.parametrize("state", ["running", "backing off", "given up", "suspended"])
@pytest.mark.parametrize("name", [NAME, "stream-economics-fitted", "stream-economics-reactive", "auto"])
def test_an_instance_that_is_out_takes_no_cpu_where_it_is_listed(name: str, state: str) -> None:
    """Another instance of its task runs, so that the task has costs. A suspended one is listed somewhere."""
    costs = {"fixed_cpu": 0.0, "read_us": 0.0}
    tasks = tuple(
        Task(name, (), 1000.0, 1, 0.1, work_us=work_us, **costs) for name, work_us in (("q", 1600.0), ("r", 800.0))
    )
    instances = (
        Instance("q.1", "q", "tm2", 500.0, 80.0, False, state="running"),
        Instance("q.2", "q", "tm1", 500.0, 80.0 if state == "running" else 0.0, False, state=state),
        Instance("r.1", "r", "tm1", 1000.0, 80.0, False, state="running"),
    )
    used = sum(each.cpu for each in instances if each.task_manager == "tm1")
    managers = (TaskManager("tm1", 1.0, used, trust=1.0), TaskManager("tm2", 1.0, 80.0, trust=1.0))
    given = Snapshot(managers, tasks, (), instances)
    plan = policy(name).decide(given, None)[0]
    out = state in ("given up", "suspended")
    assert (plan.desired["r"] == 1.0) == out
    assert needs(given)["tm1"].at_full == pytest.approx(80.0 if out else 160.0)
    assert Demand.of(given).needed[0] == pytest.approx(80.0 if out else 160.0)


@pytest.mark.parametrize(("partitions", "desired"), [(None, 0.4), (1, 0.4), (2, 0.8), (3, 1.0), (4, 1.0)])
def test_an_instance_can_use_a_core_for_each_partition_that_it_reads(partitions: int | None, desired: float) -> None:
    """It needs two and a half cores of four. On one, it would be shed by more than half, for ever."""
    extra = {"fixed_cpu": 0.0, "read_us": 0.0, "work_us": 250.0}
    task = Task("q", (), 10_000.0, 1, 0.1, **(extra if partitions is None else {**extra, "concurrency": partitions}))
    snapshot = Snapshot(
        (TaskManager("tm1", 3.6, 250.0),), (task,), (), (Instance("q.1", "q", "tm1", 10_000.0, 250.0, False),)
    )
    for name in (NAME, "stream-economics-fitted", "stream-economics-reactive"):
        assert policy(name).decide(snapshot, None)[0].desired["q"] == pytest.approx(desired, abs=1e-3)
