from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from qod_magics.core.plan_json import plan_from_json
from qod_magics.core.snapshot import Snapshot
from qod_magics.errors import SnapshotError
from qod_magics.policies import policy
from tests.policies.snapshots import snapshots


@given(snapshots())
def test_any_plan_survives_a_round_trip_through_text(given: Snapshot) -> None:
    plan, _ = policy("stream-economics").decide(given, None)
    assert plan_from_json(json.loads(json.dumps(plan.to_json()))) == plan


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
    assert plan_from_json(obj).extra == {"policy_ms": 0.1}
    assert plan_from_json(obj).to_json() == obj


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"desired": {"a": 1.5}}, "plan.desired.a: 1.5"),
        ({"desired": {"a": True}}, "plan.desired.a: true"),
        ({"non_drop": [{"from": None, "to": "a"}]}, "plan.non_drop[0].d: missing"),
        ({"non_drop": [{"from": 1, "to": "a", "d": 1}]}, "plan.non_drop[0].from: 1"),
        ({"fail": "a"}, 'plan.fail: "a"'),
        ({"starved": [None]}, "plan.starved[0]: null"),
        ({"place": {"a": 1}}, "plan.place.a: 1"),
    ],
)
def test_a_bad_field_is_named(change: dict[str, Any], field: str) -> None:
    good = {"current_accuracy": {}, "desired": {}, "non_drop": [], "fail": [], "place": {}, "starved": []}
    with pytest.raises(SnapshotError) as caught:
        plan_from_json(good | change)
    assert str(caught.value).startswith(field)
