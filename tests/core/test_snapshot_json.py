from __future__ import annotations

import json
from copy import deepcopy
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.core.json_form import snapshot_from_json, snapshot_to_json
from qod_magics.core.snapshot import Snapshot
from qod_magics.errors import SnapshotError
from tests.policies.snapshots import snapshots
from tests.raising import breaks

ORACLES = Path(__file__).parents[1] / "recorded" / "stream_economics_oracles.jsonl"

GOOD: dict[str, Any] = {
    "task_managers": [{"id": "tm1", "cores": 1, "cpu": 93.5}, {"id": "tm2", "cores": 0.5, "cpu": 0}],
    "tasks": [
        {"id": "Src", "upstream": [], "external_rate": 1800.0, "priority": None, "min_accuracy": None},
        {"id": "Mid", "upstream": ["Src"], "external_rate": None, "priority": None, "min_accuracy": None},
        {"id": "Snk", "upstream": ["Src", "Mid"], "external_rate": None, "priority": 1, "min_accuracy": 0.4},
    ],
    "streams": [
        {"from": "Src", "to": "Mid", "out_rate": 1200.0},
        {"from": "Src", "to": "Snk", "out_rate": 1200.0},
        {"from": "Mid", "to": "Snk", "out_rate": 1200.0},
    ],
    "instances": [
        {"id": "Src.1", "task": "Src", "task_manager": "tm1", "in_rate": 1200.0, "cpu": 24.0, "warming_up": False},
        {"id": "Mid.1", "task": "Mid", "task_manager": "tm1", "in_rate": 1200.0, "cpu": 24.0, "warming_up": False},
        {"id": "Snk.1", "task": "Snk", "task_manager": "tm2", "in_rate": 1200.0, "cpu": 24.0, "warming_up": True},
    ],
}

#: where, the value put there (GONE: the key or row is taken out), the field that must be named, the rule it breaks
GONE = object()
BAD: list[tuple[str, object, str, str]] = [
    ("", [], "snapshot", "object"),
    ("", None, "snapshot", "object"),
    ("tasks", GONE, "tasks", "present"),
    ("tasks", {}, "tasks", "type"),
    ("tasks.1", "Mid", "tasks[1]", "object"),
    ("tasks.1.min_accuracy", GONE, "tasks[1].min_accuracy", "present"),
    ("task_managers.0.id", 7, "task_managers[0].id", "type"),
    ("task_managers.1.id", "tm1", "task_managers[1].id", "unique"),
    ("task_managers.0.cores", 0, "task_managers[0].cores", "measure"),
    ("task_managers.0.cores", -1, "task_managers[0].cores", "measure"),
    ("task_managers.0.cores", True, "task_managers[0].cores", "type"),
    ("task_managers.0.cores", "1", "task_managers[0].cores", "type"),
    ("task_managers.0.cores", None, "task_managers[0].cores", "type"),
    ("task_managers.0.cores", float("nan"), "task_managers[0].cores", "measure"),
    ("task_managers.0.cpu", float("inf"), "task_managers[0].cpu", "measure"),
    ("task_managers.0.cpu", 10**400, "task_managers[0].cpu", "type"),
    ("task_managers.0.cpu", -0.1, "task_managers[0].cpu", "measure"),
    ("tasks.1.id", "Src", "tasks[1].id", "unique"),
    ("tasks.2.upstream", "Src", "tasks[2].upstream", "type"),
    ("tasks.2.upstream.1", 3, "tasks[2].upstream[1]", "type"),
    ("tasks.2.upstream.1", "Src", "tasks[2].upstream[1]", "once"),
    ("tasks.2.upstream.1", "Mdi", "tasks[2].upstream[1]", "exists"),
    ("tasks.0.upstream", ["Snk"], "tasks[0].upstream", "acyclic"),
    ("tasks.0.upstream", ["Src"], "tasks[0].upstream", "acyclic"),
    ("tasks.0.external_rate", -5, "tasks[0].external_rate", "measure"),
    ("tasks.0.external_rate", "fast", "tasks[0].external_rate", "type"),
    ("tasks.1.external_rate", 5, "tasks[1].external_rate", "of a source"),
    ("tasks.2.priority", None, "tasks[2].priority", "restricted"),
    ("tasks.2.priority", 1.5, "tasks[2].priority", "type"),
    ("tasks.2.priority", True, "tasks[2].priority", "type"),
    ("tasks.1.priority", 3, "tasks[1].priority", "of a query"),
    ("tasks.2.min_accuracy", None, "tasks[2].min_accuracy", "restricted"),
    ("tasks.2.min_accuracy", 60, "tasks[2].min_accuracy", "fraction"),
    ("tasks.2.min_accuracy", -0.1, "tasks[2].min_accuracy", "fraction"),
    ("tasks.2.min_accuracy", float("nan"), "tasks[2].min_accuracy", "fraction"),
    ("tasks.0.min_accuracy", 0.5, "tasks[0].min_accuracy", "of a query"),
    ("streams.0.out_rate", float("-inf"), "streams[0].out_rate", "measure"),
    ("streams.0.out_rate", [], "streams[0].out_rate", "type"),
    ("streams.0.from", "Srx", "streams[0].from", "exists"),
    ("streams.0.to", "nowhere at all", "streams[0].to", "exists"),
    ("streams.2.from", "Src", "streams[2].from", "unique"),
    ("streams.2.from", "Snk", "streams[2].from", "an edge"),
    ("streams.2", GONE, "tasks[2].upstream[1]", "has a row"),
    ("instances.1.id", "Src.1", "instances[1].id", "unique"),
    ("instances.1.task", "Mod", "instances[1].task", "exists"),
    ("instances.1.task", ["Mid"], "instances[1].task", "type"),
    ("instances.1.task_manager", "tm9", "instances[1].task_manager", "exists"),
    ("instances.1.in_rate", -1, "instances[1].in_rate", "measure"),
    ("instances.1.cpu", "24 %", "instances[1].cpu", "type"),
    ("instances.1.cpu", float("nan"), "instances[1].cpu", "measure"),
    ("instances.1.warming_up", 0, "instances[1].warming_up", "type"),
    ("instances.1", GONE, "tasks[1].id", "has an instance"),
    ("instances.0.task_manager", "a\nb" * 90, "instances[0].task_manager", "exists"),
]


