"""Task managers that join, stand by, leave or could be started: read from snapshots, refused in one line."""

from __future__ import annotations

import pytest

from qod_magics.core.json_form import snapshot_from_json, snapshot_to_json
from qod_magics.core.snapshot import NodeState, Snapshot, Spare
from qod_magics.errors import SnapshotError

EMPTY = {"task_managers": [], "tasks": [], "streams": [], "instances": []}


def test_states_survive_the_json_form():
    found = {"tm2": NodeState.STANDBY, "tm3": NodeState.STARTING, "tm1": NodeState.LEAVING}
    before = Snapshot((), (), (), (), node_states=found)
    assert snapshot_from_json(snapshot_to_json(before)).node_states == found


def test_no_states_are_no_key():
    assert snapshot_to_json(Snapshot((), (), (), ())) == EMPTY
    assert snapshot_from_json(EMPTY).node_states == {}


@pytest.mark.parametrize(("value", "told"), [(["tm1"], "not an object"), ({"tm1": "ill"}, "tm1.*ill")])
def test_wrong_states_are_named_in_one_line(value, told):
    with pytest.raises(SnapshotError, match=f"node_states.*{told}") as caught:
        snapshot_from_json({**EMPTY, "node_states": value})
    assert "\n" not in str(caught.value)


def test_spares_survive_the_json_form():
    found = (Spare("large", 2, 4.0, 12288.0, 0.1168, 12.0), Spare("local", 1, 1.0))
    before = Snapshot((), (), (), (), spare_nodes=found)
    assert snapshot_from_json(snapshot_to_json(before)).spares == found


def test_a_cluster_that_can_start_none_now_is_another_than_one_that_never_can():
    used_up = snapshot_from_json({**EMPTY, "spare_nodes": []})
    fixed = snapshot_from_json(EMPTY)
    assert used_up.spares == fixed.spares == ()
    assert used_up.is_elastic
    assert not fixed.is_elastic
    assert snapshot_to_json(used_up)["spare_nodes"] == []


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("large", r"spare_nodes: .*not a list"),
        ([3], r"spare_nodes\[0\]: 3 is not an object"),
        ([{"count": 1}], r"spare_nodes\[0\]\.kind: missing"),
        ([{"kind": "a", "count": -1}], r"spare_nodes\[0\]\.count: -1"),
        ([{"kind": "a", "count": True}], r"count: "),
        ([{"kind": "a", "count": 1, "cores": "x"}], r"spare_nodes\[0\]\.cores: "),
        ([{"kind": "a", "count": 1, "cores": 1, "price": float("nan")}], r"price: "),
    ],
)
def test_wrong_spares_are_named_in_one_line(value, told):
    with pytest.raises(SnapshotError, match=told) as caught:
        snapshot_from_json({**EMPTY, "spare_nodes": value})
    assert "\n" not in str(caught.value)
