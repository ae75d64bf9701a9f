"""What policies that compose the packing may ask it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.core.actions import Move
from qod_magics.core.optional import BYTES, STANDBY
from qod_magics.core.snapshot import Snapshot
from qod_magics.policies.d_storm import consolidation, groups
from qod_magics.policies.d_storm.consolidation import Known
from qod_magics.policies.d_storm.observation import observed
from qod_magics.policies.d_storm.traffic import inter_node_traffic
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
    assert (found.traffic_now, found.traffic_then, found.unit) == (200.0, 0.0, "rows/s")


def test_with_more_headroom_it_takes_two() -> None:
    found = consolidation(APART.snapshot, headroom=0.31)
    assert found is not None
    assert len(found.releasable) == 1
    assert len(found.moves) == 1


def test_none_without_room_for_any_less() -> None:
    assert consolidation(APART.snapshot, headroom=0.7) is None  # the largest alone needs 30 %
    assert consolidation(APART.snapshot, headroom=0.65) is None
    for ask in (consolidation, groups):
        with pytest.raises(ValueError, match="headroom is 1"):
            ask(APART.snapshot, headroom=1)


def test_an_idle_task_manager_is_releasable_without_a_move_and_one_that_stands_by_is_not() -> None:
    here = replace(APART, place=dict.fromkeys(APART.cpu, "tm1"))
    found = consolidation(here.snapshot, headroom=0.1)
    assert found is not None
    assert found.moves == ()
    assert found.releasable == ("tm2", "tm3")
    standing = replace(here, of_manager={"tm2": {STANDBY.name: 1.0}, "tm3": {STANDBY.name: 1.0}})
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
    assert groups(APART.snapshot, known=Known(available=dict.fromkeys(APART.cores, 35.0))) == ()


def test_what_has_to_stay_stays() -> None:
    found = consolidation(APART.snapshot, known=Known(staying={"a.1"}))
    assert found is not None
    assert {move.instance for move in found.moves} == {"b.1", "c.1"}
    assert consolidation(APART.snapshot, known=Known(staying={"a.1", "b.1"})) is None
    assert {group.instances for group in groups(APART.snapshot, known=Known(staying={"a.1", "b.1"}))} == {("c.1",)}


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


def test_a_pair_moves_together_where_each_alone_would_lose() -> None:
    """b and c exchange more with each other than with a."""
    cluster = Cluster(
        {"tm1": 1.0, "tm2": 0.9},
        {"a.1": 60.0, "b.1": 20.0, "c.1": 15.0},
        {"a.1": "tm1", "b.1": "tm2", "c.1": "tm2"},
        {"b": ["a"], "c": ["b"]},
    )
    (best, *_) = groups(cluster.snapshot)
    assert set(best.instances) == {"b.1", "c.1"}
    assert (best.origin, best.target, best.saved, best.unit) == ("tm2", "tm1", 100.0, "rows/s")
    assert set(best.moves) == {Move("b.1", "tm1"), Move("c.1", "tm1")}
    assert groups(replace(cluster, cores={"tm1": 0.9, "tm2": 0.5}).snapshot) == ()
    assert groups(cluster.snapshot, headroom=0.1) == ()


def test_traffic_is_in_bytes_where_all_streams_tell_theirs() -> None:
    given = APART.snapshot
    sized = replace(given, streams=tuple(replace(s, extra={BYTES.name: 5000.0}) for s in given.streams))
    assert {(group.saved, group.unit) for group in groups(sized)} == {(5000.0, "bytes/s")}
    mixed = replace(given, streams=(sized.streams[0], given.streams[1]))
    assert {group.unit for group in groups(mixed)} == {"rows/s"}


@given(snapshots(warming=False))
def test_a_group_saves_what_it_says_and_fits(snapshot: Snapshot) -> None:
    seen = observed(snapshot)
    channels, current = seen.problem.channels, seen.current
    before = inter_node_traffic(channels, current)
    found = groups(snapshot)
    assert [group.saved for group in found] == sorted((group.saved for group in found), reverse=True)
    for group in found:
        assert {current[instance] for instance in group.instances} == {group.origin}
        after = {**current, **dict.fromkeys(group.instances, group.target)}
        assert before - inter_node_traffic(channels, after) == pytest.approx(group.saved, rel=1e-6, abs=1e-6)
        node = next(node for node in seen.problem.nodes if node.id == group.target)
        assert sum(d.cpu for d in seen.problem.demands if after[d.id] == node.id) <= node.cpu + 1e-6


@given(snapshots(warming=False, most_managers=2))
def test_where_one_instance_alone_saves_some_group_does(snapshot: Snapshot) -> None:
    seen = observed(snapshot)
    demands = {demand.id: demand for demand in seen.problem.demands}
    best = 0.0
    for instance, node in combinations_of(seen.current, [n.id for n in seen.problem.nodes]):
        after = {**seen.current, instance: node}
        room = next(n for n in seen.problem.nodes if n.id == node).cpu
        if sum(demands[i].cpu for i, at in after.items() if at == node) <= room:
            saved = inter_node_traffic(seen.problem.channels, seen.current) - inter_node_traffic(
                seen.problem.channels, after
            )
            best = max(best, saved)
    found = groups(snapshot)
    assert (found[0].saved if found else 0.0) >= best - 1e-6 * max(best, 1.0)


def combinations_of(current: Mapping[str, str], nodes: list[str]) -> list[tuple[str, str]]:
    return [(instance, node) for instance in current for node in nodes if current[instance] != node]
