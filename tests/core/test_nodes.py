"""Task managers that join, stand by, leave or could be started: read from snapshots, refused in one line."""

from __future__ import annotations

import pytest

from qod_magics.core.nodes import NodeState, Spare, is_elastic, node_states, node_states_to_json, spares, spares_to_json
from qod_magics.core.snapshot import Snapshot
from qod_magics.core.snapshot_json import snapshot_from_json, snapshot_to_json
from qod_magics.errors import SnapshotError


def with_states(value):
    return Snapshot((), (), (), (), {"node_states": value})


def test_states_survive_the_json_form():
    found = {"tm2": NodeState.STANDBY, "tm3": NodeState.STARTING, "tm1": NodeState.LEAVING}
    before = Snapshot((), (), (), (), node_states_to_json(found))
    assert node_states(snapshot_from_json(snapshot_to_json(before))) == found


def test_no_states_are_no_key():
    assert node_states_to_json({}) == {}
    assert node_states(Snapshot((), (), (), ())) == {}


@pytest.mark.parametrize(("value", "told"), [(["tm1"], "not an object"), ({"tm1": "ill"}, "tm1: .*ill.* is no state")])
def test_wrong_states_are_named_in_one_line(value, told):
    with pytest.raises(SnapshotError, match=told) as caught:
        node_states(with_states(value))
    assert "\n" not in str(caught.value)


def with_spares(value):
    return Snapshot((), (), (), (), {"spare_nodes": value})


def test_spares_survive_the_json_form():
    found = (Spare("large", 2, 4.0, 12288.0, 0.1168, 12.0), Spare("local", 1, 1.0))
    assert spares(Snapshot((), (), (), (), spares_to_json(found))) == found


def test_a_cluster_that_can_start_none_now_is_another_than_one_that_never_can():
    used_up = Snapshot((), (), (), (), spares_to_json([Spare("local", 0, 1.0)]))
    fixed = Snapshot((), (), (), ())
    assert spares(used_up) == spares(fixed) == ()
    assert is_elastic(used_up)
    assert not is_elastic(fixed)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("large", r"spare_nodes: .*not a list"),
        ([3], r"spare_nodes\[0\]: 3 has no kind"),
        ([{"kind": "a", "count": -1}], r"spare_nodes\[0\]\.count: -1"),
        ([{"kind": "a", "count": True}], r"count: "),
        ([{"kind": "a", "count": 1, "cores": "x"}], r"spare_nodes\[0\]\.cores: "),
        ([{"kind": "a", "count": 1, "cores": 1, "price": float("nan")}], r"price: "),
    ],
)
def test_wrong_spares_are_named_in_one_line(value, told):
    with pytest.raises(SnapshotError, match=told) as caught:
        spares(with_spares(value))
    assert "\n" not in str(caught.value)