def changed(where: str, value: object) -> Any:
    whole = {"": deepcopy(GOOD)}
    *path, last = ["", *where.split(".")] if where else [""]
    here: Any = whole
    for step in path:
        here = here[int(step) if isinstance(here, list) else step]
    key = int(last) if isinstance(here, list) else last
    if value is GONE:
        del here[key]
    else:
        here[key] = value
    return whole[""]


@pytest.mark.parametrize(("where", "value", "field", "rule"), BAD, ids=[f"{i}-{b[0]}" for i, b in enumerate(BAD)])
def test_a_bad_field_is_named_on_one_line(where: str, value: object, field: str, rule: str) -> None:
    with pytest.raises(SnapshotError, check=breaks(rule, name=field)) as caught:
        snapshot_from_json(changed(where, value))
    assert len(str(caught.value)) < 400


def test_a_misspelt_key_is_found() -> None:
    obj = deepcopy(GOOD)
    obj["tasks"][2]["min_acuracy"] = obj["tasks"][2].pop("min_accuracy")
    with pytest.raises(SnapshotError, check=breaks(name="tasks[2].min_accuracy")):
        snapshot_from_json(obj)


def test_a_cycle_is_named_in_the_direction_of_its_rows() -> None:
    obj = deepcopy(GOOD)
    obj["tasks"][0]["upstream"] = ["Snk"]
    with pytest.raises(SnapshotError) as caught:
        snapshot_from_json(obj)
    cycle = caught.value.value
    assert isinstance(cycle, tuple)
    upstream = {task["id"]: task["upstream"] for task in obj["tasks"]}
    assert cycle[0] == cycle[-1]
    assert all(a in upstream[b] for a, b in pairwise(cycle))


def test_the_good_one_is_good() -> None:
    given = snapshot_from_json(GOOD)
    assert given.downstream == {"Src": ("Mid", "Snk"), "Mid": ("Snk",), "Snk": ()}
    assert given.instances[2].warming_up
    assert snapshot_to_json(given) == GOOD


@pytest.mark.parametrize("line", ORACLES.read_text(encoding="utf-8").splitlines())
def test_the_oracles_survive_a_round_trip(line: str) -> None:
    obj = json.loads(line)["snapshot"]
    assert snapshot_to_json(snapshot_from_json(obj)) == obj


@given(snapshots(wild=True))
def test_any_snapshot_survives_a_round_trip_through_text(given: Snapshot) -> None:
    text = json.dumps(snapshot_to_json(given), allow_nan=False)
    assert snapshot_from_json(json.loads(text)) == given


def test_unknown_keys_are_kept_and_ignored() -> None:
    obj = deepcopy(GOOD)
    obj["at"] = "noon"
    for table in ("task_managers", "tasks", "streams", "instances"):
        obj[table][0]["memory"] = {"heap": [1, 2]}
    given = snapshot_from_json(obj)
    assert given.tasks[0].unknown == {"memory": {"heap": [1, 2]}}
    assert snapshot_to_json(given) == obj


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
PLACES = [table if not key else f"{table}.0.{key}" for table in GOOD for key in ("", *GOOD[table][0])]


@given(st.sampled_from(PLACES), JSON)
def test_whatever_stands_in_a_field_it_is_read_or_refused_on_one_line(where: str, value: Any) -> None:
    said = ""
    try:
        snapshot_from_json(changed(where, value))
    except SnapshotError as error:
        said = str(error)
    assert len(said.splitlines()) <= 1
