"""Optional fields, and the freshness of an instance's metrics."""

from __future__ import annotations

from typing import Any

import pytest

from qod_magics.core.optional import FIELDS, REQUESTS, RESTS, Freshness, is_moving, window_of
from qod_magics.core.plan import Plan
from qod_magics.core.plan_json import plan_from_json, plan_to_json
from qod_magics.core.snapshot import Instance
from qod_magics.core.snapshot_json import snapshot_from_json, snapshot_to_json
from qod_magics.errors import SnapshotError


def instance(**extra):
    return Instance("Snk.1", "Snk", "tm1", 1.0, 1.0, False, extra)


def test_each_key_of_a_table_has_one_meaning():
    keys = [(field.table, field.name) for field in FIELDS]
    assert len(set(keys)) == len(keys)
    assert len({request.name for request in REQUESTS}) == len(REQUESTS)


def test_none_is_a_key_of_the_format():
    fixed = {
        "task_managers": {"id", "cores", "cpu"},
        "tasks": {"id", "upstream", "external_rate", "priority", "min_accuracy"},
        "streams": {"from", "to", "out_rate"},
        "instances": {"id", "task", "task_manager", "in_rate", "cpu", "warming_up"},
    }
    assert not [field for field in FIELDS if field.name in fixed[field.table]]
    assert not {request.name for request in REQUESTS} & plan_to_json(Plan({}, {}), {}).keys()


def test_a_field_is_read_where_it_is_and_none_where_it_is_not():
    assert RESTS.of(instance(rests_s=512)) == 512.0
    assert RESTS.of(instance()) is None


@pytest.mark.parametrize("value", ["512", True, -1, float("nan"), float("inf"), [1]])
def test_what_is_no_number_is_refused_in_one_line_that_names_it(value):
    with pytest.raises(SnapshotError, match=r"instances\.rests_s: .* is not a number >= 0; give s") as caught:
        RESTS.of(instance(rests_s=value))
    assert "\n" not in str(caught.value)


def test_fields_and_requests_survive_the_json_form():
    written = {
        "task_managers": [{"id": "tm1", "cores": 1, "cpu": 0, "memory_mb": 4096}],
        "tasks": [{"id": "Q", "upstream": [], "external_rate": 1.0, "priority": 1, "min_accuracy": 0.5, "utility": 3}],
        "streams": [],
        "instances": [
            {
                "id": "Q.1",
                "task": "Q",
                "task_manager": "tm1",
                "in_rate": 1,
                "cpu": 1,
                "warming_up": False,
                "rests_s": 9,
            }
        ],
    }
    snapshot = snapshot_from_json(written)
    assert RESTS.of(snapshot.instances[0]) == 9.0
    assert snapshot_from_json(snapshot_to_json(snapshot)).instances[0].extra == {"rests_s": 9}
    plan = Plan({"Q": 1.0}, {(None, "Q"): 1.0}, extra={"parallelism": {"Q": 2}})
    assert plan_from_json(plan_to_json(plan, {})).extra["parallelism"] == {"Q": 2}


def of_state(**extra: Any) -> Instance:
    return Instance("Snk.1", "Snk", "tm1", 1.0, 1.0, False, extra)


def test_a_row_that_says_nothing_is_of_now() -> None:
    assert Freshness.of(of_state()) == Freshness(None, False, ())
    assert Freshness.of(of_state()).is_fresh
    assert not is_moving(of_state())


@pytest.mark.parametrize("extra", [{"stale": True}, {"missing": ["cpu"]}])
def test_what_is_stale_or_missing_is_not_fresh(extra: dict[str, Any]) -> None:
    found = Freshness.of(of_state(window=[1, 6.5], **extra))
    assert found.window == (1.0, 6.5)
    assert not found.is_fresh


def test_one_that_is_on_its_way_is_moving() -> None:
    assert is_moving(of_state(state="moving"))
    assert not is_moving(of_state(state="running"))


@pytest.mark.parametrize("window", [5, "now", [1], [1, 2, 3], [None, 2]])
def test_what_is_no_window_is_refused_in_one_line(window: Any) -> None:
    with pytest.raises(SnapshotError, match=r"instances\.window: .* is no window; give \[begin, end\]") as caught:
        window_of(of_state(window=window))
    assert "\n" not in str(caught.value)
