"""First placement, and the baselines as policies."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from qod_magics.core.plan import Move
from qod_magics.core.policy import PlacingPolicy
from qod_magics.core.runtime import Unplaced
from qod_magics.core.snapshot import Instance, TaskManager, replace
from qod_magics.policies import policy
from qod_magics.policies.d_storm.packing import Demand
from qod_magics.policies.d_storm.static import StormRas, profiled
from tests.policies.d_storm.clusters import Cluster, Run

NOWHERE: frozenset[str] = frozenset()
TWO = (TaskManager("tm1", 2.0, 0.0), TaskManager("tm2", 1.0, 0.0))


def placing(name: str) -> PlacingPolicy:
    found = policy(name)
    assert isinstance(found, PlacingPolicy)
    return found


def new(*names: str, estimate: float | None = None, forbidden: frozenset[str] = NOWHERE) -> list[Unplaced]:
    return [Unplaced(name, name.split(".")[0], estimate, forbidden) for name in names]


def test_equal_demands_fill_the_cluster_evenly() -> None:
    placed = placing("d-storm").place(new("a.1", "b.1", "c.1", "d.1", "e.1", "f.1"), TWO, ())
    assert Counter(placed.values()) == {"tm1": 4, "tm2": 2}


def test_known_demands_are_packed_tightly() -> None:
    placed = placing("d-storm").place(new("a.1", "b.1", "c.1", estimate=60.0), TWO, ())
    assert Counter(placed.values()) == {"tm1": 3}


def test_an_instance_that_never_ran_is_estimated_by_another_of_its_task() -> None:
    running = [Instance("a.1", "a", "tm2", 10.0, 30.0, False)]
    managers = (TWO[0], replace(TWO[1], cpu=30.0))
    placed = placing("d-storm").place(new("a.2", "a.3"), managers, running)
    assert placed == {"a.2": "tm1", "a.3": "tm1"}


def test_what_stands_by_is_left_alone_and_what_is_forbidden_too() -> None:
    managers = (*TWO, TaskManager("tm3", 8.0, 0.0, standby=1))
    for name in ("d-storm", "storm-ras", "storm-round-robin"):
        placed = placing(name).place(new("a.1", "b.1", forbidden=frozenset({"tm1"})), managers, ())
        assert placed == {"a.1": "tm2", "b.1": "tm2"}
        assert placing(name).place(new("a.1", forbidden=frozenset({"tm1", "tm2"})), managers, ()) == {}


@given(st.integers(1, 12), st.integers(1, 4), st.none() | st.floats(0.0, 250.0))
def test_every_instance_is_placed_wherever_there_is_a_task_manager(n: int, m: int, estimate: float | None) -> None:
    managers = [TaskManager(f"tm{k}", 1.0 + k % 2, 10.0) for k in range(m)]
    for name in ("d-storm", "storm-ras", "storm-round-robin"):
        unplaced = new(*(f"t{i}.1" for i in range(n)), estimate=estimate)
        placed = placing(name).place(unplaced, managers, ())
        assert placed.keys() == {one.instance for one in unplaced}
        assert set(placed.values()) <= {manager.id for manager in managers}


def test_round_robin_goes_on_where_it_stopped() -> None:
    policy, managers = placing("storm-round-robin"), [TaskManager(f"tm{k}", 1.0, 0.0) for k in (1, 2, 3)]
    running: list[Instance] = []
    for name in ("a.1", "b.1", "c.1", "d.1"):
        (host,) = policy.place(new(name), managers, running).values()
        running.append(Instance(name, name[0], host, 1.0, 1.0, False))
    assert [instance.task_manager for instance in running] == ["tm1", "tm2", "tm3", "tm1"]
    assert policy.place(new("a.1"), [], ()) == {}


CPU = {"a.1": 30.0, "a.2": 50.0, "b.1": 20.0, "b.2": 20.0}
APART = Cluster({"tm1": 2.0, "tm2": 1.0}, CPU, {"a.1": "tm1", "a.2": "tm2", "b.1": "tm2", "b.2": "tm1"}, {"b": ["a"]})


def test_ras_schedules_once_after_its_pilot_run() -> None:
    run = Run(StormRas(), APART)
    run.until(3000.0)
    assert [(at_s, plan.actions) for at_s, plan in run.log] == [(60.0, (Move("b.1", "tm1"), Move("a.2", "tm1")))]
    run.cluster = replace(run.cluster, place=APART.place)
    run.until(6000.0)
    assert len(run.log) == 1


def test_ras_schedules_again_for_what_is_added() -> None:
    run = Run(StormRas(), APART)
    run.until(600.0)
    more = {**CPU, "c.1": 10.0}
    run.cluster = replace(run.cluster, cpu=more, place={**run.cluster.place, "c.1": "tm2"})
    run.until(1300.0)
    assert [kind for _, plan in run.log[1:] for kind in plan.actions] == [Move("c.1", "tm1")]


def test_ras_that_finds_no_room_for_one_moves_nothing() -> None:
    run = Run(StormRas(), replace(APART, cores={"tm1": 1.0, "tm2": 0.3}))
    run.until(600.0)
    assert run.log == []


def test_a_profile_covers_the_largest_task_or_the_mean() -> None:
    demands = [Demand("a.1", 30.0, 100.0), Demand("a.2", 50.0, 80.0)]
    assert profiled(demands, "peak") == Demand("a.1", 50.0, 100.0)
    assert profiled(demands, "mean") == Demand("a.1", 40.0, 90.0)


def test_round_robin_changes_nothing() -> None:
    run = Run(policy("storm-round-robin"), APART)
    run.until(1300.0)
    assert run.log == []
