"""Scenarios of segments as JSON, and what `simulate` prints of them."""

from __future__ import annotations

import json
from copy import deepcopy

import pytest

from qod_magics.core.engines import MS, S
from qod_magics.errors import ScenarioError, UsageProblem
from qod_magics.simulator.segments import SegmentScenario, simulated
from tests.raising import breaks
from tests.simulator.segments.clusters import SMALL, small
from tests.texts import tells


def test_times_are_whole_nanoseconds(tmp_path) -> None:
    path = tmp_path / "small.json"
    path.write_text(json.dumps(SMALL), encoding="utf-8")
    found = SegmentScenario.read(path)
    assert (found.slice, found.handoff, found.round, found.kinds[0].mean) == (10 * S, 4 * S, 2 * S, 10 * MS)
    assert [node.name for node in found.nodes] == ["node1", "node2", "node3"]


@pytest.mark.parametrize(
    ("changes", "name", "rule"),
    [
        ({"engine": "messages"}, "scenario.engine", "type"),
        ({"segments": {"kept": 0}}, "segments.kept", "type"),
        ({"segments": {"handoff_s": 10}}, "segments.handoff_s", "own"),
        ({"segments": {"bytes": [3, 2]}}, "segments.bytes", "own"),
        ({"nodes": []}, "scenario.nodes", "type"),
        ({"nodes": [{"cpus": 1}]}, "nodes[0].cpus", "known"),
        ({"queries": {"behind": [1, 1, 1, 1, 1]}}, "queries.behind", "own"),
        ({"queries": {"kinds": [{"name": "a", "share": 1, "ms": 0}]}}, "queries.kinds[0].ms", "type"),
        ({"warm_up_s": 40}, "scenario.warm_up_s", "own"),
        ({"policies": {"getafix": True}}, "policies.getafix", "type"),
        ({"clients": {"queries_per_s": "many"}}, "clients.queries_per_s", "type"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(changes, name, rule) -> None:
    with pytest.raises(ScenarioError, check=breaks(rule, name=name)):
        small(**changes)


def test_a_missing_file_and_a_missing_field_are_named(tmp_path) -> None:
    with pytest.raises(ScenarioError, check=breaks("readable")):
        SegmentScenario.read(tmp_path / "none.json")
    value = deepcopy(SMALL)
    del value["deep_storage"]
    with pytest.raises(ScenarioError, check=breaks("present", name="deep_storage")):
        SegmentScenario.from_json(value)


def test_the_summary_tells_latency_copies_memory_and_loads() -> None:
    text = simulated({**SMALL, "policies": {"uniform": {"copies": 3}}}, "uniform")
    lines = text.splitlines()
    assert tells(lines[0], "40 s", 3, 4, 2, "uniform")
    assert lines[1].startswith("latency ")
    assert tells(lines[2], "3.00")
    assert lines[3].startswith("20 rounds: 9 loads of ")  # three new segments
    assert "under getafix" in simulated(SMALL)


def test_a_policy_that_replicates_nothing_is_named() -> None:
    with pytest.raises(UsageProblem, check=breaks("exists", name="stela")):
        simulated(SMALL, "stela")
