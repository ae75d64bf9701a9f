from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from hypothesis import given

from qod_magics.core.json_form import plan_from_json, plan_to_json
from qod_magics.core.load import current_accuracy
from qod_magics.core.plan import Action, AddNode, Fuse, Lend, Move, Plan, ReleaseNode, Scale, SetBatch, Stop, Unfuse
from qod_magics.core.snapshot import Snapshot
from qod_magics.errors import SnapshotError
from qod_magics.policies import policy
from tests.policies.snapshots import snapshots
from tests.raising import breaks

GOOD = {"current_accuracy": {}, "desired": {}, "non_drop": [], "fail": [], "place": {}, "starved": []}


@given(snapshots())
def test_any_plan_survives_a_round_trip_through_text(given: Snapshot) -> None:
    plan, _ = policy("stream-economics").decide(given, None)
    written = plan_to_json(plan, current_accuracy(given))
    assert plan_from_json(json.loads(json.dumps(written))) == plan
    assert list(written) == ["current_accuracy", "desired", "non_drop", "fail", "place", "starved"]


ACTIONS = (
    Move("a.1", "tm2", "a reason"),
    Stop("b.1", "a reason"),
    Scale("a", 3, why="a reason"),
    Scale("a", 4, ("tm2", "tm1"), "a reason"),
    AddNode("small", "a reason"),
    ReleaseNode("tm1", "a reason"),
    SetBatch("a", 0.5, "a reason", 1.5),
    Lend("a", "a.1", "a.2", 0.25, "a reason"),
    Fuse(("a", "b"), "a reason"),
    Unfuse(("a", "b")),
)


def test_every_action_survives_a_round_trip_and_all_but_moves_and_stops_with_their_reason() -> None:
    assert {type(action) for action in ACTIONS} == set(get_args(Action))
    written = json.loads(json.dumps(plan_to_json(Plan({}, {}, ACTIONS), {})))
    read = plan_from_json(written)
    assert read.actions == ACTIONS
    assert [action.why for action in read.actions] == ["", "", *["a reason"] * 7, ""]
    assert (written["fail"], written["place"]) == (["a.1", "b.1"], {"a.1": "tm2"})


def test_a_recorded_place_without_fail_is_a_move() -> None:
    assert plan_from_json(GOOD | {"place": {"a.1": "tm2"}}).actions == (Move("a.1", "tm2"),)


def test_what_other_policies_add_is_kept() -> None:
    obj = {
        "current_accuracy": {},
        "desired": {},
        "non_drop": [],
        "fail": [],
        "place": {},
        "starved": [],
        "policy_ms": 0.1,
    }
    assert plan_from_json(obj).unknown == {"policy_ms": 0.1}
    assert plan_to_json(plan_from_json(obj), {}) == obj


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"desired": {"a": 1.5}}, "plan.desired.a"),
        ({"desired": {"a": True}}, "plan.desired.a"),
        ({"non_drop": [{"from": None, "to": "a"}]}, "plan.non_drop[0].d"),
        ({"non_drop": [{"from": 1, "to": "a", "d": 1}]}, "plan.non_drop[0].from"),
        ({"fail": "a"}, "plan.fail"),
        ({"starved": [None]}, "plan.starved[0]"),
        ({"place": {"a": 1}}, "plan.place.a"),
        ({"current_accuracy": {"a": 2}}, "plan.current_accuracy.a"),
        ({"actions": {}}, "plan.actions"),
        ({"actions": [{"task": "a"}]}, "plan.actions[0].action"),
        ({"actions": [{"action": "grow"}]}, "plan.actions[0].action"),
        ({"actions": [{"action": "scale", "task": "a"}]}, "plan.actions[0].parallelism"),
        ({"actions": [{"action": "scale", "task": "a", "parallelism": 0}]}, "plan.actions[0].parallelism"),
        ({"actions": [{"action": "set-batch", "task": "a", "seconds": -1}]}, "plan.actions[0].seconds"),
        ({"actions": [{"action": "fuse", "edge": ["a"]}]}, "plan.actions[0].edge"),
        ({"actions": [{"action": "add-node", "kind": "a", "why": 1}]}, "plan.actions[0].why"),
    ],
)
def test_a_bad_field_is_named(change: dict[str, Any], field: str) -> None:
    with pytest.raises(SnapshotError, check=breaks(name=field)):
        plan_from_json(GOOD | change)


def test_actions_that_differ_only_in_their_reason_are_equal() -> None:
    one, same, other = Move("a.1", "tm1", "full"), Move("a.1", "tm1"), Move("a.1", "tm2")
    assert one == same
    assert (one != same, one != other) == (False, True)
    assert len({one, same, other}) == 2
