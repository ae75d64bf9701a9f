"""Optional fields, and the freshness of an instance's metrics."""

from __future__ import annotations

from typing import Any

import pytest

from qod_magics.core.json_form import plan_from_json, plan_to_json, snapshot_from_json, snapshot_to_json
from qod_magics.core.plan import Plan
from qod_magics.core.snapshot import Freshness, Instance, is_moving, measures
from qod_magics.errors import SnapshotError
from tests.raising import breaks


def written(**fields: Any) -> dict[str, Any]:
    """A snapshot with one instance that has these fields."""
    row = {"id": "Q.1", "task": "Q", "task_manager": "tm1", "in_rate": 1, "cpu": 1, "warming_up": False}
    return {
        "task_managers": [{"id": "tm1", "cores": 1, "cpu": 0, "memory_mb": 4096}],
        "tasks": [{"id": "Q", "upstream": [], "external_rate": 1.0, "priority": 1, "min_accuracy": 0.5, "utility": 3}],
        "streams": [],
        "instances": [{**row, **fields}],
    }


def instance(**fields: Any) -> Instance:
    return snapshot_from_json(written(**fields)).instances[0]


def test_each_measure_says_what_it_means_and_in_what_unit():
    found = measures()
    assert len({(each.table, each.name) for each in found}) == len(found) == 47
    assert all(each.unit and each.owner and each.meaning for each in found)


def test_a_field_is_read_where_it_is_and_none_where_it_is_not():
    assert instance(rests_s=512).rests_s == 512.0
    assert instance().rests_s is None
    assert instance(rests_s=None).rests_s is None


@pytest.mark.parametrize("value", ["512", True, -1, float("nan"), float("inf"), [1]])
def test_what_is_no_number_is_refused_in_one_line_that_names_it(value):
    with pytest.raises(SnapshotError, check=breaks(name="instances[0].rests_s")) as caught:
        instance(rests_s=value)
    assert "\n" not in str(caught.value)


def test_fields_and_requests_survive_the_json_form():
    snapshot = snapshot_from_json(written(rests_s=9))
    again = snapshot_from_json(snapshot_to_json(snapshot))
    assert again == snapshot
    assert (again.instances[0].rests_s, again.tasks[0].utility, again.task_managers[0].memory_mb) == (9.0, 3.0, 4096.0)
    plan = Plan(
        {"Q": 1.0},
        {(None, "Q"): 1.0},
        react_above=1.5,
        backlog_s={"Q": (2.0, 10.0)},
        pace_s={"tm1": 2.0},
        stages={"scale": "waits"},
        unknown={"parallelism": {"Q": 2}},
    )
    assert plan_from_json(plan_to_json(plan, {})) == plan


@pytest.mark.parametrize(
    "wrong", [{"react_above": "x"}, {"backlog_s": [1]}, {"backlog_s": {"Q": 3}}, {"pace_s": 3}, {"stages": {"a": 1}}]
)
def test_a_wrong_request_is_named_in_one_line(wrong):
    with pytest.raises(SnapshotError, check=breaks("type")) as caught:
        plan_from_json({**plan_to_json(Plan({}, {}), {}), **wrong})
    assert str(caught.value.name).startswith(f"plan.{next(iter(wrong))}")


def test_a_row_that_says_nothing_is_of_now() -> None:
    assert Freshness.of(instance()) == Freshness(None, False, ())
    assert Freshness.of(instance()).is_fresh
    assert not is_moving(instance())


@pytest.mark.parametrize("fields", [{"stale": True}, {"missing": ["cpu"]}])
def test_what_is_stale_or_missing_is_not_fresh(fields: dict[str, Any]) -> None:
    found = Freshness.of(instance(window=[1, 6.5], **fields))
    assert found.window == (1.0, 6.5)
    assert not found.is_fresh


def test_one_that_is_on_its_way_is_moving() -> None:
    assert is_moving(instance(state="moving"))
    assert not is_moving(instance(state="running"))


@pytest.mark.parametrize("window", [5, "now", [1], [1, 2, 3], [None, 2]])
def test_what_is_no_window_is_refused_in_one_line(window: Any) -> None:
    with pytest.raises(SnapshotError, check=breaks()) as caught:
        instance(window=window)
    assert caught.value.name is not None
    assert caught.value.name.startswith("instances[0].window")
