"""Placement where task slots are scarce."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.application.tasks import TaskSpec
from qod_magics.core import snapshot as core
from qod_magics.core.runtime import Placer, Unplaced, fewest_first
from qod_magics.core.snapshot import replace
from qod_magics.lifecycle.events import State
from qod_magics.policies.stream_economics.placing import placed as scheduled
from qod_magics.spark.cluster.cluster import Cluster
from qod_magics.spark.cluster.placing import targets_for
from qod_magics.spark.plans.job import Feed, PlanFacts
from qod_magics.spark.queries.instance import Instance
from qod_magics.spark.queries.modes import TOO_FEW_SLOTS
from qod_magics.spark.queries.slots import free, placed, slots_of
from qod_magics.spark.servers.task_manager import TaskManager
from tests.application.frames import stream
from tests.spark.fakes import Query, cluster, instance, manager


def reading(partitions: int, home: TaskManager | None = None, query: Query | None = None) -> Instance:
    one = instance(home, query)
    feed = Feed("T", ("t",), "t", tuple(range(partitions)), {}, None, False)
    one.job = replace(one.job, feeds=(feed,))
    return one


def with_slots(id: str, slots: int | None) -> TaskManager:
    made = manager(id)
    made.slots = slots
    return made


def placing(*homes: TaskManager, instances: tuple[Instance, ...]) -> Cluster:
    made = cluster(*homes, instances=instances)
    made.place = fewest_first
    return made


def test_a_query_in_real_time_mode_holds_a_slot_per_partition() -> None:
    one = reading(12)
    assert slots_of(one) == 12
    one.facts = PlanFacts(keeps_state=True)
    assert slots_of(one) == 0  # it will run in micro-batches
    one.mode_wanted = "realtime"
    assert slots_of(one) == 13
    one.query, one.mode = Query(), "micro-batch"  # type: ignore[assignment]
    assert slots_of(one) == 0


def test_a_new_query_goes_where_slots_are_free() -> None:
    """The first one holds 24 of 32 slots, and by the cores the policy would place the next one there, too."""
    homes = with_slots("tm1", 32), with_slots("tm2", 32)
    homes[1].cores = 0.25
    runs = reading(24, homes[0], Query())
    runs.mode = "real-time"
    made = placing(*homes, instances=(runs,))
    assert free(homes, [runs]) == {"tm1": 8, "tm2": 32}
    gave_up = reading(24, homes[0])
    gave_up.life.state = State.GAVE_UP
    assert free(homes, [runs, gave_up]) == {"tm1": 8, "tm2": 32}
    new = reading(12)
    new.job = replace(new.job, instance="N.1", task="N")
    made.instances["N.1"] = new
    other = reading(1, homes[1], Query())
    other.job, other.mode = replace(other.job, instance="O.1", task="O"), "real-time"
    made.instances["O.1"] = other
    assert targets_for(made, {"N.1": ()}) == {"N.1": "tm2"}
    new.mode_wanted = "microbatch"
    assert targets_for(made, {"N.1": ()}) == {"N.1": "tm1"}


def test_where_nobody_has_enough_slots_the_policy_decides() -> None:
    made = placing(with_slots("tm1", 4), with_slots("tm2", 8), instances=(reading(12),))
    assert targets_for(made, {"T.1": ()}) == {"T.1": "tm1"}


@pytest.mark.parametrize("place", [fewest_first, scheduled])
def test_one_starts_where_the_stream_runs_that_it_is_to_be_near(place: Placer) -> None:
    homes = with_slots("tm1", None), with_slots("tm2", None)
    for home in homes:
        home.cores = 4.0
    runs, new = reading(1, homes[1], Query()), reading(1)
    new.job = replace(new.job, instance="N.1", task="N")
    made = placing(*homes, instances=(runs, new))
    made.place = place
    assert targets_for(made, {"N.1": ()}) == {"N.1": "tm1"}
    declared = (stream("T", topic="t", priority=1), stream("N", topic="t", priority=1, near="T"))
    made.deployment.specs = {each.name: TaskSpec((each,), True) for each in declared}
    assert targets_for(made, {"N.1": ()}) == {"N.1": "tm2"}
    assert targets_for(made, {"N.1": {"tm2"}}) == {"N.1": "tm1"}


def test_one_that_was_refused_for_want_of_slots_is_tried_again_elsewhere() -> None:
    home = with_slots("tm1", 4)
    one = reading(12)
    one.facts = PlanFacts(keeps_state=False)
    one.fall_back(f"[{TOO_FEW_SLOTS}] it needs 12, but only 4 are free")
    assert slots_of(one) == 12
    made = placing(home, with_slots("tm2", None), instances=(one,))
    assert targets_for(made, {"T.1": ()}) == {"T.1": "tm2"}  # whose number of slots is unknown


@given(
    needs=st.lists(st.integers(0, 40), min_size=1, max_size=6),
    slots=st.lists(st.integers(0, 64), min_size=1, max_size=4),
    refused=st.lists(st.sets(st.integers(0, 3)), min_size=6, max_size=6),
)
def test_nobody_lacks_slots_that_another_has(
    needs: Sequence[int], slots: Sequence[int], refused: Sequence[set[int]]
) -> None:
    managers = [core.TaskManager(f"tm{m}", 1.0, 0.0) for m in range(len(slots))]
    unplaced = [Unplaced(f"T{i}.1", f"T{i}", None, frozenset(f"tm{m}" for m in refused[i])) for i in range(len(needs))]
    wanted = {f"T{i}.1": need for i, need in enumerate(needs)}
    there = {f"tm{m}": float(count) for m, count in enumerate(slots)}
    found = placed(fewest_first, unplaced, managers, [], wanted, there)
    assert found.keys() == {one.instance for one in unplaced if set(there) - one.forbidden}
    for one in unplaced:
        assert found.get(one.instance) not in one.forbidden
        (alone,) = placed(fewest_first, [one], managers, [], wanted, there).values() or (None,)
        if alone is not None:
            enough = {id for id, count in there.items() if count >= wanted[one.instance]} - one.forbidden
            assert alone in enough or not enough


def test_a_policy_that_places_where_it_must_not_is_asked_once_more() -> None:
    managers = [core.TaskManager("tm1", 1.0, 0.0), core.TaskManager("tm2", 1.0, 0.0)]
    stubborn = [Unplaced("T.1", "T", None, frozenset())]
    found = placed(lambda *_: {"T.1": "tm1"}, stubborn, managers, [], {"T.1": 2}, {"tm1": 1.0, "tm2": 2.0})
    assert found == {"T.1": "tm1"}
