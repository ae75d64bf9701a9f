"""Instances that have just moved stay where they are, unless the load has changed."""

from __future__ import annotations

import pytest

from qod_magics.core.snapshot import Instance, Snapshot, Task, TaskManager, replace
from qod_magics.policies.stream_economics.placing import CHANGE, REST_S, START_S, with_rests


def seen(host: str, at: float, rate: float = 100.0) -> Snapshot:
    managers = (TaskManager("tm1", 1.0, 50.0), TaskManager("tm2", 1.0, 50.0))
    instance = Instance("q.1", "q", host, rate, 10.0, False, window=(at - 5.0, at))
    return Snapshot(managers, (Task("q", (), rate, 1, 0.1),), (), (instance,))


def test_one_that_starts_rests_until_its_costs_are_known() -> None:
    found, homes = with_rests(seen("tm1", 5.0), None)
    assert found.instances[0].rests_s == pytest.approx(START_S)
    over, _ = with_rests(seen("tm1", 5.0 + START_S), homes)
    assert over.instances[0].rests_s is None


def test_the_rest_begins_with_the_first_measurement_where_it_is() -> None:
    _, homes = with_rests(seen("tm1", 5.0), None)
    moved = seen("tm2", 10.0)
    unmeasured = replace(moved, instances=(replace(moved.instances[0], window=None),))
    _, homes = with_rests(unmeasured, homes)
    found, _ = with_rests(seen("tm2", 40.0), homes)
    assert found.instances[0].rests_s == pytest.approx(REST_S)


def test_one_that_moved_rests_for_a_minute() -> None:
    _, homes = with_rests(seen("tm1", 5.0), None)
    moved, homes = with_rests(seen("tm2", 10.0), homes)
    assert moved.instances[0].rests_s == pytest.approx(REST_S)
    later, homes = with_rests(seen("tm2", 10.0 + REST_S - 1.0), homes)
    assert later.instances[0].rests_s == pytest.approx(1.0)
    over, _ = with_rests(seen("tm2", 10.0 + REST_S), homes)
    assert over.instances[0].rests_s is None


@pytest.mark.parametrize(("times", "rests"), [(1.0, True), (1.3, True), (1.6, False), (0.5, False)])
def test_a_load_that_changed_by_half_ends_the_rest(times: float, rests: bool) -> None:
    assert 1.3 < CHANGE < 1.6
    _, homes = with_rests(seen("tm1", 5.0), None)
    _, homes = with_rests(seen("tm2", 10.0), homes)
    found, _ = with_rests(seen("tm2", 15.0, rate=100.0 * times), homes)
    assert (found.instances[0].rests_s is not None) == rests


def test_one_that_is_missing_while_it_moves_rests_where_it_comes() -> None:
    _, homes = with_rests(seen("tm1", 5.0), None)
    away = seen("tm1", 10.0)
    _, homes = with_rests(Snapshot(away.task_managers, away.tasks, (), ()), homes)
    found, _ = with_rests(seen("tm2", 15.0), homes)
    assert found.instances[0].rests_s == pytest.approx(REST_S)
