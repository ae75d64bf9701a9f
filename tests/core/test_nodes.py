"""Task managers that join, stand by, leave or could be started: read from snapshots, refused in one line."""

from __future__ import annotations

import pytest

from qod_magics.core.json_form import snapshot_from_json, snapshot_to_json
from qod_magics.core.snapshot import NodeState, Snapshot, Spare
from qod_magics.errors import SnapshotError
from tests.raising import breaks

EMPTY = {"task_managers": [], "tasks": [], "streams": [], "instances": []}


def test_states_survive_the_json_form():
    found = {"tm2": NodeState.STANDBY, "tm3": NodeState.STARTING, "tm1": NodeState.LEAVING}
    before = Snapshot((), (), (), (), node_states=found)
    assert snapshot_from_json(snapshot_to_json(before)).node_states == found


def test_no_states_are_no_key():
    assert snapshot_to_json(Snapshot((), (), (), ())) == EMPTY
    assert snapshot_from_json(EMPTY).node_states == {}


@pytest.mark.parametrize(("value", "name"), [(["tm1"], "node_states"), ({"tm1": "ill"}, "node_states.tm1")])
def test_wrong_states_are_named_in_one_line(value, name):
    with pytest.raises(SnapshotError, check=breaks("type", name=name)):
        snapshot_from_json({**EMPTY, "node_states": value})


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
    ("value", "name", "rule"),
    [
        ("large", "spare_nodes", "type"),
        ([3], "spare_nodes[0]", "object"),
        ([{"count": 1}], "spare_nodes[0].kind", "present"),
        ([{"kind": "a", "count": -1}], "spare_nodes[0].count", "type"),
        ([{"kind": "a", "count": True}], "spare_nodes[0].count", "type"),
        ([{"kind": "a", "count": 1, "cores": "x"}], "spare_nodes[0].cores", "type"),
        ([{"kind": "a", "count": 1, "cores": 1, "price": float("nan")}], "spare_nodes[0].price", "type"),
    ],
)
def test_wrong_spares_are_named_in_one_line(value, name, rule):
    with pytest.raises(SnapshotError, check=breaks(rule, name=name)):
        snapshot_from_json({**EMPTY, "spare_nodes": value})
