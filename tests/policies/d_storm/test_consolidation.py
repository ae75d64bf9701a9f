"""What policies that compose the packing may ask it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.core.plan import Move
from qod_magics.core.snapshot import Snapshot, replace
from qod_magics.policies.d_storm.observation import observed
from qod_magics.policies.d_storm.solver import Known, consolidation
from tests.policies.d_storm.clusters import Cluster
from tests.policies.snapshots import snapshots

APART = Cluster(
    {"tm1": 1.0, "tm2": 1.0, "tm3": 1.0},
    {"a.1": 30.0, "b.1": 20.0, "c.1": 20.0},
    {"a.1": "tm1", "b.1": "tm2", "c.1": "tm3"},
    {"b": ["a"], "c": ["b"]},
)


def test_everything_packs_on_one_with_headroom() -> None:
    found = consolidation(APART.snapshot, headroom=0.3)
    assert found is not None
    assert set(found.placement.values()) == {"tm1"}
    assert set(found.moves) == {Move("b.1", "tm1"), Move("c.1", "tm1")}
    assert found.releasable == ("tm2", "tm3")
    assert (found.traffic_now, found.unit) == (200.0, "rows/s")


def test_with_more_headroom_it_takes_two() -> None:
    found = consolidation(APART.snapshot, headroom=0.31)
    assert found is not None
    assert len(found.releasable) == 1
    assert len(found.moves) == 1


def test_none_without_room_for_any_less() -> None:
    assert consolidation(APART.snapshot, headroom=0.7) is None  # the largest alone needs 30 %
    assert consolidation(APART.snapshot, headroom=0.65) is None
    with pytest.raises(ValueError, match="headroom"):
        consolidation(APART.snapshot, headroom=1)


def test_an_idle_task_manager_is_releasable_without_a_move_and_one_that_stands_by_is_not() -> None:
    here = replace(APART, place=dict.fromkeys(APART.cpu, "tm1"))
    found = consolidation(here.snapshot, headroom=0.1)
    assert found is not None
    assert found.moves == ()
    assert found.releasable == ("tm2", "tm3")
    standing = replace(here, of_manager={"tm2": {"standby": 1.0}, "tm3": {"standby": 1.0}})
    assert consolidation(standing.snapshot, headroom=0.1) is None


def test_the_demand_is_that_at_the_workload() -> None:
    found = consolidation(replace(APART, read=0.5).snapshot, headroom=0.0)
    assert found is not None
    assert len(found.releasable) == 1  # 140 % of a core


def test_better_figures_take_the_place_of_the_snapshot_s() -> None:
    needed = Known(needed={"a.1": 70.0, "b.1": 40.0})
    found = consolidation(APART.snapshot, 0.0, known=needed)
    assert found is not None
    assert len(found.releasable) == 1
    assert consolidation(APART.snapshot, 0.0, known=Known(available=dict.fromkeys(APART.cores, 35.0))) is None


def test_what_has_to_stay_stays() -> None:
    found = consolidation(APART.snapshot, known=Known(staying={"a.1"}))
    assert found is not None
    assert {move.instance for move in found.moves} == {"b.1", "c.1"}
    assert consolidation(APART.snapshot, known=Known(staying={"a.1", "b.1"})) is None


@given(snapshots(warming=False), st.sampled_from([0.0, 0.2, 0.5]))
def test_a_consolidation_fits_and_empties(snapshot: Snapshot, headroom: float) -> None:
    found = consolidation(snapshot, headroom)
    if found is None:
        return
    seen = observed(snapshot)
    assert found.releasable
    assert set(found.placement.values()).isdisjoint(found.releasable)
    for node in seen.problem.nodes:
        there = [d for d in seen.problem.demands if found.placement[d.id] == node.id]
        assert sum(d.cpu for d in there) <= (1 - headroom) * node.cpu + 1e-6
    after = {**seen.current, **{move.instance: move.to for move in found.moves}}
    assert after == found.placement


def test_traffic_is_in_bytes_where_all_streams_tell_theirs() -> None:
    given = APART.snapshot
    sized = replace(given, streams=tuple(replace(s, bytes_per_s=5000.0) for s in given.streams))
    mixed = replace(given, streams=(sized.streams[0], given.streams[1]))
    assert [found.unit for each in (sized, mixed) if (found := consolidation(each)) is not None] == [
        "bytes/s",
        "rows/s",
    ]
