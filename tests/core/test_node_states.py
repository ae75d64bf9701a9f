"""Task managers that join or leave: read from a snapshot, refused in one line where they are wrong."""

from __future__ import annotations

import pytest

from qod_magics.core.nodes import NodeState, node_states, node_states_to_json
from qod_magics.core.snapshot import Snapshot
from qod_magics.core.snapshot_json import snapshot_from_json, snapshot_to_json
from qod_magics.errors import SnapshotError


def snapshot(value):
    return Snapshot((), (), (), (), {"node_states": value})


def test_they_survive_the_json_form():
    found = {"tm2": NodeState.STANDBY, "tm3": NodeState.STARTING, "tm1": NodeState.LEAVING}
    before = Snapshot((), (), (), (), node_states_to_json(found))
    assert node_states(snapshot_from_json(snapshot_to_json(before))) == found


def test_none_are_no_key():
    assert node_states_to_json({}) == {}
    assert node_states(Snapshot((), (), (), ())) == {}


@pytest.mark.parametrize(("value", "told"), [(["tm1"], "not an object"), ({"tm1": "ill"}, "tm1: .*ill.* is no state")])
def test_what_is_wrong_is_named_in_one_line(value, told):
    with pytest.raises(SnapshotError, match=told) as caught:
        node_states(snapshot(value))
    assert "\n" not in str(caught.value)
