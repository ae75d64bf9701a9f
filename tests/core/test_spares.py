"""Task managers that could be started: read from a snapshot, refused in one line where they are wrong."""

from __future__ import annotations

import pytest

from qod_magics.core.nodes import Spare, is_elastic, spares, spares_to_json
from qod_magics.core.snapshot import Snapshot
from qod_magics.errors import SnapshotError


def snapshot(value):
    return Snapshot((), (), (), (), {"spare_nodes": value})


def test_they_survive_the_json_form():
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
def test_what_is_wrong_is_named_in_one_line(value, told):
    with pytest.raises(SnapshotError, match=told) as caught:
        spares(snapshot(value))
    assert "\n" not in str(caught.value)
